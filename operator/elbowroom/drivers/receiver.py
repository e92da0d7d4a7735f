"""From a VM's pod to the pod that receives its guest. Pure."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from elbowroom.runner.options import CONFIG, CONFIG_FILE, RECEIVE

if TYPE_CHECKING:
    from .interface import Pod

VM_LABEL = "elbowroom.dev/vm"
MOVABLE_LABEL = "elbowroom.dev/movable"
CONTAINER_ANNOTATION = "elbowroom.dev/runner-container"
ATTEMPT_ANNOTATION = "elbowroom.dev/attempt"
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105  # a volume's name
# What others have noted about the source's pod, and what would be wrong about its receiver: its addresses, above all.
_NOT_COPIED = (
    "kubectl.kubernetes.io/", "cni.projectcalico.org/", "k8s.v1.cni.cncf.io/network-status",
    "k8s.v1.cni.cncf.io/networks-status", "k8s.ovn.org/", "ovn.kubernetes.io/",
)  # fmt: skip


def runner_container(pod: Pod) -> str:
    """Return the name of the container that the runner is in."""
    named = pod["metadata"].get("annotations", {}).get(CONTAINER_ANNOTATION)
    if named is not None:
        return str(named)
    containers = pod["spec"]["containers"]
    for container in containers:
        if any(item["name"] in (CONFIG, CONFIG_FILE) for item in container.get("env", ())):
            return str(container["name"])
    return str(containers[0]["name"])


def receiver_pod(pod: Pod, *, name: str, attempt: int, node: str | None = None) -> dict[str, Any]:
    """Build the receiver: the same pod under another name and elsewhere, made for one attempt."""
    spec: dict[str, Any] = copy.deepcopy(dict(pod["spec"]))
    for field in ("nodeName", "ephemeralContainers", "serviceAccount"):
        spec.pop(field, None)
    source_node = pod["spec"].get("nodeName")
    if source_node or node:
        spec["affinity"] = _elsewhere(spec.get("affinity") or {}, source_node, node)
    spec["volumes"] = [volume for volume in spec.get("volumes", ()) if not volume["name"].startswith(_TOKEN_VOLUME)]
    runner = runner_container(pod)
    statuses = {item["name"]: item for item in pod.get("status", {}).get("containerStatuses", ())}
    for container in spec["containers"]:
        _without_token(container)
        actual = statuses.get(container["name"], {}).get("resources")
        if actual:
            container["resources"] = copy.deepcopy(actual)
        if container["name"] == runner:
            env = [item for item in container.get("env", ()) if item["name"] != RECEIVE]
            container["env"] = [*env, {"name": RECEIVE, "value": str(attempt)}]
    for container in spec.get("initContainers", ()):
        _without_token(container)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(pod, name, attempt), "spec": spec}


def _metadata(pod: Pod, name: str, attempt: int) -> dict[str, Any]:
    source = pod["metadata"]
    kept = {key: value for key, value in source.get("annotations", {}).items() if not key.startswith(_NOT_COPIED)}
    return {
        "name": name,
        "namespace": source["namespace"],
        "labels": dict(source.get("labels", {})),
        "annotations": {**kept, ATTEMPT_ANNOTATION: str(attempt)},
    }


def _without_token(container: dict[str, Any]) -> None:
    mounts = container.get("volumeMounts", ())
    container["volumeMounts"] = [mount for mount in mounts if not mount["name"].startswith(_TOKEN_VOLUME)]


def _elsewhere(affinity: dict[str, Any], source_node: str | None, node: str | None) -> dict[str, Any]:
    """Keep the pod off its source's node, and on a given one: each of its terms gets both."""
    fields = []
    if source_node:
        fields.append({"key": "metadata.name", "operator": "NotIn", "values": [source_node]})
    if node:
        fields.append({"key": "metadata.name", "operator": "In", "values": [node]})
    found = copy.deepcopy(affinity)
    required = found.setdefault("nodeAffinity", {}).setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    # What an earlier move has put in is about an earlier node.
    terms = [
        {**term, "matchFields": [item for item in term.get("matchFields", ()) if item["key"] != "metadata.name"]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [*term["matchFields"], *fields]} for term in terms]
    return found
