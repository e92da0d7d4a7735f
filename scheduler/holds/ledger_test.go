package holds

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

type amounts struct {
	CPU    *resource.Quantity `json:"cpu,omitempty"`
	Memory *resource.Quantity `json:"memory,omitempty"`
}

func (a amounts) room() (room Room) {
	if a.CPU != nil {
		room.CPU = a.CPU.MilliValue()
	}
	if a.Memory != nil {
		room.Memory = a.Memory.Value()
	}
	return room
}

type ledgerCase struct {
	Name string
	Node amounts
	Pods map[string]struct {
		Size      amounts
		Allocated *amounts
		Ended     bool
	}
	Holds map[string]struct {
		Node      string
		Target    amounts
		Payers    []string
		Priority  int64
		Age       float64
		Committed bool
		Phase     Phase
	}
	Asks []struct {
		Pod        *amounts
		Fits       bool
		Resolvable *bool
		Because    []string
		Hold       string
		Shortfall  amounts
		Keepable   bool
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func (c *ledgerCase) world() (*Node, []*Hold) {
	node := &Node{Name: "here", Allocatable: c.Node.room()}
	for name, pod := range c.Pods {
		allocated := pod.Size.room()
		if pod.Allocated != nil {
			allocated = pod.Allocated.room()
		}
		node.Pods = append(node.Pods, Pod{UID: name, Size: pod.Size.room(), Allocated: allocated, Ended: pod.Ended})
	}
	var all []*Hold
	for claimant, hold := range c.Holds {
		made := &Hold{
			Name: claimant, Node: hold.Node, Claimant: Reference{UID: claimant}, Target: hold.Target.room(), Priority: hold.Priority,
			Created: noon.Add(-time.Duration(hold.Age * float64(time.Second))), Committed: hold.Committed, Phase: hold.Phase,
		}
		if made.Node == "" {
			made.Node = "here"
		}
		if made.Phase == "" {
			made.Phase = Held
		}
		for _, payer := range hold.Payers {
			made.Payers = append(made.Payers, Payer{Pod: Reference{UID: payer}, Receiver: payer + "-receiver"})
		}
		all = append(all, made)
	}
	return node, all
}

// TestCases asks what the operator's ledger is asked as well, from the same files; or from those of a folder in LEDGER_CASES.
func TestCases(t *testing.T) {
	folder := "../../tests/data/ledger"
	if given := os.Getenv("LEDGER_CASES"); given != "" {
		folder = given
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the cases are not there: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []ledgerCase
		if err := yaml.UnmarshalStrict(text, &cases); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			t.Run(filepath.Base(file)+": "+c.Name, func(t *testing.T) { c.check(t) })
		}
	}
}

func (c *ledgerCase) check(t *testing.T) {
	node, all := c.world()
	for _, ask := range c.Asks {
		if ask.Pod != nil {
			fit := node.Fits(all, ask.Pod.room())
			slices.Sort(fit.Claimants)
			slices.Sort(ask.Because)
			unresolvable := ask.Resolvable != nil && !*ask.Resolvable
			if fit.Fits != ask.Fits || fit.Unresolvable != unresolvable || !slices.Equal(fit.Claimants, ask.Because) {
				t.Errorf("a pod of %v: %+v", ask.Pod.room(), fit)
			}
			continue
		}
		at := slices.IndexFunc(all, func(hold *Hold) bool { return hold.Claimant.UID == ask.Hold })
		if got := node.Shortfall(all, all[at]); got != ask.Shortfall.room() {
			t.Errorf("shortfall of %s: %v instead of %v", ask.Hold, got, ask.Shortfall.room())
		}
		if got := node.Keepable(all, all[at]); got != ask.Keepable {
			t.Errorf("keepable %s: %v", ask.Hold, got)
		}
	}
}
