"""From a VM's pod to its receiver's, and what makes a pod a VM."""

from __future__ import annotations

import copy
import ssl
from typing import Any

import pytest
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.interface import Driver, NotAVMError
from elbowroom.drivers.qemu import QemuDriver
from elbowroom.drivers.receiver import receiver_pod

POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {
        "name": "db", "namespace": "shop", "uid": "u1", "resourceVersion": "5",
        "labels": {"elbowroom.dev/vm": "db", "elbowroom.dev/movable": "true", "tier": "back"},
        "annotations": {"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    },
    "spec": {
        "nodeName": "node-1", "restartPolicy": "Never", "serviceAccountName": "default", "serviceAccount": "default",
        "containers": [
            {
                "name": "sidecar", "image": "log",
                "volumeMounts": [{"name": "kube-api-access-x", "mountPath": "/var/run/secrets"}],
            },
            {
                "name": "runner", "image": "runner", "env": [{"name": "ELBOWROOM_VM", "value": "{}"}],
                "resources": {"requests": {"cpu": "4"}},
                "volumeMounts": [{"name": "disk", "mountPath": "/disks"}],
            },
        ],
        "volumes": [{"name": "kube-api-access-x"}, {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}],
    },
    "status": {
        "podIP": "10.0.0.7",
        "containerStatuses": [{"name": "runner", "resources": {"requests": {"cpu": "2"}}}],
    },
}  # fmt: skip


def driver() -> QemuDriver:
    return QemuDriver(RunnerClient(ssl.create_default_context))


def changed(**metadata: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    pod["metadata"].update(metadata)
    return pod


def test_the_driver_is_one() -> None:
    assert isinstance(driver(), Driver)


def test_the_receiver_is_the_same_pod_elsewhere() -> None:
    made = receiver_pod(POD, name="db-4", attempt=4)
    assert made["metadata"] == {
        "name": "db-4", "namespace": "shop", "labels": POD["metadata"]["labels"],
        "annotations": {"note": "kept", "elbowroom.dev/attempt": "4"},
    }  # fmt: skip
    assert "nodeName" not in made["spec"]
    assert "status" not in made
    assert made["spec"]["volumes"] == [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
    sidecar, runner = made["spec"]["containers"]
    assert sidecar["volumeMounts"] == []
    assert runner["volumeMounts"] == [{"name": "disk", "mountPath": "/disks"}]
    assert runner["env"][-1] == {"name": "ELBOWROOM_RECEIVE", "value": "4"}


def test_the_receiver_has_the_size_that_its_source_has_not_the_one_it_wishes_for() -> None:
    runner = receiver_pod(POD, name="db-4", attempt=4)["spec"]["containers"][1]
    assert runner["resources"] == {"requests": {"cpu": "2"}}


def terms(pod: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = affinity["nodeSelectorTerms"]
    return found


def test_the_receiver_is_kept_off_its_sources_node_in_each_of_its_terms() -> None:
    pod = copy.deepcopy(POD)
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone, {}]}}
    }
    away = {"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}
    made = receiver_pod(pod, name="db-4", attempt=4)
    assert terms(made) == [{**zone, "matchFields": [away]}, {"matchFields": [away]}]


def test_a_second_move_forgets_the_node_of_the_first() -> None:
    first = receiver_pod(POD, name="db-4", attempt=4, node="node-2")
    first["spec"]["nodeName"] = "node-2"
    second = receiver_pod(first, name="db-5", attempt=5)
    assert terms(second) == [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-2"]}]}]
    assert [item for item in second["spec"]["containers"][1]["env"] if item["name"] == "ELBOWROOM_RECEIVE"] == [
        {"name": "ELBOWROOM_RECEIVE", "value": "5"}
    ]


def test_a_vm_is_described_from_its_pod() -> None:
    vm = driver().describe(POD)
    assert (vm.name, vm.namespace, vm.pod, vm.uid, vm.node, vm.address) == (
        "db",
        "shop",
        "db",
        "u1",
        "node-1",
        "10.0.0.7",
    )
    assert vm.movable
    assert vm.attempt == 0
    assert driver().describe(receiver_pod(POD, name="db-4", attempt=4)).attempt == 4


@pytest.mark.parametrize("labels", [{}, {"elbowroom.dev/vm": "Not A Name"}])
def test_other_pods_are_no_vms(labels: dict[str, str]) -> None:
    with pytest.raises(NotAVMError, match="pod db"):
        driver().describe(changed(labels=labels))


def test_why_a_vm_is_not_movable() -> None:
    assert (
        driver().describe(changed(labels={"elbowroom.dev/vm": "db"})).why_not_movable
        == "its owner has not set elbowroom.dev/movable=true"
    )
    owned = changed(ownerReferences=[{"kind": "ReplicaSet", "name": "db-x", "controller": True}])
    assert "ReplicaSet db-x would make it anew" in driver().describe(owned).why_not_movable
    restarted = changed()
    restarted["spec"]["restartPolicy"] = "Always"
    assert "a restart would boot a second copy" in driver().describe(restarted).why_not_movable
    pinned = changed()
    pinned["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
    assert "ties it to its node" in driver().describe(pinned).why_not_movable
