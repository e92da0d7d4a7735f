"""What an administrator may choose."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import Chooser, Cost, choose, memory_cost


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits and times, in seconds."""

    moves_per_node: int = 2
    """Moves from or to one node at a time."""
    moves_in_cluster: int = 10
    moves_per_namespace: int = 4
    """Moves at a time for the requests of one namespace, and by hand in it: nobody takes all of the cluster's."""
    rest: float = 300.0
    """How long a VM stays where it is after a move."""
    tries: int = 5
    """How many plans one request makes."""
    failures: int = 2
    """How often a neighbour's own move may fail for one request before that leaves it alone: a network that was cut
    once, or a node that died, says nothing about the next try."""
    backoff: float = 5.0
    """Before the second try; twice as long before each that follows."""
    longest_backoff: float = 120.0
    hold_term: float = 60.0
    """How long a hold lives without being renewed, and how long it waits for the scheduler's word."""
    bind_within: float = 60.0
    """How long a receiver waits for a node and its start."""
    grant_within: float = 60.0
    """How long after the deadline what cannot be called off may take: the claimant's size, the guest's."""
    taint: bool = False
    """Another scheduler places pods on these nodes as well: a node on which room is held gets a taint."""
    guest_spare: int = 192 << 20
    """Bytes of a VM's container that QEMU and the runner need, and the guest does not get."""
    cost: Cost = memory_cost
    choose: Chooser = choose
    """Which neighbours, of those that may be moved."""

    def backoff_after(self, tries: int) -> float:
        """Return how long to wait after this many tries."""
        return min(self.backoff * 2.0 ** max(tries - 1, 0), self.longest_backoff)
