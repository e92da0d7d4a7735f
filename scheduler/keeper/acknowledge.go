package keeper

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"elbowroom.dev/scheduler/book"
	"elbowroom.dev/scheduler/holds"
	"elbowroom.dev/scheduler/plugin"
)

// answer is what is to be said about a hold.
type answer struct {
	phase     holds.Phase
	reason    string
	message   string
	shortfall holds.Room
}

// unsettled is how soon a node is looked at again on which the scheduler is placing somebody.
const unsettled = 10 * time.Millisecond

// look decides what is to be said about a hold now, and says it. It returns when to look again, or nothing.
func (k *Keeper) look(ctx context.Context, name string) (time.Duration, error) {
	hold := k.book.Page().Hold(name)
	if hold == nil || !hold.Live() {
		delete(k.underWay, name)
		delete(k.spoke, name)
		return 0, nil
	}
	object, found, err := k.objects.GetByKey(name)
	if err != nil {
		return 0, err
	}
	if !found || object.(*unstructured.Unstructured).GetResourceVersion() != hold.Version {
		return unsettled, nil // the book and the watch are about to agree: what is said is about what Filter knows
	}
	if pause := k.args.TakeoverPause.Duration - time.Since(k.started); hold.Phase == holds.Pending && pause > 0 {
		return pause, nil // the scheduler before us may yet bind what it had placed
	}
	said, again, err := k.decide(ctx, hold)
	if err != nil || said == nil {
		return again, err
	}
	return again, k.write(ctx, object.(*unstructured.Unstructured), hold, said)
}

// decide compares a hold with the scheduler's cache. It returns nothing where there is nothing new to say.
func (k *Keeper) decide(ctx context.Context, hold *holds.Hold) (*answer, time.Duration, error) {
	left := time.Until(hold.Expires)
	if left <= 0 && !hold.Committed {
		return &answer{phase: holds.Released, reason: "Expired", message: "nobody has renewed it"}, 0, nil
	}
	again := time.Duration(0)
	if !hold.Committed {
		again = left
	}
	if hold.Phase == holds.Pending {
		if err := k.cycles.pass(ctx); err != nil {
			return nil, 0, err
		}
	}
	info, err := k.scheduler.Cache.GetNode(hold.Node)
	if err != nil || info.Node() == nil {
		return k.gone(hold, "the node "+hold.Node+" is gone"), again, nil
	}
	claimant := podIn(info, hold.Claimant.UID)
	switch {
	case claimant == nil:
		return k.gone(hold, fmt.Sprintf("%s/%s is not on %s", hold.Claimant.Namespace, hold.Claimant.Name, hold.Node)), again, nil
	case hold.Phase == holds.Pending && claimant.DeletionTimestamp != nil:
		return k.gone(hold, fmt.Sprintf("%s/%s is being deleted", hold.Claimant.Namespace, hold.Claimant.Name)), again, nil
	}
	all := k.book.Page().OnNode(hold.Node)
	node := k.node(info, all)
	short := node.Shortfall(all, hold)
	if hold.Phase == holds.Pending {
		if who := k.waitsFor(info, hold); who != "" {
			klog.FromContext(ctx).V(4).Info("A hold waits until a pod is placed", "hold", hold.Name, "node", hold.Node, "pod", who)
			return nil, unsettled, nil
		}
		said := k.judge(hold, info, node, all)
		said.shortfall = short
		return said, again, nil
	}
	said := &answer{phase: hold.Phase, reason: "Held", shortfall: short}
	if hold.Phase == holds.Claimed {
		said.reason = "Claimed"
	}
	if size, _ := plugin.SizeIn(info, hold.Claimant.UID); hold.Phase == holds.Held && hold.Target.Minus(size).Lacking().IsZero() {
		said.phase, said.reason = holds.Claimed, "Claimed"
	}
	if said.phase != hold.Phase || hold.Generation != hold.Observed || hold.Term != k.term {
		return said, again, nil
	}
	if hold.Committed || short == hold.Shortfall {
		return nil, again, nil
	}
	// Whether anything lacks is said at once: others act on it. How much, where pods come and go all the time, now and then.
	if pause := k.args.RefreshInterval.Duration - time.Since(k.spoke[hold.Name]); !short.IsZero() && !hold.Shortfall.IsZero() && pause > 0 {
		return nil, pause, nil
	}
	return said, again, nil
}

