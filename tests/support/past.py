"""What comes past the scheduler: bare bindings and evictions, made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes import client

from .namespace import IDLE, pod

if TYPE_CHECKING:
    from .namespace import Json, Namespace

LATER = 429
"""What somebody is answered who is to come again later."""


def bind(space: Namespace, name: str, node: str, *, legacy: bool = False) -> None:
    """Bind a pod, as a scheduler would, by either of the two ways that there are."""
    target = client.V1ObjectReference(kind="Node", name=node, api_version="v1")
    body = client.V1Binding(metadata=client.V1ObjectMeta(name=name), target=target)
    if legacy:
        space.core.create_namespaced_binding(space.name, body, _preload_content=False)
    else:
        space.core.create_namespaced_pod_binding(name, space.name, body, _preload_content=False)


def evict(space: Namespace, name: str) -> None:
    """Ask for an eviction, as a drain or an autoscaler does."""
    body = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=space.name))
    space.core.create_namespaced_pod_eviction(name, space.name, body)


def unplaced(name: str, cpu: str) -> Json:
    """Describe a pod that no scheduler cares for."""
    return pod(name, IDLE, cpu=cpu, schedulerName="nobody")
