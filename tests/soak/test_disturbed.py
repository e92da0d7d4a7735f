"""What happens in the middle of it all: somebody dies, leaves, comes, takes, forbids or changes their mind."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from support.namespace import IDLE, condition, pod
from support.operators import METRICS_PORT, SYSTEM, told
from support.scenes import SLOWLY
from support.waiting import stays, until

if TYPE_CHECKING:
    from pathlib import Path

    from support.scenes import Scene


def begin(stage: Scene, *, node: str | None = None) -> str:
    """Have a claimant of two cores grow to four, for which its neighbour moves slowly, and return where it goes to."""
    stage.boot(db="2", web="2")
    for index, name in enumerate(name for name in ("node-2", "node-3") if node and name != node):
        stage.fill(name, f"filler-{index}", keep="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    found = stage.until_copying()
    return str(stage.space.pod(found["status"]["receiver"]["name"])["spec"]["nodeName"])


def reason_of(stage: Scene, name: str) -> str:
    return str(stage.requests.get(name)["status"]["reason"])


def test_room_appears_while_a_neighbour_is_copied(stage: Scene) -> None:
    stage.boot(db="2", web="1")
    stage.space.start(pod("batch", IDLE, cpu="1", nodeName="node-1"))
    stage.requests.grow("grow", vm="db", resources={"cpu": "3"}, transfer=SLOWLY)
    stage.until_copying()
    stage.space.kubectl("delete", "pod", "batch", "--wait=false")
    found = stage.requests.until("grow", "Succeeded")
    assert found["status"]["roomAppeared"]
    (migration,) = stage.requests.all("vmmigrations")
    assert migration["status"]["phase"] == "Cancelled"
    assert stage.has("db").cpu == 3000
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_the_claimant_dies(stage: Scene) -> None:
    begin(stage)
    stage.space.kubectl("delete", "pod", "db", "--wait=false")
    found = stage.requests.until("grow", "Failed")
    assert found["status"]["reason"] == "ClaimantGone"
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_the_neighbours_guest_dies_and_leaves_its_room(stage: Scene) -> None:
    begin(stage)
    stage.vms.signal_qemu(stage.guest("web"), signal.SIGKILL)
    stage.requests.until("grow", "Succeeded")
    assert stage.has("db").cpu == 4000
    stage.witness.assert_kept(stage.space.name, broken=("web",))


def test_the_neighbour_is_deleted_in_the_middle_of_its_copy(stage: Scene) -> None:
    """SIGTERM: its guest is shut down where it is, and its room is the claimant's."""
    begin(stage)
    stage.space.kubectl("delete", "pod", "web", "--wait=false")
    stage.requests.until("grow", "Succeeded")
    assert stage.has("db").cpu == 4000
    assert not stage.space.pod("web")
    stage.witness.assert_kept(stage.space.name)


def test_the_node_of_the_receiver_dies(stage: Scene) -> None:
    """The copy fails, and another node is found."""
    lost = stage.away_from_operator()
    assert begin(stage, node=lost) == lost
    stage.space.testbed.cli("node", "kill", lost)
    try:
        stage.space.kubectl("delete", "pod", "filler-0", "--wait=false")
        stage.requests.until("grow", "Succeeded", within=120)
    finally:
        # What is left of the first receiver goes when its kubelet is back.
        stage.space.testbed.cli("node", "start", lost)
    assert stage.lives("web") not in (lost, "node-1")
    stage.witness.assert_kept(stage.space.name)


def test_the_node_of_the_receiver_is_drained(stage: Scene) -> None:
    left = stage.away_from_operator()
    assert begin(stage, node=left) == left
    stage.space.kubectl("delete", "pod", "filler-0", "--wait=false")
    stage.space.testbed.kubectl(
        "drain", left, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"
    )
    try:
        stage.requests.until("grow", "Succeeded", within=120)
        assert stage.lives("web") not in (left, "node-1")
    finally:
        stage.space.testbed.kubectl("uncordon", left)
    stage.witness.assert_kept(stage.space.name)


def test_the_node_of_the_claimant_is_drained(stage: Scene) -> None:
    begin(stage)
    stage.space.testbed.kubectl(
        "drain", "node-1", "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s"
    )
    stage.space.testbed.kubectl("uncordon", "node-1")
    found = stage.requests.until("grow", "Failed")
    assert found["status"]["reason"] == "ClaimantGone"
    stage.witness.assert_kept(stage.space.name)


def test_the_operator_is_asked_to_end_in_the_middle_of_a_copy(stage: Scene) -> None:
    begin(stage)
    stage.space.testbed.kubectl("-n", SYSTEM, "delete", "pod", "--all", "--wait=false")
    stage.requests.until("grow", "Succeeded", within=120)
    (migration,) = stage.requests.all("vmmigrations")
    assert migration["status"]["phase"] == "Succeeded"
    stage.witness.assert_kept(stage.space.name)


