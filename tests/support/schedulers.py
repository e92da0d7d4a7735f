"""A second scheduler in a testbed, which stands by until the first one ends."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from .inside import supervisor
from .testbed import BINARY
from .waiting import until

if TYPE_CHECKING:
    from types import TracebackType

    from .testbed import Testbed

# Short, so that a take-over does not take long.
ELECTION = tuple(
    f"--arg=kube-scheduler=--leader-elect{part}"
    for part in ("=true", "-lease-duration=3s", "-renew-deadline=2s", "-retry-period=500ms")
)


class Standby:
    """A process in the testbed's namespaces. Use it as a context manager."""

    def __init__(self, testbed: Testbed, log: Path, *, port: int = 10260) -> None:
        """Say which testbed it belongs to."""
        self._supervisor, self._log, self._port = supervisor(testbed), log, port

    def __enter__(self) -> Self:
        """Start it with the arguments of the one that runs."""
        arguments = next(
            parts for parts in _command_lines(self._supervisor) if len(parts) > 1 and parts[1] == "kube-scheduler"
        )
        command = ["nsenter", "-t", str(self._supervisor), "-m", "-n", str(BINARY), *arguments[1:]]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, f"--secure-port={self._port}"], stdout=log, stderr=subprocess.STDOUT
            )
        until("the standby knows all holds", lambda: "All holds are known" in self._log.read_text())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(10)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end."""
        return self._process.wait(20)

    @property
    def leads(self) -> bool:
        """Tell whether it acknowledges holds."""
        return "Holds are acknowledged from now on" in self._log.read_text()


def _command_lines(parent: int) -> list[list[str]]:
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [pid for file in children for pid in file.read_text().split()]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]
    return [line.rstrip("\0").split("\0") for line in lines]