// gone ends a hold that has nobody to hold for: it would close its node to everybody.
func (k *Keeper) gone(hold *holds.Hold, message string) *answer {
	if hold.Phase == holds.Pending {
		return &answer{phase: holds.Refused, reason: "ClaimantGone", message: message}
	}
	return &answer{phase: holds.Released, reason: "ClaimantGone", message: message}
}

// judge says whether a hold can be kept, of which nothing was said before.
func (k *Keeper) judge(hold *holds.Hold, info *framework.NodeInfo, node *holds.Node, all []*holds.Hold) *answer {
	refuse := func(reason, message string) *answer {
		return &answer{phase: holds.Refused, reason: reason, message: message}
	}
	if !hold.Target.Minus(node.Allocatable).Lacking().IsZero() {
		return refuse("LargerThanNode", fmt.Sprintf("%s has less than that for all of its pods together", hold.Node))
	}
	if why := k.book.Page().Conflict(hold); why != "" {
		return refuse("NeighbourTaken", why)
	}
	for _, payer := range hold.Payers {
		if pod := podIn(info, payer.Pod.UID); pod == nil || pod.DeletionTimestamp != nil {
			return refuse("NeighbourGone", fmt.Sprintf("%s/%s is not on %s, or is leaving", payer.Pod.Namespace, payer.Pod.Name, hold.Node))
		}
	}
	if !node.Keepable(all, hold) {
		return refuse("NobodyMovable", "its neighbours have not enough room for it, beside what is held for others")
	}
	return &answer{phase: holds.Held, reason: "Held", message: fmt.Sprintf("this scheduler keeps the room on %s", hold.Node)}
}

// waitsFor names a pod that the scheduler was placing on a hold's node when it first looked at it: one that is not bound yet, or whose
// victims, of which the claimant or a neighbour may be one, are removed in a moment. Those that come later know the hold.
func (k *Keeper) waitsFor(info *framework.NodeInfo, hold *holds.Hold) string {
	known, again := k.underWay[hold.Name]
	now := sets.New[types.UID]()
	who := ""
	for _, item := range info.GetPods() {
		pod := item.GetPod()
		if assumed, err := k.scheduler.Cache.IsAssumedPod(pod); err == nil && assumed && (!again || known.Has(pod.UID)) {
			now.Insert(pod.UID)
			who = pod.Namespace + "/" + pod.Name
		}
	}
	least := k.leastImportant(info, hold)
	for _, item := range k.plugins[0].Handle().NominatedPodsForNode(info.Node().Name) {
		if pod := item.GetPod(); corev1helpers.PodPriority(pod) > least && (!again || known.Has(pod.UID)) {
			now.Insert(pod.UID)
			who = pod.Namespace + "/" + pod.Name
		}
	}
	k.underWay[hold.Name] = now
	return who
}

// leastImportant returns the lowest priority among a hold's pods: who is above it may have one of them as a victim.
func (k *Keeper) leastImportant(info *framework.NodeInfo, hold *holds.Hold) int32 {
	least := int32(math.MaxInt32)
	for _, item := range info.GetPods() {
		pod := item.GetPod()
		part := string(pod.UID) == hold.Claimant.UID
		for _, payer := range hold.Payers {
			part = part || string(pod.UID) == payer.Pod.UID
		}
		if part {
			least = min(least, corev1helpers.PodPriority(pod))
		}
	}
	return least
}

