"""What the guard costs: how soon it answers, a storm of bindings, and the scheduler's throughput with it and without.

Run by `make bench-guard` (NODES=5000 HOLDS=1000 PAIRS=5); writes docs/benchmarks/guard.md and ends with one line. API server,
scheduler, operator and webhook are real; nodes have no kubelets, and their claimants are said to run by a mock.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from scale import SPACE, TARGET, Json, at_once, client, node, pod, say_running
from support.holds import GROUP, install, reference
from support.inside import Inside
from support.operators import GUARD_PORT, SYSTEM, start_operator
from support.processes import command_line, processes
from support.testbed import ROOT, Testbed
from support.waiting import until

if TYPE_CHECKING:
    from elbowroom.cluster.client import Api

NODES = int(os.environ.get("NODES", "5000"))
HOLDS = int(os.environ.get("HOLDS", "1000"))
PAIRS = int(os.environ.get("PAIRS", "5"))
PODS = 2000
STORM, SECONDS = 500, 30
SHARE_HELD = 0.1
"""How many of the questions are about nodes on which room is held. The guard has to look their pods up."""
QUIET_SECONDS, QUIET_WRITES = 4, 20
KINDS = "/apis/elbowroom.dev/v1alpha1"


# The cluster


async def fill(api: Api) -> None:
    """Make nodes, claimants on some of them, and their holds, all for a request that waits."""
    suspended = {"pod": "nobody", "resources": {"cpu": "2"}, "suspend": True, "deadline": "24h"}
    body = {"apiVersion": "/".join(GROUP), "kind": "VMScaleRequest", "metadata": {"name": "waits"}, "spec": suspended}
    request = reference(await api.create(f"{KINDS}/namespaces/{SPACE}/vmscalerequests", body))
    await at_once(api.create("/api/v1/nodes", node(number)) for number in range(NODES))
    expires = (datetime.now(UTC) + timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def hold(number: int) -> None:
        path = f"/api/v1/namespaces/{SPACE}/pods"
        made = await api.create(path, pod(f"claimant-{number}", f"load-{number}", 1000, vm=False))
        await say_running(api, made)
        spec = {
            "node": f"load-{number}", "claimant": reference(made), "request": request, "expiresAt": expires,
            "target": {"cpu": "2", "memory": "1Gi"}, "had": {"cpu": "1", "memory": "1Gi"}, "committed": True,
        }  # fmt: skip
        meta = {"name": made["metadata"]["uid"]}
        held = {"apiVersion": "/".join(GROUP), "kind": "CapacityHold", "metadata": meta, "spec": spec}
        await api.create(f"{KINDS}/capacityholds", held)

    await at_once(hold(number) for number in range(HOLDS))


async def until_said(api: Api) -> None:
    """Wait until the scheduler has said of all holds that it keeps them: until then everybody is busy with that."""
    began = time.monotonic()
    while True:
        phases = [item.get("status", {}).get("phase") for item in (await api.get(f"{KINDS}/capacityholds"))["items"]]
        if phases.count("Held") == HOLDS:
            break
        assert time.monotonic() - began < 120, {phase: phases.count(phase) for phase in set(phases)}  # noqa: PLR2004
        await asyncio.sleep(1)


async def until_quiet(api: Api) -> None:
    """Wait until the controllers have done with so many new nodes: each is written several times."""
    began, before, calm = time.monotonic(), 0, 0
    while calm < QUIET_SECONDS:
        await asyncio.sleep(1)
        now = int((await api.get("/api/v1/nodes", limit="1"))["metadata"]["resourceVersion"])
        calm = calm + 1 if now - before < QUIET_WRITES else 0
        before = now
        assert time.monotonic() - began < 300, "somebody goes on writing"  # noqa: PLR2004
    print(f"quiet after {time.monotonic() - began:.0f} s", flush=True)


# Questions


def questions(found: Json, count: int) -> list[tuple[bytes, bool]]:
    """Return reviews as the API server sends them, of a pod as it has it, and whether each has to be refused."""
    chance = random.Random(1)
    grown = json.loads(json.dumps(found))
    grown["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    made: list[tuple[bytes, bool]] = []
    for number in range(count):
        held = chance.random() < SHARE_HELD
        on = f"load-{chance.randrange(HOLDS) if held else chance.randrange(HOLDS, NODES)}"
        kind = chance.random()
        parts: tuple[str, str, Json, Json | None]
        if kind < 0.8:  # noqa: PLR2004  # four of five
            parts = ("pods", "binding", {"metadata": {"name": "waiting"}, "target": {"kind": "Node", "name": on}}, None)
        else:
            new, old = ({**side, "spec": {**side["spec"], "nodeName": on}} for side in (grown, found))
            parts = ("pods", "resize", new, old)
        made.append((_review(number, *parts), held))
    return made


def _review(number: int, resource: str, sub: str, new: Json, old: Json | None) -> bytes:
    version = {"group": "", "version": "v1"}
    request = {
        "uid": f"5a2b8e1c-0000-4000-8000-{number:012d}", "kind": {**version, "kind": "Pod"},
        "resource": {**version, "resource": resource}, "subResource": sub, "requestKind": {**version, "kind": "Pod"},
        "requestResource": {**version, "resource": resource}, "requestSubResource": sub, "name": "waiting",
        "namespace": SPACE, "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old, "dryRun": False,
        "userInfo": {"username": "jane", "uid": "1", "groups": ["system:authenticated", "developers"]},
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl"},
    }  # fmt: skip
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


class Asker:
    """Asks one guard over connections that stay open, as the API server does."""

    def __init__(self, address: str, authority: str) -> None:
        """Say whom."""
        self._url = f"https://{address}:{GUARD_PORT}/admit"
        self._context = ssl.create_default_context(cadata=authority)

    async def ask(self, session: aiohttp.ClientSession, text: bytes, refused: bool) -> float:  # noqa: FBT001
        """Ask one question, check the answer, and return how long that took, in milliseconds."""
        began = time.perf_counter()
        host = f"elbowroom-guard.{SYSTEM}.svc"
        async with session.post(self._url, data=text, ssl=self._context, server_hostname=host) as answer:
            body = await answer.json()
        took = 1000 * (time.perf_counter() - began)
        assert answer.status == 200, body  # noqa: PLR2004
        assert body["response"]["allowed"] is not refused, body
        return took

    async def in_turn(self, asked: list[tuple[bytes, bool]]) -> list[float]:
        """Ask one after the other."""
        async with aiohttp.ClientSession() as session:
            return [await self.ask(session, *item) for item in asked]

    async def storm(self, asked: list[tuple[bytes, bool]]) -> list[float]:
        """Ask so many a second, whatever the answers take, for half a minute."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            began, running = time.monotonic(), []
            for number in range(STORM * SECONDS):
                due = began + number / STORM
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                running.append(asyncio.create_task(self.ask(session, *asked[number % len(asked)])))
            return await asyncio.gather(*running)


