package holds

import (
	"fmt"
	"testing"
	"time"
)

// world makes a small node with pods and holds out of bytes, whatever they are.
func world(bytes []byte) (*Node, []*Hold, Room) {
	next := func(most int64) int64 {
		if len(bytes) == 0 {
			return 0
		}
		value := int64(bytes[0]) % (most + 1)
		bytes = bytes[1:]
		return value
	}
	room := func() Room { return Room{next(4), next(4)} }
	node := &Node{Name: "here", Allocatable: Room{next(20), next(20)}}
	request := room()
	for i := range next(6) {
		allocated := room()
		pod := Pod{UID: fmt.Sprint("p", i), Allocated: allocated, Size: allocated, Ended: next(7) == 0}
		if next(3) == 0 {
			pod.Size = allocated.Plus(room())
		}
		node.Pods = append(node.Pods, pod)
	}
	var all []*Hold
	phases := []Phase{Pending, Held, Claimed, Released, Refused}
	for i := range next(4) {
		hold := &Hold{
			Node: "here", Claimant: Reference{UID: fmt.Sprint("p", i)}, Target: room(), Priority: next(2), Committed: next(2) == 0,
			Created: time.Unix(next(3), 0), Phase: phases[next(4)],
		}
		for j := range next(2) {
			hold.Payers = append(hold.Payers, Payer{Pod: Reference{UID: fmt.Sprint("p", 5-j)}})
		}
		all = append(all, hold)
	}
	return node, all, request
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte("a node with some pods on it, and holds for two of them"))
	f.Add([]byte{9, 9, 1, 1, 4, 1, 1, 1, 3, 2, 2, 1, 0, 1, 1, 1, 1, 2, 2, 1, 1, 2, 4, 4, 0, 1, 1, 1, 0, 2, 2, 0, 1, 2, 1, 0})
	f.Fuzz(func(t *testing.T, bytes []byte) {
		node, all, request := world(bytes)
		fit := node.Fits(all, request)
		kept := node.requested()
		for _, hold := range here(node.Name, all) {
			size, there := node.size(hold.Claimant.UID)
			if !there && fit.Fits {
				t.Fatalf("a pod fits beside a claimant that is not there: %+v", hold)
			}
			kept = kept.Plus(hold.Target.Minus(size).Lacking())
		}
		if fit.Fits && !node.Allocatable.Minus(kept).Covers(request) {
			t.Fatalf("%v fits into what is kept: %v of %v", request, kept, node.Allocatable)
		}
		if fit.Fits && (fit.Unresolvable || len(fit.Claimants) > 0) {
			t.Fatalf("it fits, and does not: %+v", fit)
		}
		for _, hold := range here(node.Name, all) {
			short := node.Shortfall(all, hold)
			if short != short.Lacking() {
				t.Fatalf("a shortfall below nothing: %v", short)
			}
			if growth := node.Growth(hold); growth.IsZero() && !short.IsZero() {
				t.Fatalf("it wants nothing and lacks %v", short)
			}
		}
	})
}
