"""What a large cluster costs the operator: its start, its memory, its decisions, its calls.

Run by `make bench-scale` (NODES=1000 PODS=20000 REQUESTS=200); writes docs/benchmarks/scale.md and ends with one line. API
server, etcd and scheduler are real. So many kubelets cannot run here: what they say is said by `MockKubelets`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import yaml
from elbowroom.cluster.client import Api
from prometheus_client.parser import text_string_to_metric_families
from support.holds import install
from support.operators import SYSTEM
from support.testbed import ROOT, Testbed
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NODES = int(os.environ.get("NODES", "1000"))
PODS = int(os.environ.get("PODS", "20000"))
REQUESTS = int(os.environ.get("REQUESTS", "200"))
PORT = 19090
SPACE = "load"
AT_ONCE = 64
Json = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
ROOMY = {"cpu": "16", "memory": "64Gi"}
TARGET = ROOT / "docs" / "benchmarks"


# What the cluster is filled with


def node(number: int) -> Json:
    """Describe a node that nobody runs."""
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": f"load-{number}", "labels": {"kubernetes.io/hostname": f"load-{number}", "kubernetes.io/os": "linux"}},
        "status": {
            "capacity": {**ROOMY, "pods": "250"}, "allocatable": {**ROOMY, "pods": "250"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "said by nobody", "lastHeartbeatTime": now(), "lastTransitionTime": now()}
            ],
        },
    }  # fmt: skip


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name: str, on: str, cpu: int, *, vm: bool) -> Json:
    """Describe a pod as large as pods usually are."""
    settings = {"kernel": "/guest/vmlinuz", "cpus": 1, "maxCpus": 16, "memory": "1Gi", "maxMemory": "16Gi"}
    env = [{"name": f"SETTING_{index}", "value": f"a value of some length, number {index}"} for index in range(12)]
    if vm:
        env.append({"name": "ELBOWROOM_VM", "value": yaml.safe_dump(settings)})
    size = {"cpu": f"{cpu}m", "memory": "1Gi"}
    labels = {"app": "load", "team": "bench", "pod-template-hash": "5d9c7b6f8c"}
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {**labels, **({"elbowroom.dev/vm": name, "elbowroom.dev/movable": "true"} if vm else {})},
            "annotations": {f"example.com/note-{index}": "x" * 60 for index in range(4)},
        },
        "spec": {
            "nodeName": on, "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main", "image": "registry.example/app:1.2.3", "env": env, "resources": {"requests": size, "limits": {"memory": "2Gi"}},
                    "ports": [{"containerPort": 8080}], "readinessProbe": probe, "livenessProbe": probe,
                    "volumeMounts": [{"name": f"v{index}", "mountPath": f"/data/{index}"} for index in range(3)],
                }
            ],
            "volumes": [{"name": f"v{index}", "emptyDir": {}} for index in range(3)],
            "tolerations": [{"operator": "Exists"}],
        },
    }  # fmt: skip


def running(found: Json) -> Json:
    """Return what a kubelet would say of a pod that has what it asks for."""
    size = found["spec"]["containers"][0]["resources"]
    return {
        "status": {
            "phase": "Running", "startTime": now(), "podIP": "10.1.2.3", "observedGeneration": found["metadata"]["generation"],
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now(), "observedGeneration": found["metadata"]["generation"]}
                for kind in ("Ready", "ContainersReady", "Initialized", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": "main", "image": "registry.example/app:1.2.3", "imageID": "sha256:0", "containerID": "mock://0", "ready": True,
                    "restartCount": 0, "started": True, "state": {"running": {"startedAt": now()}},
                    "allocatedResources": size["requests"], "resources": size,
                }
            ],
        }
    }  # fmt: skip


@dataclass(frozen=True)
class Load:
    """The pods, and who of them will grow."""

    pods: list[tuple[str, str, int, bool]]
    roomy: list[str]
    """Claimants whose nodes have room."""
    crowded: list[str]
    """Claimants whose nodes are full of VMs."""


def planned() -> Load:
    """Spread the pods evenly. A part of the nodes is full, of VMs that may be moved, and a claimant on each."""
    each = PODS // NODES
    full = min(REQUESTS, NODES // 10)
    pods: list[tuple[str, str, int, bool]] = []
    roomy: list[str] = []
    crowded: list[str] = []
    for number in range(NODES):
        for index in range(each):
            name, claims = f"pod-{number}-{index}", index == 0
            crowd = number < full
            if claims and crowd:
                crowded.append(name)
            elif claims and len(roomy) < REQUESTS:
                roomy.append(name)
            pods.append((name, f"load-{number}", 16_000 // each if crowd else 100, crowd and not claims))
    return Load(pods, roomy, crowded)


async def at_once(work: Iterable[Any]) -> None:
    """Do many things, some of them at a time."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> None:
        async with limit:
            await item

    await asyncio.gather(*(one(item) for item in work))


