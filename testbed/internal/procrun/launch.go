package procrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"elbowroom.dev/testbed/internal/containerinit"
)

// startLimit is how long a container's first process may take to mount its volumes and start the command.
const startLimit = 30 * time.Second

type launched struct {
	process  *os.Process
	entrance *entrance
	streams  *containerStreams
}

// launch starts the container's first process and returns once the container's command runs, or says why it does not.
func (c *container) launch() (launched, error) {
	for _, dir := range []string{c.spec.Root.Upper, c.spec.Root.Work, c.spec.Root.Merged} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return launched{}, err
		}
	}
	streams, err := openStreams(c.logPath, c.config.Stdin, c.config.StdinOnce, c.config.Tty)
	if err != nil {
		return launched{}, err
	}
	process, spec, report, err := c.startInit(streams)
	streams.closeInner()
	if err != nil {
		streams.drain()
		return launched{}, err
	}
	defer report.Close()
	entrance, err := c.handOver(process, spec, report)
	if err != nil {
		_ = process.Kill() // it has ended already, unless it got stuck
		_, _ = process.Wait()
		streams.drain()
		return launched{}, err
	}
	return launched{process: process, entrance: entrance, streams: streams}, nil
}

// startInit starts the first process in the pod's network; it waits for its specification on the returned pipe.
func (c *container) startInit(streams *containerStreams) (process *os.Process, spec, report *os.File, err error) {
	specReader, spec, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer specReader.Close()
	report, reportWriter, err := os.Pipe()
	if err != nil {
		spec.Close()
		return nil, nil, nil, err
	}
	defer reportWriter.Close()
	err = c.sandbox.network.Do(func() (err error) {
		process, err = os.StartProcess("/proc/self/exe", []string{containerinit.Argv0}, &os.ProcAttr{
			// One thread of garbage collection is plenty for a process that only waits.
			Env:   []string{"GOMAXPROCS=1", "GOGC=20"},
			Files: []*os.File{streams.inner[0], streams.inner[1], streams.inner[2], specReader, reportWriter},
			Sys: &syscall.SysProcAttr{
				Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
				Setsid:     true,
			},
		})
		return err
	})
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("start the container's first process: %w", err), spec.Close(), report.Close())
	}
	return process, spec, report, nil
}

// handOver gives the waiting first process its limits and its specification, and listens to its report.
func (c *container) handOver(process *os.Process, spec, report *os.File) (*entrance, error) {
	defer spec.Close()
	if err := c.cgroup.add(process.Pid); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(spec).Encode(c.spec); err != nil {
		return nil, fmt.Errorf("hand over the specification: %w", err)
	}
	spec.Close()
	if err := report.SetReadDeadline(time.Now().Add(startLimit)); err != nil {
		return nil, err
	}
	complaint, err := io.ReadAll(report)
	if err != nil {
		return nil, fmt.Errorf("wait for the container's first process: %w", err)
	}
	if len(complaint) > 0 {
		return nil, errors.New(string(complaint))
	}
	// Opened only now: before, /proc/PID/root is still the machine's own. A quick command may be over by now; then there is
	// no way in, which is no failure.
	entrance, err := openEntrance(process.Pid)
	if err != nil {
		return &entranceClosed, nil
	}
	return entrance, nil
}
