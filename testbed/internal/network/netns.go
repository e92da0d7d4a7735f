package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as it is open or a process is in it.
type Namespace struct {
	mutex sync.RWMutex // held for reading while the descriptor is in use: a closed one may be somebody else's a moment later
	file  *os.File     // nil when closed
}

var errClosed = errors.New("the network namespace is gone")

func newNamespace() (*Namespace, error) {
	var file *os.File
	err := onDisposableThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		var err error
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Namespace{file: file}, nil
}

// Close gives the namespace up; the kernel removes its interfaces once no process is in it.
func (n *Namespace) Close() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.file != nil {
		n.file.Close()
		n.file = nil
	}
}

// use calls f with the namespace's descriptor, which stays valid meanwhile.
func (n *Namespace) use(f func(fd int) error) error {
	n.mutex.RLock()
	defer n.mutex.RUnlock()
	if n.file == nil {
		return errClosed
	}
	return f(int(n.file.Fd()))
}

// Do runs f on a thread inside the namespace. Sockets that f opens and processes that it starts stay there.
func (n *Namespace) Do(f func() error) error {
	return onDisposableThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the calling thread into the namespace. Only for threads that are thrown away afterwards.
func (n *Namespace) enter() error {
	return n.use(func(fd int) error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return nil
	})
}

// onDisposableThread runs f on a thread of its own. The thread ends with f because its goroutine never unlocks it, so
// whatever f did to the thread's namespaces cannot leak into other goroutines.
func onDisposableThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- f()
	}()
	return <-result
}
