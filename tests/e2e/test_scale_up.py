"""A VM grows because its neighbour moves: the operator, the scheduler, kubelets and guests together.

Nodes have 4 cores and 8Gi. After each test a witness judges what has happened to pods, room and guests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.namespace import IDLE, Size, condition, pod
from support.waiting import until

if TYPE_CHECKING:
    from support.namespace import Json
    from support.scenes import Scene


def neighbours(found: Json) -> list[str]:
    return [item["vm"] for item in found["status"]["plan"]["neighbours"]]


def why_not(found: Json) -> dict[str, str]:
    return {item["name"]: item["reason"] for item in found["status"]["plan"]["notChosen"]}


def test_a_request_that_fits_grows_in_place(stage: Scene) -> None:
    (db,) = stage.boot(db="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "2", "memory": "512Mi"})
    found = stage.requests.until("grow", "Succeeded")
    assert condition(found, "Ready")["status"] == "True"
    stage.space.kubectl("wait", "--for=condition=Ready", "--timeout=5s", "vmscalerequests/grow")
    assert stage.has("db") == Size(2000, 512 << 20)
    stage.vms.until_tick(db, lambda tick: tick.cpus == 2)
    assert not stage.requests.all("vmmigrations")
    stage.witness.assert_kept(stage.space.name)


def test_a_neighbour_moves_and_the_claimant_grows(stage: Scene) -> None:
    db, _ = stage.boot(db="2", web="2")
    stage.space.apply(pod("thief", IDLE, cpu="1", node="node-1"))
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    found = stage.requests.until("grow", "Succeeded")
    assert neighbours(found) == ["web"]
    assert stage.has("db").cpu == 4000
    (migration,) = stage.requests.all("vmmigrations")
    assert migration["status"]["phase"] == "Succeeded"
    assert not stage.space.pod("web")
    assert stage.lives("web") != "node-1"
    assert not stage.space.pod("thief")["spec"].get("nodeName")
    stage.vms.until_tick(db, lambda tick: tick.cpus == 4)
    stage.witness.assert_kept(stage.space.name)


def test_two_neighbours_move_together(stage: Scene) -> None:
    db, *_ = stage.boot(db="2", web="1", mail="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    found = stage.requests.until("grow", "Succeeded")
    assert sorted(neighbours(found)) == ["mail", "web"]
    assert {stage.lives("web"), stage.lives("mail")}.isdisjoint({"node-1"})
    stage.vms.until_tick(db, lambda tick: tick.cpus == 4)
    stage.witness.assert_kept(stage.space.name)


def test_a_receiver_does_not_take_room_that_is_free_on_its_own_node(stage: Scene) -> None:
    """One core is free where the neighbour is, and one is all that it needs. The other nodes have no more than that."""
    stage.boot(db="2", web="1")
    stage.fill("node-3", "filler")
    stage.fill("node-2", "filler-2", keep="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    stage.requests.until("grow", "Succeeded")
    assert stage.lives("web") == "node-2"
    stage.witness.assert_kept(stage.space.name)


def test_memory_is_short_and_cpu_is_not(stage: Scene) -> None:
    db, _ = stage.boot(db="100m", web="100m")
    stage.fill_memory("node-1")
    stage.requests.grow("grow", vm="db", resources={"memory": "520Mi"})
    found = stage.requests.until("grow", "Succeeded")
    assert neighbours(found) == ["web"]
    assert found["status"]["plan"]["shortfall"] == {"cpu": "0", "memory": "240Mi"}
    assert stage.has("db") == Size(100, 520 << 20)
    assert stage.lives("web") != "node-1"
    before = stage.vms.ticks(db)[0].memory_mib
    stage.vms.until_tick(db, lambda tick: tick.memory_mib > before + 64)
    stage.witness.assert_kept(stage.space.name)


def test_a_claimant_with_sidecars_grows_in_one_container(stage: Scene) -> None:
    described = stage.described("db", "1")
    small = {"resources": {"requests": {"cpu": "500m", "memory": "32Mi"}}, "command": ["sh", "-c", IDLE]}
    described["spec"]["containers"].append({"name": "logger", "image": "elbowroom.test/shell", **small})
    described["spec"]["initContainers"] = [
        {"name": "proxy", "image": "elbowroom.test/shell", "restartPolicy": "Always", **small}
    ]
    stage.space.apply(described)
    stage.boot(web="2")
    db = stage.vms.until_ready("db")
    stage.requests.grow("grow", vm="db", resources={"cpu": "3"})
    found = stage.requests.until("grow", "Succeeded")
    assert found["status"]["plan"]["target"]["cpu"] == "4"
    assert (stage.has("db", "runner").cpu, stage.has("db", "logger").cpu) == (3000, 500)
    assert stage.lives("web") != "node-1"
    stage.vms.until_tick(db, lambda tick: tick.cpus == 3)
    stage.witness.assert_kept(stage.space.name)


def test_two_requests_on_one_node_at_once(stage: Scene) -> None:
    stage.boot(db="1", cache="1", web="1", mail="1")
    # Both are there before either is planned.
    for name in ("db", "cache"):
        stage.requests.grow(f"grow-{name}", vm=name, resources={"cpu": "2"}, suspend=True)
        stage.until_reason(f"grow-{name}", "Suspended")
    go_on = ("--type=merge", "-p", '{"spec":{"suspend":false}}')
    stage.space.kubectl("patch", "vmsr", "grow-db", "grow-cache", *go_on)
    plans = [neighbours(stage.requests.until(name, "Succeeded")) for name in ("grow-db", "grow-cache")]
    assert sorted(plans) == [["mail"], ["web"]]
    assert (stage.has("db").cpu, stage.has("cache").cpu) == (2000, 2000)
    assert {stage.lives("web"), stage.lives("mail")}.isdisjoint({"node-1"})
    stage.witness.assert_kept(stage.space.name)


def test_nobody_may_be_moved_and_the_deadline_passes(stage: Scene) -> None:
    stage.boot(db="2")
    stays = stage.described("web", "2")
    del stays["metadata"]["labels"]["elbowroom.dev/movable"]
    stage.space.apply(stays)
    stage.vms.until_ready("web")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, deadline="6s")
    found = stage.until_reason("grow", "NobodyMovable")
    assert why_not(found)["web"] == "NotOptedIn"
    assert condition(found, "Planned")["reason"] == "NobodyMovable"
    ended = stage.requests.until("grow", "Failed")
    assert ended["status"]["reason"] == "DeadlineExceeded"
    assert stage.has("db").cpu == 2000
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_no_other_node_has_a_place_and_then_one_has(stage: Scene) -> None:
    stage.boot(db="2", web="2")
    stage.fill("node-2", "filler-2", keep="1")
    stage.fill("node-3", "filler-3", keep="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    stage.until_reason("grow", "NoPlace")
    assert stage.has("db").cpu == 2000
    stage.space.kubectl("delete", "pod", "filler-3", "--wait=false")
    stage.requests.until("grow", "Succeeded")
    assert stage.lives("web") == "node-3"
    stage.witness.assert_kept(stage.space.name)


def test_a_vm_is_moved_by_hand(stage: Scene) -> None:
    stage.boot(web="1")
    stage.requests.migrate("move", vm="web", target={"node": "node-2"})
    found = stage.requests.until("move", "Succeeded", plural="vmmigrations")
    receiver = stage.space.pod(found["status"]["receiver"]["name"])
    assert receiver["spec"]["nodeName"] == "node-2"
    assert "ownerReferences" not in receiver["metadata"]
    until("the first pod is gone", lambda: not stage.space.pod("web"))
    assert stage.lives("web") == "node-2"
    stage.witness.assert_kept(stage.space.name)


def test_a_plain_pod_grows_without_a_guest(stage: Scene) -> None:
    stage.boot(web="2")
    stage.space.start(pod("api", IDLE, cpu="2", nodeName="node-1"))
    stage.requests.grow("grow", pod="api", resources={"cpu": "3"})
    stage.requests.until("grow", "Succeeded")
    assert stage.has("api").cpu == 3000
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)
