"""Small mistakes that somebody could make in the core, or around it. Each has to be found out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from elbowroom.core import ledger
from elbowroom.core import migration as moves
from elbowroom.core import request as requests
from elbowroom.core.actions import (
    CommitTransfer,
    DeleteHold,
    DeletePod,
    FencePod,
    ReleaseTransfer,
    ResizeGuest,
    WriteMigration,
    WriteRequest,
)
from elbowroom.core.world import Hold, HoldPhase, MigrationPhase, RequestPhase, TransferState

from .model import Move, Phase, Pod, Setup, State, drop, put
from .operator import Brain
from .scenarios import TWO, worlds
from .search import Search
from .steps import sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.core.actions import Actions
    from elbowroom.core.world import GuestSize, Migration, Request, World

    from .scenarios import Scenario


class Mutant(NamedTuple):
    """One mistake, and the smallest world that shows it."""

    name: str
    world: str
    faults: int
    patches: tuple[tuple[Any, str, Any], ...] = ()
    brain: type[Brain] = Brain
    setup: Setup = Setup(TWO)
    begins: Callable[[State], bool] | None = None
    then: Callable[[State], State] = staticmethod(lambda state: state)
    """What happens there: for a story whose beginning is long, and told elsewhere."""

    def scenario(self) -> Scenario:
        """Return the world."""
        return worlds(self.setup)[self.world](self.faults)

    def start(self) -> State:
        """Return where to begin: for a mistake that shows late, just before it."""
        world = self.scenario()
        if self.begins is None:
            return world.start
        calm = Search(world.setup, world.start._replace(faults=0)).first(self.begins)
        return self.then(calm)._replace(faults=self.faults)

    def applied(self) -> ExitStack:
        """Make the mistake, for a while."""
        stack = ExitStack()
        for target, name, value in self.patches:
            stack.enter_context(patch.object(target, name, value))
        return stack


def _requests(change: Callable[[World, Request, Actions], Actions]) -> type[Brain]:
    def decide(world: World, request: Request, now: float, policy: Any) -> Actions:
        return change(world, request, requests.decide(world, request, now, policy))

    return type("Mutant", (Brain,), {"request": staticmethod(decide)})


def _migrations(change: Callable[[World, Migration, Actions], Actions]) -> type[Brain]:
    def decide(world: World, migration: Migration, now: float, policy: Any) -> Actions:
        return change(world, migration, moves.decide(world, migration, now, policy))

    return type("Mutant", (Brain,), {"migration": staticmethod(decide)})


def _impatient() -> type[Brain]:
    def decide(world: World, request: Request, now: float, policy: Any) -> Actions:
        believed = {
            uid: replace(hold, phase=HoldPhase.HELD) if hold.phase is HoldPhase.PENDING else hold
            for uid, hold in world.holds.items()
        }
        return requests.decide(replace(world, holds=believed), request, now, policy)

    return type("Mutant", (Brain,), {"request": staticmethod(decide)})


def _drop_hold_early(world: World, request: Request, found: Actions) -> Actions:
    hold = world.holds.get(request.status.claimant)
    if request.status.phase is RequestPhase.SWAPPING and hold is not None:
        return (DeleteHold(hold.claimant, hold.version), *found)
    return found


def _grow_guest_early(world: World, request: Request, found: Actions) -> Actions:
    del world
    if request.status.phase is RequestPhase.SWAPPING and request.status.guest_after is not None:
        return (ResizeGuest(request.status.claimant, request.status.guest_after, 1 << 40), *found)
    return found


def _moved_too_early(world: World, migration: Migration, found: Actions) -> Actions:
    transfer = world.transfers.get(migration.uid)
    if (
        migration.status.phase is MigrationPhase.SWITCHING_OVER
        and transfer
        and transfer.state is TransferState.COMMITTED
    ):
        return (
            WriteMigration(migration.uid, migration.version, replace(migration.status, phase=MigrationPhase.MOVED)),
        )
    return found


def _no_commit_point(world: World, migration: Migration, found: Actions) -> Actions:
    if migration.status.phase is MigrationPhase.AT_BRINK and migration.uid in world.transfers:
        return (CommitTransfer(migration.uid, migration.status.attempt), *found)
    return found


def _without(*kinds: type) -> Callable[[Any, Any, Actions], Actions]:
    def change(_world: World, _item: Any, found: Actions) -> Actions:
        return tuple(action for action in found if not isinstance(action, kinds))

    return change


def _collected(world: World, migration: Migration) -> bool:
    receiver = moves.receiver_of(world, migration)
    return migration.status.phase is MigrationPhase.AT_BRINK and receiver is not None and receiver.lives


def _no_detach(world: World, migration: Migration, found: Actions) -> Actions:
    del world
    if migration.status.phase is MigrationPhase.TRANSFERRING and any(
        type(item).__name__ == "DetachReceiver" for item in found
    ):
        status = replace(migration.status, phase=MigrationPhase.AT_BRINK)
        return (WriteMigration(migration.uid, migration.version, status),)
    return found


def _freeload(node: Any, holds: Any, hold: Hold) -> Any:
    del holds
    return ledger.growth(node, hold).minus(ledger.common(node, [hold])).lacking


def _delete_any_receiver(world: World, migration: Migration, found: Actions) -> Actions:
    receiver = moves.receiver_of(world, migration)
    if migration.status.phase.final and receiver is not None:
        return (DeletePod(receiver.uid),)
    return found


def _committing(state: State) -> bool:
    return any(item.status.phase is RequestPhase.COMMITTING for item in state.requests)


def _thief_comes(state: State) -> State:
    """Have the thief come only now: most have found another place by then."""
    thief = Pod("thief", spec=1, phase=Phase.PENDING, process=False, movable=False)
    rest = tuple(item for item in state.scheduler.assumed if item[0] != "thief")
    return state._replace(pods=put(state.pods, thief), scheduler=state.scheduler._replace(assumed=rest))


def _transferring(state: State) -> bool:
    return any(item.status.phase is MigrationPhase.TRANSFERRING for item in state.migrations)


def _binding(state: State) -> bool:
    return any(item.status.phase is MigrationPhase.BINDING for item in state.migrations)


def _nobody_made(state: State) -> bool:
    return any(item.status.phase is MigrationPhase.BINDING for item in state.migrations) and len(state.pods) == 2


def _fall_behind(state: State) -> State:
    return state._replace(view=("pods", state.pods))


def _shrunk(state: State) -> bool:
    return any(item.status.phase is RequestPhase.SHRINKING for item in state.requests) and ("db", 1) in {
        item[:2] for item in state.guests
    }


def _suspend(state: State) -> State:
    return state._replace(requests=tuple(replace(item, suspend=True) for item in state.requests))


def _holding(state: State) -> bool:
    return any(item.status.phase is RequestPhase.HOLDING for item in state.requests)


def _recreate(state: State) -> State:
    """Have a controller replace the pod whose room the plan did not count on."""
    return state._replace(
        pods=put(drop(state.pods, "api"), Pod("api+", spec=1, phase=Phase.PENDING, process=False, movable=False))
    )


def _unnumbered(request: Request, size: GuestSize) -> ResizeGuest:
    return ResizeGuest(request.status.claimant, size, 0)


def _done_at_once(world: World, request: Request, found: Actions) -> Actions:
    del world
    if request.status.phase is RequestPhase.HOLDING:
        return (WriteRequest(request.uid, request.version, replace(request.status, phase=RequestPhase.SUCCEEDED)),)
    return found


def _complete(state: State) -> bool:
    return any(item.move is Move.COMPLETE for item in state.transfers)


def _release_at_once(world: World, migration: Migration, found: Actions) -> Actions:
    transfer = world.transfers.get(migration.uid)
    if transfer is not None and transfer.state is TransferState.COMPLETE:
        return (ReleaseTransfer(migration.uid, migration.status.attempt),)
    return found


def _unclaimed(world: World, request: Request, found: Actions) -> Actions:
    hold = world.holds.get(request.status.claimant)
    if request.status.phase is RequestPhase.RELEASING and hold is not None:
        return (DeleteHold(hold.claimant, hold.version),)
    return found


def _swapping(state: State) -> bool:
    return any(item.status.phase is RequestPhase.SWAPPING for item in state.requests)


def _both_moved(state: State) -> bool:
    moved = [item for item in state.migrations if item.status.phase is MigrationPhase.MOVED]
    return len(moved) > 1 and all(pod.spec == pod.allocated for pod in state.pods)


def _slow_scheduler(state: State) -> State:
    late = _thief_comes(state)
    return late._replace(scheduler=late.scheduler._replace(behind=sizes(late)))


def _any_version(world: World, migration: Migration, found: Actions) -> Actions:
    del world, migration
    return tuple(replace(action, version="") if isinstance(action, DeletePod) else action for action in found)


def _go_anyway(world: World, migration: Migration) -> CommitTransfer:
    del world
    return CommitTransfer(migration.uid, migration.status.attempt)


def _no_sweep(world: World) -> Actions:
    del world
    return ()


MUTANTS = (
    Mutant("the neighbour goes before the claimant has asked", "a thief", 0, ((moves, "may_leave", lambda *_: True),)),
    Mutant("a hold counts before the scheduler has said so", "in place", 0, brain=_impatient()),
    Mutant("the hold is dropped too early", "a thief", 1, brain=_requests(_drop_hold_early), begins=_committing, then=_thief_comes),
    Mutant("room that was promised to others is taken", "two in place", 0, ((ledger, "shortfall", _freeload),), setup=Setup(TWO, serialised=False)),
    Mutant("the receiver may come to its neighbour's node", "a large filler", 1, setup=Setup(TWO, elsewhere=False), begins=_binding),
    Mutant("the neighbour is deleted before the receiver runs", "nobody else", 0, brain=_migrations(_moved_too_early)),
    Mutant("the guest switches over without a commit", "nobody else", 1, brain=_migrations(_no_commit_point), begins=_transferring),
    Mutant("the receiver is collected with its migration", "nobody else", 1, ((moves, "can_commit", _collected),), _migrations(_no_detach), begins=_transferring),
    Mutant("a hold expires after the commit", "a tight filler", 1, setup=Setup(TWO, permanent=False), begins=_committing),
    Mutant("a committed migration is called off", "nobody else", 1, ((requests, "_can_be_called_off", lambda item: not item.status.phase.final),), begins=_committing),
    Mutant("the guest grows before its pod", "in place", 0, brain=_requests(_grow_guest_early)),
    Mutant("the claimant keeps a size that it was not given", "in place", 0, ((requests, "_put_back", lambda *_, **__: None),)),
    Mutant("late resizes are not fenced off", "in place", 1, brain=_requests(_without(FencePod))),
    Mutant("nobody sweeps", "in place", 1, brain=type("Mutant", (Brain,), {"sweep": staticmethod(_no_sweep)})),
    Mutant("the deadline does not count", "nobody else", 1, ((requests, "_too_late", lambda *_: False),)),
    Mutant("a cache is believed about who is gone", "old views", 0, ((moves, "_unproven", lambda *_: ()),), begins=_nobody_made, then=_fall_behind),
    Mutant("a pod is removed by what it was", "old views", 0, brain=_migrations(_any_version), begins=_transferring, then=_fall_behind),
    Mutant("orders to guests are not numbered", "shrinking", 1, ((requests, "_resize_guest", _unnumbered),), begins=_shrunk, then=_suspend),
    Mutant("a new scheduler does not wait for the old one's bindings", "in place", 1, setup=Setup(TWO, patient=False)),
    Mutant("the scheduler promises while it is placing others", "a filler", 0, setup=Setup(TWO, settles=False), begins=_holding, then=_recreate),
    Mutant("pods that are bound and not seen by the kubelet do not count", "a filler", 0, ((requests, "_settled", lambda _: True),), begins=_holding, then=_recreate),
    Mutant("two claimants of a node ask at the same time", "two requests, one of more weight", 0, ((requests, "_another_waits", lambda *_: False),), begins=_both_moved),
    Mutant("a guest goes into a receiver that was deleted", "nobody else", 1, ((moves, "_let_go", _go_anyway),), begins=_committing),
    Mutant("the hold goes before the scheduler counts the new size", "in place", 0, brain=_requests(_unclaimed), begins=_swapping, then=_slow_scheduler),
    Mutant("silence is taken for death", "nobody else", 1, brain=_migrations(_release_at_once), begins=_complete),
    Mutant("it is called done before it is", "in place", 0, brain=_requests(_done_at_once)),
    Mutant("the guest is not grown", "in place", 0, ((requests, "_guest_has", lambda *_: False),)),
    Mutant("every receiver of a finished migration is cleared away", "nobody else", 0, brain=_migrations(_delete_any_receiver)),
)  # fmt: skip
"""Among these are all that the design fears by name."""
