"""Visits every state of a world, shortest stories first.

A state is kept as a few small numbers: one for each of its parts, which most states share. Parts that a step did not touch
keep their numbers without being looked at, and whatever is derived from a part is remembered by its identity.
"""

from __future__ import annotations

import random
import time
from array import array
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .model import State
from .operator import BEHIND, Brain, Operator
from .steps import steps
from .truths import unfinished, violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .model import Setup

_WALKS, _LENGTH = 2_000, 200
_CALM_AFTER, _ENDS_WITHIN = 150, 600
"""A walk has faults and people who are behind only for so many steps, and must have ended after so many."""
_A_FAULT, _A_TICK = 0.06, 0.02
"""How often a walk takes one, where it could do something else as well."""
_FEW = {"dead", "now", "faults", "cut", "stale", "quota", "freed", "held", "vms", "killed", "broken", "guests"}
"""Parts of which a world has a few hundred at most: a byte or two of a state's key, of which there are millions."""
_PACK = Struct("<" + "".join("H" if name in _FEW else "I" for name in State._fields))


class Result(NamedTuple):
    """What a search has shown."""

    states: int
    edges: int
    seconds: float
    violation: str = ""
    story: tuple[str, ...] = ()
    steps: int = 0
    """Where there are too many states to visit all: every state within so many steps was."""


class _Codec:
    """Numbers for the parts of states."""

    def __init__(self) -> None:
        self._numbers: list[dict[Any, int]] = [{} for _ in State._fields]
        self._parts: list[list[Any]] = [[] for _ in State._fields]

    def encode(self, state: State, before: State | None = None, known: tuple[int, ...] = ()) -> bytes:
        """Return a state's key; `before` is the state that it came from, in its canonical form."""
        numbers = []
        for index, part in enumerate(state):
            if before is not None and part is before[index]:
                numbers.append(known[index])
                continue
            table = self._numbers[index]
            number = table.get(part)
            if number is None:
                number = table[part] = len(table)
                self._parts[index].append(part)
            numbers.append(number)
        return _PACK.pack(*numbers)

    def decode(self, key: bytes) -> tuple[State, tuple[int, ...]]:
        """Return the state, made of the very objects that were numbered."""
        known = _PACK.unpack(key)
        return State(*[parts[number] for parts, number in zip(self._parts, known, strict=True)]), known


