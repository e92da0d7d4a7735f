"""Schedulers beside the testbed's own: one that stands by until the first one ends, and one that will be killed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from .inside import supervisor
from .testbed import BINARY, ROOT
from .waiting import until

if TYPE_CHECKING:
    from types import TracebackType

    from .ambush import Ambush
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


class Doomed:
    """A scheduler that an ambush kills at its moment. Use it as a context manager, while no other one runs."""

    def __init__(self, ambush: Ambush, folder: Path) -> None:
        """Say who kills it."""
        self._ambush, self._folder, self._log = ambush, folder, folder / "doomed.log"

    def __enter__(self) -> Self:
        """Start it, and wait until it places pods."""
        config = yaml.safe_load((ROOT / "scheduler" / "config" / "replace.yaml").read_text())
        config["leaderElection"] = {"leaderElect": False}
        config["clientConnection"] = {
            "kubeconfig": str(self._ambush.kubeconfig(self._folder / "kubeconfig")),
            "qps": 500,
        }
        (self._folder / "config.yaml").write_text(yaml.safe_dump(config))
        command = [str(BINARY), "kube-scheduler", f"--config={self._folder / 'config.yaml'}", "--secure-port=0"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._ambush.at_the_moment(self._process.kill)
        until("the scheduler leads", lambda: "Holds are acknowledged from now on" in self._log.read_text())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, if nobody has."""
        self._process.kill()
        self._process.wait(10)

    def until_killed(self) -> None:
        """Wait for its end."""
        assert self._ambush.struck.wait(20), f"the moment did not come: {self._log.read_text()[-2000:]}"
        self._process.wait(10)


def _command_lines(parent: int) -> list[list[str]]:
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [pid for file in children for pid in file.read_text().split()]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]
    return [line.rstrip("\0").split("\0") for line in lines]
