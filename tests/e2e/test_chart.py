"""The chart, installed by helm into a cluster that has never heard of us: from images, under its own accounts.

Two nodes of 4 cores and 8Gi, a stock scheduler. All of ours, and the VMs, are in namespaces that enforce the restricted
Pod Security Standard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.charts import CHART, PSS, RELEASE, SPACE, Cluster, vm
from support.scenes import SLOWLY
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.scenes import Scene


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("chart")) as running:
        running.install()
        yield running


def full(stage: Scene) -> None:
    """Fill node-1: db (1.5 cores) and web (1) are VMs, the rest is somebody else's."""
    space = stage.space
    stage.fill("node-1", keep="2500m")
    space.testbed.kubectl("label", "namespace", space.name, f"{PSS}=restricted")
    space.apply(vm("db", "node-1", "1500m"), vm("web", "node-1", "1"))
    for name in ("db", "web"):
        stage.vms.until_ticking(stage.vms.until_ready(name), more=5)


def grow(stage: Scene, **spec: object) -> None:
    stage.requests.grow("grow", vm="db", resources={"cpu": "2500m"}, **spec)


def grown(stage: Scene) -> None:
    stage.requests.until("grow", "Succeeded", within=120)
    assert stage.has("db").cpu == 2500
    assert stage.lives("web") == "node-2"
    stage.witness.assert_kept(stage.space.name)


def test_a_vm_grows_because_its_neighbour_is_moved(stage: Scene, cluster: Cluster) -> None:
    full(stage)
    grow(stage)
    grown(stage)
    assert stage.home_of("web")["spec"]["schedulerName"] == "elbowroom"
    for pod in stage.operators():
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
    told = cluster.helm("test", RELEASE, "-n", SPACE, "--logs")
    for line in ("an operator leads", "a scheduler keeps to holds", "the API server asks the guard"):
        assert f"ok  {line}" in told


def test_a_rolling_restart_in_the_middle_of_a_copy(stage: Scene, cluster: Cluster) -> None:
    full(stage)
    grow(stage, transfer=SLOWLY)
    stage.until_copying()
    for name in ("operator", "scheduler"):
        cluster.kubectl("-n", SPACE, "rollout", "restart", f"deployment/elbowroom-{name}")
    for name in ("operator", "scheduler"):
        status = ("rollout", "status", f"deployment/elbowroom-{name}", "--timeout=90s")
        cluster.kubectl("-n", SPACE, *status, within=100)
    grown(stage)


def test_an_upgrade_and_a_rollback_in_the_middle_of_a_copy(stage: Scene, cluster: Cluster) -> None:
    crd = "customresourcedefinition/capacityholds.elbowroom.dev"
    cluster.kubectl("patch", crd, "--type=json", "-p", '[{"op":"remove","path":"/spec/names/shortNames"}]')
    full(stage)
    grow(stage, transfer=SLOWLY)
    stage.until_copying()
    told = ("--wait", "--timeout=120s")
    cluster.helm(
        "upgrade", RELEASE, str(CHART), "-n", SPACE, "--reuse-values", "--set", "operator.config.tries=6", *told
    )
    assert "tries: 6" in cluster.kubectl("-n", SPACE, "get", "configmap", "elbowroom-operator", "-o", "yaml")
    assert '"hold"' in cluster.kubectl("get", crd, "-o", "jsonpath={.spec.names.shortNames}")
    cluster.helm("rollback", RELEASE, "1", "-n", SPACE, *told)
    assert "tries" not in cluster.kubectl("-n", SPACE, "get", "configmap", "elbowroom-operator", "-o", "yaml")
    grown(stage)


def test_uninstalled_with_requests_in_flight_and_installed_elsewhere(stage: Scene, cluster: Cluster) -> None:
    """What is under way is put back, what is over stays, nothing is in the way of anybody."""
    full(stage)
    stage.requests.grow("over", vm="db", resources={"cpu": "1500m"})
    stage.requests.until("over", "Succeeded")
    grow(stage, transfer=SLOWLY)
    stage.until_copying()
    cluster.uninstall()
    assert cluster.leftovers() == []
    assert [item["metadata"]["name"] for item in stage.requests.all("vmscalerequests")] == ["over"]
    assert stage.has("db").cpu == 1500
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name)
    stage.space.kubectl("delete", "vmsr,vmm", "--all", "--timeout=20s")

    cluster.install(space="rooms", release="other")
    try:
        grow(stage)
        grown(stage)
        said = cluster.helm_fails("install", "second", str(CHART), "-n", "default")
        assert "is installed already, as release other in namespace rooms: upgrade that one" in said
    finally:
        cluster.uninstall(space="rooms", release="other")
    assert cluster.leftovers() == []
    cluster.install()
    until(
        "the kinds are served", lambda: "capacityholds" in cluster.kubectl("api-resources", "--api-group=elbowroom.dev")
    )
