"""QEMU aborts under TCG when a vCPU comes and there is no buffer for its code: it is asked first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from elbowroom.runner import hotplug
from elbowroom.runner.messages import Shape


class Monitor:
    """Answers as QEMU does, with so much translated code."""

    def __init__(self, used: int, size: int, cpus: int = 1) -> None:
        self._jit = f"Translation buffer state:\ngen code size       {used}/{size}\nTB count  104995\n"
        self._cpus = cpus
        self.done: list[str] = []

    async def human(self, command: str) -> str:
        assert command == "info jit"
        return self._jit

    async def run(self, command: str, _: Any = None) -> Any:
        self.done.append(command)
        if command == "query-cpus-fast":
            return [{}] * self._cpus
        slots = [{"type": "cpu", "props": {"socket-id": number}} for number in range(4)]
        return [{**slot, **({"qom-path": "/x"} if number < self._cpus else {})} for number, slot in enumerate(slots)]


def shape(accelerator: str = "tcg") -> Shape:
    return Shape.model_construct(accelerator=accelerator, cpus=1, max_cpus=4, memory=128 << 20, max_memory=128 << 20)


def ask(monitor: Monitor, known: Shape, cpus: int) -> None:
    asyncio.run(hotplug.request(monitor, known, cpus, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("used", "size", "wanted", "granted"),
    [
        (60_152_659, 66_945_024, 4, False),
        (60_152_659, 66_945_024, 2, True),
        (59_654_947, 133_955_584, 4, True),
        (133_000_000, 133_955_584, 2, False),
    ],
    ids=["as seen after a boot", "one more fits", "a larger buffer", "full"],
)
def test_vcpus_come_only_where_there_is_a_buffer_for_each(
    used: int,
    size: int,
    wanted: int,
    granted: bool,  # noqa: FBT001
) -> None:
    monitor = Monitor(used, size)
    if granted:
        ask(monitor, shape(), wanted)
        assert monitor.done.count("device_add") == wanted - 1
    else:
        with pytest.raises(hotplug.NotNowError, match="translated code"):
            ask(monitor, shape(), wanted)
        assert "device_add" not in monitor.done


def test_kvm_is_not_asked() -> None:
    monitor = Monitor(100, 100)
    ask(monitor, shape("kvm"), 4)
    assert monitor.done.count("device_add") == 3
