"""The testbed, driven by its own command line as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from kubernetes import client, config

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "bin" / "testbed"
KUBECTL = ROOT / "bin" / "kubectl"
# Containers of this image find the Python of the tests' own environment first in their PATH.
PYTHON_IMAGE = "elbowroom.test/python"
RUNNER_IMAGE = "elbowroom.test/runner"


def run(*command: str | Path, within: float = 60, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program to its end and return what it printed; fail with its complaint."""
    done = complete(*command, within=within, stdin=stdin, env=env)
    assert done.returncode == 0, (
        f"{' '.join(map(str, command))} failed with {done.returncode}: {done.stderr}{done.stdout}"
    )
    return done.stdout


def complete(
    *command: str | Path, within: float = 60, stdin: str | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever that is."""
    return subprocess.run(
        [str(part) for part in command],
        input=stdin, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=within, check=False,
    )  # fmt: skip


class Testbed:
    """A running cluster. Use it as a context manager: it is gone afterwards, whatever happened."""

    __test__ = False  # not a test, whatever pytest makes of the name

    def __init__(
        self, directory: Path, *, nodes: int = 3, flags: tuple[str, ...] = (), through: tuple[str, ...] = ()
    ) -> None:
        """Say what to start, and through which other program; entering the context starts it."""
        self.directory = directory
        self.command = [
            *through, str(BINARY), "up", "--dir", str(directory), "--nodes", str(nodes), "--image", f"{PYTHON_IMAGE}={ROOT}/.venv/bin", "--image", f"{RUNNER_IMAGE}={ROOT}/.venv/bin", *flags,
        ]  # fmt: skip
        self.output = ""
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        """Start the cluster and wait until it is ready."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        assert self._ready.wait(90), f"the testbed did not answer within 90 s: {self.output}"
        assert self.process.poll() is None, f"the testbed did not start: {self.output}"
        self.kubeconfig = self.directory / "kubeconfig"
        self.api: client.ApiClient = config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]
        self.core = client.CoreV1Api(self.api)
        return self

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.output += line
            if line.startswith("Ready after"):
                self._ready.set()
        self._ready.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the cluster."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait(5)
            self._reader.join(5)

    def cli(self, *arguments: str, within: float = 120) -> str:
        """Run one of the testbed's commands."""
        return run(BINARY, *arguments, "--dir", self.directory, within=within)

    def status(self) -> dict[str, Any]:
        """Return what the testbed says of itself."""
        status: dict[str, Any] = json.loads(self.cli("status", "-o", "json"))
        return status

    def kubectl(self, *arguments: str, within: float = 60, stdin: str | None = None) -> str:
        """Run kubectl as the administrator."""
        return run(KUBECTL, *arguments, within=within, stdin=stdin, env={"KUBECONFIG": str(self.kubeconfig)})

    def plain(self, thing: object) -> dict[str, Any]:
        """Turn one of the client's objects into what the API server sent."""
        found: dict[str, Any] = self.api.sanitize_for_serialization(thing)  # type: ignore[no-untyped-call]
        return found

    def node(self, name: str) -> dict[str, Any]:
        """Return a node."""
        return self.plain(self.core.read_node(name))
