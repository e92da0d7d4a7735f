"""The chart in a testbed, installed by the real helm; operator, scheduler and VMs run from images as their Dockerfiles say."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import yaml

from .holds import GROUP
from .namespace import condition
from .schedulers import stock
from .testbed import ROOT, Testbed, complete, run
from .vms import QUIET
from .waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from .namespace import Json

CHART = ROOT / "charts" / "elbowroom"
HELM = ROOT / "bin" / "helm"
IMAGES = ROOT / ".cache" / "images"
RELEASE, SPACE = "elbowroom", "elbowroom-system"
FAST = (
    "--set",
    "operator.config.bindWithin=20s",
    "--set",
    "operator.config.backoff=1s",
    "--set",
    "operator.config.rest=0s",
)
PSS = "pod-security.kubernetes.io/enforce"


class Cluster(Testbed):
    """A cluster as others have it: a stock scheduler, and nothing of ours but images."""

    def __init__(self, folder: Path, *, nodes: int = 2, flags: tuple[str, ...] = ()) -> None:
        """Say where it lives."""
        images = [f"--image=elbowroom/{name}={IMAGES / name}" for name in ("operator", "runner", "scheduler")]
        super().__init__(folder / "testbed", nodes=nodes, flags=("--cpu", "4", "--memory", "8Gi", *images, *flags))
        self._folder = folder

    def __enter__(self) -> Self:
        """Start it, and put a stock scheduler into the place of the testbed's, which is ours."""
        super().__enter__()
        try:
            self.cli("kill", "kube-scheduler")
            self.stock = stock(self, self._folder, "default-scheduler")
            self.stock.__enter__()
        except BaseException:
            super().__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.stock.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    @contextmanager
    def unscheduled(self) -> Iterator[None]:
        """End the stock scheduler for a while."""
        self.stock.__exit__(None, None, None)
        try:
            yield
        finally:
            self.stock.__enter__()

    # Helm

    def helm(self, *arguments: str, within: float = 240) -> str:
        """Run helm; it has to succeed."""
        return run(HELM, *arguments, within=within, env={"KUBECONFIG": str(self.kubeconfig)})

    def helm_fails(self, *arguments: str, within: float = 240) -> str:
        """Run helm, which has to refuse, and return what it says."""
        done: subprocess.CompletedProcess[str] = complete(
            HELM, *arguments, within=within, env={"KUBECONFIG": str(self.kubeconfig)}
        )
        assert done.returncode != 0, done.stdout
        return done.stderr

    def install(self, *arguments: str, space: str = SPACE, release: str = RELEASE) -> str:
        """Install the chart into a namespace that enforces the restricted standard, and wait until all is ready."""
        self.space(space)
        said = self.helm("install", release, str(CHART), "-n", space, *FAST, *arguments, "--wait", "--timeout=120s")
        self.until_asked(space)
        return said

    def uninstall(self, space: str = SPACE, release: str = RELEASE) -> str:
        """Uninstall it."""
        return self.helm("uninstall", release, "-n", space, "--wait", "--timeout=180s")

    def space(self, name: str) -> None:
        """Make a namespace that enforces the restricted Pod Security Standard."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {PSS: "restricted"}}}
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))
        until(f"{name} has its account", lambda: "default" in self.kubectl("-n", name, "get", "sa", "-o", "name"))

    def until_asked(self, space: str = SPACE) -> None:
        """Wait until the operator has found out that the guard is asked."""
        until("the guard is asked", lambda: "the guard is asked" in self.said(space), within=60)

    def said(self, space: str = SPACE, what: str = "operator", container: str = "operator") -> str:
        """Return what the replicas of something have said."""
        return self.kubectl(
            "-n", space, "logs", "-l", f"app.kubernetes.io/name=elbowroom-{what}", "-c", container, "--tail=-1",
        )  # fmt: skip

    def objects(self, kind: str, *arguments: str) -> list[Json]:
        """Return all objects of a kind, everywhere."""
        found: list[Json] = json.loads(self.kubectl("get", kind, "-A", "-o", "json", *arguments))["items"]
        return found

    def leftovers(self) -> list[str]:
        """Return what is there of ours in the whole cluster, but for kinds that were to be kept, and for Secrets."""
        kinds = "clusterroles,clusterrolebindings,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
        here = "deployments,services,roles,rolebindings,serviceaccounts,poddisruptionbudgets,networkpolicies,jobs,pods"
        found = self.kubectl("get", kinds, "-o", "name") + self.kubectl("get", here, "-A", "-o", "name")
        tainted = [
            node["metadata"]["name"] for node in self.objects("nodes")
            if any(item["key"] == "elbowroom.dev/held" for item in node["spec"].get("taints", ()))
        ]  # fmt: skip
        return [line for line in found.split() if "elbowroom" in line] + tainted


def vm(name: str, node: str, cpu: str = "2", **labels: str) -> Json:
    """Describe a VM that keeps to the restricted standard: examples/restricted-vm.yaml, under another name."""
    text = (ROOT / "examples" / "restricted-vm.yaml").read_text().replace("elbowroom-vm-db", f"elbowroom-vm-{name}")
    found: Json = yaml.safe_load(text)
    found["metadata"]["name"] = name
    found["metadata"]["labels"] |= {"elbowroom.dev/vm": name, **labels}
    found["spec"]["nodeName"] = node
    container = found["spec"]["containers"][0]
    container["resources"]["requests"]["cpu"] = cpu
    settings = yaml.safe_load(container["env"][0]["value"])
    settings["commandLine"] = QUIET.command_line()
    container["env"][0]["value"] = yaml.safe_dump(settings)
    return found


def request(name: str, **spec: Any) -> Json:
    """Describe a scale request."""
    return {"apiVersion": "/".join(GROUP), "kind": "VMScaleRequest", "metadata": {"name": name}, "spec": spec}


def is_true(found: Json, kind: str) -> bool:
    """Tell whether a condition of an object is true."""
    return condition(found, kind).get("status") == "True"
