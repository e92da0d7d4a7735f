package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister says what may help a pod that this plugin has refused. Holds are not among them: the queue would hear of a
// change before our book does. The keeper wakes pods by name, after the book has changed.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown}, QueueingHintFn: p.afterPod},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable}},
	}, nil
}

// afterPod tells whether a pod that has left, or is smaller now, was on a node where a hold keeps this one out: only there it helps.
func (p *Plugin) afterPod(_ klog.Logger, pod *v1.Pod, before, _ any) (fwk.QueueingHint, error) {
	if left, is := before.(*v1.Pod); is && (left.Spec.NodeName == "" || !p.waiting.helped(pod, left.Spec.NodeName)) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
