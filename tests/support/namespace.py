"""A namespace of one test, and short ways to make and watch things in it."""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from elbowroom.core.quantity import millicores, quantity_bytes
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .testbed import Testbed

Json = dict[str, Any]
NOT_FOUND = 404


@dataclass(frozen=True)
class Size:
    """What a container has, or wants: thousandths of a core and bytes."""

    cpu: int
    memory: int

    @classmethod
    def of(cls, resources: Json | None) -> Size | None:
        """Read a resource list as Kubernetes writes it."""
        if not resources:
            return None
        return cls(millicores(resources["cpu"]), quantity_bytes(resources["memory"]))


def pod(
    name: str,
    command: str | list[str],
    *,
    cpu: str = "100m",
    memory: str = "64Mi",
    node: str | None = None,
    **spec: Any,
) -> Json:
    """Describe a pod with one container, sized the same in requests and limits."""
    args = ["sh", "-c", command] if isinstance(command, str) else command
    container = {
        "name": "main", "image": spec.pop("image", "elbowroom.test/shell"), "command": args,
        "resources": {kind: {"cpu": cpu, "memory": memory} for kind in ("requests", "limits")}, **spec.pop("container", {}),
    }  # fmt: skip
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **where, **spec},
    }  # fmt: skip


def priority_class(name: str, value: int = 1000) -> Json:
    """Describe a priority above that of other pods."""
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


# Ends at once when asked to, as a well-behaved server does.
IDLE = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


class Namespace:
    """One test's namespace."""

    def __init__(self, testbed: Testbed, name: str) -> None:
        """Take an existing namespace."""
        self.testbed, self.name, self.core = testbed, name, testbed.core

    def apply(self, *objects: Json) -> None:
        """Create or change objects, as kubectl does."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def kubectl(self, *arguments: str, within: float = 60, stdin: str | None = None) -> str:
        """Run kubectl in this namespace."""
        return self.testbed.kubectl("-n", self.name, *arguments, within=within, stdin=stdin)

    def pod(self, name: str) -> Json:
        """Return a pod, or an empty object when it is gone."""
        try:
            found = self.testbed.plain(self.core.read_namespaced_pod(name, self.name))
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return {}
        return found

    def start(self, *descriptions: Json) -> list[Json]:
        """Create pods and wait until they are ready."""
        self.apply(*descriptions)
        return [self.until_ready(description["metadata"]["name"]) for description in descriptions]

    def until_ready(self, name: str, *, within: float = 30) -> Json:
        """Wait until a pod is ready."""

        def probe() -> Json:
            found = self.pod(name)
            assert condition(found, "Ready").get("status") == "True", describe(found)
            return found

        return until(f"pod {name} is ready", probe, within=within)

    def until_phase(self, name: str, phase: str, *, within: float = 30) -> Json:
        """Wait until a pod is in a phase."""

        def probe() -> Json:
            found = self.pod(name)
            assert found.get("status", {}).get("phase") == phase, describe(found)
            return found

        return until(f"pod {name} is {phase}", probe, within=within)

    def until_gone(self, name: str, *, within: float = 30) -> None:
        """Wait until a pod does not exist any more."""
        until(f"pod {name} is gone", lambda: not self.pod(name), within=within)

    def resize(self, name: str, *, cpu: str, memory: str) -> None:
        """Ask for an in-place resize of a pod's container."""
        sizes = {kind: {"cpu": cpu, "memory": memory} for kind in ("requests", "limits")}
        self.core.patch_namespaced_pod_resize(
            name, self.name, {"spec": {"containers": [{"name": "main", "resources": sizes}]}}
        )

    def until_resized(self, name: str, size: Size, *, within: float = 30) -> Json:
        """Wait until the kubelet says that spec, allocated and actual sizes are all the same."""

        def probe() -> Json:
            found = self.pod(name)
            assert resized(found, size), describe(found)
            return found

        return until(f"pod {name} has {size}", probe, within=within)

    def until_deferred(self, name: str, *, within: float = 30) -> Json:
        """Wait until the kubelet says that a resize has to wait, and return its condition."""

        def probe() -> Json:
            pending = condition(self.pod(name), "PodResizePending")
            assert pending.get("reason") == "Deferred", describe(self.pod(name))
            return pending

        return until(f"the resize of pod {name} is Deferred", probe, within=within)


def condition(found: Json, kind: str) -> Json:
    """Return a condition of an object, or nothing."""
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    return next((item for item in conditions if item["type"] == kind), {})


def resized(found: Json, size: Size) -> bool:
    """Tell whether a resize is over: "no condition" alone is also the state before the kubelet has looked."""
    status = found["status"]
    main = status["containerStatuses"][0]
    return (
        status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        and not condition(found, "PodResizePending")
        and not condition(found, "PodResizeInProgress")
        and Size.of(main.get("allocatedResources")) == size
        and Size.of(main.get("resources", {}).get("requests")) == size
    )


def describe(found: Json) -> str:
    """Say in a line what a pod is doing, for messages."""
    if not found:
        return "it does not exist"
    status = found.get("status", {})
    told = [
        f"{item['type']}={item['status']} {item.get('reason', '')} {item.get('message', '')}".strip()
        for item in status.get("conditions", [])
    ]
    containers = [
        {key: item.get(key) for key in ("state", "allocatedResources", "resources")}
        for item in status.get("containerStatuses", [])
    ]
    return f"phase {status.get('phase')}, conditions {told}, containers {containers}"


@contextmanager
def fresh_namespace(testbed: Testbed, title: str) -> Iterator[Namespace]:
    """Make a namespace, and take it away with all that is in it."""
    base = re.sub(r"[^a-z0-9]+", "-", title.removeprefix("test_").lower())[:50].strip("-")
    name = f"{base}-{secrets.token_hex(3)}"
    testbed.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    try:
        default_account_exists(testbed, name)
        yield Namespace(testbed, name)
    finally:
        # No grace: what a pod does when it is asked to end is a test's business, not the clean-up's. The pods' room is
        # free again when they are gone, which the next test may count on.
        testbed.kubectl("-n", name, "delete", "pods", "--all", "--grace-period=1", "--wait=false")
        testbed.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
        until(f"no pod is left in {name}", lambda: not testbed.core.list_namespaced_pod(name).items, within=60)


def default_account_exists(testbed: Testbed, namespace: str) -> None:
    """Wait for what pods need: a controller makes it a moment after the namespace."""
    selector = "metadata.name=default"
    until(
        f"namespace {namespace} has its default service account",
        lambda: testbed.core.list_namespaced_service_account(namespace, field_selector=selector).items,
    )
