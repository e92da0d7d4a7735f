"""Fixtures: a cluster with or without an operator for the tests of a module, and a witness in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .holds import install
from .inside import Inside
from .operators import SYSTEM, start_operator
from .scenes import scene
from .testbed import ROOT, Testbed
from .witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .scenes import Scene


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Provide a cluster with an operator in it that does not wait as long as one has to elsewhere."""
    flags = ("--cpu", "4", "--memory", "8Gi", "--node-grace", "8s")
    with Testbed(tmp_path_factory.mktemp("operated"), nodes=3, flags=flags) as running:
        install(running, ROOT)
        start_operator(running, bindWithin="10s", backoff="1s")
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Provide a cluster with two operators, one of which acts, and both of which guard."""
    flags = ("--cpu", "4", "--memory", "8Gi", "--node-grace", "8s")
    with Testbed(tmp_path_factory.mktemp("guarded"), nodes=3, flags=flags) as running:
        install(running, ROOT)
        start_operator(running, replicas=2, bindWithin="10s", backoff="1s", guard={})
        yield running


@pytest.fixture(scope="module")
def unoperated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Provide a cluster in which the operator's account is there, and the operator is not."""
    with Testbed(tmp_path_factory.mktemp("unoperated"), nodes=2, flags=("--cpu", "4", "--memory", "8Gi")) as running:
        install(running, ROOT)
        running.kubectl("apply", "-f", f"{ROOT}/examples/operator.yaml")
        running.kubectl("-n", SYSTEM, "delete", "deployment", "--all", "--timeout=30s")
        yield running


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Testbed:
    """Provide the cluster of a module: one with an operator, unless the module says otherwise."""
    found: Testbed = request.getfixturevalue("operated")
    return found


@pytest.fixture(scope="module")
def standing(cluster: Testbed) -> Iterator[Inside]:
    with Inside(cluster) as inside:
        yield inside


@pytest.fixture(scope="module")
def witness(cluster: Testbed) -> Iterator[Witness]:
    with Witness(cluster) as found:
        yield found


@pytest.fixture
def stage(cluster: Testbed, standing: Inside, witness: Witness, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with scene(cluster, standing, witness, request.node.name) as made:
        yield made
