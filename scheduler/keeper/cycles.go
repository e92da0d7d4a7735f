package keeper

import (
	"context"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// NextPod is what the scheduler calls when a cycle is over, to wait for the next pod.
type NextPod func(klog.Logger) (*framework.QueuedPodInfo, error)

// cycles knows when the scheduler is between two scheduling cycles: whatever it has placed is in its cache then.
type cycles struct {
	mu   sync.Mutex
	busy bool
	over chan struct{} // closed when the cycle that is under way is over
}

// wrap stands between the scheduler and its queue: it is called when a cycle is over, and begins the next one when it returns.
// No pod is let through before we are ready.
func (c *cycles) wrap(next NextPod, leads func(), ready <-chan struct{}, stop <-chan struct{}) NextPod {
	return func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		c.end()
		leads()
		pod, err := next(logger)
		select {
		case <-ready:
		case <-stop:
		}
		c.begin()
		return pod, err
	}
}

func (c *cycles) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.over = true, make(chan struct{})
}

func (c *cycles) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		c.busy = false
		close(c.over)
	}
}

// pass returns when every cycle is over that began before it was called.
func (c *cycles) pass(ctx context.Context) error {
	c.mu.Lock()
	busy, over := c.busy, c.over
	c.mu.Unlock()
	if !busy {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
