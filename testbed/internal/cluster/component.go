package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"elbowroom.dev/testbed/internal/network"
)

const (
	startLimit = 60 * time.Second // for one component; a loaded machine needs a tenth of it
	stopLimit  = 10 * time.Second // then SIGTERM becomes SIGKILL
)

// component is one process of the cluster, such as etcd or a node's kubelet.
type component struct {
	name      string
	arguments func() []string
	network   *network.Namespace              // nil: the control plane's
	ready     func(ctx context.Context) error // nil error: it does its work
	failed    func(error)                     // called when it ends though nobody asked it to

	mutex   sync.Mutex
	process *componentProcess // nil while it is down
}

type componentProcess struct {
	*os.Process
	started  time.Time
	expected bool // its end is wanted; guarded by the component's mutex
	ended    chan struct{}
	state    *os.ProcessState
}

func logFile(name string) string { return filepath.Join(inside, "logs", name+".log") }

func (c *component) running() *componentProcess {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.process
}

// start starts the process and waits until it is ready.
func (c *component) start(ctx context.Context) error {
	process, err := c.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := attempt(ctx, c.ready)
		if err == nil {
			return nil
		}
		select {
		case <-process.ended:
			return c.story("ended", process.state.String(), time.Since(process.started))
		case <-ctx.Done():
			return c.story("is not ready", err.Error(), time.Since(process.started))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *component) launch() (*componentProcess, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.process != nil {
		return nil, errors.New("it is running already")
	}
	log, err := os.OpenFile(logFile(c.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	process := &componentProcess{started: time.Now(), ended: make(chan struct{})}
	begin := func() (err error) {
		process.Process, err = os.StartProcess("/proc/self/exe", append([]string{"testbed"}, c.arguments()...), &os.ProcAttr{
			Dir: "/", Env: componentEnvironment(), Files: []*os.File{nil, log, log}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		return err
	}
	if c.network != nil {
		err = c.network.Do(begin)
	} else {
		err = begin()
	}
	if err != nil {
		return nil, err
	}
	c.process = process
	go c.watch(process)
	return process, nil
}

// componentEnvironment is what a service of a machine has: not the variables of whoever typed `testbed up`.
func componentEnvironment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
}

func (c *component) watch(process *componentProcess) {
	state, err := process.Wait()
	if err != nil {
		panic(err) // only a programming error makes waiting for one's own child fail
	}
	c.mutex.Lock()
	process.state, c.process = state, nil
	expected := process.expected
	c.mutex.Unlock()
	close(process.ended)
	if !expected {
		c.failed(c.story("ended", state.String(), time.Since(process.started)))
	}
}

// story is one sentence on what went wrong, and the component's last words.
func (c *component) story(what, detail string, after time.Duration) error {
	return fmt.Errorf("%s %s %.1f s after its start (%s); its last log lines:\n%s",
		c.name, what, after.Seconds(), detail, lastLines(logFile(c.name), 12))
}

func lastLines(path string, count int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	lines = lines[max(0, len(lines)-count):]
	return "  " + strings.Join(lines, "\n  ")
}

// stop ends the process: kindly with SIGTERM, at once with SIGKILL. Stopping what is down does nothing.
func (c *component) stop(signal syscall.Signal) {
	c.mutex.Lock()
	process := c.process
	if process != nil {
		process.expected = true
		_ = process.Signal(signal) // it may end this very moment
	}
	c.mutex.Unlock()
	if process == nil {
		return
	}
	select {
	case <-process.ended:
	case <-time.After(stopLimit):
		_ = process.Kill()
		<-process.ended
	}
}
