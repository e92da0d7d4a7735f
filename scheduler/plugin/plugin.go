// Package plugin keeps held room from everybody but its claimant, inside the Kubernetes scheduler.
//
// It is an adapter: what may be taken is decided in the package holds, whose holds there are is known to the package book.
package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"elbowroom.dev/scheduler/book"
	"elbowroom.dev/scheduler/holds"
)

// Name is the plugin's name in the scheduler's configuration.
const Name = "Elbowroom"

// Plugin is one profile's.
type Plugin struct {
	handle fwk.Handle
	book   *book.Book
	pods   corelisters.PodLister
	args   Args
	// waiting are the pods that a hold keeps out, so that they can be woken when it goes.
	waiting *waiting
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PostFilterPlugin  = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PermitPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// Plugins are those of all profiles: they share one book, because they share one scheduler's cache.
type Plugins struct {
	Book *book.Book
	mu   sync.Mutex
	all  []*Plugin
}

// Factory returns what the scheduler calls once for each profile.
func (p *Plugins) Factory() frameworkruntime.PluginFactory {
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, err := ReadArgs(object)
		if err != nil {
			return nil, err
		}
		registerMetrics()
		made := &Plugin{
			handle: handle, book: p.Book, pods: handle.SharedInformerFactory().Core().V1().Pods().Lister(), args: args, waiting: newWaiting(),
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all = append(p.all, made)
		return made, nil
	}
}

// All returns one for each profile that has it.
func (p *Plugins) All() []*Plugin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// Args returns the profile's arguments.
func (p *Plugin) Args() Args { return p.args }

// Handle returns the profile's handle to the scheduler.
func (p *Plugin) Handle() fwk.Handle { return p.handle }

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// cycle is what one scheduling cycle knows from its beginning on.
type cycle struct {
	page     *book.Page
	request  holds.Room
	receiver *book.Receiver
	// imagined says that somebody tries what would be if pods came or went: for that the scheduler takes a clone.
	imagined bool
	// instead is the UID of a receiver that is to give way to this pod: it is missed by nobody.
	instead string
}

const cycleKey fwk.StateKey = Name

// Clone is called by who goes on to imagine pods away.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.imagined = true
	return &clone
}

func (p *Plugin) newCycle(pod *v1.Pod) *cycle {
	c := &cycle{page: p.book.Page(), request: request(pod)}
	if receiver, found := c.page.Receiver(pod.Namespace, pod.Name); found {
		c.receiver = &receiver
	}
	return c
}

func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	known, _ := data.(*cycle)
	return known
}

func request(pod *v1.Pod) holds.Room {
	return room(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

func room(list v1.ResourceList) holds.Room {
	return holds.Room{CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value()}
}

func amount(resource fwk.Resource) holds.Room {
	return holds.Room{CPU: resource.GetMilliCPU(), Memory: resource.GetMemory()}
}

// PreFilter looks once per pod at what is known.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c := p.newCycle(pod)
	state.Write(cycleKey, c)
	if c.page.Empty() {
		return nil, fwk.NewStatus(fwk.Skip) // what comes in the course of this cycle is found out in Reserve
	}
	if c.receiver != nil {
		if why := unwanted(c.receiver); why != "" {
			return nil, p.refuse(preFilter, fwk.UnschedulableAndUnresolvable, why)
		}
	}
	return nil, nil
}

// PreFilterExtensions are not needed: everything is computed from the NodeInfo that is passed.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// unwanted says why nobody needs a receiver any more.
func unwanted(receiver *book.Receiver) string {
	switch hold := receiver.Hold; {
	case hold == nil && receiver.Request != "":
		return "the hold that this receiver belongs to is gone"
	case hold != nil && hold.Phase == holds.Held && hold.Observed == hold.Generation && !hold.Committed && hold.Shortfall.IsZero():
		return fmt.Sprintf("room for %s has appeared by itself, this receiver is not needed", hold.Claimant.Name)
	}
	return ""
}

// Filter keeps every pod out of held room.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		c = p.newCycle(pod) // somebody runs Filter without PreFilter
		c.imagined = true
	}
	status := p.filter(c, info)
	if !status.IsSuccess() {
		return p.refuse(filter, status.Code(), status.Message())
	}
	return nil
}

func (p *Plugin) filter(c *cycle, info fwk.NodeInfo) *fwk.Status {
	node := info.Node().Name
	if c.receiver != nil && c.receiver.Avoids == node {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "a receiver must not come to the node that its guest leaves")
	}
	if c.imagined {
		if victim := p.imaginedAway(c, info); victim != "" {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, victim)
		}
	}
	kept := c.page.Here(node)
	if kept == nil {
		return nil
	}
	free := amount(info.GetAllocatable()).Minus(amount(info.GetRequested()))
	if free.Minus(kept.Most).Covers(c.request) {
		return nil
	}
	sizes := func(uid string) (holds.Room, bool) { return SizeIn(info, uid) }
	if outstanding, complete := kept.Outstanding(info.GetGeneration(), sizes); complete && free.Minus(outstanding).Covers(c.request) {
		return nil
	}
	here := kept.Holds
	switch fit := holds.Fits(free, here, sizes, c.request); {
	case fit.Unresolvable:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the claimant of a hold is not there: "+names(here, fit.Claimants))
	case len(fit.Claimants) == 0:
		return nil // it would not fit without holds, either: that is for others to say
	default:
		return fwk.NewStatus(fwk.Unschedulable, "room is held for "+names(here, fit.Claimants))
	}
}

