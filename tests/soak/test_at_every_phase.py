"""Things that happen at one named write of the operator, and not a moment earlier or later."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.ambush import Ambush, Fate, PhaseWritten
from support.operators import ACCOUNT, Mortal, told
from support.scenes import SLOWLY, scene
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.inside import Inside
    from support.scenes import Scene
    from support.testbed import Testbed
    from support.witness import Witness


@pytest.fixture(scope="module")
def cluster(unoperated: Testbed) -> Testbed:
    return unoperated


class Staged:
    """A scene with an operator that is watched at every call."""

    def __init__(self, stage: Scene, ambush: Ambush, operator: Mortal, moment: PhaseWritten) -> None:
        """Take what there is."""
        self.stage, self.ambush, self.operator, self.moment = stage, ambush, operator, moment


@pytest.fixture
def staged(
    cluster: Testbed, standing: Inside, witness: Witness, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Staged]:
    moment = PhaseWritten()
    with (
        scene(cluster, standing, witness, request.node.name) as stage,
        Ambush(cluster, ACCOUNT, moment, standing) as ambush,
        Mortal(ambush, standing, tmp_path) as operator,
    ):
        yield Staged(stage, ambush, operator, moment)


# Until the commit everything is put back; after it, everything comes to its end.
BEFORE = [
    ("vmscalerequests", "Holding"), ("vmscalerequests", "Moving"), ("vmmigrations", "Binding"),
    ("vmmigrations", "Transferring"), ("vmmigrations", "AtBrink"), ("vmscalerequests", "Committing"),
]  # fmt: skip
AFTER = [
    ("vmmigrations", "SwitchingOver"), ("vmmigrations", "Moved"), ("vmscalerequests", "Swapping"),
    ("vmscalerequests", "Growing"), ("vmscalerequests", "Releasing"),
]  # fmt: skip


@pytest.mark.timeout(420)
def test_a_request_is_deleted_at_every_phase(staged: Staged) -> None:
    """Six VMs of half a core fill a node. Each request that gets beyond its commit moves one away."""
    stage, has = staged.stage, 500
    stage.boot(db="500m", **{f"n{number}": "500m" for number in range(1, 6)})
    stage.fill("node-1")
    for plural, phase in (*BEFORE, *AFTER):
        name = f"at-{phase.lower()}"
        # What a request waits for, it hears of at once: before the commit it has to be deleted first, and not meanwhile.
        waited_for = plural == "vmmigrations" and (plural, phase) in BEFORE
        staged.moment.fate = Fate.SECOND if waited_for else Fate.SEEN
        staged.moment.where, staged.moment.phase = f"/{plural}/", phase
        staged.ambush.at_the_moment(partial(delete, stage, name))
        stage.requests.grow(name, vm="db", resources={"cpu": f"{has + 500}m"})
        assert staged.ambush.struck.wait(60), f"{phase} was not written: {staged.operator.story()}"
        until(f"{name} is gone", partial(is_gone, stage, name), within=90)
        grown = (plural, phase) in AFTER
        has += 500 if grown else 0
        assert stage.has("db").cpu == has, f"deleted at {phase}: {staged.operator.story()}"
        at_home = sum(stage.home_of(f"n{number}")["spec"]["nodeName"] == "node-1" for number in range(1, 6))
        assert at_home == 5 - (has - 500) // 500, f"deleted at {phase}"
        stage.witness.assert_kept(stage.space.name)


def delete(stage: Scene, name: str) -> None:
    stage.space.kubectl("delete", "vmsr", name, "--wait=false")


def is_gone(stage: Scene, name: str) -> bool:
    return all(item["metadata"]["name"] != name for item in stage.requests.all("vmscalerequests"))


def test_the_second_neighbour_fails_after_the_first_has_moved(staged: Staged) -> None:
    stage = staged.stage
    stage.boot(db="2", web="1", mail="1")

    def kill_the_other_receiver() -> None:
        (found,) = (item for item in stage.requests.all("vmmigrations") if "committedAt" not in item["status"])
        stage.vms.signal_qemu(stage.guest(found["status"]["receiver"]["name"]), signal.SIGKILL)

    # The first is committed, and whoever has written that has not heard of it yet: the second is not.
    staged.moment.where, staged.moment.phase = "/vmmigrations/", "SwitchingOver"
    staged.ambush.at_the_moment(kill_the_other_receiver)
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    found = stage.requests.until("grow", "PartiallyMoved")
    assert "could not move" in told(found)
    assert stage.has("db").cpu == 2000
    assert {stage.lives("web"), stage.lives("mail")} == {"node-1", "node-2"}
    stage.witness.assert_kept(stage.space.name)


def test_an_operator_that_was_away_comes_back_while_another_one_acts(
    staged: Staged, standing: Inside, tmp_path: Path
) -> None:
    """The first does not know that its time is over: for a moment there are two, and they do no harm."""
    stage = staged.stage
    stage.boot(db="2", web="2")
    staged.moment.where, staged.moment.phase = "/vmmigrations/", "Transferring"
    staged.ambush.at_the_moment(lambda: staged.operator.signal(signal.SIGSTOP))
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    assert staged.ambush.struck.wait(60), staged.operator.story()
    moment = PhaseWritten("/vmscalerequests/", "Committing")
    with (
        Ambush(stage.space.testbed, ACCOUNT, moment, standing) as ambush,
        Mortal(ambush, standing, tmp_path, "second") as second,
    ):
        ambush.at_the_moment(lambda: staged.operator.signal(signal.SIGCONT))
        assert ambush.struck.wait(90), second.story()
        stage.requests.until("grow", "Succeeded")
        assert stage.has("db").cpu == 4000
        assert stage.lives("web") == "node-2"
        stage.witness.assert_kept(stage.space.name)
