"""From a configuration and a shape to QEMU's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from elbowroom.runner.command import Paths, WrongShapeError, arguments, check_shape, default_shape
from elbowroom.runner.config import parse
from elbowroom.runner.messages import Cpu

PATHS = Paths(Path("/run/elbowroom"))
CONFIG = parse(
    "{kernel: /k, initrd: /i, commandLine: console=ttyS0, memory: 256Mi, maxMemory: 1Gi, maxCpus: 4, ports: [8080], "
    "disks: [{path: '/disks/a,b.qcow2'}]}"
)


def command(*, accelerator: str = "tcg", incoming: bool = False, **changes: object) -> str:
    shape = default_shape(CONFIG, accelerator).model_copy(update=changes)
    return " ".join(arguments("db", CONFIG, shape, PATHS, incoming=incoming))


def test_a_guest_boots_from_its_kernel_with_room_to_grow() -> None:
    words = command()
    assert "-kernel /k -initrd /i -append console=ttyS0" in words
    assert "-smp cpus=1,maxcpus=4,sockets=4,cores=1,threads=1" in words
    assert "memory-backend-ram,id=growth-memory,size=805306368,reserve=off" in words
    assert "hostfwd=tcp::8080-:8080" in words
    assert "-incoming" not in words


def test_a_receiver_waits_for_a_guest_and_does_not_run_it() -> None:
    assert command(incoming=True).endswith("-incoming defer -S")


def test_what_was_plugged_into_the_guest_is_on_its_receivers_command_line() -> None:
    cpu = Cpu(id="cpu-1", type="max-x86_64-cpu", props={"socket-id": 1, "core-id": 0, "thread-id": 0})
    words = command(plugged=(cpu,), requested_memory=128 << 20)
    assert "-device max-x86_64-cpu,id=cpu-1,socket-id=1,core-id=0,thread-id=0" in words
    assert "requested-size=134217728" in words


def test_commas_in_paths_do_not_become_options() -> None:
    assert "filename=/disks/a,,b.qcow2," in command()


def test_memory_has_an_odd_size_under_tcg_and_only_there() -> None:
    assert "-m size=262152K,slots=1,maxmem=1048584K" in command()
    assert "-m size=262144K,slots=1,maxmem=1048576K" in command(accelerator="kvm")


def test_a_guest_of_another_shape_is_refused_by_the_fields_name() -> None:
    shape = default_shape(CONFIG, "tcg")
    check_shape(CONFIG, "tcg", shape.model_copy(update={"cpus": 2, "machine": "pc-q35-9.0"}))
    with pytest.raises(WrongShapeError, match="maxMemory: the guest has 5, this pod has 1073741824"):
        check_shape(CONFIG, "tcg", shape.model_copy(update={"max_memory": 5}))
    with pytest.raises(WrongShapeError, match="accelerator: the guest has kvm, this pod has tcg"):
        check_shape(CONFIG, "tcg", shape.model_copy(update={"accelerator": "kvm"}))
