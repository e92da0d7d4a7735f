"""What happens in a day: which VMs come, how large they are, how long they live and what sizes they ask for.

All of it is drawn before the day begins, from one seed, so every policy sees the same day.

- Cores: 1 (45 %), 2 (30 %), 4 (17 %) or 8 (8 %); most VMs are small, as public traces of clouds show.
- Memory: 2, 4 or 8 GiB a core (30, 50, 20 %).
- Lifetime: log-normal, median 8 hours, sigma 1.6, so 29 hours on average with a long tail. Those that are there when
  the day begins have a rest of theirs, by the rule that long ones are met more often.
- Births: a Poisson process that keeps their number.
- Wishes: every 6 hours on average (exponential) a VM asks for 1/2 (25 %), 1 (35 %), 2 (30 %) or 4 times (10 %) the
  size that it was made with. One in five draws cores and memory apart: more of one, and less of the other.
- Nodes: all alike, as large as the average of what is asked for, divided by the fill.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from elbowroom.core.room import Room

GI = 1 << 30
HOUR = 3600.0
CORES = ((1, 45), (2, 30), (4, 17), (8, 8))
GI_A_CORE = ((2, 30), (4, 50), (8, 20))
FACTORS = ((0.5, 25), (1.0, 35), (2.0, 30), (4.0, 10))
MEDIAN_LIFE, SIGMA = 8 * HOUR, 1.6
MEAN_LIFE = MEDIAN_LIFE * math.exp(SIGMA**2 / 2)
BETWEEN_WISHES = 6 * HOUR
APART = 0.2


class Birth(NamedTuple):
    """A VM."""

    at: float
    vm: str
    size: Room
    dies_at: float


class Wish(NamedTuple):
    """A VM asks for a size."""

    at: float
    vm: str
    size: Room
    grows: bool
    """It is more than what the VM has asked for before."""


class Day(NamedTuple):
    """All of it."""

    node: Room
    births: tuple[Birth, ...]
    wishes: tuple[Wish, ...]


def _mean(drawn: tuple[tuple[float, int], ...]) -> float:
    return sum(value * weight for value, weight in drawn) / sum(weight for _, weight in drawn)


def node_size(vms_a_node: float, fill: float) -> Room:
    """Return how large a node is, in whole cores and GiB."""
    cores = vms_a_node * _mean(CORES) * _mean(FACTORS) / fill
    return Room(math.ceil(cores) * 1000, math.ceil(cores * _mean(GI_A_CORE)) * GI)


def _draw(chance: random.Random, drawn: tuple[tuple[float, int], ...]) -> float:
    return chance.choices([value for value, _ in drawn], [weight for _, weight in drawn])[0]


def day(nodes: int, vms: int, hours: float, *, fill: float, seed: int) -> Day:
    """Draw a day."""
    chance = random.Random(seed)
    end = hours * HOUR
    births: list[Birth] = []
    wishes: list[Wish] = []
    log_median = math.log(MEDIAN_LIFE)

    def born(at: float, life: float) -> None:
        cores = _draw(chance, CORES)
        memory = cores * _draw(chance, GI_A_CORE)
        name = f"vm{len(births):06}"
        factor = _draw(chance, FACTORS)
        size = _sized(cores, memory, factor, factor)
        births.append(Birth(at, name, size, at + life))
        when = at
        while (when := when + chance.expovariate(1 / BETWEEN_WISHES)) < min(at + life, end):
            factor = _draw(chance, FACTORS)
            wanted = _sized(cores, memory, factor, _draw(chance, FACTORS) if chance.random() < APART else factor)
            if wanted != size:
                wishes.append(Wish(when, name, wanted, not wanted.within(size)))
                size = wanted

    for _ in range(vms):
        born(0.0, chance.random() * chance.lognormvariate(log_median + SIGMA**2, SIGMA))
    now = 0.0
    while (now := now + chance.expovariate(vms / MEAN_LIFE)) < end:
        born(now, chance.lognormvariate(log_median, SIGMA))
    return Day(node_size(vms / nodes, fill), tuple(births), tuple(sorted(wishes)))


def _sized(cores: float, memory: float, more_cores: float, more_memory: float) -> Room:
    return Room(int(cores * more_cores * 1000), int(memory * more_memory * GI))
