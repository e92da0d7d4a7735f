"""The cases in tests/data/ledger, as the Python ledger answers them, and what must be true of every node."""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from elbowroom.core import ledger
from elbowroom.core.quantity import millicores, quantity_bytes
from elbowroom.core.room import NOTHING, Room
from elbowroom.core.world import Hold, HoldPhase, Node, Payer, Pod, PodPhase
from hypothesis import given
from hypothesis import strategies as st
from support.testbed import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted((ROOT / "tests" / "data" / "ledger").glob("*.yaml"))
CASES = [(path.stem, case) for path in FILES for case in yaml.safe_load(path.read_text())]
NOW = 1_000_000.0


def room(text: dict[str, Any] | None) -> Room:
    return Room(millicores((text or {}).get("cpu", 0)), quantity_bytes((text or {}).get("memory", 0)))


def node_of(case: dict[str, Any]) -> Node:
    pods = tuple(
        Pod(
            uid=name, namespace="x", name=name, node="here", size=room(pod["size"]),
            allocated=room(pod.get("allocated", pod["size"])),
            phase=PodPhase.ENDED if pod.get("ended") else PodPhase.RUNNING,
        )
        for name, pod in case.get("pods", {}).items()
    )  # fmt: skip
    return Node("here", room(case["node"]), pods)


def holds_of(case: dict[str, Any]) -> list[Hold]:
    return [
        Hold(
            claimant=claimant, request=f"of-{claimant}", node=hold.get("node", "here"), target=room(hold["target"]),
            payers=tuple(Payer(name, f"{name}-receiver") for name in hold.get("payers", ())),
            priority=hold.get("priority", 0), created_at=NOW - hold.get("age", 0),
            committed=hold.get("committed", False), phase=HoldPhase(hold.get("phase", "Held")),
        )
        for claimant, hold in case.get("holds", {}).items()
    ]  # fmt: skip


@pytest.mark.parametrize(("file", "case"), CASES, ids=[f"{file}: {case['name']}" for file, case in CASES])
def test_case(file: str, case: dict[str, Any]) -> None:
    del file
    node, holds = node_of(case), holds_of(case)
    for ask in case["asks"]:
        if "pod" in ask:
            answer = ledger.fits(node, holds, room(ask["pod"]))
            expected = (ask["fits"], ask.get("resolvable", True), sorted(ask.get("because", ())))
            assert (answer.fits, answer.resolvable, sorted(answer.holds)) == expected, ask
        else:
            (hold,) = (hold for hold in holds if hold.claimant == ask["hold"])
            assert ledger.shortfall(node, holds, hold) == room(ask["shortfall"]), ask
            assert ledger.keepable(node, holds, hold) is ask["keepable"], ask


def described(room: Room) -> dict[str, Any]:
    return {"cpu": f"{room.cpu}m", "memory": room.memory}


def random_case(chance: random.Random, number: int) -> dict[str, Any]:
    """Describe some world in the words of the cases, with the answers of the Python ledger."""

    def some(most: int = 4) -> Room:
        return Room(chance.randint(0, most), chance.randint(0, most))

    pods: dict[str, Any] = {}
    for index in range(chance.randint(1, 6)):
        allocated = some()
        size = allocated.plus(some()) if chance.random() < 0.3 else allocated
        pods[f"p{index}"] = {
            "size": described(size), "allocated": described(allocated), "ended": chance.random() < 0.1,
        }  # fmt: skip
    holds = {
        f"p{index}": {
            "target": described(some(8)), "payers": chance.sample(["p3", "p4", "p5", "p9"], chance.randint(0, 2)),
            "priority": chance.randint(0, 2), "age": chance.randint(0, 3), "committed": chance.random() < 0.3,
            "phase": chance.choice([*HoldPhase]).value, "node": chance.choice(["here"] * 4 + ["elsewhere"]),
        }
        for index in range(chance.randint(0, 4))
    }  # fmt: skip
    case: dict[str, Any] = {"name": str(number), "node": described(some(24)), "pods": pods, "holds": holds}
    node, known = node_of(case), holds_of(case)
    request = some()
    fit = ledger.fits(node, known, request)
    case["asks"] = [
        {"pod": described(request), "fits": fit.fits, "resolvable": fit.resolvable, "because": sorted(fit.holds)},
        *(
            {
                "hold": hold.claimant, "shortfall": described(ledger.shortfall(node, known, hold)),
                "keepable": ledger.keepable(node, known, hold),
            }
            for hold in known if hold.live and hold.node == "here"
        ),
    ]  # fmt: skip
    return case


