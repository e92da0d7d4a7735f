"""The chart, installed by helm into a cluster that has never heard of us: from images, under its own accounts.

Two nodes of 4 cores and 8Gi, a stock scheduler. All of ours, and the VMs, are in namespaces that enforce the restricted
Pod Security Standard.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
import yaml
from support.certificates import self_signed
from support.charts import CHART, PSS, RELEASE, SPACE, Cluster, vm
from support.prometheus import Asked, panels, prometheus
from support.scenes import SLOWLY
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.scenes import Scene


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("chart")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(bare: Cluster) -> Cluster:
    bare.install()
    return bare


MISSING: dict[str, tuple[str, ...]] = {
    "crds.install: is false, and the kinds of elbowroom.dev are not in the cluster": ("crds.install=false",),
    "guard.certificate.mode: is certManager, and cert-manager is not in the cluster": (
        "guard.certificate.mode=certManager", "guard.certificate.issuerRef.name=ca",
    ),
    "guard.certificate.secretName: there is no Secret tls in namespace default": (
        "guard.certificate.mode=secret", "guard.certificate.secretName=tls", "guard.certificate.caBundle=Q0E=",
    ),
    "extender.secretName: there is no Secret tls in namespace default": (
        "scheduler.mode=extender", "extender.secretName=tls",
    ),
}  # fmt: skip


def test_what_is_missing_is_said_before_anything_is_made(bare: Cluster) -> None:
    for told, values in MISSING.items():
        setting = (word for value in values for word in ("--set", value))
        assert told in bare.helm_fails("install", RELEASE, str(CHART), "-n", "default", *setting)
    assert bare.leftovers() == []
    assert "elbowroom" not in bare.kubectl("get", "crds,secrets,configmaps", "-A", "-o", "name")


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


def test_a_vm_grows_because_its_neighbour_is_moved(stage: Scene, cluster: Cluster, tmp_path: Path) -> None:
    pods = [item for item in stage.operators() if item["metadata"]["name"].startswith("elbowroom-operator-")]
    addresses = [item["status"]["podIP"] for item in pods]
    targets = (f"{address}:{port}" for address in addresses for port in (9090, 9091))
    with prometheus(cluster, tmp_path, targets):
        asked = Asked(stage.vms)
        asked.until_scraped()
        full(stage)
        grow(stage)
        grown(stage)
        counted(asked)
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


def counted(asked: Asked) -> None:
    """Ask a real Prometheus for everything that dashboard and alerts ask for."""
    ended = 'sum(increase(elbowroom_request_seconds_count{phase="Succeeded"}[5m]))'
    until("the end is counted", lambda: asked.value(ended) > 0.5)
    assert asked.value("sum(elbowroom_leads)") == 1
    assert asked.value("sum(elbowroom_migrated_bytes_total)") > 1 << 20
    assert asked.value("sum(elbowroom_migration_downtime_seconds_count)") == 1
    for title, queries in panels().items():
        for query in queries:
            assert asked.series(query) or title in ("Room taken", "Queue, and what hinders"), f"{title}: {query}"
    assert asked.firing() == []


@pytest.mark.parametrize("order", [("operator", "scheduler"), ("scheduler", "operator")], ids="first {0[0]}".format)
def test_all_of_it_goes_down_in_the_middle_of_a_copy_and_comes_back(
    order: tuple[str, ...], stage: Scene, cluster: Cluster
) -> None:
    full(stage)
    grow(stage, transfer=SLOWLY)
    stage.until_copying()
    for name in order:
        cluster.kubectl("-n", SPACE, "scale", f"deployment/elbowroom-{name}", "--replicas=0")
    ours = ("get", "pods", "-o", "name", "-l", "app.kubernetes.io/name in (elbowroom-operator, elbowroom-scheduler)")
    until("nobody of ours is there", lambda: not cluster.kubectl("-n", SPACE, *ours), within=60)
    for name in order:
        cluster.kubectl("-n", SPACE, "scale", f"deployment/elbowroom-{name}", "--replicas=2")
        status = ("rollout", "status", f"deployment/elbowroom-{name}", "--timeout=90s")
        cluster.kubectl("-n", SPACE, *status, within=100)
    grown(stage)


def test_every_mode_comes_up(cluster: Cluster) -> None:
    """In place of the scheduler, as an extender of it, and with a certificate that somebody else has made."""
    guard, extender = self_signed(f"elbowroom-guard.{SPACE}.svc"), self_signed(f"elbowroom-extender.{SPACE}.svc")
    for name, pair in (("guard-tls", guard), ("extender-tls", extender)):
        content = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.certificate}
        secret = {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SPACE}, "stringData": content,
        }  # fmt: skip
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(secret))
    bundle = b64encode(guard.certificate.encode()).decode()
    own = (
        "guard.certificate.mode=secret",
        "guard.certificate.secretName=guard-tls",
        f"guard.certificate.caBundle={bundle}",
    )
    modes = (own, ("scheduler.mode=extender", "extender.secretName=extender-tls"), ("scheduler.mode=replace",))
    upgrade = ("upgrade", RELEASE, str(CHART), "-n", SPACE, "--reset-then-reuse-values", "--wait", "--timeout=120s")
    for values in modes:
        cluster.helm(*upgrade, *(word for value in values for word in ("--set", value)))
        with cluster.unscheduled() if "scheduler.mode=replace" in values else nullcontext():
            said = cluster.helm("test", RELEASE, "-n", SPACE, "--logs")
            for line in ("a scheduler keeps to holds", "the API server asks the guard"):
                assert f"ok  {line}" in said
    cluster.helm("rollback", RELEASE, "1", "-n", SPACE, "--wait", "--timeout=120s")
    cluster.until_asked()


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
    grow(stage, transfer={"bandwidth": "2Mi"})  # it must not be over before the uninstall has begun
    stage.until_copying()
    cluster.uninstall()
    until("nothing of ours is left", lambda: not cluster.leftovers())
    left = {item["metadata"]["name"]: item.get("status") for item in stage.requests.all("vmscalerequests")}
    assert [*left] == ["over"], left.get("grow")
    assert stage.has("db").cpu == 1500
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name)
    stage.space.kubectl("delete", "vmsr,vmm", "--all", "--timeout=20s")

    cluster.install("--take-ownership", space="rooms", release="other")  # of the kinds, which were kept
    try:
        grow(stage)
        grown(stage)
        said = cluster.helm_fails("install", "second", str(CHART), "-n", "default")
        assert "is installed already, as release other in namespace rooms: upgrade that one" in said
    finally:
        cluster.uninstall(space="rooms", release="other")
    until("nothing of ours is left", lambda: not cluster.leftovers())
    cluster.install("--take-ownership")
    until(
        "the kinds are served", lambda: "capacityholds" in cluster.kubectl("api-resources", "--api-group=elbowroom.dev")
    )
