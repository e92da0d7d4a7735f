"""One function per action. Each may be carried out twice, late or never: its precondition makes that harmless."""

from __future__ import annotations

import logging
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

import msgspec

from elbowroom.api.migration import MigrationSpec
from elbowroom.core import actions as to_do
from elbowroom.core import conditions
from elbowroom.core.duration import seconds
from elbowroom.core.quantity import quantity_bytes
from elbowroom.core.request import migrations_of
from elbowroom.core.world import Check
from elbowroom.drivers.interface import RefusedError, TransferLimits, UnreachableError
from elbowroom.runner import messages
from elbowroom.spans import place

from . import kinds, pods, slim
from .client import STRATEGIC_PATCH, ConflictError, DeniedError, NotFoundError
from .view import TAINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.core.room import Room
    from elbowroom.core.world import Migration, Pod
    from elbowroom.drivers.interface import Driver, VirtualMachine

    from .client import Api
    from .view import View

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_OURS: Final = f"/apis/{kinds.API_VERSION}"
HOLDS: Final = f"{_OURS}/capacityholds"


def path_of(body: Json) -> str:
    """Return where an object of ours is."""
    meta = body["metadata"]
    if body["kind"] == "CapacityHold":
        return f"{HOLDS}/{meta['name']}"
    plural = "vmscalerequests" if body["kind"] == "VMScaleRequest" else "vmmigrations"
    return f"{_OURS}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


