"""From a configuration, and for a receiver the guest's shape, to QEMU's arguments. Pure.

The order of devices decides their addresses on the guest's bus, so it is the same at both ends of a move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from elbowroom.core.world import GUEST_BLOCK

from .messages import Shape

if TYPE_CHECKING:
    from pathlib import Path

    from .config import Disk, VMConfig

PROGRAM = "qemu-system-x86_64"
GROWTH = "growth"
"""The virtio-mem device that memory is added to and taken from."""
FLOOR = "floor"
"""A disk that nobody sees, whose dirty bitmap keeps a transfer from switching over: see pacing.py."""
FLOOR_GRANULARITY = 64 << 10
FLOOR_BYTES = 16384
"""What the bitmap adds to the bytes that QEMU thinks are left: one for each of its bits."""


class WrongShapeError(Exception):
    """The guest that is to be received does not fit this pod's configuration; the message names the field."""


@dataclass(frozen=True)
class Paths:
    """Where the runner keeps what is its own."""

    folder: Path

    @property
    def monitor(self) -> Path:
        """QEMU's socket; the folder is closed to everybody else."""
        return self.folder / "monitor.sock"

    @property
    def pid(self) -> Path:
        """QEMU's own note of its process: found by an agent whose predecessor died before it could write its record."""
        return self.folder / "qemu.pid"

    @property
    def record(self) -> Path:
        """What must survive the agent."""
        return self.folder / "record.json"

    @property
    def credentials(self) -> Path:
        """Certificates under the names that QEMU expects."""
        return self.folder / "tls"


def default_shape(config: VMConfig, accelerator: str) -> Shape:
    """Return the shape that a guest boots with."""
    return Shape.model_validate(
        {
            "machine": config.machine,
            "accelerator": accelerator,
            "cpu_model": config.cpu_model or ("host" if accelerator == "kvm" else "max"),
            "cpus": config.cpus,
            "max_cpus": config.most_cpus,
            "plugged": (),
            "memory": config.memory,
            "max_memory": config.most_memory,
            "requested_memory": 0,
            "disks": len(config.disks),
            "network": config.network.kind,
        }
    )


def check_shape(config: VMConfig, accelerator: str, shape: Shape) -> None:
    """Refuse a guest that this pod cannot become. What it boots with and what is plugged in is the guest's own."""
    own = default_shape(config, accelerator)
    for field in ("accelerator", "max_cpus", "memory", "max_memory", "disks", "network"):
        if getattr(own, field) != getattr(shape, field):
            name = Shape.model_fields[field].alias
            raise WrongShapeError(f"{name}: the guest has {getattr(shape, field)}, this pod has {getattr(own, field)}")


def arguments(name: str, config: VMConfig, shape: Shape, paths: Paths, *, incoming: bool) -> list[str]:
    """Return QEMU's command line."""
    return [
        PROGRAM, "-name", f"guest={name}", "-nodefaults", "-no-user-config", "-display", "none",
        "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny",
        "-machine", f"{shape.machine},usb=off,vmport=off,hpet=off",
        "-accel", _accelerator(shape),
        "-cpu", shape.cpu_model,
        "-smp", f"cpus={shape.cpus},maxcpus={shape.max_cpus},sockets={shape.max_cpus},cores=1,threads=1",
        "-m", _memory(shape),
        # A panic is told to us; what follows it (a dump, a restart) is the guest's own business.
        "-action", "panic=none",
        # The console is the pod's log. QEMU writes it itself, so that none of it is lost with the agent.
        "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
        "-chardev", f"socket,id=monitor,path={_escaped(paths.monitor)},server=on,wait=off",
        "-mon", "chardev=monitor,mode=control", "-pidfile", str(paths.pid),
        "-blockdev", f"driver=null-co,node-name={FLOOR},size={FLOOR_BYTES * FLOOR_GRANULARITY}",
        "-device", "pvpanic-pci",
        *_growth(shape), *_network(config), *_disks(config.disks), *_boot(config), *_plugged(shape),
        *(["-incoming", "defer", "-S"] if incoming else []),
    ]  # fmt: skip


def _accelerator(shape: Shape) -> str:
    if shape.accelerator == "kvm":
        return "kvm"
    # A small guest's boot takes 60 MiB of translated code, and vCPUs that are added need some, too (hotplug.py).
    # What is not used takes no memory.
    return f"tcg,thread=multi,tb-size={128 if shape.max_cpus > shape.cpus else 64}"


def _memory(shape: Shape) -> str:
    # TCG loses track of writes to memory whose size is a multiple of 256 KiB: docs/runner.md, "Learned on the way".
    odd = 8 if shape.accelerator == "tcg" else 0
    size = f"size={(shape.memory >> 10) + odd}K"
    return size if shape.max_memory == shape.memory else f"{size},slots=1,maxmem={(shape.max_memory >> 10) + odd}K"


def _growth(shape: Shape) -> list[str]:
    extra = shape.max_memory - shape.memory
    if not extra:
        return []
    block = f"block-size={GUEST_BLOCK}"
    return [
        "-object", f"memory-backend-ram,id={GROWTH}-memory,size={extra},reserve=off",
        "-device", f"virtio-mem-pci,id={GROWTH},memdev={GROWTH}-memory,{block},requested-size={shape.requested_memory}",
    ]  # fmt: skip


def _network(config: VMConfig) -> list[str]:
    device = ["-device", "virtio-net-pci,netdev=net,romfile="]
    match config.network.kind:
        case "none":
            return []
        case "tap":
            return ["-netdev", f"tap,id=net,ifname={config.network.tap},script=no,downscript=no", *device]
        case "user":
            forwards = "".join(f",hostfwd=tcp::{port.port}-:{port.guest}" for port in config.ports)
            return ["-netdev", f"user,id=net{forwards}", *device]


def _disks(disks: tuple[Disk, ...]) -> list[str]:
    # Past the page cache: two nodes see the same image, and only the image.
    return [
        word
        for index, disk in enumerate(disks)
        for word in (
            "-blockdev", f"driver=file,node-name=file{index},filename={_escaped(disk.path)},cache.direct=on",
            "-blockdev", f"driver={disk.format},node-name=disk{index},file=file{index},cache.direct=on",
            "-device", f"virtio-blk-pci,id=blk{index},drive=disk{index}",
        )
    ]  # fmt: skip


def _boot(config: VMConfig) -> list[str]:
    if config.kernel is None:
        return []
    initrd = ["-initrd", str(config.initrd)] if config.initrd else []
    return ["-kernel", str(config.kernel), *initrd, "-append", config.command_line]


def _plugged(shape: Shape) -> list[str]:
    return [
        word
        for cpu in shape.plugged
        for word in (
            "-device",
            ",".join([cpu.type, f"id={cpu.id}", *(f"{key}={value}" for key, value in cpu.props.items())]),
        )
    ]


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")
