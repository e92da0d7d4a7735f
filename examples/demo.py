"""A VM grows on a full node because its neighbour is moved: the whole story on a real Kubernetes, with real guests.

Run by `make demo`. Everything shown is read from the cluster's own objects.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
TESTBED, KUBECTL = ROOT / "bin" / "testbed", ROOT / "bin" / "kubectl"
EXAMPLES, GUEST = ROOT / "examples", ROOT / ".cache" / "guest"
CLAIMANT, NEIGHBOUR, THIEF, REQUEST = "db", "web", "thief", "grow-db"
FULL_NODE = "node-1"
PATIENCE = 90.0
LOOK_AGAIN = 0.1
PODS = {
    "POD": ".metadata.name",
    "NODE": ".spec.nodeName",
    "PHASE": ".status.phase",
    "WANTS-CPU": ".spec.containers[0].resources.requests.cpu",
    "HAS-CPU": ".status.containerStatuses[0].allocatedResources.cpu",
    "WANTS-MEM": ".spec.containers[0].resources.requests.memory",
    "HAS-MEM": ".status.containerStatuses[0].allocatedResources.memory",
}
NODES = {
    "NODE": ".metadata.name",
    "VERSION": ".status.nodeInfo.kubeletVersion",
    "CPU": ".status.allocatable.cpu",
    "MEMORY": ".status.allocatable.memory",
}
WANTED_CPUS = 4
Json = dict[str, Any]


class DemoError(Exception):
    """Something that was to be shown did not happen."""


def columns(titles: dict[str, str]) -> str:
    """Return kubectl's argument for a table of these."""
    return "custom-columns=" + ",".join(f"{title}:{path}" for title, path in titles.items())


def indented(text: str) -> None:
    """Print what a program has printed."""
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


