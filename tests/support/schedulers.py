"""Schedulers beside the testbed's own: one that stands by until the first one ends, and one that will be killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from .inside import supervisor
from .testbed import BINARY, ROOT
from .waiting import until

if TYPE_CHECKING:
    from types import TracebackType

    from .ambush import Ambush
    from .testbed import Testbed

_SYSTEM = "elbowroom-system"
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


class Process:
    """A process that stands where control plane components stand. Use it as a context manager."""

    def __init__(self, testbed: Testbed, log: Path, command: list[str], **environment: str) -> None:
        """Say what to run."""
        self._testbed, self._log, self._command, self._environment = testbed, log, command, environment

    def __enter__(self) -> Self:
        """Start it."""
        into = ["nsenter", "-t", str(supervisor(self._testbed)), "-m", "-n", *self._command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                into, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **self._environment}
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(5)
        finally:
            self._process.kill()
            self._process.wait(5)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def until_ended(self, *, within: float) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait(within)

    def until_said(self, text: str, *, within: float = 30) -> None:
        """Wait until it has said something."""
        until(f"{self._log.stem} says {text!r}", lambda: text in self._log.read_text(), within=within)


def stock(testbed: Testbed, folder: Path, name: str = "stock", **config: Any) -> Process:
    """Describe a scheduler without our plugins, under its own account. What is left out of its configuration is as ever."""
    kubeconfig = folder / f"{name}.kubeconfig"
    account = f"scheduler-{name}"
    testbed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_scheduler_account(account)))
    _as_account(testbed, account, kubeconfig)
    body = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False}, "profiles": [{"schedulerName": name}],
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 500}, **config,
    }  # fmt: skip
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(body))
    command = [str(BINARY), "stock-scheduler", f"--config={file}", "--secure-port=0", "--v=2"]
    return Process(testbed, folder / f"{name}.log", command)


def extender(testbed: Testbed, folder: Path, identity: str = "extender", port: int = 8888) -> Process:
    """Describe our extender, under its own account."""
    file = folder / f"{identity}.kubeconfig"
    _as_account(testbed, "elbowroom-extender", file)
    command = [
        str(ROOT / ".venv" / "bin" / "elbowroom"), "extender", "--listen", f"127.0.0.1:{port}", "--identity", identity,
    ]  # fmt: skip
    return Process(testbed, folder / f"{identity}.log", command, KUBECONFIG=str(file))


def operator(testbed: Testbed, folder: Path, identity: str, health_port: int) -> Process:
    """Describe an operator under its own account, which the kubelet could ask how it is."""
    file = folder / f"{identity}.kubeconfig"
    _as_account(testbed, "elbowroom-operator", file)
    command = [
        str(ROOT / ".venv" / "bin" / "elbowroom"), "operator", "--identity", identity, f"--health-port={health_port}",
    ]  # fmt: skip
    return Process(testbed, folder / f"{identity}.log", command, KUBECONFIG=str(file))


def _scheduler_account(name: str) -> list[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": name, "namespace": _SYSTEM}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _SYSTEM}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": _SYSTEM}},
        *(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{name}-{role}"}, "subjects": [subject],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"system:{role}"},
            }
            for role in ("kube-scheduler", "volume-scheduler")
        ),
    ]  # fmt: skip


def _as_account(testbed: Testbed, account: str, file: Path) -> None:
    """Write a file that leads to the API server, from inside, in the name of an account."""
    token = testbed.kubectl("-n", _SYSTEM, "create", "token", account, "--duration=4h").strip()
    found = yaml.safe_load(testbed.kubeconfig.read_text())
    cluster = {**found["clusters"][0]["cluster"], "server": "https://10.96.0.1"}
    written = {
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "users": [{"name": "it", "user": {"token": token}}], "clusters": [{"name": "it", "cluster": cluster}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }  # fmt: skip
    file.write_text(yaml.safe_dump(written))


def _command_lines(parent: int) -> list[list[str]]:
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [pid for file in children for pid in file.read_text().split()]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]
    return [line.rstrip("\0").split("\0") for line in lines]
