"""A witness: sees every state of every pod, hold and migration, hears every guest, and judges by that alone.

It asks nothing of the operator. All objects live in one etcd, so their resource versions tell in which order things
happened; what it checks is true of each state of that history, and not only of its end.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from elbowroom.core.quantity import millicores, quantity_bytes
from kubernetes import client
from urllib3.exceptions import HTTPError

from .console import Console, assert_whole, seconds, ticks
from .holds import GROUP
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from .namespace import Json
    from .testbed import Testbed

VM_LABEL = "elbowroom.dev/vm"
_ENDED = ("Succeeded", "Failed")
_REFUSED = ("OutOfcpu", "OutOfmemory", "OutOfpods", "UnexpectedAdmissionError")
Sums = tuple[int, int]


@dataclass(frozen=True)
class Happening:
    """One state of one object, or its end."""

    version: int
    at: float
    kind: str
    gone: bool
    body: Json

    @property
    def uid(self) -> str:
        """Return whose."""
        return str(self.body["metadata"]["uid"])


@dataclass
class _Log:
    """What a pod has said so far."""

    pod: Json
    pieces: list[bytes] = field(default_factory=list)

    def _text(self) -> str:
        return b"".join(self.pieces).decode(errors="replace")

    def console(self) -> Console:
        return ticks(self._text())

    def resumed(self) -> float | None:
        """Return when QEMU said that the guest runs."""
        line = next((line for line in self._text().splitlines() if '"event": "RESUME"' in line), None)
        return seconds(line.partition(" ")[0]) if line else None


class Witness:
    """Sees all. Use it as a context manager."""

    def __init__(self, testbed: Testbed) -> None:
        """Say where."""
        self._testbed = testbed
        custom = client.CustomObjectsApi(testbed.api)
        self._lists: dict[str, Callable[..., Any]] = {
            "Pod": testbed.core.list_pod_for_all_namespaces,
            **{
                kind: lambda plural=plural, **more: custom.list_cluster_custom_object(*GROUP, plural, **more)
                for kind, plural in (("CapacityHold", "capacityholds"), ("VMMigration", "vmmigrations"))
            },
        }
        self._history: list[Happening] = []
        self._logs: dict[str, _Log] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        """Begin to look."""
        for kind, call in self._lists.items():
            threading.Thread(target=self._follow, args=[kind, call, self._look(kind, call)], daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look away."""
        self._over.set()

    def _look(self, kind: str, call: Callable[..., Any]) -> str:
        """See all there is, and what is no more. Return from when on to follow it."""
        listed = self._listed(call)
        version = str(listed["metadata"]["resourceVersion"])
        for body in listed["items"]:
            self._saw(kind, "MODIFIED", body)
        there = {body["metadata"]["uid"] for body in listed["items"]}
        with self._lock:
            last = {item.uid: item for item in self._history if item.kind == kind}
        for item in last.values():
            if not item.gone and item.uid not in there:
                gone = {**item.body, "metadata": {**item.body["metadata"], "resourceVersion": version}}
                self._saw(kind, "DELETED", gone)
        return version

    @staticmethod
    def _listed(call: Callable[..., Any]) -> Json:
        found: Json = json.loads(call(_preload_content=False).data)
        return found

    # Seeing and hearing

    def _follow(self, kind: str, call: Callable[..., Any], version: str) -> None:
        while not self._over.is_set():
            # The testbed's end, or the API server's: then there is nothing more to see, or it is looked at again.
            with suppress(HTTPError, client.ApiException, ValueError):
                answer = call(watch=True, resource_version=version, timeout_seconds=300, _preload_content=False)
                rest = b""
                for piece in answer.stream(amt=None, decode_content=False):
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":  # what is served has begun anew: a kind was changed
                            version = self._look(kind, call)
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._saw(kind, event["type"], event["object"])
            self._over.wait(0.2)

    def _saw(self, kind: str, event: str, body: Json) -> None:
        happened = Happening(int(body["metadata"]["resourceVersion"]), time.time(), kind, event == "DELETED", body)
        with self._lock:
            self._history.append(happened)
            new = kind == "Pod" and happened.uid not in self._logs and self._speaks(body)
            if new:
                self._logs[happened.uid] = _Log(body)
        if new:
            threading.Thread(target=self._listen, args=[self._logs[happened.uid]], daemon=True).start()

    @staticmethod
    def _speaks(pod: Json) -> bool:
        statuses = pod.get("status", {}).get("containerStatuses", ())
        return VM_LABEL in pod["metadata"].get("labels", {}) and any("running" in item["state"] for item in statuses)

    def _listen(self, log: _Log) -> None:
        meta = log.pod["metadata"]
        # A node that was killed says nothing more; what it has said until then counts.
        with suppress(HTTPError, client.ApiException):
            answer: Any = self._testbed.core.read_namespaced_pod_log(
                meta["name"],
                meta["namespace"],
                container="runner",
                follow=True,
                timestamps=True,
                _preload_content=False,
            )
            for piece in answer.stream(amt=None, decode_content=False):
                log.pieces.append(piece)

    def until_now(self) -> None:
        """Wait until everything has been seen that has happened so far."""

        def seen_all() -> bool:
            with self._lock:
                last = {item.uid: item for item in sorted(self._history, key=lambda item: item.version)}
            for kind, call in self._lists.items():
                listed = {body["metadata"]["uid"]: body for body in self._listed(call)["items"]}
                for uid, body in listed.items():
                    assert uid in last, f"{kind} {body['metadata']['name']} was not seen"
                    assert last[uid].version >= int(body["metadata"]["resourceVersion"]), f"{kind} {uid} is behind"
                unseen = [
                    item for item in last.values() if item.kind == kind and not item.gone and item.uid not in listed
                ]
                assert not unseen, f"{kind}: {[item.body['metadata']['name'] for item in unseen]} have gone"
            return True

        until("the witness has seen all", seen_all, within=10)

    # Judging

    def assert_kept(
        self, namespace: str, *, broken: tuple[str, ...] = (), stolen: bool = False, crowd: bool = False
    ) -> None:
        """Check all that has to be true of what has happened, and of what is left.

        `broken` are VMs whose guests the test itself has harmed; `stolen` is said by a test that takes held room, and
        `crowd` by one that makes pods past all schedulers also where nothing is held: a kubelet may refuse those.
        """
        self.until_now()
        with self._lock:
            history = sorted(self._history, key=lambda item: item.version)
        if not crowd:
            refused = [_name(item) for item in history if item.body.get("status", {}).get("reason") in _REFUSED]
            assert not refused, f"a kubelet had no room for {refused}"
        self._assert_no_overcommit(history)
        if not stolen:
            self._assert_no_theft(history, namespace)
            assert not (refused := self.sent_away(namespace)), f"while room was held, a kubelet had none for {refused}"
        self._assert_guests(history, namespace, broken)
        self._assert_nothing_left(history, namespace)

    def sent_away(self, namespace: str) -> list[str]:
        """Return the pods that came to a node while room was held there, and that its kubelet has refused."""
        self.until_now()
        with self._lock:
            history = sorted(self._history, key=lambda item: item.version)
        held: dict[str, str] = {}
        came: dict[str, str] = {}
        refused: list[str] = []
        for moment in history:
            if moment.kind == "CapacityHold":
                held.pop(moment.uid, None)
                if not moment.gone and moment.body.get("status", {}).get("phase") in ("Held", "Claimed"):
                    held[moment.uid] = moment.body["spec"]["node"]
            elif moment.kind == "Pod" and moment.body["metadata"]["namespace"] == namespace:
                node = moment.body["spec"].get("nodeName")
                if node and moment.uid not in came:
                    came[moment.uid] = _name(moment) if node in held.values() else ""
                if moment.body.get("status", {}).get("reason") in _REFUSED and (name := came.get(moment.uid)):
                    refused.append(name)
                    came[moment.uid] = ""
        return refused

    def killed(self, namespace: str) -> list[str]:
        """Return the claimants that somebody has deleted while room was held for them."""
        self.until_now()
        with self._lock:
            history = sorted(self._history, key=lambda item: item.version)
        held: dict[str, str] = {}
        found: list[str] = []
        for moment in history:
            if moment.kind == "CapacityHold":
                held.pop(moment.uid, None)
                if not moment.gone and moment.body.get("status", {}).get("phase") == "Held":
                    held[moment.uid] = moment.body["spec"]["claimant"]["uid"]
            elif moment.body["metadata"].get("namespace") == namespace and moment.uid in held.values():
                found += [_name(moment)] if "deletionTimestamp" in moment.body["metadata"] else []
        return found

    def _allocatable(self) -> dict[str, Sums]:
        nodes = self._testbed.plain(self._testbed.core.list_node())["items"]
        return {node["metadata"]["name"]: _sums([node["status"]["allocatable"]]) for node in nodes}

    def _assert_no_overcommit(self, history: list[Happening]) -> None:
        allocatable = self._allocatable()
        for moment, pods in _states(history, "Pod"):
            node = moment.body["spec"].get("nodeName")
            if node in allocatable:
                given = _total(_allocated(pod) for pod in pods.values() if pod["spec"].get("nodeName") == node)
                assert _within(given, allocatable[node]), f"{node} at {_name(moment)}@{moment.version}: {given}"

    def _assert_no_theft(self, history: list[Happening], namespace: str) -> None:
        allocatable = self._allocatable()
        pods: dict[str, Json] = {}
        held: dict[str, tuple[Json, Sums]] = {}
        for moment in history:
            if moment.kind == "Pod":
                _change(pods, moment)
            if moment.kind == "CapacityHold" and moment.body["spec"]["request"]["namespace"] == namespace:
                promised = not moment.gone and moment.body.get("status", {}).get("phase") == "Held"
                if promised and moment.uid not in held:
                    held[moment.uid] = (moment.body["spec"], _others(pods, moment.body["spec"]))
                elif not promised:
                    held.pop(moment.uid, None)
            for spec, before in held.values():
                if spec["node"] not in allocatable:
                    continue
                target, room = _sums([spec["target"]]), allocatable[spec["node"]]
                others = _others(pods, spec)
                for index, what in enumerate(("cpu", "memory")):
                    most = max(before[index], room[index] - target[index])
                    assert others[index] <= most, (
                        f"{what} held on {spec['node']} for {spec['claimant']['name']} was taken at {_name(moment)}"
                    )

    def _assert_guests(self, history: list[Happening], namespace: str, broken: tuple[str, ...]) -> None:
        heard: dict[str, list[Console]] = defaultdict(list)
        made = {item.uid: item for item in reversed(history) if item.kind == "Pod"}
        for uid in sorted(self._logs, key=lambda uid: made[uid].version):
            meta = made[uid].body["metadata"]
            if meta["namespace"] == namespace and meta["labels"][VM_LABEL] not in broken:
                heard[meta["labels"][VM_LABEL]].append(self._logs[uid].console())
        for vm, parts in heard.items():
            try:
                assert_whole(parts)
            except AssertionError as error:
                error.add_note(f"the guest of {namespace}/{vm}")
                raise
        self._assert_deleted_after_arrival(history, namespace)

    def _assert_deleted_after_arrival(self, history: list[Happening], namespace: str) -> None:
        """Check that no neighbour was deleted before its receiver's QEMU had said that it runs the guest."""
        for item in {item.uid: item for item in history if item.kind == "VMMigration"}.values():
            status = item.body.get("status", {})
            if item.body["metadata"]["namespace"] != namespace or status.get("phase") != "Succeeded":
                continue
            deleted = next(
                (
                    moment for moment in history
                    if moment.uid == status["source"]["uid"] and "deletionTimestamp" in moment.body["metadata"]
                ),
                None,
            )  # fmt: skip
            arrived = self._logs[status["receiver"]["uid"]].resumed()
            assert arrived, f"QEMU did not say that it runs the guest of {item.body['spec']['vm']}"
            # The time is the one at which this was seen, a few milliseconds after it happened.
            assert deleted is None or arrived < deleted.at, f"{_name(item)}: deleted before the guest was there"

    @staticmethod
    def _assert_nothing_left(history: list[Happening], namespace: str) -> None:
        last = {item.uid: item for item in history}.values()
        there = [item for item in last if not item.gone]
        holds = [item for item in there if item.kind == "CapacityHold"]
        left = [_name(item) for item in holds if item.body["spec"]["request"]["namespace"] == namespace]
        assert not left, f"holds are left: {left}"
        here = [item for item in there if item.body["metadata"].get("namespace") == namespace]
        running = [_name(item) for item in here if item.kind == "VMMigration"
                   and item.body.get("status", {}).get("phase") not in ("Succeeded", "Failed", "Cancelled")]  # fmt: skip
        assert not running, f"migrations go on: {running}"
        owned = [_name(item) for item in here if item.kind == "Pod" and item.body["metadata"].get("ownerReferences")]
        assert not owned, f"receivers are left: {owned}"
        alive = defaultdict(list)
        for item in here:
            vm = item.body["metadata"].get("labels", {}).get(VM_LABEL) if item.kind == "Pod" else None
            if vm and item.body["status"].get("phase") not in _ENDED:
                alive[vm].append(_name(item))
        assert all(len(pods) == 1 for pods in alive.values()), f"VMs with several pods: {dict(alive)}"


