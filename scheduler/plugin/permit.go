package plugin

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

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
func (p *Plugin) Permit(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	receiver, found := p.book.Page().Receiver(pod.Namespace, pod.Name)
	if !found {
		return nil, 0
	}
	switch said, why := p.judge(&receiver); said {
	case reject:
		p.waiting.add(pod, "")
		return p.refuse(permit, fwk.Unschedulable, why), 0
	case wait:
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
	return err == nil && pod.Spec.NodeName != ""
}

// Settle looks at all receivers that wait for each other: after a sibling has found a place, or a hold has changed.
func (p *Plugin) Settle(logger klog.Logger) {
	page := p.book.Page()
	waiting := 0
	p.handle.IterateOverWaitingPods(func(item fwk.WaitingPod) {
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

// giveWay takes a place away from a waiting receiver of a hold that has to give way to this one's, where that helps. So two holds
// whose receivers each have one place and need two do not wait for each other.
func (p *Plugin) giveWay(logger klog.Logger, pod *v1.Pod, c *cycle) {
	hold := c.receiver.Hold
	nodes := p.handle.SnapshotSharedLister().NodeInfos()
	done := false
	p.handle.IterateOverWaitingPods(func(item fwk.WaitingPod) {
		other := item.GetPod()
		receiver, found := c.page.Receiver(other.Namespace, other.Name)
		if done || !found || receiver.Hold == nil || receiver.Hold.Name == hold.Name || !hold.Precedes(receiver.Hold) {
			return
		}
		info, err := nodes.Get(other.Spec.NodeName)
		if err != nil || c.receiver.Avoids == other.Spec.NodeName {
			return
		}
		free := amount(info.GetAllocatable()).Minus(amount(info.GetRequested())).Plus(request(other))
		kept := holds.Fits(free, c.page.OnNode(other.Spec.NodeName), func(uid string) (holds.Room, bool) { return sizeIn(info, uid) }, c.request)
		if kept.Fits {
			done = true
			why := fmt.Sprintf("it gives way to %s/%s, whose hold comes first", pod.Namespace, pod.Name)
			logger.V(2).Info("A receiver gives way", "pod", klog.KObj(other), "to", klog.KObj(pod))
			p.waiting.add(other, "")
			item.Reject(Name, why)
		}
	})
}
