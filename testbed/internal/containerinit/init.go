package containerinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"elbowroom.dev/testbed/internal/footprint"
)

func init() {
	if len(os.Args) > 0 && os.Args[0] == Argv0 {
		// Capabilities and no_new_privs belong to a thread: the command must be forked from the one that set them.
		runtime.LockOSThread()
		footprint.Release()
		os.Exit(run())
	}
}

func run() int {
	// They came in through exec, so nothing has marked them yet: the command must not inherit them.
	syscall.CloseOnExec(SpecFD)
	syscall.CloseOnExec(ReportFD)
	report := os.NewFile(ReportFD, "report")
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	command, err := start()
	if err != nil {
		fmt.Fprint(report, err)
		return 127
	}
	report.Close()
	return supervise(command, signals)
}

func start() (pid int, err error) {
	var spec Spec
	specFile := os.NewFile(SpecFD, "spec")
	if err := json.NewDecoder(specFile).Decode(&spec); err != nil {
		return 0, fmt.Errorf("read the container's specification: %w", err)
	}
	specFile.Close()
	if err := enterRoot(spec); err != nil {
		return 0, err
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return 0, fmt.Errorf("set the host name: %w", err)
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", fmt.Append(nil, spec.OOMScore), 0); err != nil && !errors.Is(err, os.ErrPermission) {
		return 0, fmt.Errorf("set the OOM score: %w", err)
	}
	if err := RestrictThread(spec); err != nil {
		return 0, err
	}
	return startCommand(spec)
}

// RestrictThread takes from the calling thread, and from what it forks later, the rights that the container must not have.
func RestrictThread(spec Spec) error {
	if !spec.Privileged {
		keep := map[uintptr]bool{}
		for _, capability := range spec.Capabilities {
			keep[capability] = true
		}
		for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
			if keep[capability] {
				continue
			}
			// EINVAL: a capability that this kernel does not know.
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && err != unix.EINVAL {
				return fmt.Errorf("drop capability %d: %w", capability, err)
			}
		}
	}
	if spec.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("forbid new privileges: %w", err)
		}
	}
	return nil
}

func startCommand(spec Spec) (int, error) {
	dir := spec.Dir
	if dir == "" {
		dir = "/"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("working directory %s: %w", dir, err)
	}
	if err := os.Chdir(dir); err != nil {
		return 0, fmt.Errorf("working directory: %w", err)
	}
	path, err := LookPath(spec.Args[0], spec.Env)
	if err != nil {
		return 0, err
	}
	process, err := os.StartProcess(path, spec.Args, &os.ProcAttr{
		Env:   spec.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Setctty:    spec.Terminal,
			Credential: &syscall.Credential{Uid: spec.User.UID, Gid: spec.User.GID, Groups: spec.User.Groups},
		},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	return process.Pid, nil
}

// LookPath finds a program as a shell with the given environment would.
func LookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, entry := range env {
		path, found := strings.CutPrefix(entry, "PATH=")
		if !found {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			candidate := filepath.Join(dir, name)
			if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return candidate, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

// supervise hands signals to the command and collects every child, its own and orphans, until the command has ended.
func supervise(command int, signals <-chan os.Signal) int {
	for received := range signals {
		number, isNumber := received.(syscall.Signal)
		switch {
		case !isNumber || number == syscall.SIGURG: // SIGURG is the Go runtime's own
		case number != syscall.SIGCHLD:
			_ = syscall.Kill(command, number) // it may have ended this very moment
		default:
			if code, ended := reap(command); ended {
				return code
			}
		}
	}
	return 0
}

func reap(command int) (code int, ended bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid == 0:
			return 0, false
		case pid == command && status.Signaled():
			return 128 + int(status.Signal()), true
		case pid == command && status.Exited():
			return status.ExitStatus(), true
		}
	}
}
