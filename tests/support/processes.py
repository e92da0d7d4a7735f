"""What the kernel knows of the processes on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def processes() -> Iterator[Path]:
    """Return the folders of all processes."""
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def descendants(pid: int) -> set[tuple[str, str]]:
    """Return every process below this one, containers included, as (pid, start time): a pid alone may be used again."""
    found: set[tuple[str, str]] = set()
    waiting = [str(pid)]
    while waiting:
        current = waiting.pop()
        started = start_time(current)
        if started is None:
            continue
        found.add((current, started))
        for task in Path(f"/proc/{current}/task").iterdir():
            waiting += (task / "children").read_text().split()
    return found


def start_time(pid: str) -> str | None:
    """Return when a process was started, in the kernel's own terms."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(known: Iterable[tuple[str, str]]) -> list[str]:
    """Return those of the processes that are still there."""
    return [pid for pid, started in known if start_time(pid) == started and not is_zombie(pid)]


def is_zombie(pid: str) -> bool:
    """Tell whether a process has ended and only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_line(pid: str) -> str:
    """Return a process's command line, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def mentioning(text: str) -> list[str]:
    """Return the command lines of other processes that name something."""
    lines = {process.name: command_line(process.name) for process in processes()}
    return [line for pid, line in lines.items() if text in line and pid != str(os.getpid())]
