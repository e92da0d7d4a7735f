"""From pods and nodes as the API server has them to the core's values. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Final, TypeVar

from elbowroom.core import world as core
from elbowroom.core.quantity import millicores, quantity_bytes
from elbowroom.core.room import NOTHING, Room, total
from elbowroom.runner.config import ConfigError, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from elbowroom.drivers.interface import VirtualMachine

    from . import slim

FENCE: Final = "elbowroom.dev/fence"
"""The annotation that keeps late resizes out."""
_ENDED: Final = ("Succeeded", "Failed")
_NOBODY: Final = ("", "", False, "", 0)
_T = TypeVar("_T")


def to_pod(found: slim.Pod, vm: VirtualMachine | None = None, runner: str = "", config: str = "") -> core.Pod:
    """Return a pod in the core's words; with the VM in it, the container that runs it, and how that is configured."""
    meta, spec, status = found.metadata, found.spec, found.status
    sizes = _sizes(found)
    name, container, movable, why, attempt = (
        (vm.name, runner, vm.movable, vm.why_not_movable, vm.attempt) if vm is not None else _NOBODY
    )
    pod = core.Pod(
        uid=meta.uid, namespace=intern(meta.namespace), name=meta.name, node=intern(spec.node_name),
        containers=_one(tuple(item.described() for item in sizes)), peak=_one(_peak(spec)),
        overhead=_one(room(spec.overhead)),
        fixed=_fixed(spec.resources), phase=_phase(status.phase), terminating=meta.deletion_timestamp is not None,
        admitted=status.start_time is not None, resize=_resize(found, sizes), priority=spec.priority,
        ready=any(item.type == "Ready" and item.status == "True" for item in status.conditions), vm=name,
        vm_container=container, guest=guest_range(config) if config else None, movable=movable, why_fixed=why,
        labels=frozenset(meta.labels.items()) if vm is not None else frozenset(),
        owner=next((owner.uid for owner in meta.owner_references if owner.kind == "VMMigration"), ""), attempt=attempt,
        fence=meta.annotations.get(FENCE, ""), created_at=seconds(meta.creation_timestamp),
        since=seconds(status.start_time or meta.creation_timestamp), version=meta.resource_version,
    )  # fmt: skip
    if pod.fixed is not None:
        given = room(status.allocated_resources, pod.fixed)
        has = room(status.resources.requests if status.resources is not None else None, given)
        size = pod.fixed.most(given).most(has).plus(pod.overhead)
        return replace(pod, allocated=_one(given.plus(pod.overhead)), size=_one(size))
    infeasible = pod.resize is core.Resize.INFEASIBLE
    return replace(
        pod,
        allocated=_one(_whole(pod, (item.allocated for item in sizes))),
        size=_one(_whole(pod, (item.counted(infeasible=infeasible) for item in sizes))),
    )


@lru_cache(maxsize=16_384, typed=True)
def _one(value: _T) -> _T:
    """Return one value for all that are equal: of a hundred thousand pods most have the sizes of others."""
    return value


class _Size:
    """What a container that lasts asks for, was given, and has."""

    def __init__(self, item: slim.Container, given: slim.ContainerStatus | None) -> None:
        self.name, self.asked = item.name, room(item.resources.requests)
        self.allocated = room(given.allocated_resources if given is not None else None, self.asked)
        self.known = given is not None and given.resources is not None
        self.actual = room(given.resources.requests if given and given.resources else None, self.allocated)

    def described(self) -> core.Container:
        return core.Container(self.name, self.asked, None if self.allocated == self.asked else self.allocated)

    def counted(self, *, infeasible: bool) -> Room:
        """Return what the scheduler counts."""
        had = self.allocated.most(self.actual)
        return had if infeasible and self.known else had.most(self.asked)


def _sizes(found: slim.Pod) -> list[_Size]:
    status = found.status
    given = {item.name: item for item in (*status.container_statuses, *status.init_container_statuses)}
    return [_Size(item, given.get(item.name)) for item in _lasting(found.spec)]


def _lasting(spec: slim.PodSpec) -> Iterator[slim.Container]:
    """Return what runs as long as the pod does: its containers, and those init containers that stay."""
    yield from spec.containers
    yield from (item for item in spec.init_containers if item.restart_policy == "Always")


def _whole(pod: core.Pod, sizes: Iterable[Room]) -> Room:
    return total([*sizes]).most(pod.peak).plus(pod.overhead)


def _peak(spec: slim.PodSpec) -> Room:
    """Return what init containers take one after the other, beside those that have come to stay by then."""
    peak, staying = NOTHING, NOTHING
    for item in spec.init_containers:
        asked = room(item.resources.requests)
        if item.restart_policy == "Always":
            staying = staying.plus(asked)
            peak = peak.most(staying)
        else:
            peak = peak.most(staying.plus(asked))
    return peak


def _fixed(sizes: slim.Sizes | None) -> Room | None:
    return room(sizes.requests) if sizes is not None and sizes.requests else None


def _phase(phase: str) -> core.PodPhase:
    if phase in _ENDED:
        return core.PodPhase.ENDED
    return core.PodPhase.RUNNING if phase == "Running" else core.PodPhase.PENDING


def _resize(found: slim.Pod, sizes: list[_Size]) -> core.Resize:
    """Return what the kubelet says to the size that the spec has now. That it says nothing proves nothing."""
    if found.status.observed_generation < found.metadata.generation:
        return core.Resize.UNSEEN
    for item in found.status.conditions:
        if item.type == "PodResizePending":
            return core.Resize.INFEASIBLE if item.reason == "Infeasible" else core.Resize.DEFERRED
        if item.type == "PodResizeInProgress":
            return core.Resize.IN_PROGRESS
    done = all(item.allocated == item.asked == item.actual for item in sizes)
    return core.Resize.DONE if done else core.Resize.IN_PROGRESS


@lru_cache(maxsize=4096)
def guest_range(config: str) -> core.GuestRange | None:
    """Return what a guest can have without a restart; nothing where its configuration is not to be read here."""
    try:
        found = parse(config)
    except ConfigError:
        return None
    return core.GuestRange(core.GuestSize(found.cpus, found.memory), core.GuestSize(found.most_cpus, found.most_memory))


def room(resources: Mapping[str, str | int] | None, otherwise: Room = NOTHING) -> Room:
    """Read a resource list; what it does not name is as it was."""
    if not resources:
        return otherwise
    cpu, memory = resources.get("cpu"), resources.get("memory")
    return Room(
        otherwise.cpu if cpu is None else millicores(cpu),
        otherwise.memory if memory is None else quantity_bytes(memory),
    )


def seconds(moment: datetime | None) -> float:
    """Return a time as the core counts it."""
    return 0.0 if moment is None else moment.timestamp()
