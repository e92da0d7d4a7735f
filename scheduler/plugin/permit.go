package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"elbowroom.dev/scheduler/book"
	"elbowroom.dev/scheduler/holds"
)

// verdict is what is said to a receiver that has a place.
type verdict int

const (
	wait verdict = iota
	allow
	reject
)

// Permit lets the receivers of a hold bind together, or none of them.
func (p *Plugin) Permit(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) (*fwk.Status, time.Duration) {
	receiver, found := p.book.Page().Receiver(pod.Namespace, pod.Name)
	if !found {
		return nil, 0
	}
	p.book.Place(book.Name{Namespace: pod.Namespace, Name: pod.Name}, node) // it may be a receiver only since Reserve
	switch said, why := p.judge(&receiver); said {
	case reject:
		p.waiting.add(pod, "")
		return p.refuse(permit, fwk.Unschedulable, why), 0
	case wait:
		p.wakeSiblings(klog.FromContext(ctx), receiver.Hold, pod)
		return fwk.NewStatus(fwk.Wait, why), p.args.ReceiverWait.Duration
	default:
		p.Settle(klog.FromContext(ctx))
		return nil, 0
	}
}

// judge says whether a receiver that has a place may be bound.
func (p *Plugin) judge(receiver *book.Receiver) (verdict, string) {
	if why := unwanted(receiver); why != "" {
		return reject, why
	}
	hold := receiver.Hold
	if hold == nil {
		return allow, "" // a VM that is moved by hand
	}
	if !hold.Promised() {
		return wait, "its hold is not held yet"
	}
	for _, payer := range hold.Payers {
		if !p.hasPlace(payer) {
			return wait, fmt.Sprintf("its sibling %s has no place yet", payer.Receiver)
		}
	}
	return allow, ""
}

func (p *Plugin) hasPlace(payer holds.Payer) bool {
	if p.book.Placed(book.Name{Namespace: payer.Pod.Namespace, Name: payer.Receiver}) {
		return true
	}
	pod, err := p.pods.Pods(payer.Pod.Namespace).Get(payer.Receiver)
	return err == nil && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !podutil.IsPodTerminal(pod)
}

// wakeSiblings has those look for a place who have given up: the one that begins to wait would wait for them in vain.
func (p *Plugin) wakeSiblings(logger klog.Logger, hold *holds.Hold, pod *v1.Pod) {
	asleep := map[string]*v1.Pod{}
	for _, payer := range hold.Payers {
		if payer.Receiver == pod.Name || p.hasPlace(payer) {
			continue
		}
		if sibling, err := p.pods.Pods(payer.Pod.Namespace).Get(payer.Receiver); err == nil && sibling.Spec.NodeName == "" {
			asleep[key(sibling)] = sibling
		}
	}
	if len(asleep) > 0 {
		p.handle.Activate(logger, asleep)
	}
}

// Settle looks at all receivers that wait for each other: after a sibling has found a place, or a hold has changed.
func (p *Plugin) Settle(logger klog.Logger) {
	page := p.book.Page()
	waiting := 0
	p.handle.IterateOverWaitingPods(func(item fwk.WaitingPod) {
		if !slices.Contains(item.GetPendingPlugins(), Name) {
			return // somebody else lets it wait
		}
		pod := item.GetPod()
		receiver, found := page.Receiver(pod.Namespace, pod.Name)
		if !found {
			receiver = book.Receiver{Request: "gone"} // nobody names it any more
		}
		switch said, why := p.judge(&receiver); said {
		case allow:
			item.Allow(Name)
		case reject:
			logger.V(2).Info("A receiver is not bound", "pod", klog.KObj(pod), "reason", why)
			refusals.WithLabelValues(permit).Inc()
			p.waiting.add(pod, "")
			item.Reject(Name, why)
		default:
			waiting++
		}
	})
	receiversWaiting.Set(float64(waiting))
}

// giveWay takes a place away from a waiting receiver of a hold that has to give way to this one's, and returns the node where that
// helps. So two holds whose receivers each have one place and need two do not wait for each other.
func (p *Plugin) giveWay(ctx context.Context, state fwk.CycleState, pod *v1.Pod, c *cycle) (freed string) {
	logger := klog.FromContext(ctx)
	hold := c.receiver.Hold
	p.handle.IterateOverWaitingPods(func(item fwk.WaitingPod) {
		other := item.GetPod()
		receiver, found := c.page.Receiver(other.Namespace, other.Name)
		if freed != "" || !found || receiver.Hold == nil || receiver.Hold.Name == hold.Name || !hold.Precedes(receiver.Hold) {
			return
		}
		if !slices.Contains(item.GetPendingPlugins(), Name) || !p.wouldFit(ctx, state, pod, other) {
			return
		}
		freed = other.Spec.NodeName
		logger.V(2).Info("A receiver gives way", "pod", klog.KObj(other), "to", klog.KObj(pod), "node", freed)
		item.Reject(Name, fmt.Sprintf("it gives way to %s/%s, whose hold comes first", pod.Namespace, pod.Name))
	})
	return freed
}

// wouldFit asks all plugins whether a pod could be placed where another one has its place now.
func (p *Plugin) wouldFit(ctx context.Context, state fwk.CycleState, pod, other *v1.Pod) bool {
	actual, err := p.handle.SnapshotSharedLister().NodeInfos().Get(other.Spec.NodeName)
	if err != nil {
		return false
	}
	info, without := actual.Snapshot(), state.Clone()
	var gone fwk.PodInfo
	for _, item := range info.GetPods() {
		if item.GetPod().UID == other.UID {
			gone = item
		}
	}
	if gone == nil || info.RemovePod(klog.FromContext(ctx), other) != nil {
		return false
	}
	if !p.handle.RunPreFilterExtensionRemovePod(ctx, without, pod, gone, info).IsSuccess() {
		return false
	}
	// Nobody is imagined away here whom our own Filter would spare: the one that gives way is a receiver itself.
	if c := cycleOf(without); c != nil {
		c.instead = string(other.UID)
	}
	return p.handle.RunFilterPlugins(ctx, without, pod, info).IsSuccess()
}
