"""In-place resize on a full node, as the real kubelet does it. What is asserted here is written down in docs/testbed.md."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from support.namespace import IDLE, Size, condition, describe, pod, priority_class
from support.waiting import stays, until

if TYPE_CHECKING:
    from support.namespace import Json, Namespace
    from support.testbed import Testbed

GIB = 2**30
HALF, FULL = Size(2000, 2 * GIB), Size(4000, 4 * GIB)
STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"


def vm(name: str, node: str, *, command: str = IDLE, cpu: str = "2", memory: str = "2Gi", **spec: object) -> Json:
    """Describe a pod that fills half a node of 4 CPUs."""
    return pod(name, command, cpu=cpu, memory=memory, node=node, restartPolicy="Never", **spec)


def test_a_deferred_resize_is_granted_when_the_neighbour_leaves(namespace: Namespace, extra_node: str) -> None:
    before, _ = namespace.start(vm("claimant", extra_node), vm("neighbour", extra_node))
    namespace.resize("claimant", cpu="4", memory="4Gi")
    pending = namespace.until_deferred("claimant")
    assert "didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000" in pending["message"]
    deferred = namespace.pod("claimant")
    assert Size.of(deferred["status"]["containerStatuses"][0]["allocatedResources"]) == HALF

    namespace.kubectl("delete", "pod", "neighbour", "--timeout=20s")
    gone = time.monotonic()
    after = namespace.until_resized("claimant", FULL, within=10)
    assert time.monotonic() - gone < 2
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_resize_reaches_the_cgroup(namespace: Namespace) -> None:
    description = pod("measured", IDLE, cpu="500m", memory="128Mi", container={"volumeMounts": [{"name": "cgroup", "mountPath": "/machine"}]},
                      volumes=[{"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}}])  # fmt: skip
    namespace.start(description)

    def limits() -> set[str]:
        script = (
            "for line in $(cut -d: -f2,3 /proc/1/cgroup); do "
            "for file in cpu.cfs_quota_us memory.limit_in_bytes cpu.max memory.max; do "
            'cat "/machine/${line%%:*}${line#*:}/$file" 2>/dev/null; done; done; exit 0'
        )
        return set(namespace.kubectl("exec", "measured", "--", "sh", "-c", script).split())

    assert {"50000", str(128 * 2**20)} <= limits()
    namespace.resize("measured", cpu="1", memory="256Mi")
    namespace.until_resized("measured", Size(1000, 256 * 2**20))
    assert {"100000", str(256 * 2**20)} <= limits()
    namespace.resize("measured", cpu="250m", memory="64Mi")
    namespace.until_resized("measured", Size(250, 64 * 2**20))
    assert {"25000", str(64 * 2**20)} <= limits()


def test_more_than_the_node_has_is_refused_at_once(namespace: Namespace, extra_node: str) -> None:
    namespace.start(vm("claimant", extra_node))
    try:
        namespace.resize("claimant", cpu="5", memory="2Gi")
    except Exception as error:  # noqa: BLE001  # the client's class says nothing, its text does
        assert "NodeCapacity" in str(error)  # noqa: PT017
    else:
        raise AssertionError("a resize beyond the node's size was accepted")


def test_of_two_deferred_resizes_the_older_wins_at_equal_priority(namespace: Namespace, extra_node: str) -> None:
    names = ("older", "younger")
    namespace.start(*(vm(name, extra_node, cpu="1", memory="1Gi") for name in names), vm("neighbour", extra_node))
    for name in names:
        namespace.resize(name, cpu="3", memory="1Gi")
        namespace.until_deferred(name)
    namespace.kubectl("delete", "pod", "neighbour", "--timeout=20s")
    namespace.until_resized("older", Size(3000, GIB))
    assert condition(namespace.pod("younger"), "PodResizePending")["reason"] == "Deferred"


def test_of_two_deferred_resizes_the_higher_priority_wins(namespace: Namespace, extra_node: str) -> None:
    important = f"{namespace.name}-important"
    namespace.apply(priority_class(important))
    try:
        namespace.start(
            vm("older", extra_node, cpu="1", memory="1Gi"), vm("important", extra_node, cpu="1", memory="1Gi", priorityClassName=important),
            vm("neighbour", extra_node),
        )  # fmt: skip
        for name in ("older", "important"):
            namespace.resize(name, cpu="3", memory="1Gi")
            namespace.until_deferred(name)
        namespace.kubectl("delete", "pod", "neighbour", "--timeout=20s")
        namespace.until_resized("important", Size(3000, GIB))
        assert condition(namespace.pod("older"), "PodResizePending")["reason"] == "Deferred"
    finally:
        namespace.kubectl("delete", "priorityclass", important)


def test_a_smaller_resize_takes_what_a_larger_one_cannot_use(namespace: Namespace, extra_node: str) -> None:
    namespace.start(
        vm("large", extra_node, cpu="1", memory="1Gi"),
        vm("small", extra_node, cpu="1", memory="1Gi"),
        vm("neighbour", extra_node),
    )
    namespace.resize("large", cpu="4", memory="1Gi")
    namespace.until_deferred("large")
    namespace.resize("small", cpu="2", memory="1Gi")
    namespace.until_deferred("small")
    namespace.kubectl("delete", "pod", "neighbour", "--timeout=20s")
    namespace.until_resized("small", Size(2000, GIB))
    assert condition(namespace.pod("large"), "PodResizePending")["reason"] == "Deferred"


def test_a_terminating_neighbour_counts_until_its_process_has_ended(namespace: Namespace, extra_node: str) -> None:
    namespace.start(
        vm("claimant", extra_node), vm("neighbour", extra_node, command=STUBBORN, terminationGracePeriodSeconds=6)
    )
    namespace.resize("claimant", cpu="4", memory="2Gi")
    namespace.until_deferred("claimant")
    namespace.kubectl("delete", "pod", "neighbour", "--wait=false")
    stays(
        "the resize waits while the neighbour's process runs",
        lambda: condition(namespace.pod("claimant"), "PodResizePending").get("reason") == "Deferred",
        during=4,
    )
    namespace.until_gone("neighbour")
    namespace.until_resized("claimant", Size(4000, 2 * GIB), within=5)


def test_a_restarted_kubelet_keeps_containers_sizes_and_a_deferred_resize(
    testbed: Testbed, namespace: Namespace, extra_node: str
) -> None:
    counting = "i=0; trap 'exit 0' TERM; while :; do i=$((i+1)); echo $i; sleep 0.1; done"
    before, _ = namespace.start(vm("claimant", extra_node, command=counting), vm("neighbour", extra_node))
    namespace.resize("claimant", cpu="4", memory="2Gi")
    namespace.until_deferred("claimant")

    reached = int(namespace.kubectl("logs", "claimant", "--tail=1"))
    testbed.cli("kill", extra_node)
    testbed.cli("restart", extra_node)

    after = namespace.pod("claimant")
    started = before["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert after["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] == started
    until("the process has gone on counting", lambda: int(namespace.kubectl("logs", "claimant", "--tail=1")) > reached)
    namespace.until_deferred("claimant")
    namespace.kubectl("delete", "pod", "neighbour", "--timeout=20s")
    namespace.until_resized("claimant", Size(4000, 2 * GIB), within=10)
    assert namespace.pod("claimant")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_neighbour_deleted_while_the_kubelet_is_down_stays_until_it_is_back(
    testbed: Testbed, namespace: Namespace, extra_node: str
) -> None:
    namespace.start(vm("claimant", extra_node), vm("neighbour", extra_node))
    namespace.resize("claimant", cpu="4", memory="2Gi")
    namespace.until_deferred("claimant")
    testbed.cli("kill", extra_node)
    namespace.kubectl("delete", "pod", "neighbour", "--wait=false")
    stays("nobody but the kubelet ends a pod", lambda: bool(namespace.pod("neighbour")), during=2)
    testbed.cli("restart", extra_node)
    namespace.until_gone("neighbour")
    namespace.until_resized("claimant", Size(4000, 2 * GIB), within=10)


def test_a_killed_node_keeps_its_pods_names_until_it_is_back(
    testbed: Testbed, namespace: Namespace, extra_node: str
) -> None:
    namespace.start(
        vm("claimant", extra_node),
        vm("neighbour", extra_node),
        pod("restarter", IDLE, node=extra_node, cpu="0", memory="0"),
    )
    namespace.resize("claimant", cpu="4", memory="2Gi")
    namespace.until_deferred("claimant")
    testbed.cli("node", "kill", extra_node)

    def ready() -> str:
        return str(condition(testbed.node(extra_node), "Ready").get("status"))

    until("the cluster notices that the node is silent", lambda: ready() == "Unknown", within=40)
    frozen = namespace.pod("claimant")
    assert frozen["status"]["phase"] == "Running", "the last word of a dead kubelet stands"
    assert condition(frozen, "Ready")["status"] == "False", "but its pods are not Ready"
    assert condition(frozen, "PodResizePending")["reason"] == "Deferred"

    testbed.cli("node", "start", extra_node)
    # The processes died with the node. What may be restarted is; a VM pod (restartPolicy Never) has failed.
    assert (
        namespace.until_phase("claimant", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        == 137
    )
    restarted = namespace.until_ready("restarter")
    assert restarted["status"]["containerStatuses"][0]["restartCount"] == 1, describe(restarted)


def test_a_stopped_nodes_containers_are_asked_to_end(testbed: Testbed, namespace: Namespace, extra_node: str) -> None:
    witness = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
    folder = testbed.directory / f"witness-{namespace.name}"
    folder.mkdir()
    namespace.start(
        pod("polite", "trap 'echo asked > /out/told; exit 0' TERM; while :; do sleep 0.1; done", node=extra_node, container=witness,
            volumes=[{"name": "out", "hostPath": {"path": str(folder)}}])
    )  # fmt: skip
    testbed.cli("node", "stop", extra_node)
    assert (folder / "told").read_text().strip() == "asked"
    states = {node["name"]: node["state"] for node in testbed.status()["nodes"]}
    assert states[extra_node] == "off"


def test_an_unplugged_nodes_containers_run_on(testbed: Testbed, namespace: Namespace, extra_node: str) -> None:
    started, *_ = namespace.start(pod("islander", IDLE, node=extra_node))
    testbed.cli("node", "unplug", extra_node)

    def ready() -> str:
        return str(condition(testbed.node(extra_node), "Ready").get("status"))

    until("the cluster loses sight of the node", lambda: ready() == "Unknown", within=40)
    testbed.cli("node", "plug", extra_node)
    until("the node is back", lambda: ready() == "True", within=40)
    after = namespace.until_ready("islander")
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == started["status"]["containerStatuses"][0]["containerID"]
    )
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
