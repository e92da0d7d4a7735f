"""CapacityHolds in a testbed, made by hand as the operator would make them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from elbowroom.core.quantity import millicores
from kubernetes import client

from .waiting import until

if TYPE_CHECKING:
    from .namespace import Json, Namespace
    from .testbed import Testbed

GROUP = ("elbowroom.dev", "v1alpha1")
_KIND = (*GROUP, "capacityholds")


def reference(found: Json) -> Json:
    """Name one object, and not another that has its name later."""
    meta = found["metadata"]
    return {"namespace": meta.get("namespace", "default"), "name": meta["name"], "uid": meta["uid"]}


class Holds:
    """Holds for pods of one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        """Say where claimants and neighbours are."""
        self.namespace = namespace
        self._api = client.CustomObjectsApi(namespace.testbed.api)
        self._made: list[str] = []

    def create(
        self,
        claimant: Json,
        cpu: str,
        *,
        payers: dict[str, Json] | None = None,
        node: str | None = None,
        lasts: float = 300,
        **spec: object,
    ) -> str:
        """Make a hold; `payers` are neighbours by the names of their receivers."""
        name = str(claimant["metadata"]["uid"])
        expires = (datetime.now(UTC) + timedelta(seconds=lasts)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        request = {"namespace": self.namespace.name, "name": "grow", "uid": secrets.token_hex(8)}
        body = {
            "apiVersion": "/".join(GROUP), "kind": "CapacityHold", "metadata": {"name": name},
            "spec": {
                "node": node or claimant["spec"]["nodeName"], "claimant": reference(claimant), "request": request,
                "target": {"cpu": cpu, "memory": "64Mi"}, "expiresAt": expires,
                "payers": [{"pod": reference(pod), "receiver": receiver} for receiver, pod in (payers or {}).items()],
                **spec,
            },
        }  # fmt: skip
        self._api.create_cluster_custom_object(*_KIND, body)
        self._made.append(name)
        return name

    def moves(self, pod: Json, receiver: str, *, hold: str | None = None) -> None:
        """Have a migration say that this pod's guest goes to that receiver: for a hold's request, or by hand."""
        for_request = {
            "request": self.get(hold)["spec"]["request"], "pod": reference(pod), "receiver": receiver,
        } if hold else {}  # fmt: skip
        meta = {"name": receiver, "namespace": self.namespace.name}
        body = {
            "apiVersion": "/".join(GROUP),
            "kind": "VMMigration",
            "metadata": meta,
            "spec": {"vm": "web", **for_request},
        }
        where = (*GROUP, self.namespace.name, "vmmigrations")
        self._api.create_namespaced_custom_object(*where, body)
        source = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "node": pod["spec"]["nodeName"]}
        status = {"phase": "Binding", "source": source, "receiver": {"name": receiver}}
        self._api.patch_namespaced_custom_object_status(*where, receiver, {"status": status})

    def get(self, name: str) -> Json:
        """Return a hold."""
        return self.namespace.testbed.plain(self._api.get_cluster_custom_object(*_KIND, name))

    def patch(self, name: str, **spec: object) -> None:
        """Change a hold."""
        self._api.patch_cluster_custom_object(*_KIND, name, {"spec": spec})

    def delete(self, name: str) -> None:
        """Take a hold away."""
        self._api.delete_cluster_custom_object(*_KIND, name)
        self._made.remove(name)

    def until(self, name: str, phase: str, *, within: float = 20) -> Json:
        """Wait for what the scheduler says, about the spec as it is now."""

        def probe() -> Json:
            found = self.get(name)
            status: Json = found.get("status", {})
            said = (status.get("phase"), status.get("observedGeneration"))
            assert said == (phase, found["metadata"]["generation"]), status
            return status

        return until(f"the hold {name} is {phase}", probe, within=within)

    def until_short(self, name: str, cpu: int, *, within: float = 10) -> Json:
        """Wait until the scheduler says that so much is lacking, in thousandths of a core."""

        def probe() -> Json:
            status: Json = self.get(name).get("status", {})
            assert millicores(status.get("shortfall", {}).get("cpu", "-1")) == cpu, status
            return status

        return until(f"the hold {name} lacks {cpu}m", probe, within=within)

    def close(self) -> None:
        """Take all holds away that are left."""
        for name in list(self._made):
            self.delete(name)


def install(testbed: Testbed, root: object) -> None:
    """Install the kinds, and what the scheduler may do with them."""
    testbed.kubectl("apply", "-f", f"{root}/crds", "-f", f"{root}/scheduler/config/rbac.yaml")
    testbed.kubectl("wait", "--for=condition=Established", "--timeout=20s", "-f", f"{root}/crds")
