"""What somebody with `edit` in a namespace of its own may do to others: nothing. Each attack is tried, with a real token.

The chart as it is, in a cluster with a stock scheduler. node-1 is full but for what a test leaves.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.charts import SPACE, Cluster, is_true, request
from support.namespace import IDLE, condition, pod
from support.tenants import tenant
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.namespace import Json
    from support.scenes import Scene
    from support.tenants import Tenant

HOLD = "capacityholds.elbowroom.dev"
OURS = "/apis/elbowroom.dev/v1alpha1"
SOON = ("--set", "operator.config.grantWithin=4s", "--set", "operator.config.holdTerm=20s")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("tenants")) as running:
        running.install(*SOON)
        yield running


@pytest.fixture
def mallory(cluster: Cluster, tmp_path: Path) -> Iterator[Tenant]:
    with tenant(cluster, tmp_path) as somebody:
        yield somebody


def migration(name: str, **spec: Any) -> Json:
    return {"apiVersion": "elbowroom.dev/v1alpha1", "kind": "VMMigration", "metadata": {"name": name}, "spec": spec}


def grows(stage: Scene, name: str, cpu: str) -> None:
    """Let somebody else's plain pod grow in place."""
    stage.requests.grow(f"grow-{name}", pod=name, resources={"cpu": cpu})
    stage.requests.until(f"grow-{name}", "Succeeded", within=30)


def nothing_is_kept(stage: Scene, cluster: Cluster, mallory: Tenant, *, guestless: tuple[str, ...] = ()) -> None:
    """Wait until nothing is held or tainted any more, and the tenant has no receiver that was not committed to."""

    def probe() -> bool:
        tainted = [node["metadata"]["name"] for node in cluster.objects("nodes") if "taints" in node["spec"]]
        pods = [item for item in cluster.objects("pods") if item["metadata"]["namespace"] == mallory.space.name]
        left = (cluster.objects(HOLD), tainted, [item for item in pods if "ownerReferences" in item["metadata"]])
        assert left == ([], [], []), left
        return True

    until("nothing is kept for the tenant", probe, within=40)
    stage.witness.assert_kept(stage.space.name, broken=guestless)


FORBIDDEN: dict[str, tuple[str, ...]] = {
    "make a hold": ("create", "--dry-run=server", "-f", "-"),
    "change anybody's hold": ("replace", "--raw={ours}/capacityholds/any", "-f", "-"),
    "say for the scheduler that room is held": ("replace", "--raw={ours}/capacityholds/any/status", "-f", "-"),
    "delete a hold": ("delete", HOLD, "any"),
    "write the status of a request": ("replace", "--raw={here}/vmscalerequests/own/status", "-f", "-"),
    "write the status of a migration": ("replace", "--raw={here}/vmmigrations/own/status", "-f", "-"),
    "bind a pod": ("create", "--raw=/api/v1/namespaces/{own}/pods/any/binding", "-f", "-"),
    "read the authority's key": ("-n", SPACE, "get", "secret", "elbowroom-authority"),
    "see what was given to whom": ("-n", SPACE, "get", "configmaps"),
    "take the operator's lease": ("-n", SPACE, "delete", "lease", "elbowroom-operator"),
    "become the operator": ("-n", SPACE, "create", "token", "elbowroom-operator"),
    "look into its pods": ("-n", SPACE, "get", "pods"),
    "end it": ("-n", SPACE, "scale", "deployment/elbowroom-operator", "--replicas=0"),
    "send the guard away": ("delete", "validatingwebhookconfiguration", "elbowroom-guard"),
    "taint a node": ("taint", "node", "node-1", "elbowroom.dev/held:NoSchedule"),
    "see others' requests": ("-n", "{shop}", "get", "vmsr"),
    "make requests for others": ("-n", "{shop}", "create", "--dry-run=server", "-f", "-"),
    "move others' VMs": ("-n", "{shop}", "create", "--dry-run=server", "-f", "-"),
    "opt in for others": ("-n", "{shop}", "label", "pod", "any", "elbowroom.dev/movable=true"),
}  # fmt: skip
BODIES: dict[str, Json] = {
    "make a hold": {
        "apiVersion": "elbowroom.dev/v1alpha1", "kind": "CapacityHold", "metadata": {"name": "mine"},
        "spec": {
            "node": "node-1", "claimant": {"namespace": "x", "name": "x", "uid": "x"}, "target": {"cpu": "1"},
            "request": {"namespace": "x", "name": "x", "uid": "x"}, "expiresAt": "2099-01-01T00:00:00Z", "round": 1,
        },
    },
    "bind a pod": {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "any"}, "target": {"kind": "Node", "name": "node-1"},
    },
    "make requests for others": request("theirs", vm="db", resources={"cpu": "1"}),
    "move others' VMs": migration("theirs", vm="db"),
}  # fmt: skip


