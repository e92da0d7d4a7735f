"""The operator in a testbed, as a pod under its own service account; requests and migrations as users make them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Self

import yaml
from kubernetes import client

from .holds import GROUP
from .namespace import condition
from .testbed import ROOT
from .waiting import until

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from .ambush import Ambush
    from .inside import Inside
    from .namespace import Json, Namespace
    from .testbed import Testbed

SYSTEM = "elbowroom-system"
METRICS_PORT, GUARD_PORT = 9090, 8443
ACCOUNT = f"system:serviceaccount:{SYSTEM}:elbowroom-operator"
OVER = ("Succeeded", "Failed", "Cancelled", "PartiallyMoved")


def start_operator(testbed: Testbed, *, replicas: int = 1, **settings: Any) -> None:
    """Run the operator as a pod, with other settings than it has by itself, and wait until it knows everything."""
    shipped = list(yaml.safe_load_all((ROOT / "examples" / "operator.yaml").read_text()))
    config = next(item for item in shipped if item["kind"] == "ConfigMap")
    config["data"]["config.yaml"] = yaml.safe_dump(settings)
    deployment = next(item for item in shipped if item["kind"] == "Deployment")["spec"]
    deployment["replicas"] = replicas
    spec = deployment["template"]["spec"]
    spec["containers"][0]["command"] += ["--metrics-port", str(METRICS_PORT)]
    if "guard" in settings:
        probe = {"httpGet": {"path": "/readyz", "port": GUARD_PORT, "scheme": "HTTPS"}, "periodSeconds": 1}
        operator = spec["containers"][0]
        command = ["elbowroom", "guard", "--config", "/etc/elbowroom/config/config.yaml"]
        spec["containers"].append({**operator, "name": "guard", "command": command, "readinessProbe": probe})
        shipped += yaml.safe_load_all((ROOT / "examples" / "guard.yaml").read_text())
    testbed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(shipped))
    until("the operator is ready", lambda: '"message": "ready"' in operator_log(testbed), within=60)
    if "guard" in settings:
        testbed.kubectl("-n", SYSTEM, "rollout", "status", "deployment/elbowroom-operator", "--timeout=60s", within=70)
        until("the guard is asked", lambda: "the guard is asked" in operator_log(testbed), within=30)


def operator_log(testbed: Testbed) -> str:
    """Return what the operator has said."""
    try:
        return testbed.kubectl(
            "-n", SYSTEM, "logs", "-l", "app.kubernetes.io/name=elbowroom-operator", "-c", "operator", "--tail=-1"
        )
    except AssertionError as error:
        return str(error)


class Mortal:
    """Operators of one name, one after the other, each of which an ambush may kill. Use it as a context manager."""

    def __init__(self, ambush: Ambush, inside: Inside, folder: Path, name: str = "mortal") -> None:
        """Say who kills them, and where they stand."""
        self._ambush, self._inside, self._name, self._log = ambush, inside, name, folder / f"{name}.log"
        self._kubeconfig = ambush.kubeconfig(folder / f"{name}.kubeconfig")
        self._process: subprocess.Popen[bytes] | None = None
        self.lives = 0

    def live_on(self) -> None:
        """Start one, unless one runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.lives += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "nsenter", f"--net={self._inside.namespace}", ROOT / ".venv" / "bin" / "elbowroom", "operator",
                    "--namespace", SYSTEM, "--identity", self._name,
                ],
                env={**os.environ, "KUBECONFIG": str(self._kubeconfig)}, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._ambush.at_the_moment(self._process.kill)

    def signal(self, number: int) -> None:
        """Send the one that lives a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def story(self) -> str:
        """Return the end of what they have said."""
        return self._log.read_text()[-6000:]

    def __enter__(self) -> Self:
        """Start the first."""
        self.live_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the last."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


class Requests:
    """Scale requests and migrations in one namespace."""

    def __init__(self, namespace: Namespace) -> None:
        """Say where."""
        self.namespace = namespace
        self._api = client.CustomObjectsApi(namespace.testbed.api)

    def grow(self, name: str, **spec: Any) -> None:
        """Ask for another size."""
        self._create("VMScaleRequest", name, spec)

    def migrate(self, name: str, **spec: Any) -> None:
        """Move a VM by hand."""
        self._create("VMMigration", name, spec)

    def _create(self, kind: str, name: str, spec: Json) -> None:
        self.namespace.apply({"apiVersion": "/".join(GROUP), "kind": kind, "metadata": {"name": name}, "spec": spec})

    def get(self, name: str, plural: str = "vmscalerequests") -> Json:
        """Return one of them."""
        found = self._api.get_namespaced_custom_object(*GROUP, self.namespace.name, plural, name)
        return self.namespace.testbed.plain(found)

    def all(self, plural: str) -> list[Json]:
        """Return all of a kind in this namespace."""
        found = self._api.list_namespaced_custom_object(*GROUP, self.namespace.name, plural)
        items: list[Json] = self.namespace.testbed.plain(found)["items"]
        return items

    def until(self, name: str, phase: str, *, plural: str = "vmscalerequests", within: float = 90) -> Json:
        """Wait until one of them is in a phase; fail at once when it has ended in another one."""

        def probe() -> Json:
            found = self.get(name, plural)
            status = found.get("status", {})
            if status.get("phase") in OVER and status["phase"] != phase:
                raise EndedError(f"{name} ended as {told(found)}\n{operator_log(self.namespace.testbed)[-6000:]}")
            assert status.get("phase") == phase, told(found)
            return found

        try:
            return until(f"{name} is {phase}", probe, within=within)
        except AssertionError as error:
            error.add_note(operator_log(self.namespace.testbed)[-6000:])
            raise


class EndedError(Exception):
    """It has ended, and not as it should have."""


def told(found: Json) -> str:
    """Say in a line where something is."""
    status = found.get("status", {})
    return (
        f"{status.get('phase')} {status.get('reason')} {status.get('message', '')}, Ready={condition(found, 'Ready')}"
    )