class Search:
    """One world, visited breadth first."""

    def __init__(self, setup: Setup, start: State, *, brain: type[Brain] = Brain, most: int = 20_000_000) -> None:
        """Take a world, the decisions that are tried in it, and how many states are visited at the most."""
        self._setup, self._most = setup, most
        self._operator = Operator(setup, brain)
        self._codec = _Codec()
        self._numbers: dict[bytes, int] = {self._codec.encode(start): 0}
        self._keys: list[bytes] = list(self._numbers)
        self._parents = array("I", [0])
        self._sources, self._targets = array("I"), array("I")
        """Steps that are no faults."""
        self._timely = bytearray()
        """Which of them are not done by somebody who has fallen behind."""
        self._ends = bytearray()
        self._around: tuple[str, ...] = ()
        """The story of a circle."""
        self._edges = 0

    def run(self) -> Result:
        """Visit every state that can be reached; stop at the first that must not be."""
        began = time.perf_counter()
        wrong, number = self._visit()
        visited = len(self._ends)
        steps = 0
        if not wrong and visited < len(self._keys):
            # Shortest stories first: whatever is nearer to the start than the first that was not visited, was.
            steps = len(self._path(visited)) - 2
        elif not wrong:
            wrong, number = self._no_way_out()
            if not wrong:
                wrong, number = self._circle()
        story = (*self._story(self._path(number)), *self._around) if wrong else ()
        return Result(max(visited, number + 1), self._edges, time.perf_counter() - began, wrong, story, steps)

    def first(self, wanted: Callable[[State], bool]) -> State:
        """Return a state of a kind, by going at random until one is met; the same one each time."""
        chance = random.Random(1)
        start, _ = self._codec.decode(self._keys[0])
        for _ in range(_WALKS):
            state = start
            for _ in range(_LENGTH):
                if wanted(state):
                    return state
                calm = [
                    after for _, after in self._steps(state) if after.faults == state.faults and after.now == state.now
                ]
                if not calm:
                    break
                state, _ = self._codec.decode(self._codec.encode(chance.choice(calm)))
        raise LookupError("there is no such state")

    def wander(self, walks: int, seed: int = 1) -> Result:
        """Go at random from the start to an end, many times: for more faults than every state can be visited with."""
        began, chance, seen = time.perf_counter(), random.Random(seed), 0
        for _ in range(walks):
            wrong, story = self._walk(chance)
            seen += len(story)
            if wrong:
                story = self._shortened(wrong, story)
                return Result(seen, seen, time.perf_counter() - began, wrong, tuple(story))
        return Result(seen, seen, time.perf_counter() - began)

    def _walk(self, chance: random.Random) -> tuple[str, list[str]]:
        state, story = self._codec.decode(self._keys[0])[0], list[str]()
        while not (wrong := violation(self._setup, state)):
            possible = list(self._steps(state))
            calm = [step for step in possible if step[1].faults == state.faults and step[1] != state]
            if not calm:
                return unfinished(self._setup, state), story
            if len(story) >= _ENDS_WITHIN:
                return "it has not ended", story
            said, after = _picked(chance, state, possible, calm, late=len(story) >= _CALM_AFTER)
            story.append(said)
            state, _ = self._codec.decode(self._codec.encode(after))
        return wrong, story

    def _shortened(self, wrong: str, story: list[str]) -> list[str]:
        """Leave out of a story what it does not need to come to the same end."""
        size = len(story) // 2
        while size:
            at = 0
            while at < len(story):
                shorter = self._retold(wrong, [*story[:at], *story[at + size :]])
                if shorter is None:
                    at += size
                else:
                    story = shorter
            size //= 2
        return story

    def _retold(self, wrong: str, told: list[str]) -> list[str] | None:
        """Return those sentences of a story that can happen, if they lead to what is wrong."""
        state, story = self._codec.decode(self._keys[0])[0], list[str]()
        for wanted in told:
            if violation(self._setup, state):
                break
            after = next((new for said, new in self._steps(state) if said == wanted), None)
            if after is not None:
                state, _ = self._codec.decode(self._codec.encode(after))
                story.append(wanted)
        if violation(self._setup, state) == wrong:
            return story
        over = all(new.faults != state.faults or new == state for _, new in self._steps(state))
        return story if over and unfinished(self._setup, state) == wrong else None

    def _visit(self) -> tuple[str, int]:
        number = 0
        while number < min(len(self._keys), self._most):
            state, known = self._codec.decode(self._keys[number])
            if wrong := violation(self._setup, state):
                return wrong, number
            by_itself = self._expand(number, state, known)
            left = unfinished(self._setup, state)
            self._ends.append(not left)
            if left and not by_itself:
                return left, number
            number += 1
        return "", 0

    def _expand(self, number: int, state: State, known: tuple[int, ...]) -> bool:
        by_itself = False
        for said, after in self._steps(state):
            self._edges += 1
            key = self._codec.encode(after, state, known)
            target = self._numbers.get(key)
            if target is None:
                target = self._numbers[key] = len(self._keys)
                self._keys.append(key)
                self._parents.append(number)
            if after.faults == state.faults and target != number:
                by_itself = True
                self._sources.append(number)
                self._targets.append(target)
                self._timely.append(not said.endswith(BEHIND))
        return by_itself

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        for sentence, after in self._operator.steps(state):
            yield sentence, self._operator.settled(state, after)
        for sentence, after in steps(self._setup, state):
            yield sentence, self._operator.settled(state, after)

    def _no_way_out(self) -> tuple[str, int]:
        """Find a state from which no end can be reached without another fault: a circle, or a dead end."""
        reaching = np.frombuffer(self._ends, dtype=np.bool_).copy()
        sources, targets = np.frombuffer(self._sources, dtype=np.uint32), np.frombuffer(self._targets, dtype=np.uint32)
        count = -1
        while count != (count := int(reaching.sum())):
            reaching[sources[reaching[targets]]] = True
        stuck = np.flatnonzero(~reaching)
        if not len(stuck):
            return "", 0
        state, _ = self._codec.decode(self._keys[stuck[0]])
        return f"no way out: {unfinished(self._setup, state)}", int(stuck[0])

    def _circle(self) -> tuple[str, int]:
        """Find a circle without faults. Where there is none every run comes to an end, however it is scheduled.

        Somebody who has fallen behind can undo for a long time what others do; nobody stays behind for ever.
        """
        count = len(self._keys)
        timely = np.frombuffer(self._timely, dtype=np.bool_)
        sources = np.frombuffer(self._sources, dtype=np.uint32)[timely]
        targets = np.frombuffer(self._targets, dtype=np.uint32)[timely]
        left = np.bincount(sources, minlength=count)
        order = np.argsort(targets, kind="stable")
        into, start = sources[order], np.searchsorted(targets[order], np.arange(count + 1))
        ends = np.flatnonzero(left == 0)
        while len(ends):
            lengths = start[ends + 1] - start[ends]
            firsts = np.repeat(start[ends] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
            before = into[firsts + np.arange(lengths.sum())]
            left -= np.bincount(before, minlength=count)
            touched = np.unique(before)
            left[ends] = -1
            ends = touched[left[touched] == 0]
        around = np.flatnonzero(left > 0)
        if not len(around):
            return "", 0
        # Each of these has a step to another of them: following them leads around.
        inside = left > 0
        onward = {
            int(before): int(after)
            for before, after in zip(sources, targets, strict=True)
            if inside[before] and inside[after]
        }
        path = [int(around[0])]
        while onward[path[-1]] not in path:
            path.append(onward[path[-1]])
        path.append(onward[path[-1]])
        self._around = ("and from here, around:", *self._story(path))
        return "a circle: it may go on for ever", path[0]

    def _path(self, number: int) -> list[int]:
        path = [number]
        while path[-1]:
            path.append(self._parents[path[-1]])
        return path[::-1]

    def _story(self, path: list[int]) -> list[str]:
        """Tell how one state leads to the next, by trying again which step it was."""
        sentences = []
        for before, after in pairwise(path):
            state, known = self._codec.decode(self._keys[before])
            key = self._keys[after]
            sentences.append(
                next(said for said, new in self._steps(state) if self._codec.encode(new, state, known) == key)
            )
        return sentences


def _picked(
    chance: random.Random, state: State, possible: list[tuple[str, State]], calm: list[tuple[str, State]], *, late: bool
) -> tuple[str, State]:
    """Choose what happens next on a walk."""
    faults = [step for step in possible if step[1].faults != state.faults]
    if faults and not late and chance.random() < _A_FAULT:
        # By kind first: else most would be somebody who deletes some pod.
        names = {*(pod.uid for pod in state.pods), *(item.uid for item in state.migrations)}
        kinds: dict[str, list[tuple[str, State]]] = {}
        for step in faults:
            kinds.setdefault(" ".join(word for word in step[0].split() if word not in names), []).append(step)
        return chance.choice(kinds[chance.choice(sorted(kinds))])
    ticks = [step for step in calm if step[1].now != state.now]
    rest = [step for step in calm if step[1].now == state.now and not (late and step[0].endswith(BEHIND))]
    if ticks and (not rest or chance.random() < _A_TICK):
        return chance.choice(ticks)
    return chance.choice(rest or calm)


def explore(setup: Setup, start: State, *, brain: type[Brain] = Brain, most: int = 20_000_000) -> Result:
    """Visit every state of a world."""
    return Search(setup, start, brain=brain, most=most).run()
