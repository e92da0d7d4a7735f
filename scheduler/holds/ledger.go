// Package holds answers whose room it is. It is the twin of the operator's elbowroom/core/ledger.py: both answer the
// cases in tests/data/ledger alike. It is pure: no client, no clock, no locks.
//
// Three questions, and each has its own answer on purpose:
//
//   - Fits: may a pod that no hold names come here? It gets what is left after everybody's growth is kept.
//   - Shortfall: what lacks for a claimant to grow now? Room that is free belongs to those who precede it first, and
//     room that a committed hold is waiting for to that hold, even while the neighbours that pay for it are here.
//   - Keepable: may a hold be promised? Everybody who holds takes from the free room what its own neighbours do not pay.
package holds

// Pod is a pod on a node.
type Pod struct {
	UID string
	// Size is what the scheduler counts: the largest of what is asked, given and in use.
	Size Room
	// Allocated is what the kubelet has given it.
	Allocated Room
	// Ended says that its processes are over: it does not count.
	Ended bool
}

// Node is a node and the pods on it, those that are just being placed included.
type Node struct {
	Name        string
	Allocatable Room
	Pods        []Pod
}

// Fit says whether a pod fits, and else whose holds are in its way.
type Fit struct {
	Fits bool
	// Unresolvable says that it would not help to remove pods from the node.
	Unresolvable bool
	// Claimants are those whose room it would take.
	Claimants []string
}

// Sizes tells how large a pod on the node is, and whether it is there at all.
type Sizes func(uid string) (Room, bool)

func (n *Node) pod(uid string) *Pod {
	for i := range n.Pods {
		if n.Pods[i].UID == uid && !n.Pods[i].Ended {
			return &n.Pods[i]
		}
	}
	return nil
}

func (n *Node) size(uid string) (Room, bool) {
	if pod := n.pod(uid); pod != nil {
		return pod.Size, true
	}
	return Room{}, false
}

func (n *Node) requested() (sum Room) {
	for i := range n.Pods {
		if !n.Pods[i].Ended {
			sum = sum.Plus(n.Pods[i].Size)
		}
	}
	return sum
}

// Fits tells whether a pod that no hold names fits on a node.
func (n *Node) Fits(holds []*Hold, request Room) Fit {
	return Fits(n.Allocatable.Minus(n.requested()), here(n.Name, holds), n.size, request)
}

// Fits tells whether a pod fits into what is free of a node with these live holds: what a claimant has not asked for
// yet is kept. Where a claimant is not there, it is the victim that a preemptor imagines away, or its hold is about to go.
func Fits(free Room, holds []*Hold, sizes Sizes, request Room) Fit {
	outstanding, complete := Outstanding(holds, sizes)
	if !complete {
		return Fit{Unresolvable: true, Claimants: missing(holds, sizes)}
	}
	if free.Minus(outstanding).Covers(request) {
		return Fit{Fits: true}
	}
	var claimants []string
	for _, hold := range holds {
		if size, _ := sizes(hold.Claimant.UID); !hold.Target.Minus(size).Lacking().IsZero() {
			claimants = append(claimants, hold.Claimant.UID)
		}
	}
	return Fit{Claimants: claimants}
}

// Outstanding returns what is kept for claimants that have not asked for it yet, and whether all of them are there.
func Outstanding(holds []*Hold, sizes Sizes) (sum Room, complete bool) {
	for _, hold := range holds {
		size, there := sizes(hold.Claimant.UID)
		if !there {
			return Room{}, false
		}
		sum = sum.Plus(hold.Target.Minus(size).Lacking())
	}
	return sum, true
}

func missing(holds []*Hold, sizes Sizes) (claimants []string) {
	for _, hold := range holds {
		if _, there := sizes(hold.Claimant.UID); !there {
			claimants = append(claimants, hold.Claimant.UID)
		}
	}
	return claimants
}

// Growth returns what the kubelet has yet to give a claimant. Nothing to one that is not there.
func (n *Node) Growth(hold *Hold) Room {
	claimant := n.pod(hold.Claimant.UID)
	if claimant == nil {
		return Room{}
	}
	return hold.Target.Most(claimant.Size).Minus(claimant.Allocated).Lacking()
}

// payment returns what the neighbours that pay for a hold still have here.
func (n *Node) payment(hold *Hold) (sum Room) {
	for _, payer := range hold.Payers {
		if pod := n.pod(payer.Pod.UID); pod != nil {
			sum = sum.Plus(pod.Size)
		}
	}
	return sum
}

// common returns what is free before any claimant has grown. Negative where others wait for more than there is.
func (n *Node) common(holds []*Hold) Room {
	free := n.Allocatable.Minus(n.requested())
	for _, hold := range here(n.Name, holds) {
		if claimant := n.pod(hold.Claimant.UID); claimant != nil {
			free = free.Plus(claimant.Size.Minus(claimant.Allocated))
		}
	}
	return free
}

// Shortfall returns what lacks for a claimant to grow now, though none of its neighbours leave.
func (n *Node) Shortfall(holds []*Hold, hold *Hold) Room {
	others := n.others(holds, hold)
	free := n.common(append(others, hold))
	for _, other := range others {
		switch {
		case other.Committed || other.Precedes(hold):
			free = free.Minus(n.Growth(other))
		case other.Promised():
			free = free.Minus(n.fromTheFree(other))
		}
	}
	wanted := n.Growth(hold)
	lacking := wanted.Minus(free).Lacking()
	// What it does not want more of it does not lack, however much others do.
	if wanted.CPU == 0 {
		lacking.CPU = 0
	}
	if wanted.Memory == 0 {
		lacking.Memory = 0
	}
	return lacking
}

// Keepable tells whether a hold can be promised beside those that are.
func (n *Node) Keepable(holds []*Hold, hold *Hold) bool {
	others := n.others(holds, hold)
	free := n.common(append(others, hold))
	for _, other := range others {
		if other.Promised() || other.Precedes(hold) {
			free = free.Minus(n.fromTheFree(other))
		}
	}
	wanted := n.Growth(hold)
	left := free.Plus(n.payment(hold))
	return left.Covers(wanted)
}

// fromTheFree returns what a claimant takes of the free room: what its own neighbours do not pay.
func (n *Node) fromTheFree(hold *Hold) Room { return n.Growth(hold).Minus(n.payment(hold)).Lacking() }

func (n *Node) others(holds []*Hold, hold *Hold) (others []*Hold) {
	for _, other := range here(n.Name, holds) {
		if other.Claimant.UID != hold.Claimant.UID {
			others = append(others, other)
		}
	}
	return others
}

func here(node string, holds []*Hold) (found []*Hold) {
	for _, hold := range holds {
		if hold.Live() && hold.Node == node {
			found = append(found, hold)
		}
	}
	return found
}
