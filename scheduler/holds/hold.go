package holds

import "time"

// Phase is what the scheduler has said about a hold.
type Phase string

// The phases of a hold, in the words of the API.
const (
	Pending  Phase = "Pending"
	Held     Phase = "Held"
	Claimed  Phase = "Claimed"
	Released Phase = "Released"
	Refused  Phase = "Refused"
)

// Reference is one object, and not another that has its name later.
type Reference struct{ Namespace, Name, UID string }

// Payer is a neighbour whose leaving pays for a hold, and the name of its receiver in the same namespace.
type Payer struct {
	Pod      Reference
	Receiver string
}

// Hold is the room on one node that belongs to one claimant. A value: a change of the hold is another one.
type Hold struct {
	Name      string
	Node      string
	Claimant  Reference
	Request   Reference
	Target    Room
	Payers    []Payer
	Priority  int64
	Created   time.Time
	Expires   time.Time
	Committed bool

	Phase     Phase
	Reason    string
	Shortfall Room
	Term      string
	// Generation is the spec's, Observed the one that the status is about.
	Generation, Observed int64
	// UID and Version tell which object, and which state of it, this is.
	UID, Version string
}

// Live tells whether it keeps others out, or may yet.
func (h *Hold) Live() bool { return h.Phase != Released && h.Phase != Refused }

// Promised tells whether the scheduler has said that it keeps the room.
func (h *Hold) Promised() bool { return h.Phase == Held || h.Phase == Claimed }

// Precedes tells whether room that belongs to nobody is this one's before it is the other's.
func (h *Hold) Precedes(other *Hold) bool {
	if h.Committed != other.Committed {
		return h.Committed
	}
	if h.Priority != other.Priority {
		return h.Priority > other.Priority
	}
	if !h.Created.Equal(other.Created) {
		return h.Created.Before(other.Created)
	}
	return h.Claimant.UID < other.Claimant.UID
}

// Migration is a move that is not over: its pods are nobody's victims, and its receiver keeps off its neighbour's node.
type Migration struct {
	UID, Namespace, Name string
	// Request is the UID of the request that it makes room for; nothing where somebody moves a VM by hand.
	Request string
	// Source is the UID of the pod that leaves, SourceNode where it is.
	Source, SourceNode string
	// Receiver is the name of the pod that takes the guest.
	Receiver string
}
