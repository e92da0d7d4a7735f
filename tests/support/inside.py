"""An event loop that stands where the operator stands: in the cluster's network, where pods have addresses."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from .testbed import Testbed

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000


class Inside:
    """Runs coroutines in a thread of its own, which has entered the testbed's network namespace."""

    def __init__(self, testbed: Testbed) -> None:
        """Say which testbed."""
        self.namespace = Path(f"/proc/{supervisor(testbed)}/ns/net")
        self._loop = asyncio.new_event_loop()
        self._entered = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def enter(self) -> None:
        """Have the thread that calls this enter the testbed's network."""
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(self.namespace, os.O_RDONLY)
        try:
            if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)

    def _run(self) -> None:
        self.enter()
        asyncio.set_event_loop(self._loop)
        self._entered.set()
        self._loop.run_forever()

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        assert self._entered.wait(5), "the testbed's network could not be entered"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def run(self, work: Coroutine[Any, Any, T], *, within: float = 60) -> T:
        """Run something to its end."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(within)


def supervisor(testbed: Testbed) -> int:
    """Return the process that holds the testbed's namespaces."""
    children = Path(f"/proc/{testbed.process.pid}/task/{testbed.process.pid}/children").read_text().split()
    for child in children:
        if b"supervise" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            return int(child)
    message = f"the testbed with process {testbed.process.pid} has no supervisor"
    raise AssertionError(message)
