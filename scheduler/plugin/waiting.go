package plugin

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"elbowroom.dev/scheduler/book"
)

// waiting are pods that holds have kept out, by the nodes where they did.
type waiting struct {
	mu   sync.Mutex
	pods map[types.UID]*kept
}

type kept struct {
	pod   *v1.Pod
	nodes map[string]bool
}

func newWaiting() *waiting { return &waiting{pods: map[types.UID]*kept{}} }

// add notes a pod and a node; a receiver, which every change may help, without one.
func (w *waiting) add(pod *v1.Pod, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.pods[pod.UID]
	if item == nil {
		item = &kept{nodes: map[string]bool{}}
		w.pods[pod.UID] = item
	}
	item.pod = pod
	item.nodes[node] = true
}

func (w *waiting) forget(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, pod.UID)
}

// takeFor returns those whom room on a node may help, and forgets them: they are noted again when it does not.
func (w *waiting) takeFor(node string) map[string]*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string]*v1.Pod{}
	for uid, item := range w.pods {
		if item.nodes[node] || item.nodes[""] {
			found[key(item.pod)] = item.pod
			delete(w.pods, uid)
		}
	}
	return found
}

// helped tells whether room on a node may help a pod: one of which nothing is noted may profit from anything.
func (w *waiting) helped(pod *v1.Pod, node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	item := w.pods[pod.UID]
	return item == nil || item.nodes[node] || item.nodes[""]
}

// Wake lets pods try again at once that a hold on a node has kept out; without a node receivers only.
func (p *Plugin) Wake(logger klog.Logger, node string) {
	if pods := p.waiting.takeFor(node); len(pods) > 0 {
		logger.V(4).Info("Pods may fit now", "node", node, "pods", len(pods))
		p.handle.Activate(logger, pods)
	}
}

// Gone forgets a pod that was deleted, and its place.
func (p *Plugin) Gone(pod *v1.Pod) {
	p.waiting.forget(pod)
	p.book.Unplace(book.Name{Namespace: pod.Namespace, Name: pod.Name})
}
