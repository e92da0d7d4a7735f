package parent

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The janitor's descriptors: its end of a pipe that nobody writes to, which ends when the parent is gone; the lock of the
// testbed's folder, so that no new testbed moves in before it is clean; and a handle of the supervisor.
const (
	lifelineFD   = 3
	lockFD       = 4
	supervisorFD = 5
)

func startJanitor(lock, supervisor *os.File) error {
	lifeline, kept, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lifeline.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	// A session of its own: what kills the parent's whole process group must leave the janitor.
	process, err := os.StartProcess("/proc/self/exe", []string{"testbed-janitor"}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{stageVariable + "=janitor", remainsVariable + "=" + os.Getenv(remainsVariable)},
		Files: []*os.File{null, null, null, lifeline, lock, supervisor},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	lifelineKept = kept
	return process.Release()
}

// lifelineKept stays referenced, and so open, until the parent ends.
var lifelineKept *os.File

func janitor() int {
	syscall.CloseOnExec(lockFD)
	var remains Remains
	if err := json.Unmarshal([]byte(os.Getenv(remainsVariable)), &remains); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline"))
	// The supervisor's end is that of all processes in its namespace, and so of all that could still write files. The parent's
	// death has killed it a moment ago.
	_, _ = unix.Poll([]unix.PollFd{{Fd: supervisorFD, Events: unix.POLLIN}}, 3000)
	// The kernel may take another moment to clear a group.
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if removeGroups(remains.Cgroups) && removeState(remains.State) {
			return 0
		}
	}
	return 1
}

func removeState(paths []string) (done bool) {
	done = true
	for _, path := range paths {
		done = os.RemoveAll(path) == nil && done
	}
	return done
}

func removeGroups(paths []string) (done bool) {
	done = true
	for _, path := range paths {
		children, _ := filepath.Glob(filepath.Join(path, "*", "cgroup.procs"))
		for _, child := range children {
			_ = os.Remove(filepath.Dir(child)) // tried again until the whole path is gone
		}
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			done = false
		}
	}
	return done
}