def _states(history: list[Happening], kind: str) -> Iterator[tuple[Happening, dict[str, Json]]]:
    there: dict[str, Json] = {}
    for moment in history:
        if moment.kind == kind:
            _change(there, moment)
            yield moment, there


def _change(there: dict[str, Json], moment: Happening) -> None:
    there.pop(moment.uid, None)
    if not moment.gone and moment.body.get("status", {}).get("phase") not in _ENDED:
        there[moment.uid] = moment.body


def _name(moment: Happening) -> str:
    return f"{moment.kind} {moment.body['metadata']['name']}"


def _sums(resources: list[Json]) -> Sums:
    return (
        sum(millicores(item.get("cpu", "0")) for item in resources),
        sum(quantity_bytes(item.get("memory", "0")) for item in resources),
    )


def _total(sizes: Iterator[Sums]) -> Sums:
    found = list(sizes)
    return sum(size[0] for size in found), sum(size[1] for size in found)


def _within(size: Sums, room: Sums) -> bool:
    return size[0] <= room[0] and size[1] <= room[1]


def _lasting(pod: Json) -> set[str]:
    inits = (item for item in pod["spec"].get("initContainers", ()) if item.get("restartPolicy") == "Always")
    return {item["name"] for item in (*pod["spec"]["containers"], *inits)}


def _allocated(pod: Json) -> Sums:
    """Return what the kubelet says that it has given."""
    status, names = pod.get("status", {}), _lasting(pod)
    all_ = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    return _sums([item.get("allocatedResources", {}) for item in all_ if item["name"] in names])


def _asked(pod: Json) -> Sums:
    names = _lasting(pod)
    containers = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    return _sums([item.get("resources", {}).get("requests", {}) for item in containers if item["name"] in names])


def _takes(pod: Json) -> Sums:
    """Return what a pod has, or, before its kubelet has seen it, what it will be given. A resize that waits takes nothing."""
    given = _allocated(pod)
    return given if any(given) else _asked(pod)


def _others(pods: dict[str, Json], hold: Json) -> Sums:
    """Return what everybody but the claimant and those who pay for it take on a hold's node."""
    besides = {hold["claimant"]["uid"], *(item["pod"]["uid"] for item in hold.get("payers", ()))}
    return _total(
        _takes(pod) for uid, pod in pods.items() if pod["spec"].get("nodeName") == hold["node"] and uid not in besides
    )
