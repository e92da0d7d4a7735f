// Package parent is `testbed up` once its command line has been understood: a small process that starts the supervisor
// in namespaces of its own and waits for it. When this process dies, however it dies, the kernel kills the supervisor;
// the supervisor is the first process of its PID namespace, so the kernel then kills every process of the testbed, and
// with the last of them its mount and network namespaces are gone, too. Nothing has to clean up, so nothing can forget.
//
// Only files outlive that: the janitor, a process that waits for this one's end, removes the testbed's state, which nobody
// could go on with, and its cgroup folders. The logs stay.
//
// Like a container's first process, this package takes over before Kubernetes' packages are initialised, and so stays small.
package parent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"elbowroom.dev/testbed/internal/footprint"
)

// Environment variables by which a process learns what it is to become.
const (
	stageVariable     = "TESTBED_STAGE"
	BootVariable      = "TESTBED_BOOT"      // what to build, for the supervisor
	remainsVariable   = "TESTBED_REMAINS"   // what the janitor removes, as JSON
	listenersVariable = "TESTBED_LISTENERS" // descriptors of the door, of the control socket and of the folder's lock
)

// The descriptors that go from `testbed up` to the supervisor.
const (
	DoorFD    = 3 // listens on 127.0.0.1 for kubectl
	ControlFD = 4 // listens for `testbed status` and the like
)

// SuperviseCommand is the hidden subcommand that the supervisor runs as.
const SuperviseCommand = "supervise"

func init() {
	switch os.Getenv(stageVariable) {
	case "parent":
		// The kernel ties "kill my child when I die" to the thread that forked it: this one lives as long as the process.
		runtime.LockOSThread()
		footprint.Release()
		os.Exit(run())
	case "janitor":
		footprint.Release()
		os.Exit(janitor())
	}
}

// Files are what `testbed up` has opened for those that come after it.
type Files struct {
	Door, Control *os.File // the listeners
	Lock          *os.File // whoever has it open owns the testbed's folder
}

// Remains are what outlives the testbed's processes.
type Remains struct {
	Cgroups []string
	State   []string
}

// Become turns the calling process into the parent; it returns only if that fails.
func Become(boot string, remains Remains, files Files) error {
	for _, file := range []*os.File{files.Door, files.Control, files.Lock} {
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0); errno != 0 {
			return fmt.Errorf("keep a file open: %w", errno)
		}
	}
	list, err := json.Marshal(remains)
	if err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(environment(),
		stageVariable+"=parent", BootVariable+"="+boot, remainsVariable+"="+string(list),
		fmt.Sprintf("%s=%d,%d,%d", listenersVariable, files.Door.Fd(), files.Control.Fd(), files.Lock.Fd())))
}

func inheritedFiles() (Files, error) {
	var door, control, lock uintptr
	if _, err := fmt.Sscanf(os.Getenv(listenersVariable), "%d,%d,%d", &door, &control, &lock); err != nil {
		return Files{}, fmt.Errorf("%s: %w", listenersVariable, err)
	}
	for _, fd := range []uintptr{door, control, lock} {
		syscall.CloseOnExec(int(fd))
	}
	return Files{Door: os.NewFile(door, "door"), Control: os.NewFile(control, "control"), Lock: os.NewFile(lock, "lock")}, nil
}

func run() int {
	files, err := inheritedFiles()
	if err != nil {
		return complain(err)
	}
	supervisor, handle, err := startSupervisor(files)
	if err != nil {
		return complain(err)
	}
	if err := startJanitor(files.Lock, handle); err != nil {
		return complain(err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for range signals {
			_ = supervisor.Signal(syscall.SIGTERM) // it may have ended already
		}
	}()
	state, err := supervisor.Wait()
	if err != nil {
		return complain(err)
	}
	if state.Sys().(syscall.WaitStatus).Signaled() {
		return complain(fmt.Errorf("the supervisor was ended by a signal: %s", state))
	}
	return state.ExitCode()
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "testbed:", err)
	return 1
}

// startSupervisor also returns a handle by which anybody can wait for the supervisor's end.
func startSupervisor(files Files) (process *os.Process, handle *os.File, err error) {
	fd := -1
	process, err = os.StartProcess("/proc/self/exe", []string{os.Args[0], SuperviseCommand}, &os.ProcAttr{
		Env:   append(environment(), BootVariable+"="+os.Getenv(BootVariable)),
		Files: []*os.File{nil, os.Stdout, os.Stderr, files.Door, files.Control},
		Sys: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
			Pdeathsig:  syscall.SIGKILL,
			PidFD:      &fd,
			Setpgid:    true, // Ctrl-C comes to this process, which asks the supervisor to stop
		},
	})
	if errors.Is(err, syscall.EPERM) {
		return nil, nil, errors.New("namespaces cannot be made here: run testbed as root (it needs CAP_SYS_ADMIN)")
	}
	if err != nil {
		return nil, nil, err
	}
	if fd < 0 {
		return nil, nil, errors.New("this kernel has no handles for processes: Linux 5.4 or newer is needed")
	}
	return process, os.NewFile(uintptr(fd), "supervisor"), nil
}

// environment is the process's own without the testbed's variables: no child is to take itself for the parent.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "TESTBED_") })
}