def test_what_the_api_server_forbids(stage: Scene, mallory: Tenant) -> None:
    assert not mallory.applies(request("own", vm="nobody", resources={"cpu": "1"}), migration("own", vm="nobody"))
    assert not mallory.tries("get", HOLD)
    here = f"{OURS}/namespaces/{mallory.space.name}"
    for attack, command in FORBIDDEN.items():
        words = [word.format(own=mallory.space.name, shop=stage.space.name, ours=OURS, here=here) for word in command]
        said = mallory.tries(*words, stdin=json.dumps(BODIES.get(attack, {})))
        assert "forbidden" in said.lower(), f"{attack}: {said or 'done'}"
    said = mallory.applies(request("first", vm="nobody", resources={"cpu": "1"}, priority=5))
    assert "spec.priority: above 0 it goes before the requests of others" in said
    who = {"namespace": mallory.space.name, "name": "x", "uid": "x"}
    said = mallory.applies(migration("forged", vm="evil", request=who, pod=who, receiver="x"))
    assert "spec.request: only the operator says for which request a VM is moved" in said


def test_who_may_only_look(cluster: Cluster, tmp_path: Path) -> None:
    with tenant(cluster, tmp_path, "view") as viewer:
        assert not viewer.tries("get", "vmsr,vmm")
        assert not viewer.tries("get", HOLD)
        assert "forbidden" in viewer.applies(request("own", vm="nobody", resources={"cpu": "1"}))
        assert "forbidden" in viewer.applies(migration("own", vm="nobody"))
        assert "forbidden" in viewer.tries("delete", "vmsr", "any")


def test_who_may_go_first(cluster: Cluster, mallory: Tenant) -> None:
    """The permission that the refusal names is one that an administrator can give."""
    bound = ("--clusterrole=elbowroom-prioritize", f"--serviceaccount={mallory.space.name}:mallory")
    cluster.kubectl("-n", mallory.space.name, "create", "rolebinding", "first", *bound)
    until(
        "it is given",
        lambda: not mallory.applies(request("first", vm="nobody", resources={"cpu": "1"}, priority=5)),
    )


def test_names_labels_and_sizes_that_are_not_ones_own(stage: Scene, cluster: Cluster, mallory: Tenant) -> None:
    """Nobody is moved, grown or shrunk by what somebody else writes in a namespace of its own."""
    web = pod("web", IDLE, cpu="1", nodeName="node-1")
    web["metadata"]["labels"] = {"elbowroom.dev/vm": "web"}  # somebody's VM, whose owner does not want it moved
    stage.space.start(web, pod("other", IDLE, cpu="100m", nodeName="node-1"))
    mallory.space.start(pod("mine", IDLE, cpu="500m", nodeName="node-1"))
    stage.fill("node-1")
    uid = stage.space.pod("web")["metadata"]["uid"]
    twin = pod("twin", IDLE, cpu="100m", nodeName="node-2", restartPolicy="Never")
    twin["metadata"]["labels"] = {"elbowroom.dev/vm": "web", "elbowroom.dev/movable": "true"}
    odd = pod("odd", IDLE, cpu="100m", nodeName="node-2", restartPolicy="Never")
    odd["metadata"]["labels"] = {"elbowroom.dev/vm": "A_b.c", "elbowroom.dev/movable": "true"}
    odd["metadata"]["annotations"] = {
        "elbowroom.dev/runner-container": "none", "elbowroom.dev/attempt": "1e9", "elbowroom.dev/fence": "x" * 9999,
    }  # fmt: skip
    assert not mallory.applies(twin, odd)
    ends = {"deadline": "12s"}
    wanted: dict[str, Json] = {
        "foreign-vm": {"vm": "web", "resources": {"cpu": "3"}},  # its own twin of that name, and no other
        "foreign-pod": {"pod": "other", "resources": {"cpu": "3"}},
        "nobody": {"vm": "A_b.c", "resources": {"cpu": "1"}},
        "greedy": {"pod": "mine", "resources": {"cpu": "1500m"}, "neighbours": {"selector": {}, "atMost": 8}},
        "absurd-cpu": {"pod": "mine", "resources": {"cpu": "9000000"}},
        "x" * 240: {"pod": "mine", "resources": {"memory": "7Ei"}},
    }
    assert not mallory.applies(*(request(name, **{**ends, **spec}) for name, spec in wanted.items()))
    for said, spec in (
        ("metadata.name", request("y" * 254, vm="x", resources={"cpu": "1"})),
        ("should match", request("fine", pod="../web", resources={"cpu": "1"})),
        ("has to be more than 0", request("fine", vm="x", resources={"cpu": "-1"})),
        ("has to be between 1s and 24h", request("fine", vm="x", resources={"cpu": "1"}, deadline="99999h")),
    ):
        assert said in mallory.applies(spec)

    def over() -> bool:
        found = mallory.space.kubectl("get", "vmsr", "-o", "jsonpath={.items[*].status.phase}").split()
        assert len(found) == len(wanted), found
        assert set(found) <= {"Failed", "Cancelled"}, found
        return True

    until("all of them have come to nothing", over, within=40)
    assert stage.space.pod("web")["metadata"]["uid"] == uid
    for name, cpu in (("web", 1000), ("other", 100)):
        assert stage.has(name).cpu == cpu
    nothing_is_kept(stage, cluster, mallory, guestless=("web",))


