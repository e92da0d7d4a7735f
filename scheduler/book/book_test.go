package book

import (
	"testing"

	"elbowroom.dev/scheduler/holds"
)

func hold(claimant string, phase holds.Phase, payers ...string) *holds.Hold {
	made := &holds.Hold{Name: claimant, Node: "n1", Claimant: holds.Reference{Namespace: "x", Name: claimant, UID: claimant}, Phase: phase,
		Request: holds.Reference{UID: "request-of-" + claimant}}
	for _, payer := range payers {
		made.Payers = append(made.Payers, holds.Payer{Pod: holds.Reference{Namespace: "x", Name: payer, UID: payer}, Receiver: payer + "-receiver"})
	}
	return made
}

func TestAPageDoesNotChange(t *testing.T) {
	b := New()
	before := b.Page()
	b.PutHold(hold("db", holds.Pending, "web"))
	if !before.Empty() || b.Page().Empty() || b.Page().Version <= before.Version {
		t.Fatalf("before %+v, after %+v", before, b.Page())
	}
}

func TestOnlyLiveHoldsKeepOthersOut(t *testing.T) {
	b := New()
	b.PutHold(hold("db", holds.Held, "web"))
	if len(b.Page().OnNode("n1")) != 1 {
		t.Fatal("a hold is not on its node")
	}
	if _, spared := b.Page().Spared("x", "web", "web"); !spared {
		t.Fatal("a neighbour is a victim")
	}
	if _, spared := b.Page().Spared("x", "web-receiver", "any"); !spared {
		t.Fatal("a receiver is a victim")
	}
	b.PutHold(hold("db", holds.Released, "web"))
	if !b.Page().Empty() || b.Page().Hold("db") == nil {
		t.Fatal("a hold that was released still counts, or is forgotten")
	}
}

func TestWhoIsAReceiver(t *testing.T) {
	b := New()
	b.PutMigration(&holds.Migration{UID: "m", Namespace: "x", Source: "web", SourceNode: "n1", Receiver: "web-1"})
	receiver, found := b.Page().Receiver("x", "web-1")
	if !found || receiver.Avoids != "n1" || receiver.Hold != nil || receiver.Request != "" {
		t.Fatalf("%+v", receiver)
	}
	if _, found := b.Page().Receiver("y", "web-1"); found {
		t.Fatal("a pod of another namespace is a receiver")
	}
	b.DropMigration("m")
	if _, found := b.Page().Receiver("x", "web-1"); found {
		t.Fatal("it still is a receiver")
	}
}

func TestConflicts(t *testing.T) {
	b := New()
	b.PutHold(hold("db", holds.Held, "web"))
	b.PutMigration(&holds.Migration{UID: "m", Namespace: "x", Source: "mail", Receiver: "mail-1", Request: "request-of-cache"})
	for _, c := range []struct {
		name     string
		hold     *holds.Hold
		conflict bool
	}{
		{"its own neighbour", hold("db", holds.Pending, "web"), false},
		{"a free neighbour", hold("api", holds.Pending, "job"), false},
		{"another one's neighbour", hold("api", holds.Pending, "web"), true},
		{"a claimant as a neighbour", hold("api", holds.Pending, "db"), true},
		{"a claimant that leaves itself", hold("web", holds.Pending, "job"), true},
		{"a neighbour that somebody else moves", hold("api", holds.Pending, "mail"), true},
		{"a neighbour that moves for it", hold("cache", holds.Pending, "mail"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := b.Page().Conflict(c.hold); (why != "") != c.conflict {
				t.Fatalf("%q", why)
			}
		})
	}
}

func TestAPlaceIsForgottenWithItsHold(t *testing.T) {
	b, name := New(), Name{"x", "web-receiver"}
	b.PutHold(hold("db", holds.Held, "web"))
	b.Place(name, "n2")
	if !b.Placed(name) {
		t.Fatal("it has no place")
	}
	b.DropHold("db", "")
	b.PutHold(hold("db", holds.Held, "web"))
	if b.Placed(name) {
		t.Fatal("a place outlives its hold")
	}
}

func TestALateEventChangesNothing(t *testing.T) {
	b := New()
	written, late := hold("db", holds.Held), hold("db", holds.Pending)
	written.Version, late.Version = "12", "9"
	b.PutHold(written)
	if before, news := b.PutHold(late); news || before != written || b.Page().Hold("db") != written {
		t.Fatal("an older state has taken the place of a newer one")
	}
	other := hold("db", holds.Pending)
	other.UID, other.Version = "another", "20"
	b.PutHold(other)
	if b.DropHold("db", "the first") != nil || b.Page().Hold("db") != other {
		t.Fatal("the end of a hold has taken away another one of its name")
	}
}

func TestWhatIsKeptIsCountedOncePerStateOfTheNode(t *testing.T) {
	b := New()
	held := hold("db", holds.Held)
	held.Target = holds.Room{CPU: 3000}
	b.PutHold(held)
	here, asked := b.Page().Here(held.Node), 0
	sizes := func(string) (holds.Room, bool) { asked++; return holds.Room{CPU: 1000}, true }
	for range 3 {
		if kept, complete := here.Outstanding(7, sizes); !complete || kept.CPU != 2000 {
			t.Fatalf("kept %v, complete %v", kept, complete)
		}
	}
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
	if kept, _ := here.Outstanding(8, func(string) (holds.Room, bool) { return holds.Room{CPU: 3000}, true }); !kept.IsZero() {
		t.Fatalf("another state of the node, and still %v", kept)
	}
}
