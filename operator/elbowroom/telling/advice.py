"""What to do about a reason: for whoever looks at a request at three in the morning."""

from __future__ import annotations

from typing import Final

from elbowroom.core.reasons import Reason

_NOTHING: Final = "Nothing to do: it goes on by itself."
_AGAIN: Final = "Nothing to do: it makes another plan by itself, as long as it has time and tries left."
ADVICE: Final[dict[Reason, str]] = {
    Reason.VM_NOT_FOUND: (
        "Look for the VM: kubectl get pods -l elbowroom.dev/vm. A request looks in its own namespace only, and goes on "
        "as soon as the pod is there."
    ),
    Reason.AMBIGUOUS_VM: "Remove the label elbowroom.dev/vm from the pod that is not the VM, or delete that pod.",
    Reason.POD_NOT_RUNNING: "Look why the pod does not run: kubectl describe pod. The request goes on once it does.",
    Reason.CONTAINER_NOT_FOUND: "Name one of the pod's containers in spec.container of a new request.",
    Reason.LARGER_THAN_NODE: "Ask for less, or start the VM on a larger node: no neighbour could make that much room.",
    Reason.OUT_OF_RANGE: "Ask for a size that the guest can have; for another one it has to be started anew.",
    Reason.GUEST_SILENT: (
        "Look at the log of the VM's pod: its runner does not say what the guest has. A guest that is just booting "
        "will."
    ),
    Reason.SUPERSEDED: "Nothing to do: look at the newer request.",
    Reason.SUSPENDED: "Set spec.suspend to false when it shall go on.",
    Reason.BACKING_OFF: _AGAIN,
    Reason.OTHERS_FIRST: "Nothing to do: it is this one's turn when the other one is over.",
    Reason.BUDGET: (
        "Nothing to do: it begins when others have ended. The limits are movesPerNode, movesPerNamespace and "
        "movesInCluster in the operator's configuration."
    ),
    Reason.NOBODY_MOVABLE: (
        "Label a neighbour on that node as movable (elbowroom.dev/movable=true) if its owner agrees, ask for less, or "
        "give the neighbours' selector and atMost more freedom. `kubectl elbowroom plan` says who was not chosen, and "
        "why."
    ),
    Reason.NO_PLACE: "Make room on another node, or add one: receivers are as large as the VMs that move.",
    Reason.WAITING_FOR_ROOM: "Add MoveNeighbour to the strategy of a new request, or wait until room appears.",
    Reason.WAITING_FOR_HOLD: (
        "Nothing to do for a few seconds. If it lasts, no scheduler with our plugin or extender leads: helm test says "
        "so, and kubectl get leases -A who does."
    ),
    Reason.HOLD_REFUSED: f"{_AGAIN} kubectl describe the hold: it says what the scheduler minds.",
    Reason.HOLD_LOST: _AGAIN,
    Reason.RECEIVER_UNBOUND: (
        "Look why the receiver is not scheduled: kubectl describe pod says what the scheduler minds. It is given up "
        "after bindWithin, and another plan is made."
    ),
    Reason.RECEIVER_STARTING: (
        "Look why the receiver does not start: kubectl describe pod; an image, a volume or a Secret may be missing on "
        "its node."
    ),
    Reason.TRANSFERRING: "Nothing to do. If it takes too long: a higher spec.transfer.bandwidth, or autoConverge.",
    Reason.AT_BRINK: _NOTHING,
    Reason.SWITCHING_OVER: _NOTHING,
    Reason.RUNNER_SILENT: (
        "Find out whether the silent side's node is alive. If it is lost for good, delete the Node, or delete its pod "
        "by force: that vouches for its death, and the move comes to its end."
    ),
    Reason.RESIZING: _NOTHING,
    Reason.RESIZE_DEFERRED: "Nothing to do: the kubelet gives the size when the neighbour's pod has ended.",
    Reason.OTHERS_STARTING: "Nothing to do: it waits until a pod that came before has started.",
    Reason.OTHERS_GROWING: "Nothing to do: the other claimant comes first.",
    Reason.NEIGHBOUR_LEAVING: "Nothing to do: the pod has its terminationGracePeriodSeconds.",
    Reason.GROWING_GUEST: (
        "Nothing to do for a few seconds. If it lasts, the guest does not take what it is given: is its kernel able to "
        "hot-plug memory and CPUs? Its console is the pod's log."
    ),
    Reason.SHRINKING_GUEST: "Nothing to do for a few seconds. If it lasts, the guest uses what it shall give back.",
    Reason.WAITING_FOR_CLAIM: (
        "Nothing to do for a few seconds. If it lasts, no scheduler with our plugin or extender leads: helm test says "
        "so."
    ),
    Reason.UNDOING: "Nothing to do: what was begun is being put back.",
    Reason.FITS: _NOTHING,
    Reason.PLANNED: _NOTHING,
    Reason.DRY_RUN: "Nothing was changed. Make the request without dryRun to do it.",
    Reason.HELD: _NOTHING,
    Reason.ROOM_APPEARED: _NOTHING,
    Reason.ROOM_TAKEN: (
        f"{_AGAIN} Whoever took the room came past the scheduler: is the guard on, and up (condition Guarded)? For a "
        "second scheduler on these nodes there is the taint."
    ),
    Reason.DONE: "Nothing to do.",
    Reason.CANCELLED: "Make a new request if you want it after all.",
    Reason.DEADLINE: "Mend what it waited for last, and make a new request, perhaps with a longer deadline.",
    Reason.PARTIALLY_MOVED: (
        "Look why the other neighbour could not move (its migration says so), and make a new request."
    ),
    Reason.CLAIMANT_GONE: "Start the VM again, and make a new request.",
    Reason.NEIGHBOUR_GONE: _AGAIN,
    Reason.RECEIVER_GONE: _AGAIN,
    Reason.RECEIVER_REFUSED: (
        "Give the namespace of the VM that moves a quota for both of its pods, or change the admission rule that is "
        "named: during a move there are two."
    ),
    Reason.TRANSFER_FAILED: f"{_AGAIN} The message says what failed; the logs of both pods say more.",
    Reason.GUEST_DAMAGED: "Look at the guest: its console is the log of its pod. It is in the receiver now.",
    Reason.GUEST_LOST: "Start the VM anew from its disk, and tell us: this must not happen.",
    Reason.RESIZE_REFUSED: "Raise the quota or limit that the message names, or ask for less.",
    Reason.GUEST_REFUSED: (
        "The pod has its size, the guest does not: look whether the guest can take CPUs and memory (its console is the "
        "pod's log), and make the same request again."
    ),
    Reason.TOO_MANY_TRIES: "Mend what the last try failed for, and make a new request.",
    Reason.UNKNOWN: "This command is older than the operator: install the operator's version of it.",
}
"""For every reason that a request can have in its status."""
