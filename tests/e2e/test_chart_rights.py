"""Every right that the chart gives is needed, and none is missing: the API server's audit log says what was done.

A life of everything there is: installed, VMs that grow and move, conflicts, a move by hand, VMs that go, uninstalled.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from support.charts import CHART, HELM, PSS, RELEASE, SPACE, Cluster, vm
from support.scenes import SLOWLY
from support.testbed import run
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.namespace import Json
    from support.scenes import Scene

GROUP = ("elbowroom.dev", "v1alpha1")
OURS = f"system:serviceaccount:{SPACE}:elbowroom-"
POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{SPACE}"]}, {"level": "None"}],
}  # fmt: skip


class Right(NamedTuple):
    """What somebody may do, or has done."""

    account: str
    verb: str
    group: str
    resource: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rights")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    (folder / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    flags = ("policy-file", folder / "policy.yaml"), ("log-path", folder / "audit.log")
    with Cluster(folder, flags=tuple(f"--arg=kube-apiserver=--audit-{name}={path}" for name, path in flags)) as running:
        running.install()
        yield running


def given() -> set[Right]:
    """Return the rights that the chart gives to its own accounts."""
    found = [item for item in yaml.safe_load_all(run(HELM, "template", "elbowroom", CHART, "-n", SPACE)) if item]
    roles = {
        (item["kind"], item["metadata"]["name"]): item["rules"]
        for item in found if item["kind"] in ("Role", "ClusterRole")
    }  # fmt: skip
    return {
        Right(subject["name"], verb, group, resource)
        for item in found if item["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for rule in roles.get((item["roleRef"]["kind"], item["roleRef"]["name"]), ())
        for subject in item["subjects"] if subject["kind"] == "ServiceAccount"
        for verb in rule["verbs"] for group in rule["apiGroups"] for resource in rule["resources"]
    }  # fmt: skip


def used(folder: Path) -> tuple[set[Right], list[str]]:
    """Return what was done, and what was denied and never allowed: a right that was just given counts a moment later."""
    done, denied = set[Right](), dict[Right, str]()
    for line in (folder / "audit.log").read_text().splitlines():
        event: Json = json.loads(line)
        what: Json = event.get("objectRef", {})
        if not event["user"]["username"].startswith(OURS) or "resource" not in what:
            continue
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        account = event["user"]["username"].rpartition(":")[2]
        right = Right(account, event["verb"], what.get("apiGroup", ""), resource)
        if event["annotations"].get("authorization.k8s.io/decision") == "forbid":
            denied[right] = f"{right} {what.get('namespace', '')}/{what.get('name', '')}"
        else:
            done.add(right)
    return done, [told for right, told in denied.items() if right not in done]


class Meddler:
    """Somebody who writes notes onto all objects of ours all the time, so that others' writes meet conflicts."""

    def __init__(self, stage: Scene) -> None:
        self._stage, self._over = stage, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _run(self) -> None:
        api: Any = self._stage.requests._api  # noqa: SLF001  # its client
        number, space = 0, self._stage.space.name
        while not self._over.wait(0.01):
            number += 1
            note = {"metadata": {"annotations": {"note": str(number)}}}
            for plural in ("vmscalerequests", "vmmigrations"):
                for item in api.list_namespaced_custom_object(*GROUP, space, plural)["items"]:
                    self._try(api.patch_namespaced_custom_object, *GROUP, space, plural, item["metadata"]["name"], note)
            for item in api.list_cluster_custom_object(*GROUP, "capacityholds")["items"]:
                self._try(api.patch_cluster_custom_object, *GROUP, "capacityholds", item["metadata"]["name"], note)

    @staticmethod
    def _try(call: Any, *arguments: object) -> None:
        try:
            call(*arguments)
        except ApiException as error:
            if error.status != 404:
                raise


def test_every_right_is_used_and_none_is_missing(stage: Scene, cluster: Cluster, folder: Path) -> None:
    space = stage.space
    stage.fill("node-1", keep="2500m")
    cluster.kubectl("label", "namespace", space.name, f"{PSS}=restricted")
    space.apply(vm("db", "node-1", "1500m"), vm("web", "node-1", "1"))
    for name in ("db", "web"):
        stage.vms.until_ready(name)
    with Meddler(stage):
        stage.requests.grow("grow", vm="db", resources={"cpu": "2500m"}, transfer=SLOWLY, ttlSecondsAfterFinished=1)
        stage.until_copying()
        until("it is over, and forgotten", lambda: not stage.requests.all("vmscalerequests"), within=120)
    assert stage.has("db").cpu == 2500
    assert stage.lives("web") == "node-2"
    # A VM goes, and its certificate with it.
    secret = f"secret/elbowroom-vm-{stage.home_of('db')['metadata']['labels']['elbowroom.dev/vm']}"
    space.kubectl("delete", "pod", "db", "--wait=false")
    until("its Secret is gone", lambda: secret not in space.kubectl("get", "secrets", "-o", "name"), within=120)
    assert "ok  a scheduler keeps to holds" in cluster.helm("test", RELEASE, "-n", SPACE, "--logs")
    # Uninstalled while a VM is moved by hand, a request waits, and others are over.
    stage.requests.grow("over", vm="web", resources={"cpu": "1"})
    stage.requests.until("over", "Succeeded")
    stage.requests.migrate("nobody", vm="nobody")
    stage.requests.until("nobody", "Failed", plural="vmmigrations")
    stage.requests.grow("waits", pod="nobody", resources={"cpu": "1"})
    for reason, suspended in (("VMNotFound", False), ("Suspended", True), ("VMNotFound", False)):
        space.kubectl("patch", "vmsr", "waits", "--type=merge", "-p", json.dumps({"spec": {"suspend": suspended}}))
        stage.until_reason("waits", reason)
    until("what happened again is counted", lambda: "(x2 over" in space.kubectl("describe", "vmsr", "waits"))
    stage.requests.migrate("away", vm="web", transfer=SLOWLY)
    stage.until_copying()
    cluster.uninstall()
    assert stage.lives("web") == "node-2"
    done, denied = used(folder)
    assert not denied
    unused = {right for right in given() if right not in done}
    assert not unused, "\n".join(map(str, sorted(unused)))