def pod_path(namespace: str, name: str) -> str:
    """Return where a pod is."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def as_it_was(version: str, *changes: Json) -> list[Json]:
    """Return a patch that is refused with a conflict where the object has changed."""
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *changes]


class Actor:
    """Carries out what the core has decided."""

    def __init__(self, api: Api, driver: Driver, view: View, clock: Callable[[], float]) -> None:
        """Take what it acts with."""
        self._api, self._driver, self._view, self._clock = api, driver, view, clock
        self._put = {
            "VMScaleRequest": view.put_request, "VMMigration": view.put_migration, "CapacityHold": view.put_hold,
        }  # fmt: skip
        self._drop = {
            "VMScaleRequest": view.drop_request, "VMMigration": view.drop_migration, "CapacityHold": view.drop_hold,
        }  # fmt: skip

    @singledispatchmethod
    async def do(self, action: to_do.Action) -> None:
        """Carry out one action. ApiError and DriverError say why it could not be."""
        raise TypeError(f"nobody knows how to {action}")

    # Our own objects

    def _body(self, uid: str) -> Json:
        """Return one of our objects, which may have gone since something was decided about it."""
        body = self._view.bodies.get(uid)
        if body is None:
            raise NotFoundError(404, f"the object with the UID {uid} is gone")
        return body

    async def _change(self, body: Json, changes: list[Json], part: str = "") -> Json:
        """Change one of our objects, and take the answer in. What has gone or changed meanwhile is looked at again."""
        try:
            changed = await self._api.patch(path_of(body) + part, changes)
        except NotFoundError:
            self._drop[body["kind"]](body["metadata"]["uid"])
            raise
        except ConflictError:
            await self.look_again(body)
            raise
        self._put[body["kind"]](changed)
        return changed

    async def look_again(self, body: Json) -> None:
        """Read one of our objects: the watch may be behind."""
        try:
            found = await self._api.get(path_of(body))
        except NotFoundError:
            found = None
        if found is None or found["metadata"]["uid"] != body["metadata"]["uid"]:
            self._drop[body["kind"]](body["metadata"]["uid"])
        else:
            self._put[body["kind"]](found)

    async def adopt(self, body: Json) -> None:
        """Put our finalizer on an object: from here on it does not go before we have put things back."""
        meta = body["metadata"]
        finalizers = [*meta.get("finalizers", ()), kinds.FINALIZER]
        change = {"op": "add", "path": "/metadata/finalizers", "value": finalizers}
        await self._change(body, as_it_was(meta["resourceVersion"], change))

    @do.register
    async def _(self, action: to_do.WriteRequest) -> None:
        view, now = self._view, self._clock()
        body = self._body(action.uid)
        request = view.store.requests[action.uid]
        moving = migrations_of(view.store, request)
        guard = () if view.guarded is None else (conditions.of_guard(up=view.guarded),)
        told = {
            "conditions": kinds.conditions(body, (*conditions.of_request(action.status, moving), *guard), now),
            "moving": self._moving(moving),
        }
        status = kinds.request_status(body, action.status, self._claimant(body, action.status.claimant), told)
        await self._change(
            body, as_it_was(action.version, {"op": "add", "path": "/status", "value": status}), "/status"
        )

    def _claimant(self, body: Json, uid: str) -> Json | None:
        known: Json | None = body.get("status", {}).get("pod")
        pod = self._view.store.pod(uid)
        if pod is not None:
            return {"namespace": pod.namespace, "name": pod.name, "uid": uid}
        return known if known is not None and known["uid"] == uid else None

    def _moving(self, moves: list[Migration | None]) -> str:
        """Say to people what is being moved, and how far that is."""
        told = []
        for item in moves:
            transfer = self._view.store.transfers.get(item.uid) if item is not None else None
            if item is not None and not item.status.phase.final:
                told.append(f"{item.vm} {transfer.percent}%" if transfer is not None else item.vm)
        return ", ".join(told)[:64]

    @do.register
    async def _(self, action: to_do.WriteMigration) -> None:
        view, now = self._view, self._clock()
        body = self._body(action.uid)
        before: Json = body.get("status", {})
        status = action.status
        places: Json = {}
        for role, uid, name in (("source", status.source, ""), ("receiver", status.receiver_uid, status.receiver)):
            pod = view.store.pod(uid) if uid else None
            known: Json = before.get(role, {})
            known_name = pod.name if pod is not None else name or known.get("name", "")
            if known_name:
                node = (pod.node if pod is not None else "") or known.get("node", "")
                if role == "source":
                    node = status.source_node or node
                places[role] = {"name": known_name, **({"uid": uid} if uid else {}), **({"node": node} if node else {})}
        told = {"conditions": kinds.conditions(body, conditions.of_migration(status), now)}
        written = kinds.migration_status(body, status, places, told, now)
        await self._change(
            body, as_it_was(action.version, {"op": "add", "path": "/status", "value": written}), "/status"
        )

    async def tell_progress(self, migration: Migration, progress: Json) -> None:
        """Tell how far a copy is."""
        body = self._body(migration.uid)
        status = {**body.get("status", {}), **progress}
        change = {"op": "add", "path": "/status", "value": status}
        await self._change(body, as_it_was(body["metadata"]["resourceVersion"], change), "/status")

    async def tell_moving(self, uid: str) -> None:
        """Tell a request's users how far the copies are that are made for it."""
        body, request = self._body(uid), self._view.store.requests[uid]
        moving = self._moving(migrations_of(self._view.store, request))
        if "status" in body and moving != body["status"].get("moving", ""):
            change = {"op": "add", "path": "/status/moving", "value": moving}
            await self._change(body, as_it_was(body["metadata"]["resourceVersion"], change), "/status")

    async def tell_guarded(self, uid: str) -> None:
        """Have a request that is under way say whether its room is guarded at the API server, if that is news."""
        request, up = self._view.store.requests.get(uid), self._view.guarded
        if request is None or request.status.phase.final or up is None:
            return
        body, condition = self._body(uid), conditions.of_guard(up=up)
        known: list[Json] = body.get("status", {}).get("conditions", [])
        said = next((item["reason"] for item in known if item["type"] == conditions.GUARDED), None)
        if not known or said == condition.reason:
            return
        rest = [item for item in known if item["type"] != conditions.GUARDED]
        value = [*rest, *kinds.conditions(body, [condition], self._clock())]
        change = {"op": "add", "path": "/status/conditions", "value": value}
        await self._change(body, as_it_was(body["metadata"]["resourceVersion"], change), "/status")

    @do.register
    async def _(self, action: to_do.CreateHold) -> None:
        hold = action.hold
        request = self._body(hold.request)["metadata"]
        body = {
            "apiVersion": kinds.API_VERSION, "kind": "CapacityHold",
            "metadata": {"name": hold.claimant, "finalizers": [kinds.FINALIZER]},
            "spec": {
                "node": hold.node, "claimant": self._reference(hold.claimant), "target": kinds.amounts(hold.target),
                "had": kinds.amounts(self._known(hold.claimant).allocated),
                "request": {"namespace": request["namespace"], "name": request["name"], "uid": hold.request},
                "payers": [{"pod": self._reference(item.uid), "receiver": item.receiver} for item in hold.payers],
                "priority": hold.priority, "expiresAt": kinds.stamp(hold.expires_at), "round": hold.round,
            },
        }  # fmt: skip
        await self._create(HOLDS, body)

    def _reference(self, uid: str) -> Json:
        pod = self._view.store.pod(uid)
        if pod is None:
            raise NotFoundError(404, f"the pod with the UID {uid} is gone")
        return {"namespace": pod.namespace, "name": pod.name, "uid": uid}

    async def _create(self, path: str, body: Json) -> None:
        """Make one of our objects. One of that name may be there already: made by us a moment ago, or in the way."""
        try:
            made = await self._api.create(path, body)
        except ConflictError:
            made = await self._api.get(f"{path}/{body['metadata']['name']}")
        self._put[body["kind"]](made)

    def _hold(self, claimant: str) -> Json:
        body = self._view.hold_body(claimant)
        if body is None:
            raise NotFoundError(404, f"the hold {claimant} is gone")
        return body

    @do.register
    async def _(self, action: to_do.RenewHold) -> None:
        change = {"op": "add", "path": "/spec/expiresAt", "value": kinds.stamp(action.expires_at)}
        await self._change(self._hold(action.claimant), as_it_was(action.version, change))

    @do.register
    async def _(self, action: to_do.CommitHold) -> None:
        change = {"op": "add", "path": "/spec/committed", "value": True}
        await self._change(self._hold(action.claimant), as_it_was(action.version, change))

    @do.register
    async def _(self, action: to_do.DeleteHold) -> None:
        await self._delete(self._hold(action.claimant), action.version)

    async def _delete(self, body: Json, version: str) -> None:
        """Delete one of our objects as it was, and take our finalizer off it."""
        meta = body["metadata"]
        if "deletionTimestamp" not in meta:
            try:
                body = await self._api.delete(path_of(body), uid=meta["uid"], version=version)
            except NotFoundError:
                self._drop[body["kind"]](meta["uid"])
                return
            except ConflictError:
                await self.look_again(body)
                raise
            if "deletionTimestamp" not in body.get("metadata", {}):
                return  # nobody has put a finalizer on it: it is gone
            self._put[body["kind"]](body)
            version = body["metadata"]["resourceVersion"]
        finalizers = [item for item in body["metadata"].get("finalizers", ()) if item != kinds.FINALIZER]
        change = {"op": "add", "path": "/metadata/finalizers", "value": finalizers}
        try:
            await self._change(body, as_it_was(version, change))
        except NotFoundError:
            return
        if not finalizers:
            self._drop[body["kind"]](meta["uid"])

    # Nodes

    @do.register
    async def _(self, action: to_do.TaintNode) -> None:
        found = await self._api.get(_node_path(action.node))
        taints: list[Json] = found["spec"].get("taints", [])
        if all(item["key"] != TAINT for item in taints):
            found = await self._change_taints(found, [*taints, {"key": TAINT, "effect": "NoSchedule"}])
        self._view.put_node(msgspec.convert(found, slim.Node))

    @do.register
    async def _(self, action: to_do.UntaintNode) -> None:
        for body in (await self._api.get(HOLDS))["items"]:
            self._view.put_hold(body)
            if body["spec"]["node"] == action.node and kinds.to_hold(body).live:
                return  # made a moment ago: our watch has not shown it yet
        found = await self._api.get(_node_path(action.node))
        rest = [item for item in found["spec"].get("taints", ()) if item["key"] != TAINT]
        self._view.put_node(msgspec.convert(await self._change_taints(found, rest), slim.Node))

    async def _change_taints(self, node: Json, taints: list[Json]) -> Json:
        meta = node["metadata"]
        change = {"op": "add", "path": "/spec/taints", "value": taints}
        return await self._api.patch(_node_path(meta["name"]), as_it_was(meta["resourceVersion"], change))

    @do.register
    async def _(self, action: to_do.Forget) -> None:
        await self._delete(self._body(action.uid), action.version)

    @do.register
    async def _(self, action: to_do.CreateMigration) -> None:
        planned, request = action.neighbour, self._body(action.request)
        meta = request["metadata"]
        body = {
            "apiVersion": kinds.API_VERSION, "kind": "VMMigration",
            "metadata": {"name": planned.migration, "namespace": planned.namespace, "finalizers": [kinds.FINALIZER]},
            "spec": {
                "vm": planned.vm, "receiver": planned.receiver, "transfer": request["spec"].get("transfer", {}),
                "request": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
                "pod": {"namespace": planned.namespace, "name": planned.name, "uid": planned.uid},
                "ttlSecondsAfterFinished": request["spec"].get("ttlSecondsAfterFinished", 86_400),
            },
        }  # fmt: skip
        await self._create(f"{_OURS}/namespaces/{planned.namespace}/vmmigrations", body)

    # Pods

    async def _change_pod(
        self, uid: str, body: object, *, part: str = "", kind: str | None = None, **query: str
    ) -> None:
        pod = self._known(uid)
        path = pod_path(pod.namespace, pod.name) + part
        try:
            changed = await (
                self._api.patch(path, body, kind, **query) if kind else self._api.patch(path, body, **query)
            )
        except ConflictError:
            await self._look_for(pod.namespace, pod.name, uid)
            raise
        if "dryRun" not in query:
            self._take_in(changed)

    def _known(self, uid: str) -> Pod:
        pod = self._view.store.pod(uid)
        if pod is None:
            raise NotFoundError(404, f"the pod with the UID {uid} is gone")
        return pod

    def _take_in(self, body: Json) -> None:
        self._view.put_pod(msgspec.convert(body, slim.Pod))

    async def _look_for(self, namespace: str, name: str, uid: str) -> bool:
        """Ask the API server itself whether a pod is there."""
        try:
            found = await self._api.get(pod_path(namespace, name))
        except NotFoundError:
            return False
        if found["metadata"]["uid"] != uid:
            return False
        self._take_in(found)
        return True

    @do.register
    async def _(self, action: to_do.CreateReceiver) -> None:
        migration, source = self._body(action.migration), self._known(action.source)
        namespace = source.namespace
        found = await self._api.get(pod_path(namespace, source.name))
        if found["metadata"]["uid"] != action.source:
            raise NotFoundError(404, f"the pod {namespace}/{source.name} is another one now")
        body = self._driver.receiver_pod(found, name=action.name, attempt=action.attempt, node=action.node or None)
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": kinds.API_VERSION, "kind": "VMMigration", "name": migration["metadata"]["name"],
                "uid": action.migration, "controller": False, "blockOwnerDeletion": False,
            }
        ]  # fmt: skip
        try:
            self._take_in(await self._api.create(f"/api/v1/namespaces/{namespace}/pods", body))
        except ConflictError:
            self._take_in(await self._api.get(pod_path(namespace, action.name)))
        except DeniedError as error:
            self._view.store.put_check(action.migration, Check(allowed=False, message=str(error)))

    @do.register
    async def _(self, action: to_do.DetachReceiver) -> None:
        pod = self._known(action.uid)
        found = await self._api.get(pod_path(pod.namespace, pod.name))
        others = [item for item in found["metadata"].get("ownerReferences", ()) if item["kind"] != "VMMigration"]
        change = {"op": "add", "path": "/metadata/ownerReferences", "value": others}
        await self._change_pod(action.uid, as_it_was(action.version, change))

    @do.register
    async def _(self, action: to_do.DeletePod) -> None:
        pod = self._known(action.uid)
        path = pod_path(pod.namespace, pod.name)
        try:
            self._take_in(await self._api.delete(path, uid=action.uid, version=action.version))
        except NotFoundError:
            self._view.drop_pod(action.uid)

    @do.register
    async def _(self, action: to_do.LookForPod) -> None:
        body = self._body(action.migration)
        status: Json = body.get("status", {})
        namespace = body["metadata"]["namespace"]
        sides = (status.get("source") or {}, status.get("receiver") or {})
        name = next((side["name"] for side in sides if side.get("uid") == action.uid), None)
        if name is None:
            raise NotFoundError(404, f"no pod of {body['metadata']['name']} has the UID {action.uid}")
        there = await self._look_for(namespace, name, action.uid)
        self._view.store.put_gone(action.uid, gone=not there)

    @do.register
    async def _(self, action: to_do.FencePod) -> None:
        body = {"metadata": {"resourceVersion": action.version, "annotations": {pods.FENCE: action.fence}}}
        await self._change_pod(action.uid, body, kind=STRATEGIC_PATCH)

    @do.register
    async def _(self, action: to_do.ResizePod) -> None:
        body = self._resized(action.uid, action.container, action.wanted)
        body["metadata"] = {"resourceVersion": action.version}
        await self._change_pod(action.uid, body, part="/resize", kind=STRATEGIC_PATCH)

    @do.register
    async def _(self, action: to_do.CheckResize) -> None:
        body = self._resized(action.uid, action.container, action.wanted)
        try:
            await self._change_pod(action.uid, body, part="/resize", kind=STRATEGIC_PATCH, dryRun="All")
        except DeniedError as error:
            self._view.store.put_check(action.request, Check(allowed=False, message=str(error)))
        else:
            self._view.store.put_check(action.request, Check(allowed=True))

    def _resized(self, uid: str, name: str, wanted: Room) -> Json:
        """Return a pod's resize: its container asks for that much, and its limits are never below."""
        self._known(uid)
        shape = self._view.shapes[uid]
        field = "containers" if any(item.name == name for item in shape.containers) else "initContainers"
        container = next(item for item in (*shape.containers, *shape.init_containers) if item.name == name)
        asked = {key: value for key, value in kinds.amounts(wanted).items() if key in container.resources.requests}
        had, most = pods.room(container.resources.requests), pods.room(container.resources.limits)
        # A limit that was the request stays the request; one that was above it stays where it is as long as it can.
        limit = type(wanted)(
            wanted.cpu if most.cpu == had.cpu else max(most.cpu, wanted.cpu),
            wanted.memory if most.memory == had.memory else max(most.memory, wanted.memory),
        )
        limits = {key: value for key, value in kinds.amounts(limit).items() if key in container.resources.limits}
        return {
            "spec": {
                field: [{"name": name, "resources": {"requests": asked, **({"limits": limits} if limits else {})}}]
            }
        }

    # Guests

    def _sides(self, migration: str) -> tuple[VirtualMachine | None, VirtualMachine | None]:
        self._body(migration)
        status = self._view.store.migrations[migration].status
        return self._view.vms.get(status.source), self._view.vms.get(status.receiver_uid)

    def _side(self, vm: VirtualMachine | None) -> VirtualMachine:
        if vm is None:
            raise UnreachableError("its pod is gone")
        return vm

    @do.register
    async def _(self, action: to_do.StartTransfer) -> None:
        source, receiver = map(self._side, self._sides(action.migration))
        body = self._body(action.migration)
        spec = MigrationSpec.model_validate(body["spec"])
        limits = TransferLimits(
            bandwidth=quantity_bytes(spec.transfer.bandwidth),
            downtime_ms=round(1000 * seconds(spec.transfer.downtime)),
            timeout_seconds=seconds(spec.transfer.timeout),
            switch_over_seconds=seconds(spec.transfer.switch_over_timeout),
            auto_converge=spec.transfer.auto_converge, multifd_channels=spec.transfer.channels,
            post_copy=spec.transfer.post_copy,
        )  # fmt: skip
        try:
            await self._driver.prepare(source, receiver, action.attempt, limits)
            await self._driver.start(source, receiver, action.attempt, limits, place(body).header())
        except RefusedError as error:
            if error.reason != messages.Reason.BUSY:  # that one passes
                self._view.store.put_check(action.migration, Check(allowed=False, message=str(error)))
            raise

    @do.register
    async def _(self, action: to_do.CommitTransfer) -> None:
        await self._driver.commit(self._side(self._sides(action.migration)[0]), action.attempt)

    @do.register
    async def _(self, action: to_do.CancelTransfer) -> None:
        source, receiver = self._sides(action.migration)
        try:
            await self._driver.cancel(self._side(source), receiver, action.attempt)
        except (UnreachableError, RefusedError) as error:
            # It finds out by itself that nobody takes its guest. The receiver, which is deleted next, must not wait.
            _log.info("the source of %s could not be told: %s", action.migration, error)

    @do.register
    async def _(self, action: to_do.ReleaseTransfer) -> None:
        await self._driver.release(self._side(self._sides(action.migration)[1]), action.attempt)

    @do.register
    async def _(self, action: to_do.ResizeGuest) -> None:
        vm = self._side(self._view.vms.get(action.uid))
        size = await self._driver.resize(vm, cpus=action.size.cpus, memory=action.size.memory, order=action.order)
        self._view.store.put_guest(action.uid, size)

    async def look_at_guest(self, uid: str) -> None:
        """Ask a guest for its size."""
        vm, store = self._view.vms.get(uid), self._view.store
        try:
            size, order = await self._driver.guest(self._side(vm))
        except (UnreachableError, RefusedError) as error:
            _log.debug("guest of %s: %s", uid, error)
            store.put_guest(uid, None)
        else:
            store.put_guest(uid, size)
            store.put_order(uid, order)