def test_a_receiver_whose_secret_is_gone_never_starts(stage: Scene) -> None:
    """Another neighbour is moved in its stead."""
    stage.boot(db="1", mail="1")
    stage.space.kubectl("create", "secret", "generic", "password", "--from-literal=word=abc")
    web = stage.described("web", "2")
    web["spec"]["volumes"].append({"name": "password", "secret": {"secretName": "password"}})
    web["spec"]["containers"][0]["volumeMounts"].append({"name": "password", "mountPath": "/password"})
    stage.space.apply(web)
    stage.vms.until_ready("web")
    stage.space.kubectl("delete", "secret", "password")
    # Two are short, and only one of the neighbours has as many.
    stage.requests.grow("grow", vm="db", resources={"cpu": "3"}, neighbours={"atMost": 1})
    until("the first move has failed", lambda: stage.requests.get("grow").get("status", {}).get("failed"), within=60)
    first = stage.until_moving("Failed")
    assert first["status"]["reason"] == "ReceiverStarting"
    stage.space.kubectl("create", "secret", "generic", "password", "--from-literal=word=abc")
    stage.requests.until("grow", "Succeeded")
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_a_receiver_whose_volume_is_gone_never_starts(stage: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    stage.boot(db="2")
    web = stage.described("web", "2")
    web["spec"]["volumes"].append({"name": "data", "hostPath": {"path": str(folder), "type": "Directory"}})
    web["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
    stage.space.apply(web)
    stage.vms.until_ready("web")
    folder.rename(tmp_path / "elsewhere")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, deadline="25s")
    found = stage.requests.until("grow", "Failed")
    assert found["status"]["reason"] == "DeadlineExceeded", told(found)
    assert {item["reason"] for item in found["status"]["failed"]} == {"ReceiverStarting"}
    assert stage.has("db").cpu == 2000
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_a_quota_has_no_room_for_both_pods(stage: Scene) -> None:
    stage.boot(db="2", web="2")
    stage.space.kubectl("create", "quota", "pods", "--hard=pods=2")
    until("the quota counts", lambda: "pods: 2/2" in stage.space.kubectl("get", "quota", "pods"))
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    first = stage.until_moving("Failed")
    assert first["status"]["reason"] == "ReceiverRefused"
    assert "exceeded quota: pods" in first["status"]["message"]
    said = until("its request says so", lambda: stage.requests.get("grow").get("status", {}).get("message"))
    assert "exceeded quota" in said
    stage.space.kubectl("delete", "quota", "pods")
    stage.requests.until("grow", "Succeeded")
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_somebody_else_resizes_the_claimant(stage: Scene) -> None:
    """As a vertical autoscaler does: what was asked of us counts, once it is our turn."""
    begin(stage)
    sizes = {"containers": [{"name": "runner", "resources": {"requests": {"cpu": "3"}}}]}
    stage.space.core.patch_namespaced_pod_resize("db", stage.space.name, {"spec": sizes})
    found = stage.requests.until("grow", "Succeeded")
    assert condition(found, "Ready")["status"] == "True"
    assert stage.has("db").cpu == 4000
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_somebody_who_cannot_be_kept_out_takes_the_room(stage: Scene) -> None:
    """A pod that names its node passes every scheduler. The thief is named, and another plan is made when it leaves."""
    stage.boot(db="2", web="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    stage.until_copying()
    stage.space.start(pod("thief", IDLE, cpu="1", nodeName="node-1"))
    found = stage.until_reason("grow", "NobodyMovable")
    said = [line for line in stage.events("grow") if line.startswith("RoomTaken")]
    assert said, stage.events("grow")
    assert f"taken on node-1 by {stage.space.name}/thief" in said[0]
    assert stage.lives("web") == "node-1"
    address = stage.operators()[0]["status"]["podIP"]
    _, text = stage.vms.ask(f"http://{address}:{METRICS_PORT}/metrics", seconds=5)
    assert f'elbowroom_thefts_total{{node="node-1",thief="{stage.space.name}/thief"}} 1.0' in text
    stage.space.kubectl("delete", "pod", "thief", "--wait=false")
    found = stage.requests.until("grow", "Succeeded")
    assert stage.has("db").cpu == 4000, told(found)
    stage.witness.assert_kept(stage.space.name, stolen=True)


def test_a_request_deleted_right_after_its_success_leaves_the_moved_guest_alone(stage: Scene) -> None:
    stage.boot(db="2", web="2")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    stage.requests.until("grow", "Succeeded")
    stage.space.kubectl("delete", "vmscalerequests,vmmigrations", "--all", "--timeout=20s")
    home = stage.home_of("web")
    stays("the moved pod is not deleted", lambda: bool(stage.space.pod(home["metadata"]["name"])), during=3)
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)


@pytest.mark.parametrize("moment", ["copying", "done"])
def test_a_namespace_is_deleted_with_a_request_in_it(stage: Scene, moment: str) -> None:
    begin(stage)
    if moment == "done":
        stage.requests.until("grow", "Succeeded")
    began = time.monotonic()
    stage.space.testbed.kubectl("delete", "namespace", stage.space.name, "--timeout=90s", within=100)
    assert time.monotonic() - began < 80
    left = stage.space.testbed.kubectl("get", "capacityholds", "-o", "name")
    assert not left