async def fill(api: Api, load: Load) -> None:
    """Make it all."""

    async def running_pod(name: str, on: str, cpu: int, vm: bool) -> None:  # noqa: FBT001
        made = await api.create(f"/api/v1/namespaces/{SPACE}/pods", pod(name, on, cpu, vm=vm))
        await say_running(api, made)

    await at_once(api.create("/api/v1/nodes", node(number)) for number in range(NODES))
    await at_once(running_pod(*item) for item in load.pods)


async def say_running(api: Api, found: Json) -> None:
    """Say in a kubelet's stead that a pod has what it asks for."""
    path = f"/api/v1/namespaces/{SPACE}/pods/{found['metadata']['name']}/status"
    await api.patch(path, running(found), STRATEGIC)


class MockKubelets:
    """Grants every resize at once, as kubelets do that have room."""

    def __init__(self, api: Api) -> None:
        """Take a way to the API server."""
        self._api = api

    async def run(self) -> None:
        """Look on until cancelled, over as many watches as it takes: each ends after a while."""
        path = f"/api/v1/namespaces/{SPACE}/pods"
        version = (await self._api.get(path, limit="1"))["metadata"]["resourceVersion"]
        while True:
            async for line in self._api.watch(path, resourceVersion=version):
                event = json.loads(line)
                assert event["type"] != "ERROR", event
                found: Json = event["object"]
                version = found["metadata"]["resourceVersion"]
                seen = found.get("status", {}).get("observedGeneration", 0)
                if event["type"] == "MODIFIED" and found["metadata"]["generation"] > seen:
                    await say_running(self._api, found)


# The operator, and what it says of itself