func names(here []*holds.Hold, claimants []string) string {
	var found []string
	for _, hold := range here {
		if slices.Contains(claimants, hold.Claimant.UID) {
			found = append(found, hold.Claimant.Namespace+"/"+hold.Claimant.Name)
		}
	}
	return strings.Join(found, ", ")
}

// SizeIn returns what a pod counts for in a NodeInfo, and whether it is there.
func SizeIn(info fwk.NodeInfo, uid string) (holds.Room, bool) {
	for _, pod := range info.GetPods() {
		if string(pod.GetPod().UID) == uid {
			return amount(pod.CalculateResource().Resource), true
		}
	}
	return holds.Room{}, false
}

// imaginedAway says which pod is missing in a NodeInfo that nobody may preempt: whoever asks is about to.
func (p *Plugin) imaginedAway(c *cycle, info fwk.NodeInfo) string {
	actual, err := p.handle.SnapshotSharedLister().NodeInfos().Get(info.Node().Name)
	if err != nil || actual == info {
		return "" // nobody is imagined away
	}
	for _, item := range actual.GetPods() {
		pod := item.GetPod()
		if why, spared := c.page.Spared(pod.Namespace, pod.Name, string(pod.UID)); spared && string(pod.UID) != c.instead {
			if _, there := SizeIn(info, string(pod.UID)); !there {
				return fmt.Sprintf("%s/%s is not to be preempted: %s", pod.Namespace, pod.Name, why)
			}
		}
	}
	return ""
}

func (p *Plugin) refuse(where string, code fwk.Code, why string) *fwk.Status {
	refusals.WithLabelValues(where).Inc()
	return fwk.NewStatus(code, why)
}

// SignPod lets pods that ask for the same share what the scheduler has found out about nodes. That is a hint, and no more: Filter and
// Reserve are asked for each of them, so that a hold which came since keeps the next one out. A receiver shares with nobody.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, receives := p.book.Page().Receiver(pod.Namespace, pod.Name); receives {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a receiver is a pod of its own")
	}
	return []fwk.SignFragment{{Key: "elbowroom.dev/request", Value: request(pod)}}, nil
}

// PreScore says that only receivers are scored.
func (*Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if c := cycleOf(state); c == nil || c.receiver == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes where a receiver causes no new shortage: much headroom, and nobody who waits to grow.
func (*Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := cycleOf(state)
	if c == nil {
		return 0, nil
	}
	allocatable := amount(info.GetAllocatable())
	left := allocatable.Minus(amount(info.GetRequested())).Minus(c.request)
	score := min(share(left.CPU, allocatable.CPU), share(left.Memory, allocatable.Memory))
	if len(c.page.OnNode(info.Node().Name)) > 0 {
		score /= 2
	}
	return score, nil
}

func share(left, all int64) int64 {
	if all <= 0 {
		return 0
	}
	return min(max(left, 0)*fwk.MaxNodeScore/all, fwk.MaxNodeScore)
}

// ScoreExtensions are not needed: scores are between 0 and 100 already.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve refuses only what a hold has changed that came in the course of this very cycle.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	known := cycleOf(state)
	now := p.newCycle(pod)
	if known == nil || known.page.Version != now.page.Version {
		info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
		if err != nil {
			return fwk.AsStatus(err)
		}
		if status := p.filter(now, info); !status.IsSuccess() {
			p.remember(now, pod, node)
			return p.refuse(reserve, fwk.Unschedulable, status.Message())
		}
	}
	if now.receiver != nil {
		p.book.Place(book.Name{Namespace: pod.Namespace, Name: pod.Name}, node)
	}
	p.waiting.forget(pod)
	return nil
}

// Unreserve gives a receiver's place back. It may be called without Reserve, and twice.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	p.book.Unplace(book.Name{Namespace: pod.Namespace, Name: pod.Name})
	if _, receives := p.book.Page().Receiver(pod.Namespace, pod.Name); receives {
		p.waiting.add(pod, "")
	}
}

// PostFilter remembers whom holds keep out, and makes room among receivers. Preemption is the other plugin's.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := cycleOf(state)
	if c == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	for node := range c.page.Nodes() {
		if status := statuses.Get(node); status.Plugin() == Name {
			p.remember(c, pod, node)
		}
	}
	if c.receiver == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	p.waiting.add(pod, "")
	if c.receiver.Hold != nil && unwanted(c.receiver) == "" {
		if node := p.giveWay(ctx, state, pod, c); node != "" {
			// The place is its own until it comes again: else the next one in the queue would take it.
			return framework.NewPostFilterResultWithNominatedNode(node), nil
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// remember notes that holds on a node keep a pod out. Where the book has changed since, it is to try again at once.
func (p *Plugin) remember(c *cycle, pod *v1.Pod, node string) {
	p.waiting.add(pod, node)
	if p.book.Page().Version != c.page.Version {
		p.handle.Activate(klog.Background(), map[string]*v1.Pod{key(pod): pod})
	}
}

func key(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
