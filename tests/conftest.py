"""One testbed for the whole run, a namespace for each test."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.holds import install
from support.inside import Inside
from support.namespace import fresh_namespace
from support.stages import cluster, guarded, operated, stage, standing, unoperated, witness
from support.testbed import ROOT, Testbed
from support.vms import Vms, new_authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elbowroom.authority.certificates import Authority
    from support.namespace import Namespace

__all__ = ["cluster", "guarded", "operated", "stage", "standing", "unoperated", "witness"]
ARTIFACTS = Path(__file__).resolve().parents[1] / ".cache" / "test-logs"


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    directory = tmp_path_factory.mktemp("testbed")
    try:
        # A short grace: tests kill nodes and wait for the cluster to notice.
        with Testbed(directory, nodes=3, flags=("--cpu", "4", "--memory", "8Gi", "--node-grace", "12s")) as running:
            install(running, ROOT)
            yield running
    finally:
        kept = ARTIFACTS / os.environ.get("PYTEST_XDIST_WORKER", "one")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(directory / "logs", kept)


@pytest.fixture
def namespace(testbed: Testbed, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with fresh_namespace(testbed, request.node.name) as made:
        yield made


@pytest.fixture(scope="session")
def inside(testbed: Testbed) -> Iterator[Inside]:
    """Stand where the operator stands."""
    with Inside(testbed) as standing:
        yield standing


@pytest.fixture(scope="session")
def authority() -> Authority:
    return new_authority()


@pytest.fixture
def vms(namespace: Namespace, inside: Inside, authority: Authority) -> Iterator[Vms]:
    found = Vms(namespace, inside, authority)
    yield found
    found.close()


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
