"""The problem that Elbowroom solves, on a real Kubernetes: a resize that stays Deferred on a full node.

Run by `make demo`. Everything shown is read from the cluster's own objects.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
TESTBED, KUBECTL = ROOT / "bin" / "testbed", ROOT / "bin" / "kubectl"
MANIFEST = ROOT / "examples" / "full-node.yaml"
CLAIMANT, NEIGHBOUR = "db", "cache"
NEW_SIZE = {"cpu": "4", "memory": "4Gi"}
PATIENCE = 60.0
LOOK_AGAIN = 0.1

COLUMNS = {
    "POD": ".metadata.name",
    "NODE": ".spec.nodeName",
    "PHASE": ".status.phase",
    "WANTS-CPU": ".spec.containers[0].resources.requests.cpu",
    "HAS-CPU": ".status.containerStatuses[0].allocatedResources.cpu",
    "WANTS-MEM": ".spec.containers[0].resources.requests.memory",
    "HAS-MEM": ".status.containerStatuses[0].allocatedResources.memory",
    "RESIZE": '.status.conditions[?(@.type=="PodResizePending")].reason',
}

Pod = dict[str, Any]


def indented(text: str) -> None:
    """Print what a program has printed."""
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


class DemoError(Exception):
    """Something that was to be shown did not happen."""


class Demo:
    """The story, one method per step."""

    def __init__(self, directory: Path) -> None:
        """Remember where the cluster lives."""
        self.directory = directory
        self.environment = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig")}
        self.started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a step of the story, with the time."""
        print(f"\n[{time.monotonic() - self.started:5.1f} s] {text}", flush=True)

    def kubectl(self, *arguments: str, show: bool = True) -> str:
        """Run kubectl, and show the command and what it printed."""
        done = subprocess.run(
            [str(KUBECTL), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            raise DemoError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        if show:
            print(
                f"  $ kubectl {' '.join(argument if ' ' not in argument else repr(argument) for argument in arguments)}"
            )
            indented(done.stdout)
        return done.stdout

    def pod(self, name: str) -> Pod:
        """Read a pod."""
        found: Pod = json.loads(self.kubectl("get", "pod", name, "-o", "json", show=False))
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
        """Start a cluster, or use the one that is there."""
        self.say("A Kubernetes of our own: two nodes with 4 CPUs and 8Gi each.")
        running = subprocess.run(
            [str(TESTBED), "status", "--dir", str(self.directory)], capture_output=True, check=False
        )
        if running.returncode != 0:
            command = [
                str(TESTBED),
                "up",
                "--detach",
                "--nodes",
                "2",
                "--cpu",
                "4",
                "--memory",
                "8Gi",
                "--dir",
                str(self.directory),
            ]
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
                raise DemoError("the cluster did not start; what it said is above")
        self.kubectl("delete", "pod", "--all", "--timeout=30s", show=False)
        self.kubectl(
            "get",
            "nodes",
            "-o",
            "custom-columns=NODE:.metadata.name,VERSION:.status.nodeInfo.kubeletVersion,CPU:.status.allocatable.cpu,MEMORY:.status.allocatable.memory",
        )

    def full_node(self) -> None:
        """Fill the first node with two VMs' pods."""
        self.say(f"The first node is full: {CLAIMANT} and {NEIGHBOUR} have 2 CPUs each. The second node is empty.")
        self.kubectl("apply", "-f", str(MANIFEST.relative_to(ROOT)))
        self.kubectl("wait", "pod", CLAIMANT, NEIGHBOUR, "--for=condition=Ready", "--timeout=30s", show=False)
        self.show_pods()

    def deferred(self) -> None:
        """Ask for more, and watch the kubelet say no."""
        size = f"{NEW_SIZE['cpu']} CPUs and {NEW_SIZE['memory']}"
        self.say(f"{CLAIMANT} needs {size}. Kubernetes can resize a pod in place, so let us ask:")
        sizes = {"requests": NEW_SIZE, "limits": NEW_SIZE}
        patch = {"spec": {"containers": [{"name": "main", "resources": sizes}]}}
        self.kubectl("patch", "pod", CLAIMANT, "--subresource=resize", "-p", json.dumps(patch))
        self.until("the kubelet has answered", lambda: self.pending() == "Deferred")
        self.show_pods()
        self.kubectl(
            "get", "pod", CLAIMANT, "-o", 'jsonpath={.status.conditions[?(@.type=="PodResizePending")].message}{"\\n"}'
        )

    def pending(self) -> str:
        """Return the reason why the claimant's resize waits, or nothing."""
        conditions = self.pod(CLAIMANT)["status"].get("conditions", [])
        return next((str(item.get("reason")) for item in conditions if item["type"] == "PodResizePending"), "")

    def waiting(self) -> None:
        """Show that time alone does not help."""
        self.say(f"It stays so. Nothing in Kubernetes moves {NEIGHBOUR} to the empty node: it would have to be killed.")
        deadline = time.monotonic() + 5
        self.until("five seconds are over", lambda: time.monotonic() > deadline)
        if self.pending() != "Deferred":
            raise DemoError("the resize was granted, though the node is full")
        self.kubectl(
            "get", "pod", CLAIMANT, "-o", 'jsonpath={.status.conditions[?(@.type=="PodResizePending")].reason}{"\\n"}'
        )

    def killed(self) -> None:
        """Make room the only way there is today."""
        self.say(f"Room comes only when {NEIGHBOUR} is gone, with all that was in its memory:")
        self.kubectl("delete", "pod", NEIGHBOUR, "--timeout=30s")
        took = self.until("the resize is granted", lambda: not self.pending() and self.allocated() == NEW_SIZE["cpu"])
        print(f"  {CLAIMANT} has its new size {took:.1f} s later.")
        self.show_pods()

    def allocated(self) -> str:
        """Return how many CPUs the claimant really has."""
        return str(self.pod(CLAIMANT)["status"]["containerStatuses"][0]["allocatedResources"]["cpu"])

    def show_pods(self) -> None:
        """Show who is where, what was asked for and what the kubelet has given."""
        columns = ",".join(f"{title}:{path}" for title, path in COLUMNS.items())
        indented(self.kubectl("get", "pods", "-o", f"custom-columns={columns}", show=False))

    def ending(self) -> None:
        """Say what this was about, and how to go on."""
        self.say(
            "That is the problem. Elbowroom's answer: move the neighbour to the empty node while it runs, and give"
        )
        print("  the room it leaves to exactly the pod that asked. This is being built; see docs/ and CHANGELOG.md.")
        print(f"\n  The cluster is yours:  export KUBECONFIG={self.directory}/kubeconfig")
        print("                         bin/kubectl get pods -A")
        print("  Stop it:               make demo-down")

    def run(self) -> None:
        """Tell the whole story."""
        for step in (self.cluster, self.full_node, self.deferred, self.waiting, self.killed, self.ending):
            step()


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
