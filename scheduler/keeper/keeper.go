// Package keeper says in the name of the leading scheduler what it keeps: it watches holds and migrations, enters them into the
// book, and acknowledges holds in their status.
//
// A hold is worth something only once it is acknowledged, because the watch of holds and the watch of pods are not ordered with
// each other. So: enter the hold, let the scheduling cycle that may be under way come to its end, and look at the scheduler's own
// cache, which counts all that was placed before. Whatever is placed later knows the hold.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"

	"elbowroom.dev/scheduler/book"
	"elbowroom.dev/scheduler/holds"
	"elbowroom.dev/scheduler/plugin"
)

const (
	lookForKinds   = 2 * time.Second
	writeTimeout   = 10 * time.Second
	afterPodChange = 20 * time.Millisecond
)

// Keeper is one per scheduler.
type Keeper struct {
	book      *book.Book
	plugins   []*plugin.Plugin
	scheduler *scheduler.Scheduler
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	objects   cache.Store
	queue     workqueue.TypedRateLimitingInterface[string]
	cycles    cycles
	// ready is closed when pods may be placed, leads when the scheduler asks for the first one.
	ready, leads chan struct{}
	// deposed says which other scheduler acknowledges what we did.
	deposed chan string
	term    string
	args    plugin.Args
	noticed noticed
	started time.Time
	// underWay are the pods that were being placed when a hold was first looked at: it waits for these, and for no others.
	underWay map[string]sets.Set[types.UID]
	// spoke says when something was last said about a hold.
	spoke map[string]time.Time
}

// New prepares a keeper for a scheduler that has not begun to run. The term is the scheduler's own name among all that ever led.
func New(config *rest.Config, made *scheduler.Scheduler, plugins *plugin.Plugins, term string) (*Keeper, error) {
	all := plugins.All()
	if len(all) == 0 {
		return nil, fmt.Errorf("no profile of the configuration enables the plugin %s: nobody would keep any hold", plugin.Name)
	}
	// Objects of ours are no protobufs.
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		book: plugins.Book, plugins: all, scheduler: made, client: client, discovery: kinds,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, 5*time.Second)),
		ready: make(chan struct{}), leads: make(chan struct{}), deposed: make(chan string, 1), term: term, args: all[0].Args(),
		underWay: map[string]sets.Set[types.UID]{}, spoke: map[string]time.Time{},
	}, nil
}

// Gate puts itself between the scheduler and its queue.
func (k *Keeper) Gate(ctx context.Context) {
	lead := sync.OnceFunc(func() { close(k.leads) })
	k.scheduler.NextPod = k.cycles.wrap(k.scheduler.NextPod, lead, k.ready, ctx.Done())
}

// Run watches until the context ends, and acknowledges once the scheduler leads.
func (k *Keeper) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("elbowroom")
	ctx = klog.NewContext(ctx, logger)
	open := sync.OnceFunc(func() { close(k.ready) })
	if err := k.waitForKinds(ctx, open); err != nil {
		return err
	}
	if err := k.watch(ctx); err != nil {
		return err
	}
	logger.Info("All holds are known", "holds", len(k.book.Page().All()))
	select {
	case <-k.leads:
	case <-ctx.Done():
		return nil
	}
	k.started = time.Now()
	if !k.book.Page().Empty() {
		// The scheduler before us may yet bind what it had placed: we would count its room twice.
		select {
		case <-time.After(k.args.TakeoverPause.Duration):
		case <-ctx.Done():
			return nil
		}
	}
	open()
	logger.Info("Holds are acknowledged from now on", "term", k.term)
	for _, hold := range k.book.Page().All() {
		k.queue.Add(hold.Name)
	}
	go k.refresh(ctx)
	context.AfterFunc(ctx, k.queue.ShutDown)
	for k.next(ctx) {
	}
	select {
	case other := <-k.deposed:
		return fmt.Errorf("another scheduler (%s) acknowledges our holds: only one may, so this one ends", other)
	default:
		return nil
	}
}

