// Package book keeps the holds and migrations that the scheduler has heard of, by what is asked about them.
//
// Reading is one atomic load: a Page never changes, so that a scheduling cycle sees one and the same from beginning to end.
package book

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"elbowroom.dev/scheduler/holds"
)

// Name is a pod by its namespace and name: a receiver is named before it exists.
type Name struct{ Namespace, Name string }

// Receiver says what is known of a pod that a hold or a migration names. The pod itself is not asked.
type Receiver struct {
	// Hold is the one whose neighbour it receives; nil where a VM is moved by hand, or its hold is gone.
	Hold *holds.Hold
	// Request is the UID of the request that it is for, if any.
	Request string
	// Avoids is the node that its guest comes from.
	Avoids string
}

// Here are the live holds of one node.
type Here struct {
	// Most is what all claimants together may come to have: where that much is free besides, nothing has to be counted.
	Most    holds.Room
	Holds   []*holds.Hold
	counted atomic.Pointer[counted]
}

// counted is what was found out about one state of the node.
type counted struct {
	generation  int64
	outstanding holds.Room
	complete    bool
}

// Outstanding returns what is kept here for claimants, as holds.Outstanding does. A node is asked for each pod that may come, and
// changes with those that do: what was found out is remembered by the node's generation, which no two states share.
func (h *Here) Outstanding(generation int64, sizes holds.Sizes) (holds.Room, bool) {
	known := h.counted.Load()
	if known == nil || known.generation != generation {
		known = &counted{generation: generation}
		known.outstanding, known.complete = holds.Outstanding(h.Holds, sizes)
		h.counted.Store(known)
	}
	return known.outstanding, known.complete
}

// Page is all that is known at one moment.
type Page struct {
	// Version grows with each change.
	Version   uint64
	byName    map[string]*holds.Hold
	byNode    map[string]*Here
	receivers map[Name]Receiver
	// moving are the UIDs of claimants, and of pods whose guests are to move or do; and for whom.
	moving map[string]string
	// migrations are all that are not over.
	migrations []*holds.Migration
}

// Empty tells whether nobody holds or moves anything.
func (p *Page) Empty() bool { return len(p.moving) == 0 && len(p.receivers) == 0 }

// Here returns what is held on a node, or nil.
func (p *Page) Here(node string) *Here { return p.byNode[node] }

// OnNode returns the live holds of a node.
func (p *Page) OnNode(node string) []*holds.Hold {
	if here := p.byNode[node]; here != nil {
		return here.Holds
	}
	return nil
}

// Nodes returns the nodes that have live holds.
func (p *Page) Nodes() iter.Seq[string] { return maps.Keys(p.byNode) }

// Hold returns the hold of a name, or nil.
func (p *Page) Hold(name string) *holds.Hold { return p.byName[name] }

// All returns every hold, live or not.
func (p *Page) All() []*holds.Hold { return slices.Collect(maps.Values(p.byName)) }

// Receiver tells whether a pod is named as a receiver.
func (p *Page) Receiver(namespace, name string) (Receiver, bool) {
	receiver, found := p.receivers[Name{namespace, name}]
	return receiver, found
}

// Spared tells whether nobody may preempt a pod, and why.
func (p *Page) Spared(namespace, name, uid string) (string, bool) {
	if why, found := p.moving[uid]; found {
		return why, true
	}
	if _, found := p.receivers[Name{namespace, name}]; found {
		return "it receives a guest", true
	}
	return "", false
}

// Conflict says who else counts on a claimant or a neighbour of a hold. Nobody: nothing.
func (p *Page) Conflict(hold *holds.Hold) string {
	taken := map[string]string{}
	for _, migration := range p.migrations {
		if migration.Request != hold.Request.UID {
			taken[migration.Source] = "another migration moves it"
		}
	}
	for _, other := range p.byName {
		if other.Name == hold.Name || !other.Promised() {
			continue
		}
		taken[other.Claimant.UID] = "it has a hold of its own"
		for _, payer := range other.Payers {
			taken[payer.Pod.UID] = "it leaves for " + other.Claimant.Name
		}
	}
	for _, payer := range hold.Payers {
		if why, found := taken[payer.Pod.UID]; found {
			return "neighbour " + payer.Pod.Name + ": " + why
		}
	}
	if why, found := taken[hold.Claimant.UID]; found {
		return "claimant " + hold.Claimant.Name + ": " + why
	}
	return ""
}

