// Package perf runs Kubernetes' own scheduler benchmarks with our plugins in the scheduler.
package perf

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	_ "k8s.io/component-base/logs/json/register"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"elbowroom.dev/scheduler/book"
	"elbowroom.dev/scheduler/holds"
	"elbowroom.dev/scheduler/plugin"
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

// BenchmarkPerfScheduling runs what the file in PERF_CONFIG describes. With HOLDS every pod with the label `claimant` gets a hold
// as soon as it has a node.
func BenchmarkPerfScheduling(b *testing.B) {
	plugins := &plugin.Plugins{Book: book.New()}
	factory := plugins.Factory()
	watch := &stopwatch{}
	registry := frameworkruntime.Registry{
		stopwatchName:         watch.start,
		plugin.PreemptionName: plugins.PreemptionFactory(),
		plugin.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if os.Getenv("HOLDS") != "" {
				if err := holdForClaimants(handle, plugins.Book); err != nil {
					return nil, err
				}
			}
			return factory(ctx, args, handle)
		},
	}
	perf.RunBenchmarkPerfScheduling(b, os.Getenv("PERF_CONFIG"), "elbowroom", registry)
	if err := watch.write(os.Getenv("STOPWATCH")); err != nil {
		b.Fatal(err)
	}
}

const stopwatchName = "Stopwatch"

// stopwatch notes when the first pod with the label `measured` came, when the last of them was bound, and how many. It is in all
// variants. The benchmark's own figure counts by whole seconds, of which some workloads take three.
//
// It is also the gate at which the variants wait for each other: a pod with the label `signal` is bound only when the schedulers of
// all variants have come to it, and what is measured begins after it.
type stopwatch struct {
	mu          sync.Mutex
	first, last time.Time
	bound       int
}

var (
	_ fwk.PreBindPlugin  = &stopwatch{}
	_ fwk.PostBindPlugin = &stopwatch{}
)

func (w *stopwatch) start(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	_, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if object.(*v1.Pod).Labels["measured"] != "" {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.first.IsZero() {
					w.first = time.Now()
				}
			}
		},
	})
	return w, err
}

func (*stopwatch) Name() string { return stopwatchName }

func (*stopwatch) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if pod.Labels["signal"] == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind waits until as many files as there are variants (PEERS) are in the folder GATE.
func (*stopwatch) PreBind(ctx context.Context, _ fwk.CycleState, _ *v1.Pod, _ string) *fwk.Status {
	gate := os.Getenv("GATE")
	peers, err := strconv.Atoi(os.Getenv("PEERS"))
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("PEERS: %w", err))
	}
	if err := os.WriteFile(filepath.Join(gate, strconv.Itoa(os.Getpid())), nil, 0o600); err != nil {
		return fwk.AsStatus(err)
	}
	return fwk.AsStatus(wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 9*time.Minute, true, func(context.Context) (bool, error) {
		here, err := os.ReadDir(gate)
		return len(here) >= peers, err
	}))
}

func (w *stopwatch) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if pod.Labels["measured"] != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = time.Now()
		w.bound++
	}
}

// write notes the times in seconds since the epoch.
func (w *stopwatch) write(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	seconds := func(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
	text, err := json.Marshal(map[string]any{"first": seconds(w.first), "last": seconds(w.last), "bound": w.bound})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func holdForClaimants(handle fwk.Handle, known *book.Book) error {
	more := holds.Room{CPU: 100, Memory: 100 << 20}
	_, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, now any) {
			pod := now.(*v1.Pod)
			if pod.Labels["claimant"] == "" || pod.Spec.NodeName == "" || before.(*v1.Pod).Spec.NodeName != "" {
				return
			}
			list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			size := holds.Room{CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value()}
			known.PutHold(&holds.Hold{
				Name: string(pod.UID), Node: pod.Spec.NodeName, Phase: holds.Held, Target: size.Plus(more),
				Claimant: holds.Reference{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
			})
		},
	})
	return err
}
