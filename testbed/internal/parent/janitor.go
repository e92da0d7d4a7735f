package parent

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// lifelineFD is the janitor's end of a pipe that nobody writes to: it ends when the parent is gone.
const lifelineFD = 3

func startJanitor() error {
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
		Env:   []string{stageVariable + "=janitor", cgroupsVariable + "=" + os.Getenv(cgroupsVariable)},
		Files: []*os.File{null, null, null, lifeline},
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
	_, _ = io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline"))
	paths := strings.Split(os.Getenv(cgroupsVariable), ":")
	// A group can be removed once the kernel has cleared its last process away, which takes a moment.
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if removeGroups(paths) {
			return 0
		}
	}
	return 1
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
