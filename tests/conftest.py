"""One testbed for the whole run, a namespace for each test."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kubernetes import client
from support.namespace import Namespace
from support.testbed import Testbed
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ARTIFACTS = Path(__file__).resolve().parents[1] / ".cache" / "test-logs"


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    directory = tmp_path_factory.mktemp("testbed")
    try:
        # A short grace: tests kill nodes and wait for the cluster to notice.
        with Testbed(directory, nodes=3, flags=("--cpu", "4", "--memory", "8Gi", "--node-grace", "12s")) as running:
            yield running
    finally:
        shutil.rmtree(ARTIFACTS, ignore_errors=True)
        shutil.copytree(directory / "logs", ARTIFACTS)


@pytest.fixture
def namespace(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    base = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:50].strip("-")
    name = f"{base}-{secrets.token_hex(3)}"
    testbed.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    try:
        default_account_exists(testbed, name)
        yield Namespace(testbed, name)
    finally:
        # No grace: what a pod does when it is asked to end is a test's business, not the clean-up's. The pods' room is
        # free again when they are gone, which the next test may count on.
        testbed.kubectl("-n", name, "delete", "pods", "--all", "--grace-period=1", "--wait=false")
        testbed.kubectl("delete", "namespace", name, "--wait=false")
        until(f"no pod is left in {name}", lambda: not testbed.core.list_namespaced_pod(name).items, within=60)


def default_account_exists(testbed: Testbed, namespace: str) -> None:
    """Wait for what pods need: a controller makes it a moment after the namespace."""
    selector = "metadata.name=default"
    until(
        f"namespace {namespace} has its default service account",
        lambda: testbed.core.list_namespaced_service_account(namespace, field_selector=selector).items,
    )


@pytest.fixture
def extra_node(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[str]:
    """Add a node of 4 CPUs and 8Gi for one test, which may do with it what it likes."""
    name = "extra-" + re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40].strip("-")
    testbed.cli("node", "add", name, "--cpu", "4", "--memory", "8Gi")
    try:
        yield name
    finally:
        testbed.cli("node", "remove", name)
        # Their processes are gone with the node. The controllers would take 40 s to notice.
        testbed.kubectl(
            "delete",
            "pods",
            "-A",
            "--field-selector",
            f"spec.nodeName={name}",
            "--force",
            "--grace-period=0",
            "--wait=false",
        )
