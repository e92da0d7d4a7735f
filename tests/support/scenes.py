"""A scene: a namespace with VMs and requests in a cluster with an operator, and a witness who judges at the end."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elbowroom.core.quantity import millicores, quantity_bytes

from .namespace import IDLE, Size, condition, fresh_namespace, pod
from .operators import SYSTEM, Requests
from .vms import Vms, new_authority
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elbowroom.drivers.interface import VirtualMachine

    from .inside import Inside
    from .namespace import Json, Namespace
    from .testbed import Testbed
    from .witness import Witness

SLOWLY = {"bandwidth": "12Mi"}
"""A transfer in whose middle something can happen."""


@dataclass(frozen=True)
class Scene:
    """All that a test needs."""

    space: Namespace
    vms: Vms
    requests: Requests
    witness: Witness

    def boot(self, **cpus: str) -> list[VirtualMachine]:
        """Start VMs on the first node, whose certificates the operator makes, and wait until their guests count."""
        self.space.apply(*(self.described(name, cpu) for name, cpu in cpus.items()))
        found = [self.vms.until_ready(name) for name in cpus]
        for vm in found:
            self.vms.until_ticking(vm, more=5)
        return found

    def described(self, name: str, cpu: str) -> Json:
        """Describe a VM that asks for so much."""
        found = self.vms.pod(name, node="node-1")
        found["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        return found

    def fill(self, node: str, name: str = "filler", *, keep: str = "0") -> None:
        """Put a plain pod on a node that takes all of its cpu but so much."""
        self.space.start(pod(name, IDLE, cpu=f"{self.free(node).cpu - millicores(keep)}m", nodeName=node))

    def fill_memory(self, node: str, name: str = "filler", *, keep: str = "0") -> None:
        """Put a plain pod on a node that takes all of its memory but so much."""
        left = self.free(node).memory - quantity_bytes(keep)
        self.space.start(pod(name, IDLE, cpu="10m", memory=f"{left >> 20}Mi", nodeName=node))

    def free(self, node: str) -> Size:
        """Return what nobody has asked for on a node."""
        allocatable = Size.of(self.space.testbed.node(node)["status"]["allocatable"])
        assert allocatable is not None
        there = self.space.testbed.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node}")
        used = [
            Size.of({"cpu": "0", "memory": "0", **container.get("resources", {}).get("requests", {})})
            for found in self.space.testbed.plain(there)["items"] if found["status"]["phase"] not in ("Succeeded", "Failed")
            for container in found["spec"]["containers"]
        ]  # fmt: skip
        return Size(
            allocatable.cpu - sum(size.cpu for size in used if size),
            allocatable.memory - sum(size.memory for size in used if size),
        )

    def guest(self, name: str) -> VirtualMachine:
        """Return the VM in a pod."""
        return self.vms.driver.describe(self.space.pod(name))

    def has(self, name: str, container: str | None = None) -> Size:
        """Return what the kubelet has given a pod's container."""
        found = self.space.pod(name)
        statuses: list[Json] = found["status"]["containerStatuses"]
        given = next(item for item in statuses if container is None or item["name"] == container)
        size = Size.of(given["allocatedResources"])
        assert size is not None
        return size

    def until_moving(self, *phases: str, more_than: int = 0) -> Json:
        """Wait until a migration of this scene is in one of these phases, and has copied so many percent."""

        def probe() -> Json:
            found = [
                item for item in self.requests.all("vmmigrations") if item.get("status", {}).get("phase") in phases
            ]
            assert found, [item.get("status", {}).get("phase") for item in self.requests.all("vmmigrations")]
            assert found[0]["status"].get("percent", 0) >= more_than, found[0]["status"]
            return found[0]

        return until(f"a migration is {phases}", probe, within=60)

    def until_copying(self) -> Json:
        """Wait until a guest is being copied."""
        return self.until_moving("Transferring", more_than=1)

    def until_reason(self, name: str, reason: str, *, within: float = 60) -> Json:
        """Wait until a request says this."""

        def probe() -> Json:
            found = self.requests.get(name)
            assert found.get("status", {}).get("reason") == reason, found.get("status")
            return found

        return until(f"{name} says {reason}", probe, within=within)

    def home_of(self, vm: str) -> Json:
        """Return the one pod in which a VM lives, once there is one only."""

        def probe() -> Json:
            found = self.space.core.list_namespaced_pod(self.space.name, label_selector=f"elbowroom.dev/vm={vm}")
            pods: list[Json] = [
                item for item in self.space.testbed.plain(found)["items"]
                if item["status"]["phase"] not in ("Succeeded", "Failed")
            ]  # fmt: skip
            assert len(pods) == 1, [item["metadata"]["name"] for item in pods]
            assert condition(pods[0], "Ready").get("status") == "True", pods[0]["status"]
            return pods[0]

        return until(f"{vm} is in one pod", probe, within=60)

    def lives(self, vm: str) -> str:
        """Check that a VM's guest counts on, and return its node."""
        found = self.home_of(vm)
        self.vms.until_ticking(self.vms.driver.describe(found))
        return str(found["spec"]["nodeName"])

    def away_from_operator(self) -> str:
        """Return a node that may be lost without losing the operator, and is not the first one."""
        found = self.operators()
        return next(
            name for name in ("node-2", "node-3") if all(item["spec"].get("nodeName") != name for item in found)
        )

    def operators(self) -> list[Json]:
        """Return the operator's pods."""
        found: list[Json] = self.space.testbed.plain(self.space.core.list_namespaced_pod(SYSTEM))["items"]
        return found

    def events(self, name: str) -> list[str]:
        """Return the events about an object, as `kubectl describe` would."""
        found = self.space.core.list_namespaced_event(self.space.name, field_selector=f"involvedObject.name={name}")
        return [f"{item.reason}: {item.message}" for item in found.items]


@contextmanager
def scene(testbed: Testbed, inside: Inside, witness: Witness, title: str) -> Iterator[Scene]:
    """Make a scene, and clean up after it."""
    with fresh_namespace(testbed, title) as space:
        vms = Vms(space, inside, new_authority())
        try:
            yield Scene(space, vms, Requests(space), witness)
        finally:
            vms.close()
