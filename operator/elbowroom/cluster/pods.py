"""From pods and nodes as the API server has them to the core's values. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from elbowroom.core import world as core
from elbowroom.core.quantity import millicores, quantity_bytes
from elbowroom.core.room import NOTHING, Room, total
from elbowroom.drivers.interface import NotAVMError
from elbowroom.drivers.receiver import VM_LABEL
from elbowroom.runner.config import ConfigError, parse
from elbowroom.runner.options import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from elbowroom.drivers.interface import Driver, VirtualMachine

    from . import slim

FENCE: Final = "elbowroom.dev/fence"
_ENDED: Final = ("Succeeded", "Failed")
_PHASES: Final = {"Running": core.PodPhase.RUNNING, "Pending": core.PodPhase.PENDING}


def to_pod(found: slim.Pod, driver: Driver) -> tuple[core.Pod, VirtualMachine | None]:
    """Return a pod in the core's words, and the VM in it."""
    meta, spec, status = found.metadata, found.spec, found.status
    vm = _vm(found, driver)
    containers = tuple(_containers(found))
    allocated = _whole(found, {item.name: item.request if item.given is None else item.given for item in containers})
    runner = driver.runner_container(found) if vm is not None else ""
    return core.Pod(
        uid=meta.uid, namespace=meta.namespace, name=meta.name, node=spec.node_name, allocated=allocated,
        size=_whole(found, _counted(found, containers)), containers=containers, peak=_peak(spec), overhead=room(spec.overhead),
        fixed=_fixed(spec), phase=core.PodPhase.ENDED if status.phase in _ENDED else _PHASES.get(status.phase, core.PodPhase.PENDING),
        terminating=meta.deletion_timestamp is not None, admitted=status.start_time is not None, resize=_resize(found, containers),
        priority=spec.priority, ready=_condition(status, "Ready") == ("True", ""), vm=vm.name if vm else "", vm_container=runner,
        guest=_guest_range(found, runner) if vm else None, movable=vm.movable if vm else False,
        why_fixed=vm.why_not_movable if vm else "", labels=frozenset(meta.labels.items()) if vm else frozenset(),
        owner=next((owner.uid for owner in meta.owner_references if owner.kind == "VMMigration"), ""),
        attempt=vm.attempt if vm else 0, fence=meta.annotations.get(FENCE, ""), created_at=_seconds(meta.creation_timestamp),
        version=meta.resource_version,
    ), vm  # fmt: skip