class Demo:
    """The story, one method per step."""

    def __init__(self, directory: Path) -> None:
        """Remember where the cluster lives."""
        self.directory = directory
        self.environment = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig")}
        self.started = time.monotonic()
        self.happened: list[tuple[float, str, str, str]] = []
        self.console: subprocess.Popen[str] | None = None

    def say(self, text: str) -> None:
        """Print a step of the story, with the time."""
        print(f"\n[{time.monotonic() - self.started:5.1f} s] {text}", flush=True)

    def kubectl(self, *arguments: str, show: bool = False, stdin: str | None = None) -> str:
        """Run kubectl, and show the command and what it printed."""
        done = subprocess.run(
            [str(KUBECTL), *arguments], env=self.environment, input=stdin, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise DemoError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        if show:
            print(f"  $ kubectl {' '.join(part if ' ' not in part else repr(part) for part in arguments)}")
            indented(done.stdout)
        return done.stdout

    def get(self, kind: str, name: str) -> Json:
        """Read an object."""
        found: Json = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def until(self, what: str, probe: Callable[[], bool]) -> float:
        """Wait for something, and return how long it took."""
        began = time.monotonic()
        while not probe():
            if time.monotonic() - began > PATIENCE:
                raise DemoError(f"not within {PATIENCE:g} s: {what}")
            time.sleep(LOOK_AGAIN)
        return time.monotonic() - began

    def cluster(self) -> None:
        """Start a cluster with Elbowroom in it, or use the one that is there."""
        self.say(
            "A Kubernetes of our own: two nodes with 4 CPUs and 8Gi each, Elbowroom's scheduler, and its operator."
        )
        running = subprocess.run(
            [str(TESTBED), "status", "--dir", str(self.directory)], capture_output=True, check=False
        )
        if running.returncode != 0:
            command = [
                str(TESTBED), "up", "--detach", "--nodes", "2", "--cpu", "4", "--memory", "8Gi",
                "--image", f"elbowroom.test/runner={ROOT}/.venv/bin", "--dir", str(self.directory),
            ]  # fmt: skip
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                raise DemoError("the cluster did not start; what it said is above")
        self.kubectl("apply", "-f", str(ROOT / "crds"), "-f", str(ROOT / "scheduler" / "config" / "rbac.yaml"))
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
        self.kubectl("apply", "-f", str(EXAMPLES / "operator.yaml"))
        self.kubectl("delete", "vmsr,vmm", "--all", "--timeout=60s")
        self.kubectl("delete", "pod", "--all", "--timeout=60s")
        self.kubectl("get", "nodes", "-o", columns(NODES), show=True)

    def full_node(self) -> None:
        """Fill the first node with two VMs, and have somebody wait for room there."""
        self.say(f"{FULL_NODE} is full: two VMs with 2 CPUs each. The other node is empty. A third pod waits for room.")
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([vm(CLAIMANT), vm(NEIGHBOUR), thief()]))
        print("  (guests boot; the operator makes their certificates)", flush=True)
        self.kubectl("wait", "pod", CLAIMANT, NEIGHBOUR, "--for=condition=Ready", "--timeout=80s")
        self.show_pods()
        self.until("the neighbour's guest counts", lambda: self.count(NEIGHBOUR) > 0)
        print(f"  The guest of {NEIGHBOUR} counts, fifty times a second: it is at {self.count(NEIGHBOUR)}.")
        # Its pod will be gone, and its log with it.
        self.console = subprocess.Popen(
            [str(KUBECTL), "logs", "-f", NEIGHBOUR], env=self.environment, stdout=subprocess.PIPE, text=True
        )

    def request(self) -> None:
        """Ask for more."""
        self.say(f"{CLAIMANT} needs 4 CPUs and 1Gi. Kubernetes would call that Deferred, or kill somebody. Instead:")
        self.asked = time.monotonic()
        self.kubectl("apply", "-f", str((EXAMPLES / "grow.yaml").relative_to(ROOT)), show=True)

    def follow(self) -> None:
        """Show each change of the request, as `kubectl get vmsr -w` would."""
        print("  $ kubectl get vmsr grow-db -w")
        indented(f"{'PHASE':<12} {'REASON':<18} {'MOVING':<12} SECONDS")
        self.until("the request is over", self.look)
        status = self.get("vmsr", REQUEST)["status"]
        if status["phase"] != "Succeeded":
            raise DemoError(
                f"the request ended as {status['phase']}: {status.get('reason')} {status.get('message', '')}"
            )

    def look(self) -> bool:
        """Print where the request is, if that is news."""
        status = self.get("vmsr", REQUEST).get("status", {})
        now = (status.get("phase", "Pending"), status.get("reason", ""), status.get("moving", ""))
        if not self.happened or self.happened[-1][1:] != now:
            self.happened.append((time.monotonic() - self.asked, *now))
            indented(f"{now[0]:<12} {now[1]:<18} {now[2]:<12} {self.happened[-1][0]:.1f}")
        return now[0] in ("Succeeded", "Failed", "Cancelled", "PartiallyMoved")

    def outcome(self) -> None:
        """Show what has become of everybody."""
        receiver = self.get("vmsr", REQUEST)["status"]["plan"]["neighbours"][0]["receiver"]
        self.say(f"{CLAIMANT} has its size, {NEIGHBOUR} runs on the other node, and nobody else got the room:")
        self.show_pods()
        self.until("the neighbour's guest counts on", lambda: self.count(receiver) > 0)
        assert self.console is not None  # noqa: S101  # opened when the node was filled
        last = int(re.findall(r"guest n=(\d+)", self.console.communicate(timeout=PATIENCE)[0])[-1])
        first = self.count(receiver, first=True)
        # It may move in the middle of a line: then one half of that is in each log.
        between = f" ({last + 1} on the way)" if first == last + 2 else ""
        print(f"  The guest of {NEIGHBOUR} counted to {last} on {FULL_NODE}, and on from {first} elsewhere{between}.")
        if not last < first <= last + 2:
            raise DemoError("that is a gap")
        self.until("the claimant's guest has four vCPUs", lambda: self.guest(CLAIMANT)[0] == WANTED_CPUS)
        cpus, memory = self.guest(CLAIMANT)
        print(f"  The guest of {CLAIMANT} has {cpus} vCPUs and {memory} MiB now, and was not restarted.")
        told = next(item for item in self.get("pod", THIEF)["status"]["conditions"] if item["type"] == "PodScheduled")
        print(f"  {THIEF} still waits: {told['message']}")

    def table(self) -> None:
        """Show what took how long."""
        self.say("What happened, and when (seconds after kubectl apply):")
        lines = [f"{'SECONDS':>7}  WHAT"]
        events = json.loads(self.kubectl("get", "events", "-o", "json"))["items"]
        lines += [f"{at:7.1f}  {what}" for at, what in story(events, self.wall_clock())]
        indented("\n".join(lines))
        migration = json.loads(self.kubectl("get", "vmm", "-o", "json"))["items"][0]["status"]
        moved, stood_still = migration["transferredBytes"] / 2**20, migration["downtimeMilliseconds"]
        print(f"\n  {moved:.0f} MiB were moved; the guest stood still for {stood_still} ms, as QEMU says.")

    def wall_clock(self) -> float:
        """Return when the request was made, by the clock that events have."""
        return time.time() - (time.monotonic() - self.asked)

    def count(self, pod: str, *, first: bool = False) -> int:
        """Return how far a guest has counted in a pod, or where it began there."""
        found = re.findall(r"guest n=(\d+)", self.kubectl("logs", pod))
        return int(found[0 if first else -1]) if found else 0

    def guest(self, pod: str) -> tuple[int, int]:
        """Return the vCPUs and the memory that a guest says it has."""
        found = re.findall(r"cpus=(\d+) mem_mib=(\d+)", self.kubectl("logs", pod, "--tail=20"))
        return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)

    def show_pods(self) -> None:
        """Show who is where, what was asked for and what the kubelet has given."""
        indented(self.kubectl("get", "pods", "-o", columns(PODS)))

    def ending(self) -> None:
        """Say how to go on."""
        print(f"\n  The cluster is yours:  export KUBECONFIG={self.directory}/kubeconfig")
        print("                         bin/kubectl describe vmsr grow-db")
        print("                         bin/kubectl -n elbowroom-system port-forward deploy/elbowroom-operator 8090")
        print("                         and then the live page is at http://localhost:8090")
        print("  Stop it:               make demo-down")

    def run(self) -> None:
        """Tell the whole story."""
        for step in (
            self.cluster, self.full_node, self.request, self.follow, self.outcome, self.table, self.ending,
        ):  # fmt: skip
            step()


