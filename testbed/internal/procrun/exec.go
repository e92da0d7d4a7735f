package procrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"elbowroom.dev/testbed/internal/containerinit"
)

// entrance leads into a running container: its namespaces and its root.
type entrance struct {
	mutex      sync.Mutex
	closed     bool
	namespaces []*os.File
	root       *os.File
}

// entranceClosed belongs to a container that ended before anybody could have gone in.
var entranceClosed = entrance{closed: true}

func openEntrance(pid int) (*entrance, error) {
	e := &entrance{}
	// The mount namespace comes last: behind it the thread no longer sees the machine's files.
	for _, kind := range []string{"net", "ipc", "uts", "pid", "mnt"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			e.close()
			return nil, fmt.Errorf("open the container's namespaces: %w", err)
		}
		e.namespaces = append(e.namespaces, file)
	}
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		e.close()
		return nil, fmt.Errorf("open the container's root: %w", err)
	}
	e.root = root
	return e, nil
}

func (e *entrance) close() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.closed = true
	for _, file := range e.namespaces {
		file.Close()
	}
	if e.root != nil {
		e.root.Close()
	}
}

// do runs f on a thread inside the container. The thread ends afterwards: there is no way back out.
func (e *entrance) do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- e.enterThen(f)
	}()
	return <-result
}

func (e *entrance) enterThen(f func() error) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.closed {
		return errors.New("the container has ended")
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the shared root: %w", err)
	}
	for _, file := range e.namespaces {
		if err := unix.Setns(int(file.Fd()), 0); err != nil {
			return fmt.Errorf("enter the container: %w", err)
		}
	}
	if err := unix.Fchdir(int(e.root.Fd())); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	return f()
}

// command is something to run inside a running container.
type command struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	tty            bool
	sizes          <-chan remotecommandserver.TerminalSize
}

// run runs a command inside the container and returns its exit code. When ctx ends first, the command is killed.
func (c *container) run(ctx context.Context, command command) (int, error) {
	if len(command.args) == 0 {
		return 0, status.Error(codes.InvalidArgument, "there is no command to run")
	}
	c.mutex.Lock()
	entrance, spec := c.entrance, c.spec
	running := c.stateLocked() == runtimeapi.ContainerState_CONTAINER_RUNNING
	c.mutex.Unlock()
	if !running {
		return 0, status.Errorf(codes.FailedPrecondition, "container %s is not running", c.config.GetMetadata().GetName())
	}
	var process *os.Process
	var streams execStreams
	err := entrance.do(func() (err error) {
		if streams, err = openExecStreams(command); err != nil {
			return err
		}
		process, err = startInside(spec, command, streams.inner)
		streams.closeInner()
		return err
	})
	if err != nil {
		streams.closeOuter()
		return 0, err
	}
	if err := c.cgroup.add(process.Pid); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it was quick
		_ = process.Kill()
	}
	return streams.serve(ctx, command, process)
}

func startInside(spec containerinit.Spec, command command, files [3]*os.File) (*os.Process, error) {
	if err := containerinit.RestrictThread(spec); err != nil {
		return nil, err
	}
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	path, err := containerinit.LookPath(command.args[0], spec.Env)
	if err != nil {
		return nil, err
	}
	return os.StartProcess(path, command.args, &os.ProcAttr{
		Dir: dir, Env: spec.Env, Files: files[:],
		Sys: &syscall.SysProcAttr{
			Setsid: true, Setctty: command.tty,
			Credential: &syscall.Credential{Uid: spec.User.UID, Gid: spec.User.GID, Groups: spec.User.Groups},
		},
	})
}

// execStreams connect a command in a container with its client.
type execStreams struct {
	inner    [3]*os.File
	stdin    *os.File // our sides; nil where there is none
	stdout   *os.File
	stderr   *os.File
	terminal bool
}

func openExecStreams(command command) (s execStreams, err error) {
	if command.tty {
		terminal, inner, err := openPTY()
		if err != nil {
			return s, err
		}
		s.inner, s.stdout, s.terminal = [3]*os.File{inner, inner, inner}, terminal, true
		if command.stdin != nil {
			s.stdin = terminal
		}
		return s, nil
	}
	if command.stdin != nil {
		s.inner[0], s.stdin, err = os.Pipe()
	} else {
		s.inner[0], err = os.Open(os.DevNull)
	}
	if err == nil {
		s.stdout, s.inner[1], err = os.Pipe()
	}
	if err == nil {
		s.stderr, s.inner[2], err = os.Pipe()
	}
	return s, err
}

func (s *execStreams) closeInner() {
	for _, file := range s.inner {
		if file != nil {
			file.Close()
		}
	}
}

func (s *execStreams) closeOuter() {
	for _, file := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if file != nil {
			file.Close()
		}
	}
}

func (s *execStreams) serve(ctx context.Context, command command, process *os.Process) (int, error) {
	defer s.closeOuter()
	if s.stdin != nil {
		go func() {
			_, _ = io.Copy(s.stdin, command.stdin) // ends with the client, or with closeOuter
			if s.terminal {
				_ = process.Signal(syscall.SIGHUP) // whoever sat at the terminal has gone
			} else {
				s.stdin.Close()
			}
		}()
	}
	var copies sync.WaitGroup
	for from, to := range map[*os.File]io.Writer{s.stdout: command.stdout, s.stderr: command.stderr} {
		if from != nil {
			if to == nil {
				to = io.Discard
			}
			copies.Go(func() {
				_, _ = io.Copy(to, from)
				from.Close() // if the client has gone, the command learns of it at its next word
			})
		}
	}
	over := make(chan struct{})
	defer close(over)
	if s.terminal && command.sizes != nil {
		go followSize(s.stdout, command.sizes, over)
	}
	go func() {
		select {
		case <-ctx.Done():
			_ = process.Kill()
		case <-over:
		}
	}()
	state, err := process.Wait()
	if err != nil {
		return 0, err
	}
	// Output that a child of the command left behind still counts, but a child that lives on must not hold the caller.
	finished := make(chan struct{})
	go func() { copies.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(time.Second):
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if waitStatus := state.Sys().(syscall.WaitStatus); waitStatus.Signaled() {
		return 128 + int(waitStatus.Signal()), nil
	}
	return state.ExitCode(), nil
}

// ExecSync runs a command for the kubelet: exec probes and lifecycle hooks.
func (r *Runtime) ExecSync(ctx context.Context, request *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	if request.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(request.Timeout)*time.Second)
		defer cancel()
	}
	var stdout, stderr cappedBuffer
	code, err := c.run(ctx, command{args: request.Cmd, stdout: &stdout, stderr: &stderr})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out after %d s", request.Cmd, request.Timeout)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.bytes(), Stderr: stderr.bytes(), ExitCode: int32(code)}, nil
}

// cappedBuffer keeps the first 16 MiB, as CRI asks, and swallows the rest.
type cappedBuffer struct {
	mutex sync.Mutex
	kept  []byte
}

func (b *cappedBuffer) Write(chunk []byte) (int, error) {
	const most = 16 << 20
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.kept = append(b.kept, chunk[:min(most-len(b.kept), len(chunk))]...)
	return len(chunk), nil
}

func (b *cappedBuffer) bytes() []byte {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return slices.Clone(b.kept)
}
