"""Why something is as it is: the one list of reasons that conditions, events, logs and metrics share."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """A reason, as it stands in a condition. `MEANING` says each in a sentence."""

    # Why a request is not accepted
    VM_NOT_FOUND = "VMNotFound"
    AMBIGUOUS_VM = "AmbiguousVM"
    POD_NOT_RUNNING = "PodNotRunning"
    CONTAINER_NOT_FOUND = "ContainerNotFound"
    LARGER_THAN_NODE = "LargerThanNode"
    OUT_OF_RANGE = "OutOfRange"
    SUPERSEDED = "Superseded"
    # What it waits for
    GUEST_SILENT = "GuestSilent"
    SUSPENDED = "Suspended"
    BACKING_OFF = "BackingOff"
    OTHERS_FIRST = "OthersFirst"
    BUDGET = "Budget"
    NOBODY_MOVABLE = "NobodyMovable"
    NO_PLACE = "NoPlace"
    WAITING_FOR_ROOM = "WaitingForRoom"
    WAITING_FOR_HOLD = "WaitingForHold"
    HOLD_REFUSED = "HoldRefused"
    HOLD_LOST = "HoldLost"
    RECEIVER_UNBOUND = "ReceiverUnbound"
    RECEIVER_STARTING = "ReceiverStarting"
    TRANSFERRING = "Transferring"
    AT_BRINK = "AtBrink"
    SWITCHING_OVER = "SwitchingOver"
    RUNNER_SILENT = "RunnerSilent"
    RESIZING = "Resizing"
    RESIZE_DEFERRED = "ResizeDeferred"
    OTHERS_STARTING = "OthersStarting"
    OTHERS_GROWING = "OthersGrowing"
    NEIGHBOUR_LEAVING = "NeighbourLeaving"
    GROWING_GUEST = "GrowingGuest"
    SHRINKING_GUEST = "ShrinkingGuest"
    WAITING_FOR_CLAIM = "WaitingForClaim"
    UNDOING = "Undoing"
    # What it found out
    ACCEPTED = "Accepted"
    EARLIER_STEP = "EarlierStep"
    FITS = "Fits"
    PLANNED = "Planned"
    DRY_RUN = "DryRun"
    HELD = "Held"
    NOT_NEEDED = "NotNeeded"
    ROOM_APPEARED = "RoomAppeared"
    ROOM_TAKEN = "RoomTaken"
    GUARDED = "Guarded"
    GUARD_DOWN = "GuardDown"
    # How it ended
    DONE = "Done"
    CANCELLED = "Cancelled"
    DEADLINE = "DeadlineExceeded"
    PARTIALLY_MOVED = "PartiallyMoved"
    CLAIMANT_GONE = "ClaimantGone"
    NEIGHBOUR_GONE = "NeighbourGone"
    RECEIVER_GONE = "ReceiverGone"
    RECEIVER_REFUSED = "ReceiverRefused"
    TRANSFER_FAILED = "TransferFailed"
    GUEST_DAMAGED = "GuestDamaged"
    GUEST_LOST = "GuestLost"
    RESIZE_REFUSED = "ResizeRefused"
    GUEST_REFUSED = "GuestRefused"
    TOO_MANY_TRIES = "TooManyTries"
    # Why a neighbour was not chosen
    NOT_A_VM = "NotAVM"
    NOT_OPTED_IN = "NotOptedIn"
    IS_CLAIMANT = "IsClaimant"
    IN_USE = "InUse"
    HIGHER_PRIORITY = "HigherPriority"
    NOT_SELECTED = "NotSelected"
    RESTING = "Resting"
    FAILED_BEFORE = "FailedBefore"
    NOT_RUNNING = "NotRunning"
    DOES_NOT_HELP = "DoesNotHelp"
    COSTS_MORE = "CostsMore"
    # Why a hold is refused or given back
    EXPIRED = "Expired"
    NEIGHBOUR_TAKEN = "NeighbourTaken"
    GAVE_WAY = "GaveWay"
    # Of a newer operator
    UNKNOWN = "Unknown"


MEANING: Final[dict[Reason, str]] = {
    Reason.VM_NOT_FOUND: "No running pod has the VM's label, or the pod that is named does not exist.",
    Reason.AMBIGUOUS_VM: "Several running pods carry the label of one VM, and not exactly one of them is Ready.",
    Reason.POD_NOT_RUNNING: "The pod has no node yet, or has ended.",
    Reason.CONTAINER_NOT_FOUND: "The pod has no container of that name, or has several and none was named.",
    Reason.LARGER_THAN_NODE: "The size is more than the node could give even if it were empty.",
    Reason.OUT_OF_RANGE: "The guest cannot get that size without a restart; the message says what it can have.",
    Reason.GUEST_SILENT: "The VM's runner does not say what its guest has.",
    Reason.SUPERSEDED: "A newer request for the same pod has taken its place.",
    Reason.SUSPENDED: "The request says `suspend: true`.",
    Reason.BACKING_OFF: "A try has failed; the next one comes a little later.",
    Reason.OTHERS_FIRST: "The room belongs to a request of higher priority, or of the same and older.",
    Reason.BUDGET: "As many moves are under way as the limits per node, namespace and cluster allow.",
    Reason.NOBODY_MOVABLE: "No set of neighbours that may be moved would free enough.",
    Reason.NO_PLACE: "Neighbours could be moved, but no other node has room for their receivers.",
    Reason.WAITING_FOR_ROOM: "The node is full, and the strategy does not move neighbours.",
    Reason.WAITING_FOR_HOLD: "The scheduler has not acknowledged the hold yet.",
    Reason.HOLD_REFUSED: "The scheduler has refused the hold; its status says why.",
    Reason.HOLD_LOST: "The hold went away, or was given back, before the commit.",
    Reason.RECEIVER_UNBOUND: "The scheduler has found no node for a receiver yet.",
    Reason.RECEIVER_STARTING: "A receiver has a node and does not answer yet.",
    Reason.TRANSFERRING: "Guests are being copied.",
    Reason.AT_BRINK: "A guest can switch over as soon as its move is committed.",
    Reason.SWITCHING_OVER: "The move is committed and cannot be called off any more.",
    Reason.RUNNER_SILENT: (
        "A side of the switch-over does not answer, and is not proven dead. If its node is lost for good, remove "
        "the node or its pod by force: that says so."
    ),
    Reason.RESIZING: "The kubelet has not answered to the new size yet.",
    Reason.RESIZE_DEFERRED: "The kubelet waits for room: it comes when the neighbours leave.",
    Reason.OTHERS_STARTING: "A pod that came to the node before has not been seen by its kubelet yet: its room is its.",
    Reason.OTHERS_GROWING: "Another claimant on the node has asked first: the room that is being freed is its.",
    Reason.NEIGHBOUR_LEAVING: "What is left of a neighbour's pod is ending.",
    Reason.GROWING_GUEST: "The pod has its size; the guest is getting vCPUs and memory.",
    Reason.SHRINKING_GUEST: "The guest gives vCPUs and memory back before its pod does.",
    Reason.WAITING_FOR_CLAIM: "The scheduler has not counted the new size yet.",
    Reason.UNDOING: "What was begun is being put back.",
    Reason.ACCEPTED: "The pod is there, and can have that size.",
    Reason.EARLIER_STEP: "Another step comes first.",
    Reason.FITS: "The node has the room already.",
    Reason.PLANNED: "Neighbours are chosen.",
    Reason.DRY_RUN: "The request says `dryRun: true`: nothing but the plan was made.",
    Reason.HELD: "The scheduler keeps the room for this pod.",
    Reason.NOT_NEEDED: "This step is not part of what the request needs.",
    Reason.ROOM_APPEARED: "The room came by itself, so nobody is moved.",
    Reason.ROOM_TAKEN: "Somebody took room that was held; the message names the pod.",
    Reason.GUARDED: "The API server asks the guard: what would take held room past the scheduler is refused.",
    Reason.GUARD_DOWN: (
        "The API server does not get an answer from the guard. The room is still kept by the scheduler, and asked for "
        "before it is freed; who comes past the scheduler may take it. Look at the guard's pods, Service and "
        "webhook configuration."
    ),
    Reason.DONE: "The pod, and the guest in it, have the size that was asked for.",
    Reason.CANCELLED: "Called off: the request or the migration was deleted.",
    Reason.DEADLINE: "It did not come to its end in time.",
    Reason.PARTIALLY_MOVED: "One neighbour had moved when another could not: the room was given back.",
    Reason.CLAIMANT_GONE: "The pod that was to grow has ended or was deleted.",
    Reason.NEIGHBOUR_GONE: "The VM that was to be moved has ended or was deleted.",
    Reason.RECEIVER_GONE: "The receiver ended before the guest was in it.",
    Reason.RECEIVER_REFUSED: "The API server refuses the receiver: quota, limits or an admission rule.",
    Reason.TRANSFER_FAILED: "The copy failed; the guest runs where it was.",
    Reason.GUEST_DAMAGED: "The guest was reset, panicked or ended on its way or right after it.",
    Reason.GUEST_LOST: "Neither side has the guest any more.",
    Reason.RESIZE_REFUSED: "The API server refuses the new size: quota, limits or an admission rule.",
    Reason.GUEST_REFUSED: "The guest did not take the size that its pod has.",
    Reason.TOO_MANY_TRIES: "It was tried as often as the limit allows.",
    Reason.NOT_A_VM: "It is a plain pod.",
    Reason.NOT_OPTED_IN: "Its owner has not labelled it as movable, or something about its pod forbids it.",
    Reason.IS_CLAIMANT: "It is the pod that wants to grow.",
    Reason.IN_USE: "It is part of another move or request.",
    Reason.HIGHER_PRIORITY: "Its priority is higher than the claimant's.",
    Reason.NOT_SELECTED: "The request's selector leaves it out.",
    Reason.RESTING: "It was moved a short while ago.",
    Reason.FAILED_BEFORE: "Moving it has failed for this request already.",
    Reason.NOT_RUNNING: "It is not up, or is ending.",
    Reason.DOES_NOT_HELP: "It has none of the resource that is short.",
    Reason.COSTS_MORE: "A cheaper set frees enough.",
    Reason.EXPIRED: "The hold was not renewed in time.",
    Reason.NEIGHBOUR_TAKEN: "A neighbour of this hold is part of another one.",
    Reason.UNKNOWN: "A newer version of the operator has written this; the message says what it is.",
    Reason.GAVE_WAY: "Receivers found no place for long, and another request came first.",
}