# The scheduler


async def throughput(testbed: Testbed, api: Api, name: str) -> float:
    """Return how many pods a second are bound, from the first to the last, when all wait as the scheduler begins."""
    path = f"/api/v1/namespaces/{SPACE}/pods"

    def waiting(number: int) -> Json:
        made = pod(f"{name}-{number}", "", 100, vm=False)
        del made["spec"]["nodeName"]
        made["metadata"]["labels"]["wave"] = name
        return made

    await asyncio.to_thread(testbed.cli, "kill", "kube-scheduler")
    await at_once(api.create(path, waiting(number)) for number in range(PODS))
    version = (await api.get(path, limit="1"))["metadata"]["resourceVersion"]
    starting = asyncio.create_task(asyncio.to_thread(testbed.cli, "restart", "kube-scheduler"))
    first, bound = 0.0, set[str]()
    async with asyncio.timeout(180):
        async for line in api.watch(path, resourceVersion=version, labelSelector=f"wave={name}"):
            found = json.loads(line)["object"]
            if found.get("spec", {}).get("nodeName"):
                first = first or time.monotonic()
                bound.add(found["metadata"]["name"])
            if len(bound) == PODS:
                break
    took = time.monotonic() - first
    await starting
    return PODS / took


async def wave(testbed: Testbed, api: Api, name: str) -> float:
    """Measure once, and clear away. Nobody runs these pods, so there is nobody to wait for."""
    rate = await throughput(testbed, api, name)
    command = ("-n", SPACE, "delete", "pods", "-l", f"wave={name}", "--grace-period=0", "--force", "--wait=false")
    await asyncio.to_thread(testbed.kubectl, *command, within=120)
    return rate


async def compare(testbed: Testbed, api: Api) -> tuple[list[float], list[float]]:
    """Measure in turns with the guard's webhook and without it."""
    on, off = list[float](), list[float]()
    await wave(testbed, api, "warm-up")
    for turn in range(PAIRS):
        for guarded in (True, False) if turn % 2 else (False, True):
            await asyncio.to_thread(_switch, testbed, guarded)
            rate = await wave(testbed, api, f"wave-{turn}-{'on' if guarded else 'off'}")
            (on if guarded else off).append(rate)
            print(f"{'with' if guarded else 'without'} the guard: {rate:.0f} pods/s", flush=True)
    return on, off


def _switch(testbed: Testbed, guarded: bool) -> None:  # noqa: FBT001
    if guarded:
        testbed.kubectl("apply", "-f", str(ROOT / "examples" / "guard.yaml"))
        path = "jsonpath={.webhooks[0].clientConfig.caBundle}"
        command = ("get", "validatingwebhookconfiguration", "elbowroom-guard", "-o", path)
        until("the API server trusts the guard", lambda: testbed.kubectl(*command))
    else:
        testbed.kubectl("delete", "validatingwebhookconfiguration", "elbowroom-guard", "--ignore-not-found")


# Putting it together


