"""All the thieves of the design's table at once, while the guard is up, restarted, down, or behind with its news.

Two nodes of 8 cores, a stock scheduler beside ours, and a taint against that one. What the guard cannot keep out when it
is not asked, or does not know yet, is told; and whatever happens, no guest is lost or doubled, and no claimant is killed while room is held for it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import yaml
from elbowroom.authority.certificates import Authority, issue_server
from support.ambush import Ambush
from support.holds import install
from support.namespace import priority_class
from support.operators import ACCOUNT, SYSTEM, start_operator
from support.schedulers import Process, stock
from support.testbed import ROOT, Testbed
from thieves.gang import IMPORTANT, STOCK
from thieves.swaps import CORES, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from support.inside import Inside
    from support.scenes import Scene

ALONE = 9443
"""Where a guard of our own listens, beside the deployed ones."""
HOOKS = "validatingwebhookconfiguration/elbowroom-guard"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("thieves")
    with Testbed(folder / "testbed", nodes=2, flags=("--cpu", str(CORES), "--memory", "8Gi")) as running:
        install(running, ROOT)
        running.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(priority_class(IMPORTANT)))
        settings = {"rest": "0s", "backoff": "1s", "bindWithin": "15s"}
        start_operator(running, replicas=2, guard={}, taint=True, **settings)
        with stock(running, folder, STOCK):
            yield running


def up(_testbed: Testbed, _standing: Inside, _folder: Path) -> Iterator[None]:
    yield


def restarted(testbed: Testbed, _standing: Inside, _folder: Path) -> Iterator[None]:
    """Replace both replicas, and with them the operator that acts, one after the other."""
    testbed.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/elbowroom-operator")
    yield
    testbed.kubectl("-n", SYSTEM, "rollout", "status", "deployment/elbowroom-operator", "--timeout=90s", within=100)


def down(testbed: Testbed, _standing: Inside, _folder: Path) -> Iterator[None]:
    """Have the API server ask at a port where nobody listens."""
    with asked_at(testbed, 1, b"none"):
        yield


def behind(testbed: Testbed, standing: Inside, folder: Path) -> Iterator[None]:
    """Have it ask a guard that hears of everything four seconds late."""
    made = Authority(()).maintained(datetime.now(UTC))
    pair = issue_server(made, "localhost", datetime.now(UTC))
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"guard": {"port": ALONE, "certificate": str(folder)}}))
    with Ambush(testbed, ACCOUNT, lambda *_: None, standing) as ambush:
        ambush.behind = 4.0
        command = [str(ROOT / ".venv" / "bin" / "elbowroom"), "guard", "--config", str(config)]
        kubeconfig = str(ambush.kubeconfig(folder / "kubeconfig"))
        with Process(testbed, folder / "guard.log", command, KUBECONFIG=kubeconfig) as guard:
            guard.until_said("the guard answers")
            with asked_at(testbed, ALONE, made.bundle()):
                yield


@contextmanager
def asked_at(testbed: Testbed, port: int, bundle: bytes) -> Iterator[None]:
    """Have the API server ask somebody else, and in the end the guard's Service again."""
    before = json.loads(testbed.kubectl("get", HOOKS, "-o", "json"))["webhooks"]
    trust = {} if bundle == b"none" else {"caBundle": b64encode(bundle).decode()}
    where = {"url": f"https://localhost:{port}/admit", **trust}
    change(testbed, [{**hook, "clientConfig": where} for hook in before])
    try:
        yield
    finally:
        change(testbed, before)


def change(testbed: Testbed, hooks: list[dict[str, object]]) -> None:
    patch = json.dumps([{"op": "replace", "path": "/webhooks", "value": hooks}])
    testbed.kubectl("patch", HOOKS, "--type=json", "-p", patch)


STATES = {item.__name__: contextmanager(item) for item in (up, restarted, down, behind)}


def entered(name: str, cluster: Testbed, standing: Inside, folder: Path) -> AbstractContextManager[None]:
    return STATES[name](cluster, standing, folder)


@pytest.mark.parametrize("state", ["up", "restarted"])
def test_nobody_gets_held_room(state: str, stage: Scene, cluster: Testbed, standing: Inside, tmp_path: Path) -> None:
    stage.boot(web="3")
    acts = Stage(stage.space, stage.requests)
    with entered(state, cluster, standing, tmp_path):
        swap = acts.by_request("node-1", transfer={"bandwidth": "12Mi"} if state == "restarted" else {})
    assert swap.seconds is not None
    assert not swap.killed
    assert stage.lives("web") == "node-2"
    stage.witness.assert_kept(stage.space.name, crowd=True)


@pytest.mark.parametrize("state", ["down", "behind"])
def test_who_slips_in_is_told_and_harms_nobody(
    state: str, stage: Scene, cluster: Testbed, standing: Inside, tmp_path: Path
) -> None:
    stage.boot(web="3")
    acts = Stage(stage.space, stage.requests)
    with entered(state, cluster, standing, tmp_path):
        acts.by_request("node-1")
    # Once the request has given up, nobody protects its claimant from a preemptor any more.
    assert not stage.witness.killed(stage.space.name)
    said = stage.events(acts.name("grow"))
    # Loops of bindings and node names, and a resize, against a node that nobody guards: some come before the copy is over.
    assert any(line.startswith("RoomTaken") for line in said), "\n".join(said)
    assert stage.lives("web") in ("node-1", "node-2")
    stage.witness.assert_kept(stage.space.name, stolen=True, crowd=True)