def test_the_schedulers_ledger_answers_alike(tmp_path: Path) -> None:
    """Worlds that nobody has thought of: the twin in Go has to answer as this one does."""
    chance = random.Random(1)
    cases = [random_case(chance, number) for number in range(2000)]
    assert {ask["fits"] for case in cases for ask in case["asks"] if "pod" in ask} == {True, False}
    assert {ask["keepable"] for case in cases for ask in case["asks"] if "hold" in ask} == {True, False}
    (tmp_path / "random.yaml").write_text(json.dumps(cases))
    told = subprocess.run(
        [ROOT / "scripts" / "go", "test", "-vet=off", "-count=1", "-run", "TestCases", "./holds"],
        cwd=ROOT / "scheduler", env={**os.environ, "LEDGER_CASES": str(tmp_path)}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-1000:]


small = st.integers(0, 4)
rooms = st.builds(Room, small, small)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, list[Hold]]:
    pods = []
    for index in range(draw(st.integers(1, 5))):
        allocated = draw(rooms)
        pods.append(
            Pod(
                uid=f"p{index}", namespace="x", name=f"p{index}", node="here", allocated=allocated,
                size=allocated.plus(draw(rooms)) if draw(st.booleans()) else allocated,
            )
        )  # fmt: skip
    free = draw(rooms)
    taken = Room(sum(pod.allocated.cpu for pod in pods), sum(pod.allocated.memory for pod in pods))
    holds: list[Hold] = []
    used: set[str] = set()
    for pod in pods:
        if pod.uid in used or not draw(st.booleans()):
            continue
        used.add(pod.uid)
        payers = [other.uid for other in pods if other.uid not in used and draw(st.booleans())]
        used.update(payers)
        holds.append(
            Hold(
                claimant=pod.uid, request="r", node="here", target=pod.allocated.plus(draw(rooms)),
                payers=tuple(Payer(uid, "") for uid in payers), priority=draw(st.integers(0, 1)),
                created_at=float(draw(st.integers(0, 3))), committed=draw(st.booleans()), phase=HoldPhase.HELD,
            )
        )  # fmt: skip
    return Node("here", taken.plus(free), tuple(pods)), holds


def without(node: Node, uids: set[str]) -> Node:
    return Node(node.name, node.allocatable, tuple(pod for pod in node.pods if pod.uid not in uids))


@given(nodes())
def test_all_promises_can_be_kept_together(world: tuple[Node, list[Hold]]) -> None:
    """When every hold of a node is keepable and all payers have left, everybody has its target: from raw sums."""
    node, holds = world
    if not all(ledger.keepable(node, holds, hold) for hold in holds):
        return
    targets = {hold.claimant: hold.target for hold in holds}
    after = without(node, {payer.uid for hold in holds for payer in hold.payers})
    wanting = {hold.claimant for hold in holds if ledger.growth(node, hold)}
    for index in range(2):
        if any(ledger.growth(node, hold)[index] for hold in holds):
            taken = sum(max(targets.get(pod.uid, NOTHING)[index], pod.size[index]) for pod in after.pods)
            assert taken <= node.allocatable[index], (index, wanting)


@given(nodes(), rooms)
def test_a_pod_that_fits_takes_nothing_that_is_kept(world: tuple[Node, list[Hold]], request: Room) -> None:
    node, holds = world
    if not ledger.fits(node, holds, request).fits:
        return
    targets = {hold.claimant: hold.target for hold in holds}
    for index in range(2):
        if request[index]:
            kept = sum(max(targets.get(pod.uid, NOTHING)[index], pod.size[index]) for pod in node.pods)
            assert kept + request[index] <= node.allocatable[index]


@given(nodes())
def test_nobody_lacks_anything_on_the_room_of_a_committed_hold(world: tuple[Node, list[Hold]]) -> None:
    """Whoever could grow now leaves each committed hold what it waits for."""
    node, holds = world
    for hold in holds:
        if ledger.shortfall(node, holds, hold) or not ledger.growth(node, hold):
            continue
        committed = [other for other in holds if other.committed and other.claimant != hold.claimant]
        for index in range(2):
            more = ledger.growth(node, hold)[index]
            if more:
                claimants = {other.claimant for other in holds}
                others = sum(pod.allocated[index] if pod.uid in claimants else pod.size[index] for pod in node.pods)
                kept = sum(ledger.growth(node, other)[index] for other in committed)
                assert others + more + kept <= node.allocatable[index]


@given(nodes())
def test_a_plan_that_pays_the_shortfall_can_be_promised(world: tuple[Node, list[Hold]]) -> None:
    node, holds = world
    for hold in holds:
        lacking = ledger.shortfall(node, holds, hold)
        if lacking.within(ledger.payment(node, hold)):
            assert ledger.keepable(node, holds, hold)