// Book is written by whoever watches holds and migrations.
type Book struct {
	mu         sync.Mutex
	holds      map[string]*holds.Hold
	migrations map[string]*holds.Migration
	// placed are receivers that have a node, and are not bound yet or have just been.
	placed  map[Name]string
	current atomic.Pointer[Page]
}

// New returns an empty one.
func New() *Book {
	b := &Book{holds: map[string]*holds.Hold{}, migrations: map[string]*holds.Migration{}, placed: map[Name]string{}}
	b.current.Store(&Page{})
	return b
}

// Page returns what is known now.
func (b *Book) Page() *Page { return b.current.Load() }

// PutHold enters a hold, or its change. It returns what was known of it before, and whether this is news: a state that is older
// than what is known, which a watch may deliver after we have written a newer one ourselves, changes nothing.
func (b *Book) PutHold(hold *holds.Hold) (before *holds.Hold, news bool) {
	b.change(func() {
		before = b.holds[hold.Name]
		if news = before == nil || !older(hold.Version, before.Version); news {
			b.holds[hold.Name] = hold
		}
	})
	return before, news
}

// older compares resource versions. Those that cannot be compared are taken as they come.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// DropHold forgets one, and not another that has its name by now. It returns what was known of it.
func (b *Book) DropHold(name, uid string) (before *holds.Hold) {
	b.change(func() {
		if known := b.holds[name]; known != nil && known.UID == uid {
			before = known
			delete(b.holds, name)
		}
	})
	return before
}

// PutMigration enters a move that is not over.
func (b *Book) PutMigration(migration *holds.Migration) {
	b.change(func() { b.migrations[migration.UID] = migration })
}

// DropMigration forgets one.
func (b *Book) DropMigration(uid string) { b.change(func() { delete(b.migrations, uid) }) }

// Place notes that a receiver has a node.
func (b *Book) Place(name Name, node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.placed[name] = node
}

// Unplace notes that it has none any more.
func (b *Book) Unplace(name Name) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.placed, name)
}

// Placed tells whether a receiver has a node.
func (b *Book) Placed(name Name) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, found := b.placed[name]
	return found
}

func (b *Book) change(make func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	make()
	page := b.page()
	maps.DeleteFunc(b.placed, func(name Name, _ string) bool { _, named := page.receivers[name]; return !named })
	b.current.Store(page)
}

func (b *Book) page() *Page {
	page := &Page{
		Version: b.current.Load().Version + 1, byName: maps.Clone(b.holds), byNode: map[string]*Here{},
		receivers: map[Name]Receiver{}, moving: map[string]string{}, migrations: slices.Collect(maps.Values(b.migrations)),
	}
	for _, migration := range b.migrations {
		page.moving[migration.Source] = "its guest is moved"
		if migration.Receiver != "" {
			page.receivers[Name{migration.Namespace, migration.Receiver}] = Receiver{Request: migration.Request, Avoids: migration.SourceNode}
		}
	}
	for _, hold := range b.holds {
		if !hold.Live() {
			continue
		}
		here := page.byNode[hold.Node]
		if here == nil {
			here = &Here{}
			page.byNode[hold.Node] = here
		}
		here.Holds = append(here.Holds, hold)
		here.Most = here.Most.Plus(hold.Target)
		page.moving[hold.Claimant.UID] = "room is held for it"
		for _, payer := range hold.Payers {
			page.moving[payer.Pod.UID] = "its guest is to move for " + hold.Claimant.Name
			page.receivers[Name{payer.Pod.Namespace, payer.Receiver}] = Receiver{Hold: hold, Request: hold.Request.UID, Avoids: hold.Node}
		}
	}
	for _, here := range page.byNode {
		slices.SortFunc(here.Holds, func(a, b *holds.Hold) int { return strings.Compare(a.Name, b.Name) })
	}
	return page
}