class Watched:
    """An operator, started as on any machine, with the rights of its own account."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        """Start it."""
        self._log = folder / "operator.log"
        kubeconfig = account(testbed, folder / "kubeconfig")
        self.began = time.monotonic()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [ROOT / ".venv" / "bin" / "elbowroom", "operator", "--namespace", SYSTEM, "--metrics-port", str(PORT)],
                env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def until_ready(self) -> float:
        """Return the seconds from its start to its own word that it knows everything."""

        def ready() -> bool:
            assert self.process.poll() is None, self._log.read_text()[-3000:]
            return '"message": "ready"' in self._log.read_text()

        until("the operator is ready", ready, within=300)
        return time.monotonic() - self.began

    def megabytes(self, what: str) -> int:
        """Return its memory: `VmRSS` now, or `VmHWM` at its most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{what}:\s+(\d+)", status)
        assert found is not None, status
        return int(found[1]) // 1024

    @staticmethod
    def metrics() -> dict[str, list[Any]]:
        """Return what it counts."""
        with urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found: dict[str, list[Any]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
        return found

    def calls(self) -> int:
        """Return how many calls to the API server it has made."""
        return int(sum(sample.value for sample in self.metrics().get("elbowroom_api_calls_total", ())))

    def decisions(self) -> dict[float, int]:
        """Return how many decisions took at most so many seconds."""
        samples = self.metrics().get("elbowroom_decision_seconds_bucket", ())
        return {float(sample.labels["le"]): int(sample.value) for sample in samples}

    def end(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


def account(testbed: Testbed, path: Path) -> Path:
    """Write a kubeconfig that speaks as the operator's account."""
    found = yaml.safe_load(testbed.kubeconfig.read_text())
    token = testbed.kubectl("-n", SYSTEM, "create", "token", "elbowroom-operator", "--duration=2h").strip()
    found["users"] = [{"name": found["users"][0]["name"], "user": {"token": token}}]
    path.write_text(yaml.safe_dump(found))
    return path


def percentile(buckets: dict[float, int], share: float) -> float:
    """Return a bound, in milliseconds, that this share of the decisions has kept: the bucket's upper end."""
    total = max(buckets.values(), default=0)
    assert total, "no decision was made"
    return 1000 * next(bound for bound, count in sorted(buckets.items()) if count >= share * total)


def since(after: dict[float, int], before: dict[float, int]) -> dict[float, int]:
    """Return what has been added."""
    return {bound: count - before.get(bound, 0) for bound, count in after.items()}


@contextmanager
def client(testbed: Testbed) -> Iterator[Api]:
    """Speak to the API server as its administrator."""
    config = testbed.api.configuration
    context = ssl.create_default_context(cafile=config.ssl_ca_cert)
    context.load_cert_chain(config.cert_file, config.key_file)
    yield Api(config.host, context)


# One wave of requests


def request(name: str, claimant: str, *, dry: bool) -> Json:
    """Describe a request for half a core more, or, on a full node, for a plan of how to make room for two."""
    cpu = "2400m" if dry else "600m"
    return {
        "apiVersion": "elbowroom.dev/v1alpha1", "kind": "VMScaleRequest", "metadata": {"name": name},
        "spec": {"pod": claimant, "resources": {"cpu": cpu}, "dryRun": dry},
    }  # fmt: skip


@dataclass(frozen=True)
class Wave:
    """What many requests at once have cost."""

    count: int
    seconds: float
    calls: float
    p99_ms: float
    neighbours: float


async def wave(api: Api, operator: Watched, kubelets: asyncio.Task[None], claimants: list[str], *, dry: bool) -> Wave:
    """Make requests at once, and wait for the last."""
    folder = f"/apis/elbowroom.dev/v1alpha1/namespaces/{SPACE}/vmscalerequests"
    prefix = "plan" if dry else "grow"
    calls, decisions, began = operator.calls(), operator.decisions(), time.monotonic()
    await at_once(api.create(folder, request(f"{prefix}-{name}", name, dry=dry)) for name in claimants)
    while True:
        items = [item for item in (await api.get(folder))["items"] if item["metadata"]["name"].startswith(f"{prefix}-")]
        phases = [item.get("status", {}).get("phase") for item in items]
        if phases.count("Succeeded") == len(claimants):
            break
        assert not kubelets.done(), kubelets.exception()
        assert time.monotonic() - began < 600, {phase: phases.count(phase) for phase in set(phases)}  # noqa: PLR2004
        assert "Failed" not in phases, next(item["status"] for item in items if item["status"]["phase"] == "Failed")
        await asyncio.sleep(0.25)
    seconds = time.monotonic() - began
    moved = [len(item["status"].get("plan", {}).get("neighbours", ())) for item in items]
    return Wave(
        len(claimants), seconds, (operator.calls() - calls) / len(claimants),
        percentile(since(operator.decisions(), decisions), 0.99), sum(moved) / len(moved),
    )  # fmt: skip


async def certified(api: Api, vms: int) -> float:
    """Wait until each VM has its certificate, as in a cluster in which the operator has been for a while."""
    began = time.monotonic()
    while True:
        there, more = 0, ""
        while True:
            page = await api.get(
                f"/api/v1/namespaces/{SPACE}/secrets", limit="500", **({"continue": more} if more else {})
            )
            there += len(page["items"])
            more = page["metadata"].get("continue", "")
            if not more:
                break
        if there >= vms:
            return time.monotonic() - began
        assert time.monotonic() - began < 900, f"{there} of {vms} certificates"  # noqa: PLR2004
        await asyncio.sleep(1)


async def measure(testbed: Testbed, folder: Path) -> tuple[str, str]:
    """Fill, start, ask, and return the page's table and the closing line."""
    load = planned()
    with client(testbed) as api:
        began = time.monotonic()
        await fill(api, load)
        print(f"{NODES} nodes and {PODS} pods made in {time.monotonic() - began:.0f} s", flush=True)
        kubelets = asyncio.create_task(MockKubelets(api).run())
        vms = sum(item[3] for item in load.pods)
        operator = await asyncio.to_thread(Watched, testbed, folder)
        try:
            first = await asyncio.to_thread(operator.until_ready)
            print(f"ready after {first:.1f} s, {operator.megabytes('VmRSS')} MB", flush=True)
            took = await certified(api, vms)
            print(f"{vms} certificates after {took:.0f} s more", flush=True)
            grow = await wave(api, operator, kubelets, load.roomy, dry=False)
            print(f"{grow}", flush=True)
            plan = await wave(api, operator, kubelets, load.crowded, dry=True)
            print(f"{plan}", flush=True)
            resident, most = operator.megabytes("VmRSS"), operator.megabytes("VmHWM")
        finally:
            await asyncio.to_thread(operator.end)
            kubelets.cancel()
            await asyncio.gather(kubelets, return_exceptions=True)
            await api.close()
    p99 = max(grow.p99_ms, plan.p99_ms)
    row = (
        f"| {NODES:,} | {PODS:,} | {first:.1f} | {resident} ({most}) | {p99:g} | {grow.calls:.1f} | "
        f"{grow.count} in {grow.seconds:.1f} s | {plan.count} in {plan.seconds:.1f} s, {plan.neighbours:.1f} neighbours each |"
    )
    line = f"scale ready_s={first:.1f} rss_mb={most} decide_p99_ms={p99:g} calls_per_request={grow.calls:.1f}"
    return row, line


PAGE = """# What a large cluster costs the operator

`make bench-scale`: API server, etcd and scheduler are real and share two cores with the operator; kubelets are not there, and a
mock says in their stead that resizes are granted. Pods are about 4 kB each as JSON. First requests that fit grow pods on as many nodes at once, from the
request to the released hold; then requests with `dryRun` ask at once how to make room on nodes that are full of VMs.
"Ready" is the time from the start of the process until it knows everything. Memory is resident at the end (at its most). A decision is one
look at one request or migration; its figure is the upper end of the histogram's bucket. Calls are those that the operator makes to the API
server for one request that grows a pod, with its events, its leadership and all else that it does meanwhile.

Measured on {day}. The aim for 5,000 nodes and 100,000 pods is 30 s, 500 MB and 10 ms.

| nodes | pods | ready, s | memory, MB | decision p99, ms | calls per request | grown | planned |
|---|---|---|---|---|---|---|---|
{rows}
"""


def write(row: str) -> None:
    """Keep the rows of other sizes, and write this one anew."""
    path = TARGET / "scale.md"
    kept = [line for line in path.read_text().splitlines() if re.match(r"\| [\d,]+ \|", line)] if path.exists() else []
    size = row.split("|")[1:3]
    rows = [*(line for line in kept if line.split("|")[1:3] != size), row]
    rows.sort(key=lambda line: int(line.split("|")[1].replace(",", "")))
    path.write_text(PAGE.format(day=f"{datetime.now(UTC):%Y-%m-%d}", rows="\n".join(rows)))


def main() -> int:
    """Measure, write, and end with one line."""
    # No kubelet sends a heartbeat: nodes must not be taken for dead.
    flags = ("--node-grace", "24h")
    with tempfile.TemporaryDirectory() as folder, Testbed(Path(folder) / "bed", nodes=1, flags=flags) as testbed:
        install(testbed, ROOT)
        testbed.kubectl("apply", "-f", f"{ROOT}/examples/operator.yaml")
        testbed.kubectl("-n", SYSTEM, "delete", "deployment", "--all", "--timeout=30s")
        testbed.kubectl("create", "namespace", SPACE)
        until("the namespace has its account", lambda: _has_account(testbed))
        row, line = asyncio.run(measure(testbed, Path(folder)))
    write(row)
    print(line)
    return 0


def _has_account(testbed: Testbed) -> bool:
    return "default" in testbed.kubectl("-n", SPACE, "get", "serviceaccounts", "-o", "name")


if __name__ == "__main__":
    sys.exit(main())
