"""The commands and manifests that pages show, and a shell that types them as a reader would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .testbed import ROOT, complete

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s{2,}#.*$|\s# .*$")
_KEEPS_RUNNING = ("bin/testbed up", "port-forward", " logs ")
"""What a reader ends with Ctrl-C."""


def blocks(page: str, kind: str) -> list[str]:
    """Return what a page shows of one kind, `console` or `yaml`."""
    return [text for found, text in _BLOCK.findall((ROOT / page).read_text()) if found == kind]


def pages_with(kind: str) -> set[str]:
    """Return the pages that show something of a kind."""
    found = (path.relative_to(ROOT) for pattern in ("*.md", "*/*.md", "*/*/*.md") for path in ROOT.glob(pattern))
    return {str(path) for path in found if not path.parts[0].startswith(".") and blocks(str(path), kind)}


@dataclass
class Shell:
    """Types lines in the repository's folder, where `helm` and `kubectl` are the ones that were built there."""

    kubeconfig: Path | None
    folder: Path
    instead: Mapping[str, str] = field(default_factory=dict)
    """What a reader would write otherwise: a folder of their own, for instance."""

    def _environment(self) -> dict[str, str]:
        path = f"{ROOT / 'bin'}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        config = {} if self.kubeconfig is None else {"KUBECONFIG": str(self.kubeconfig)}
        return {**os.environ, "PATH": path, **config}

    def type(self, block: str, *, within: float = 240) -> list[str]:
        """Type all lines of a block, each of which has to succeed, and return what they print."""
        said: list[str] = []
        with self.typed(block, said, within=within):
            return said

    @contextmanager
    def typed(self, block: str, said: list[str], *, within: float = 240) -> Iterator[None]:
        """Type all lines of a block, and leave running what a reader would leave running meanwhile."""
        running: list[subprocess.Popen[str]] = []
        exported = self._environment()
        try:
            for line in filter(None, (_COMMENT.sub("", line).strip() for line in block.splitlines())):
                for before, after in self.instead.items():
                    line = line.replace(before, after)  # noqa: PLW2901
                if line.startswith("export "):
                    name, _, value = line.removeprefix("export ").partition("=")
                    exported[name] = value
                elif any(word in line for word in _KEEPS_RUNNING):
                    running.append(_left_running(line, exported))
                else:
                    done = complete("bash", "-c", f"cd '{ROOT}' && {line}", within=within, env=exported)
                    assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
                    said.append(done.stdout)
            yield
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGINT)
                process.wait(30)


def _left_running(line: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        ["bash", "-c", f"cd '{ROOT}' && exec {line}"], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    ready = ("Ready after", "Forwarding from", "{", "I", "W")  # a log's lines begin so
    for said in process.stdout:
        if said.startswith(ready):
            return process
    raise AssertionError(f"{line} has ended: {process.wait(5)}")
