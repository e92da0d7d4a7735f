"""Grow and shrink a guest, and find out what it really has.

QEMU's word is not enough: a plugged vCPU is of no use before the guest has brought it up, and virtio-mem only
*requests* a size. So vCPUs are counted by their interrupt controllers, which an operating system enables when it
brings a vCPU up and disables when it takes it down; and memory by what the guest's driver has plugged.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from elbowroom.core.world import GUEST_BLOCK

from .command import GROWTH
from .messages import Cpu, Size
from .monitor import MonitorError

if TYPE_CHECKING:
    from .messages import Shape
    from .monitor import Monitor

_PREFIX = "cpu-"
_LOOK_SECONDS = 0.05
_TRANSLATED = re.compile(r"gen code size\s+(?P<used>\d+)/(?P<size>\d+)")
_LEAST_REGION = (2 << 20) - (64 << 10)  # 2 MiB, less what guards it
_APIC_ENABLED = re.compile(r"^\s*SPIV\s+0x[0-9a-f]+\s+APIC enabled", re.MULTILINE)


class ImpossibleSizeError(Exception):
    """The guest can never have this size; the message names the field."""


def check_size(shape: Shape, cpus: int | None, memory: int | None) -> None:
    """Refuse what cannot be, before anything is touched."""
    if cpus is not None and not shape.cpus <= cpus <= shape.max_cpus:
        raise ImpossibleSizeError(
            f"cpus: {cpus} is not between {shape.cpus}, which the guest booted with, and maxCpus ({shape.max_cpus})"
        )
    if memory is None:
        return
    if not shape.memory <= memory <= shape.max_memory:
        raise ImpossibleSizeError(
            f"memory: {memory >> 20}Mi is not between {shape.memory >> 20}Mi, which the guest booted with, "
            f"and maxMemory ({shape.max_memory >> 20}Mi)"
        )
    if memory % GUEST_BLOCK:
        raise ImpossibleSizeError(f"memory: {memory} is not a multiple of 2Mi")


async def size(monitor: Monitor, shape: Shape) -> Size:
    """Return what the guest has."""
    plugged = 0
    if shape.max_memory > shape.memory:
        plugged = int(await monitor.run("qom-get", _growth("size")))
    return Size(cpus=await _online(monitor), memory=shape.memory + plugged)


async def _online(monitor: Monitor) -> int:
    cpus = await monitor.run("query-cpus-fast")
    identifiers = [
        cpu["props"]["socket-id"] for cpu in cpus
    ]  # one core and one thread a socket: also the APIC's number
    states = [await monitor.human(f"info lapic {identifier}") for identifier in identifiers]
    return sum(1 for state in states if _APIC_ENABLED.search(state))


class NotNowError(Exception):
    """The guest cannot have this size at this moment; the message says what it waits for."""


async def request(monitor: Monitor, shape: Shape, cpus: int | None, memory: int | None) -> None:
    """Ask the guest for another size. Raise NotNowError before anything is touched."""
    if cpus is not None and shape.accelerator != "kvm":
        await _check_translations(monitor, shape, cpus)
    if memory is not None and shape.max_memory > shape.memory:
        await monitor.run("qom-set", {**_growth("requested-size"), "value": memory - shape.memory})
    if cpus is not None:
        await _request_cpus(monitor, cpus)


async def _check_translations(monitor: Monitor, shape: Shape, wanted: int) -> None:
    """See to it that QEMU has translation buffers for the vCPUs that are to come: where it has none, it aborts.

    Its code buffer is cut into regions. A vCPU that comes takes one, and QEMU empties the buffer only when a vCPU that
    is there finds none (tcg/region.c asserts that the first one of a thread is to be had).
    """
    there = len(await monitor.run("query-cpus-fast"))
    found = _TRANSLATED.search(await monitor.human("info jit"))
    if found is None or wanted <= there:
        return
    used, size = int(found["used"]), int(found["size"])
    per_cpu = next((count for count in range(8, 0, -1) if size // (shape.max_cpus * count) >= _LEAST_REGION), 1)
    region = size // (shape.max_cpus * per_cpu)
    # Each vCPU that is there may have begun one, and another one may be begun while we look.
    if size - used < (wanted + 1) * region:
        raise NotNowError("cpus: QEMU's buffer for translated code is almost full; the guest's own work empties it")


async def shape(monitor: Monitor, known: Shape) -> Shape:
    """Return a guest's shape as it is now. What is being unplugged still counts."""
    kind = str(await monitor.run("qom-get", {"path": "/machine", "property": "type"}))
    found: dict[str, object] = {"machine": kind.removesuffix("-machine"), "plugged": await _plugged(monitor)}
    if known.max_memory > known.memory:
        found["requested_memory"] = int(await monitor.run("qom-get", _growth("requested-size")))
    return known.model_copy(update=found)


def _growth(name: str) -> dict[str, Any]:
    return {"path": f"/machine/peripheral/{GROWTH}", "property": name}


async def _request_cpus(monitor: Monitor, wanted: int) -> None:
    slots = sorted(await _slots(monitor), key=lambda slot: int(slot["props"]["socket-id"]))
    free = [slot for slot in slots if "qom-path" not in slot]
    used = [slot for slot in slots if "qom-path" in slot]
    for slot in free[: max(0, wanted - len(used))]:
        await monitor.run("device_add", {"driver": slot["type"], "id": _identifier(slot), **slot["props"]})
    for slot in reversed(used[wanted:]):
        try:
            await monitor.run("device_del", {"id": _identifier(slot)})
        except MonitorError as error:
            if "already in the process of unplug" not in str(error):
                raise


async def _plugged(monitor: Monitor) -> tuple[Cpu, ...]:
    """Return the vCPUs that were added since the guest has booted."""
    slots = [
        slot for slot in await _slots(monitor) if slot.get("qom-path", "").endswith(f"/peripheral/{_identifier(slot)}")
    ]
    found = (Cpu(id=_identifier(slot), type=slot["type"], props=slot["props"]) for slot in slots)
    return tuple(sorted(found, key=lambda cpu: cpu.props["socket-id"]))


async def _slots(monitor: Monitor) -> list[dict[str, Any]]:
    return list(await monitor.run("query-hotpluggable-cpus"))


def _identifier(slot: dict[str, Any]) -> str:
    return f"{_PREFIX}{slot['props']['socket-id']}"


def is_cpu(path: str) -> bool:
    """Tell whether a device is a vCPU that we have plugged, or a part of one."""
    return path.startswith(f"/machine/peripheral/{_PREFIX}")


async def until_size(monitor: Monitor, shape: Shape, wanted: Size, within: float) -> Size:
    """Wait until the guest has it, and return what it has then: a guest can refuse to give something up."""
    end = asyncio.get_running_loop().time() + within
    while True:
        now = await size(monitor, shape)
        # A vCPU that the guest has taken down is still being unplugged for a moment.
        settled = now == wanted and len(await monitor.run("query-cpus-fast")) == wanted.cpus
        if settled or asyncio.get_running_loop().time() >= end:
            return now
        await asyncio.sleep(_LOOK_SECONDS)  # no event tells that a guest has brought up a vCPU