@dataclass(frozen=True)
class Result:
    """What came out."""

    calm: list[float]
    storm: list[float]
    before_mb: float
    after_mb: float
    on: list[float]
    off: list[float]

    @property
    def ratio(self) -> float:
        """Return the median of the pairs' ratios."""
        return statistics.median(one / other for one, other in zip(self.on, self.off, strict=True))


def percentile(times: list[float], share: float) -> float:
    """Return what this share of them stays below."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def megabytes(pid: str) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def measure(testbed: Testbed, inside: Inside) -> Result:
    """Fill, ask, storm, compare."""
    with client(testbed) as api:

        async def work() -> Result:
            began = time.monotonic()
            await fill(api)
            print(f"{NODES} nodes and {HOLDS} holds made in {time.monotonic() - began:.0f} s", flush=True)
            await asyncio.to_thread(start_operator, testbed, guard={})
            path = f"/api/v1/namespaces/{SPACE}/pods"
            made = pod("waiting", "", 100, vm=False)
            del made["spec"]["nodeName"]
            made["spec"]["schedulerName"] = "nobody"
            await until_said(api)
            await until_quiet(api)
            asked = questions(await api.create(path, made), 5000)
            asker = Asker(*await asyncio.to_thread(_where, testbed))
            pid = next(item.name for item in processes() if "elbowroom guard" in command_line(item.name))
            await asyncio.to_thread(inside.run, asker.in_turn(asked[:500]), within=60)
            calm = await asyncio.to_thread(inside.run, asker.in_turn(asked), within=300)
            held = [took for took, (_, refused) in zip(calm, asked, strict=True) if refused]
            print(
                f"p99 {percentile(calm, 0.99):.1f} ms, of those looked up {percentile(held, 0.5):.1f} and {percentile(held, 0.99):.1f}",
                flush=True,
            )
            before = megabytes(pid)
            stormy = await asyncio.to_thread(inside.run, asker.storm(asked), within=300)
            after = megabytes(pid)
            print(
                f"storm: p99 {percentile(stormy, 0.99):.1f} ms, {before:.0f} MB before, {after:.0f} after", flush=True
            )
            on, off = await compare(testbed, api)
            await api.close()
            return Result(calm, stormy, before, after, on, off)

        return asyncio.run(work())


def _where(testbed: Testbed) -> tuple[str, str]:
    selector = "app.kubernetes.io/name=elbowroom-operator"
    found = testbed.plain(testbed.core.list_namespaced_pod(SYSTEM, label_selector=selector))["items"][0]
    secret = testbed.kubectl("-n", SYSTEM, "get", "secret", "elbowroom-authority", "-o", 'go-template={{index .data "authority.crt" | base64decode}}')  # fmt: skip
    return found["status"]["podIP"], secret


def page(found: Result) -> str:
    """Write the page."""
    rows = [
        f"| {name} | {statistics.median(times):.1f} | {percentile(times, 0.99):.1f} | {max(times):.1f} |"
        for name, times in (("one after the other", found.calm), (f"{STORM} a second for {SECONDS} s", found.storm))
    ]
    return f"""# What the guard costs

`make bench-guard`: {NODES:,} nodes, {HOLDS:,} of them with a hold. Reviews are what an API server sends, over TLS connections that stay open: four of five are bindings,
the others resizes with both of their sides, and one of ten is about a node on which room is held, whose pod the guard has to look up. Every answer is checked. Client,
guard, API server and scheduler share {os.cpu_count()} cores.

Measured on {datetime.now(UTC):%Y-%m-%d}.

| questions | median, ms | p99, ms | longest, ms |
|---|---|---|---|
{chr(10).join(rows)}

The guard has {found.before_mb:.0f} MB before the storm of {STORM * SECONDS:,} questions and {found.after_mb:.0f} MB after it.

The scheduler places {PODS:,} pods in turns with the guard's webhook and without it, {PAIRS} times each: {statistics.median(found.on):.0f} and {statistics.median(found.off):.0f}
pods a second, a ratio of {found.ratio:.2f} (pair by pair from {min(a / b for a, b in zip(found.on, found.off, strict=True)):.2f} to {max(a / b for a, b in zip(found.on, found.off, strict=True)):.2f}). Bindings of a scheduler that keeps to holds by itself do not go through the guard.
"""


def main() -> int:
    """Measure, write, and say it in a line."""
    flags = ("--node-grace", "24h")  # no kubelet sends a heartbeat: nodes must not be taken for dead
    with tempfile.TemporaryDirectory() as folder, Testbed(Path(folder) / "bed", nodes=1, flags=flags) as testbed:
        install(testbed, ROOT)
        testbed.kubectl("create", "namespace", SPACE)
        until(
            "the namespace has its account",
            lambda: "default" in testbed.kubectl("-n", SPACE, "get", "sa", "-o", "name"),
        )
        with Inside(testbed) as inside:
            found = measure(testbed, inside)
    (TARGET / "guard.md").write_text(page(found))
    print(f"guard p99_ms={percentile(found.calm, 0.99):.1f} throughput_ratio={found.ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