@pytest.mark.parametrize("mode", ["refuses", "rubbish", "stalls", "switches"])
def test_a_runner_that_lies_keeps_nobodys_room(mode: str, stage: Scene, cluster: Cluster, mallory: Tenant) -> None:
    """A tenant's own neighbour never comes to an end. Its request does, and gives the room on the node back."""
    stage.space.start(pod("honest", IDLE, cpu="100m", nodeName="node-1"))
    mallory.space.start(pod("mine", IDLE, cpu="500m", nodeName="node-1"))
    assert not mallory.applies(mallory.hostile_vm("evil", "node-1", mode))
    mallory.space.until_ready("evil")
    stage.fill("node-1")
    assert not mallory.applies(request("grow", pod="mine", resources={"cpu": "1300m"}, deadline="8s"))
    until("room is held", lambda: cluster.objects(HOLD) or _over(mallory), within=20)

    def over() -> Json:
        found = _get(mallory)
        assert found["status"]["phase"] == "Failed", found["status"]
        return found

    until("it has failed", over, within=60)
    nothing_is_kept(stage, cluster, mallory)
    stage.space.kubectl("delete", "pod", "filler", "--wait=false")
    grows(stage, "honest", "300m")


def _get(mallory: Tenant) -> Json:
    found: Json = json.loads(mallory.space.kubectl("get", "vmsr", "grow", "-o", "json"))
    return found


def _over(mallory: Tenant) -> bool:
    return bool(_get(mallory).get("status", {}).get("finishedAt"))


def test_a_request_that_is_torn_out_leaves_nothing(stage: Scene, cluster: Cluster, mallory: Tenant) -> None:
    """Its owner takes our finalizer off and deletes it in the middle of a copy."""
    mallory.space.start(pod("mine", IDLE, cpu="500m", nodeName="node-1"))
    assert not mallory.applies(mallory.hostile_vm("evil", "node-1", "stalls"))
    mallory.space.until_ready("evil")
    stage.fill("node-1")
    assert not mallory.applies(request("grow", pod="mine", resources={"cpu": "1300m"}))
    until("a guest is copied", lambda: is_true(_get(mallory), "ReceiversBound"), within=30)
    assert cluster.objects(HOLD)
    for what in ("vmsr/grow", "vmm"):
        named = [what] if "/" in what else mallory.space.kubectl("get", what, "-o", "name").split()
        for name in named:
            mallory.tries("delete", name, "--wait=false")
            mallory.tries("patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
    nothing_is_kept(stage, cluster, mallory)
    assert condition(mallory.space.pod("evil"), "Ready")["status"] == "True"


def test_a_flood_of_requests_makes_nobody_wait(stage: Scene, cluster: Cluster, mallory: Tenant) -> None:
    stage.space.start(pod("patient", IDLE, cpu="100m", nodeName="node-2"))
    mallory.space.start(pod("mine", IDLE, cpu="100m", nodeName="node-2"))
    stage.fill("node-2", keep="400m")
    spec: dict[str, Any] = {"resources": {"cpu": "3"}, "deadline": "1m"}
    flood = [request(f"flood-{number}", **({"vm": f"x{number}"} if number % 2 else {"pod": "mine"}), **spec) for number in range(400)]  # fmt: skip
    assert not mallory.applies(*flood)
    grows(stage, "patient", "200m")
    # How many there may be is an administrator's to say, as for everything else.
    cluster.kubectl("-n", mallory.space.name, "create", "quota", "few", "--hard=count/vmscalerequests.elbowroom.dev=1")
    said = until(
        "the quota counts", lambda: mallory.applies(request("more", vm="x", resources={"cpu": "1"})), within=20
    )
    assert "exceeded quota: few" in said