def vm(name: str) -> Json:
    """Describe a VM of the demo: examples/vm.yaml, on the full node, with two CPUs."""
    described: Json = copy.deepcopy(next(yaml.safe_load_all((EXAMPLES / "vm.yaml").read_text())))
    described["metadata"]["name"] = described["metadata"]["labels"]["elbowroom.dev/vm"] = name
    spec = described["spec"]
    spec["nodeName"] = FULL_NODE
    spec["containers"][0]["resources"]["requests"] = {"cpu": "2", "memory": "448Mi"}
    for volume in spec["volumes"]:
        if volume["name"] == "certificate":
            volume["secret"]["secretName"] = f"elbowroom-vm-{name}"
        if volume["name"] == "guest":
            volume["hostPath"]["path"] = str(GUEST)
    return described


def thief() -> Json:
    """Describe a pod that would like one CPU of the full node."""
    container = {
        "name": "main", "image": "elbowroom.test/shell", "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }  # fmt: skip
    where = {"nodeSelector": {"kubernetes.io/hostname": FULL_NODE}, "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": THIEF},
        "spec": {"containers": [container], **where},
    }


def story(events: list[Json], began: float) -> list[tuple[float, str]]:
    """Return what the operator has said about the request and its migration, with the seconds since it was made."""
    told: list[tuple[float, str]] = []
    for event in events:
        if event["involvedObject"]["kind"] in ("VMScaleRequest", "VMMigration"):
            moment = datetime.fromisoformat(event["eventTime"]).timestamp()
            told.append((moment - began, f"{event['involvedObject']['name']}: {event['message']}"))
    first: dict[str, tuple[float, str]] = {}
    for at, what in sorted(told):
        first.setdefault(what.partition(": ")[2], (at, what))  # what a request says because its migration does
    return list(first.values())


def main() -> int:
    """Run the demo; a failure is one sentence and exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where the cluster lives")
    directory = parser.parse_args().dir.resolve()
    try:
        Demo(directory).run()
    except (DemoError, subprocess.TimeoutExpired) as error:
        print(f"The demo stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
