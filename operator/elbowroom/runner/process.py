"""QEMU as a process: started, found again by the next agent, watched to its end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .config import ConfigError
from .record import QemuProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

KVM = Path("/dev/kvm")
_HARDWARE = re.compile(r"^flags\s*:.*\b(vmx|svm)\b", re.MULTILINE)


def choose_accelerator(wanted: Literal["auto", "kvm", "tcg"]) -> Literal["kvm", "tcg"]:
    """Return KVM where it is there and the processor really helps, else TCG.

    A /dev/kvm without hardware behind it exists (in some nested VMs): it creates machines that then die of the first
    instruction it cannot emulate. So the processor is asked, too.
    """
    if wanted == "tcg":
        return "tcg"
    missing = _why_no_kvm()
    if missing is None:
        return "kvm"
    if wanted == "kvm":
        raise ConfigError(f"accelerator: kvm cannot be used here: {missing}")
    return "tcg"


def _why_no_kvm() -> str | None:
    if not KVM.exists():
        return "there is no /dev/kvm"
    if not os.access(KVM, os.R_OK | os.W_OK):
        return "/dev/kvm may not be opened"
    if not _HARDWARE.search(Path("/proc/cpuinfo").read_text()):
        return "the processor shows neither vmx nor svm"
    return None


class Qemu:
    """One process of QEMU."""

    def __init__(self, process: QemuProcess) -> None:
        """Watch a process that runs."""
        self.process = process
        self._descriptor = os.pidfd_open(process.pid)
        self._ended = asyncio.Event()
        self.exit_code: int | None = None
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)
        if start_time(process.pid) != process.start_time:
            self._on_end()

    @classmethod
    def start(cls, command: Sequence[str]) -> Qemu:
        """Start QEMU in a session of its own: signals to the agent's group are not for it."""
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, close_fds=True)
        started = start_time(child.pid)
        child.returncode = 0  # It is collected below, or by the pod's first process; Popen need not try.
        return cls(QemuProcess(pid=child.pid, start_time=started or 0))

    @classmethod
    def find(cls, process: QemuProcess) -> Qemu | None:
        """Return the process that a former agent has started, unless it is gone."""
        if start_time(process.pid) != process.start_time:
            return None
        try:
            return cls(process)
        except ProcessLookupError:
            return None

    @classmethod
    def find_by_note(cls, path: Path) -> Qemu | None:
        """Return the process whose number QEMU has noted itself, unless it is gone."""
        try:
            pid = int(path.read_text())
        except (FileNotFoundError, ValueError):
            return None
        started = start_time(pid)
        return None if started is None else cls.find(QemuProcess(pid=pid, start_time=started))

    def _on_end(self) -> None:
        if self._ended.is_set():
            return
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        try:
            _, status = os.waitpid(self.process.pid, os.WNOHANG)
            self.exit_code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self.exit_code = None  # a child of a former agent: the pod's first process has collected it
        self._ended.set()

    @property
    def alive(self) -> bool:
        """Tell whether it still runs."""
        return not self._ended.is_set()

    async def ended(self) -> None:
        """Wait for its end."""
        await self._ended.wait()

    def kill(self) -> None:
        """End it at once."""
        if self.alive:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def how_it_ended(self) -> str:
        """Say it in words."""
        if self.exit_code is None:
            return "with an unknown exit code"
        if self.exit_code < 0:
            return f"by signal {signal.Signals(-self.exit_code).name}"
        return f"with exit code {self.exit_code}"


def start_time(pid: int) -> int | None:
    """Return when a process was started, in the kernel's own terms; nothing when it is gone or only a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
