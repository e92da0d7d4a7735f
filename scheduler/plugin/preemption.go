package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/feature"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	plugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"

	"elbowroom.dev/scheduler/book"
)

// PreemptionName is the name of the plugin that takes the place of DefaultPreemption.
const PreemptionName = "ElbowroomPreemption"

// Preemption is the scheduler's own preemption, which takes nobody who is part of a hold or a move, and serves no receiver.
type Preemption struct {
	*defaultpreemption.DefaultPreemption
	book *book.Book
}

var (
	_ fwk.PostFilterPlugin  = &Preemption{}
	_ fwk.PreEnqueuePlugin  = &Preemption{}
	_ fwk.EnqueueExtensions = &Preemption{}
)

// PreemptionFactory returns what the scheduler calls once for each profile. The arguments are those of DefaultPreemption.
func (p *Plugins) PreemptionFactory() frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		asked := configv1.DefaultPreemptionArgs{MinCandidateNodesPercentage: ptr.To[int32](10), MinCandidateNodesAbsolute: ptr.To[int32](100)}
		if err := decode(object, PreemptionName, &asked); err != nil {
			return nil, err
		}
		args := &config.DefaultPreemptionArgs{
			MinCandidateNodesPercentage: ptr.Deref(asked.MinCandidateNodesPercentage, 10), MinCandidateNodesAbsolute: ptr.Deref(asked.MinCandidateNodesAbsolute, 100),
		}
		stock, err := defaultpreemption.New(ctx, args, handle, plugins.NewSchedulerFeaturesFromGates(feature.DefaultFeatureGate))
		if err != nil {
			return nil, err
		}
		stock.IsEligiblePod = func(_ fwk.NodeInfo, victim fwk.PodInfo, _ *v1.Pod) bool {
			pod := victim.GetPod()
			_, spared := p.Book.Page().Spared(pod.Namespace, pod.Name, string(pod.UID))
			return !spared
		}
		return &Preemption{DefaultPreemption: stock, book: p.Book}, nil
	}
}

// Name returns the plugin's name.
func (*Preemption) Name() string { return PreemptionName }

// PostFilter preempts, but not for a receiver: to move a VM is no reason to kill anybody.
func (p *Preemption) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if _, receives := p.book.Page().Receiver(pod.Namespace, pod.Name); receives {
		// A place that it was to have once is not kept for it.
		return framework.NewPostFilterResultWithNominatedNode(""), fwk.NewStatus(fwk.Unschedulable, "a receiver preempts nobody")
	}
	return p.DefaultPreemption.PostFilter(ctx, state, pod, statuses)
}