// waitForKinds waits until the API server knows our kinds. Until then there can be no holds, so pods may be scheduled; when it
// cannot be asked, or we are not allowed to, nothing is known, and they may not.
func (k *Keeper) waitForKinds(ctx context.Context, open func()) error {
	logger := klog.FromContext(ctx)
	said := ""
	for {
		_, err := k.discovery.ServerResourcesForGroupVersion(book.Holds.GroupVersion().String())
		if err == nil {
			_, err = k.client.Resource(book.Holds).List(ctx, metav1.ListOptions{Limit: 1})
			if err == nil {
				_, err = k.client.Resource(book.Migrations).List(ctx, metav1.ListOptions{Limit: 1})
			}
			if err == nil {
				return nil
			}
			if text := err.Error(); text != said {
				said = text
				logger.Error(err, "Holds cannot be read: no pod is scheduled until they can", "needed", "get, list and watch of capacityholds and vmmigrations in elbowroom.dev")
			}
		} else if apierrors.IsNotFound(err) && k.apiServerIsReady(ctx) {
			open()
			if said == "" {
				said = "no kinds"
				logger.Info("The kinds of elbowroom.dev are not installed: there are no holds, pods are scheduled without them")
			}
		}
		select {
		case <-time.After(lookForKinds):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apiServerIsReady tells whether the API server has read all definitions: one that has just started knows none.
func (k *Keeper) apiServerIsReady(ctx context.Context) bool {
	_, err := k.discovery.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err == nil
}

// watch enters all holds and migrations into the book, and every change of them from now on.
func (k *Keeper) watch(ctx context.Context) error {
	informers := dynamicinformer.NewDynamicSharedInformerFactory(k.client, 0)
	held, moved := informers.ForResource(book.Holds).Informer(), informers.ForResource(book.Migrations).Informer()
	k.objects = held.GetStore()
	var synced []cache.InformerSynced
	for _, part := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{held, cache.ResourceEventHandlerFuncs{AddFunc: k.holdSeen, UpdateFunc: func(_, now any) { k.holdSeen(now) }, DeleteFunc: k.holdGone}},
		{moved, cache.ResourceEventHandlerFuncs{AddFunc: k.migrationSeen, UpdateFunc: func(_, now any) { k.migrationSeen(now) }, DeleteFunc: k.migrationGone}},
		{k.pods(), cache.ResourceEventHandlerFuncs{AddFunc: k.podSeen, UpdateFunc: func(_, now any) { k.podSeen(now) }, DeleteFunc: k.podGone}},
	} {
		registration, err := part.informer.AddEventHandler(part.handler)
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	informers.Start(ctx.Done())
	// The scheduler itself waits for the pods.
	if !cache.WaitForCacheSync(ctx.Done(), synced[:2]...) {
		return errors.New("stopped before all holds were read")
	}
	return nil
}

func (k *Keeper) pods() cache.SharedIndexInformer {
	return k.plugins[0].Handle().SharedInformerFactory().Core().V1().Pods().Informer()
}

func (k *Keeper) holdSeen(object any) {
	hold, err := book.ToHold(object.(*unstructured.Unstructured))
	if err != nil {
		klog.Background().Error(err, "A hold cannot be read")
		return
	}
	before, news := k.book.PutHold(hold)
	if !news {
		return
	}
	if hold.Phase == holds.Pending {
		k.noticed.add(hold.UID)
	}
	if before != nil && before.UID == hold.UID && before.Term == k.term && hold.Term != k.term {
		// We have lost our lease and have not noticed, or somebody runs two of us. Nothing that we say is worth anything now.
		select {
		case k.deposed <- hold.Term:
			k.queue.ShutDown()
		default:
		}
		return
	}
	k.changed(before, hold)
}

func (k *Keeper) holdGone(object any) {
	if late, is := object.(cache.DeletedFinalStateUnknown); is {
		object = late.Obj
	}
	if item, is := object.(*unstructured.Unstructured); is {
		k.noticed.take(string(item.GetUID()))
		k.changed(k.book.DropHold(item.GetName(), string(item.GetUID())), nil)
	}
}

// changed lets everybody look again for whom a change of a hold may matter: the hold itself and others on its node, receivers
// that wait for each other, and pods that it has kept out and does not any more.
func (k *Keeper) changed(before, now *holds.Hold) {
	known := before
	if now != nil {
		known = now
		k.queue.Add(now.Name)
	}
	if known == nil {
		return
	}
	for _, other := range k.book.Page().OnNode(known.Node) {
		k.queue.Add(other.Name)
	}
	logger := klog.Background()
	freed := before != nil && before.Live() && (now == nil || !now.Live())
	for _, one := range k.plugins {
		one.Settle(logger)
		if freed {
			one.Wake(logger, known.Node)
		} else if now != nil && now.Promised() {
			one.Wake(logger, "")
		}
	}
	k.count()
}

func (k *Keeper) migrationSeen(object any) {
	item := object.(*unstructured.Unstructured)
	migration, err := book.ToMigration(item)
	switch {
	case err != nil:
		klog.Background().Error(err, "A migration cannot be read")
	case migration == nil:
		k.book.DropMigration(string(item.GetUID()))
	default:
		k.book.PutMigration(migration)
	}
}

func (k *Keeper) migrationGone(object any) {
	if late, is := object.(cache.DeletedFinalStateUnknown); is {
		object = late.Obj
	}
	if item, is := object.(*unstructured.Unstructured); is {
		k.book.DropMigration(string(item.GetUID()))
	}
}

// podSeen has the holds of a pod's node looked at. The scheduler's cache may hear of the same change a moment later.
func (k *Keeper) podSeen(object any) {
	pod, is := object.(*v1.Pod)
	if !is || pod.Spec.NodeName == "" {
		return
	}
	for _, hold := range k.book.Page().OnNode(pod.Spec.NodeName) {
		k.queue.Add(hold.Name)
		k.queue.AddAfter(hold.Name, afterPodChange)
	}
}

func (k *Keeper) podGone(object any) {
	if late, is := object.(cache.DeletedFinalStateUnknown); is {
		object = late.Obj
	}
	if pod, is := object.(*v1.Pod); is {
		for _, one := range k.plugins {
			one.Gone(pod)
		}
	}
	k.podSeen(object)
}

// refresh has all live holds looked at from time to time: for what nobody tells us.
func (k *Keeper) refresh(ctx context.Context) {
	ticker := time.NewTicker(k.args.RefreshInterval.Duration)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, hold := range k.book.Page().All() {
				if hold.Live() {
					k.queue.Add(hold.Name)
				}
			}
			// A receiver begins to wait a moment after it was told to: what came in between is found here.
			for _, one := range k.plugins {
				one.Settle(klog.FromContext(ctx))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keeper) next(ctx context.Context) bool {
	name, stop := k.queue.Get()
	if stop {
		return false
	}
	defer k.queue.Done(name)
	again, err := k.look(ctx, name)
	switch {
	case err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
		klog.FromContext(ctx).Error(err, "A hold could not be acknowledged, it will be tried again", "hold", name)
		k.queue.AddRateLimited(name)
	case again > 0:
		k.queue.AddAfter(name, again)
	default:
		k.queue.Forget(name)
	}
	return true
}

func (k *Keeper) count() {
	phases := map[holds.Phase]int{holds.Pending: 0, holds.Held: 0, holds.Claimed: 0, holds.Released: 0, holds.Refused: 0}
	for _, hold := range k.book.Page().All() {
		phases[hold.Phase]++
	}
	for phase, number := range phases {
		plugin.HoldsByPhase.WithLabelValues(string(phase)).Set(float64(number))
	}
}
