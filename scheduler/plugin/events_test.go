package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestOnlyThosePodsAreWokenThatCanProfit(t *testing.T) {
	p := &Plugin{waiting: newWaiting()}
	pod := func(name, node string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{NodeName: node}}
	}
	kept, receiver, other := pod("kept", ""), pod("receiver", ""), pod("other", "")
	p.waiting.add(kept, "n1")
	p.waiting.add(receiver, "")
	for _, c := range []struct {
		name    string
		waiting *v1.Pod
		left    string
		want    fwk.QueueingHint
	}{
		{"a pod leaves the node where a hold kept it out", kept, "n1", fwk.Queue},
		{"a pod leaves another node", kept, "n2", fwk.QueueSkip},
		{"a pod leaves that had no node", kept, "", fwk.QueueSkip},
		{"a receiver may profit from any node", receiver, "n2", fwk.Queue},
		{"nothing is noted about it", other, "n2", fwk.Queue},
	} {
		t.Run(c.name, func(t *testing.T) {
			if hint, err := p.afterPod(klog.Background(), c.waiting, pod("left", c.left), nil); err != nil || hint != c.want {
				t.Fatalf("%v, %v", hint, err)
			}
		})
	}
	if woken := p.waiting.takeFor("n1"); len(woken) != 2 {
		t.Fatalf("woken: %v", woken)
	}
}
