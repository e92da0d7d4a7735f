"""A VM grows because its neighbour moves: the operator, the scheduler, kubelets and guests together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from elbowroom.core.quantity import millicores
from support.holds import GROUP, install
from support.inside import Inside
from support.namespace import IDLE, condition, fresh_namespace, pod
from support.operators import Requests, start_operator
from support.testbed import ROOT, Testbed
from support.vms import Vms, new_authority
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.namespace import Json, Namespace


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Provide a cluster with an operator in it."""
    with Testbed(tmp_path_factory.mktemp("operated"), nodes=3, flags=("--cpu", "4", "--memory", "8Gi")) as running:
        install(running, ROOT)
        start_operator(running)
        yield running


@pytest.fixture
def space(operated: Testbed, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with fresh_namespace(operated, request.node.name) as made:
        yield made


@pytest.fixture
def requests(space: Namespace) -> Requests:
    return Requests(space)


@pytest.fixture(scope="module")
def standing(operated: Testbed) -> Iterator[Inside]:
    with Inside(operated) as inside:
        yield inside


@pytest.fixture
def vms(space: Namespace, standing: Inside) -> Iterator[Vms]:
    found = Vms(space, standing, new_authority())
    yield found
    found.close()


def boot(vms: Vms, cpu: str, *names: str, node: str = "node-1") -> None:
    """Start VMs whose certificates the operator makes."""
    for name in names:
        described = vms.pod(name, node=node)
        described["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        vms.namespace.apply(described)
    for name in names:
        vms.until_ready(name)


def asked(found: Json) -> int:
    return millicores(found["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def holds_left(space: Namespace) -> list[Json]:
    items: list[Json] = space.testbed.plain(
        Requests(space)._api.list_cluster_custom_object(*GROUP, "capacityholds")  # noqa: SLF001
    )["items"]
    return items


def test_a_request_that_fits_grows_in_place(space: Namespace, requests: Requests, vms: Vms) -> None:
    boot(vms, "1", "db")
    requests.grow("grow", vm="db", resources={"cpu": "2", "memory": "512Mi"})
    found = requests.until("grow", "Succeeded")
    assert condition(found, "Ready")["status"] == "True"
    space.kubectl("wait", "--for=condition=Ready", "--timeout=5s", "vmscalerequests/grow")
    assert asked(space.pod("db")) == 2000
    assert vms.ticks(vms.driver.describe(space.pod("db")))[-1].cpus == 2
    assert not holds_left(space)


def test_a_neighbour_moves_and_the_claimant_grows(space: Namespace, requests: Requests, vms: Vms) -> None:
    boot(vms, "2", "db", "web")
    web = vms.driver.describe(space.pod("web"))
    before = vms.until_ticking(web)
    space.apply(pod("thief", IDLE, cpu="1", node="node-1"))
    requests.grow("grow", vm="db", resources={"cpu": "4"})
    found = requests.until("grow", "Succeeded")
    planned = found["status"]["plan"]["neighbours"]
    assert [item["vm"] for item in planned] == ["web"]
    assert asked(space.pod("db")) == 4000
    (migration,) = requests.all("vmmigrations")
    assert migration["status"]["phase"] == "Succeeded"
    receiver = vms.driver.describe(space.pod(planned[0]["receiver"]))
    assert receiver.node != "node-1"
    assert not space.pod("web")
    vms.until_ticking(receiver)
    assert before
    assert vms.ticks(receiver)[0].n > before[-1].n
    assert not space.pod("thief")["spec"].get("nodeName")
    vms.until_tick(vms.driver.describe(space.pod("db")), lambda tick: tick.cpus == 4)
    assert not holds_left(space)


def test_a_vm_is_moved_by_hand(space: Namespace, requests: Requests, vms: Vms) -> None:
    boot(vms, "1", "web")
    requests.migrate("move", vm="web", target={"node": "node-2"})
    found = requests.until("move", "Succeeded", plural="vmmigrations")
    receiver = space.pod(found["status"]["receiver"]["name"])
    assert receiver["spec"]["nodeName"] == "node-2"
    assert "ownerReferences" not in receiver["metadata"]
    until("the first pod is gone", lambda: not space.pod("web"))
    vms.until_ticking(vms.driver.describe(receiver))


def test_a_plain_pod_grows_without_a_guest(space: Namespace, requests: Requests, vms: Vms) -> None:
    boot(vms, "2", "web")
    space.start(pod("api", IDLE, cpu="2", nodeName="node-1"))
    requests.grow("grow", pod="api", resources={"cpu": "3"})
    requests.until("grow", "Succeeded")
    assert asked(space.pod("api")) == 3000
    assert not space.pod("web")