func podIn(info fwk.NodeInfo, uid string) *v1.Pod {
	for _, item := range info.GetPods() {
		if pod := item.GetPod(); string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}

// node puts the scheduler's view of a node into the ledger's words. What the kubelet has given matters of claimants only.
func (k *Keeper) node(info fwk.NodeInfo, all []*holds.Hold) *holds.Node {
	allocatable := info.GetAllocatable()
	node := &holds.Node{Name: info.Node().Name, Allocatable: holds.Room{CPU: allocatable.GetMilliCPU(), Memory: allocatable.GetMemory()}}
	claimants := sets.New[string]()
	for _, hold := range all {
		claimants.Insert(hold.Claimant.UID)
	}
	for _, item := range info.GetPods() {
		pod, resource := item.GetPod(), item.CalculateResource().Resource
		size := holds.Room{CPU: resource.GetMilliCPU(), Memory: resource.GetMemory()}
		made := holds.Pod{UID: string(pod.UID), Size: size, Allocated: size}
		if claimants.Has(made.UID) {
			made.Allocated = allocated(pod)
		}
		node.Pods = append(node.Pods, made)
	}
	return node
}

// allocated is what the kubelet has given a pod; what it asks for where the kubelet has said nothing.
func allocated(pod *v1.Pod) holds.Room {
	pod = pod.DeepCopy()
	given := map[string]v1.ResourceList{}
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if status.AllocatedResources != nil {
			given[status.Name] = status.AllocatedResources
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if list, found := given[containers[i].Name]; found {
				containers[i].Resources.Requests = list
			}
		}
	}
	if pod.Spec.Resources != nil && pod.Status.AllocatedResources != nil {
		pod.Spec.Resources.Requests = pod.Status.AllocatedResources // of the pod as a whole
	}
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return holds.Room{CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value()}
}

// write says it. A hold that has changed meanwhile is looked at again, because it comes again.
func (k *Keeper) write(ctx context.Context, item *unstructured.Unstructured, hold *holds.Hold, said *answer) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	changed := item.DeepCopy()
	status, _, err := unstructured.NestedMap(changed.Object, "status")
	if err != nil {
		return err
	}
	if status == nil {
		status = map[string]any{}
	}
	status["phase"], status["reason"], status["message"], status["term"] = string(said.phase), said.reason, said.message, k.term
	status["observedGeneration"], status["shortfall"] = hold.Generation, book.ToAmounts(said.shortfall)
	if err := unstructured.SetNestedMap(changed.Object, status, "status"); err != nil {
		return err
	}
	written, err := k.client.Resource(book.Holds).UpdateStatus(ctx, changed, metav1.UpdateOptions{FieldManager: plugin.Name})
	if err != nil {
		return err
	}
	k.spoke[hold.Name] = time.Now()
	now, err := book.ToHold(written)
	if err != nil {
		return err
	}
	// Before the next hold is judged: what we have just promised counts, though our watch has not shown it yet.
	if before, news := k.book.PutHold(now); news {
		k.changed(before, now)
	}
	if since, pending := k.noticed.take(hold.UID); pending {
		plugin.Acknowledged.WithLabelValues(string(said.phase)).Observe(time.Since(since).Seconds())
	}
	klog.FromContext(ctx).Info("Hold", "hold", hold.Name, "node", hold.Node, "claimant", klog.KRef(hold.Claimant.Namespace, hold.Claimant.Name),
		"phase", said.phase, "reason", said.reason, "message", said.message, "cpu", said.shortfall.CPU, "memory", said.shortfall.Memory)
	return nil
}

// noticed knows since when a hold waits for its first word, by its UID.
type noticed struct {
	mu   sync.Mutex
	when map[string]time.Time
}

func (n *noticed) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.when == nil {
		n.when = map[string]time.Time{}
	}
	if _, known := n.when[name]; !known {
		n.when[name] = time.Now()
	}
}

func (n *noticed) take(name string) (time.Time, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, known := n.when[name]
	delete(n.when, name)
	return since, known
}
