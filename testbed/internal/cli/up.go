package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"elbowroom.dev/testbed/internal/cluster"
	"elbowroom.dev/testbed/internal/parent"
	"elbowroom.dev/testbed/internal/procrun"
)

type upFlags struct {
	cluster.Boot
	images    []string
	arguments []string
	port      int
	detach    bool
}

func newUp(s *settings) *cobra.Command {
	var f upFlags
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster, and keep it until Ctrl-C, `testbed down` or the end of this process",
		Example: `  testbed up --nodes 3 --cpu 4 --memory 8Gi --dir /tmp/bed
  testbed up --detach --image example.com/runner=./bin`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			f.Dir = s.dir
			if f.detach {
				return detach(command.Context(), s.dir)
			}
			return f.up(command.Context())
		},
	}
	flags := command.Flags()
	flags.IntVar(&f.Nodes, "nodes", 3, "how many nodes")
	flags.StringVar(&f.CPU, "cpu", "4", "CPUs of a node; its pods' requests are held against them, the machine need not have them")
	flags.StringVar(&f.Memory, "memory", "8Gi", "memory of a node, likewise")
	flags.StringArrayVar(&f.images, "image", nil, "NAME=FOLDER: containers of this image find the folder in front of their PATH (repeatable)")
	flags.StringArrayVar(&f.arguments, "arg", nil, "COMPONENT=ARGUMENT: an extra argument, such as kube-scheduler=--v=4 (repeatable)")
	flags.DurationVar(&f.NodeGrace, "node-grace", 20*time.Second, "how long a node that is silent counts as alive")
	flags.IntVar(&f.port, "port", 0, "port on 127.0.0.1 for kubectl; 0 takes a free one")
	flags.BoolVar(&f.Detached, "detached", false, "set by --detach for the process in the background")
	_ = flags.MarkHidden("detached") // the flag exists
	flags.BoolVarP(&f.detach, "detach", "d", false, "return when the cluster is ready and let it run in the background")
	return command
}

func (f *upFlags) up(ctx context.Context) error {
	if err := f.parse(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces, mounts and network interfaces need root: run it with sudo")
	}
	control, err := listenControl(f.Dir)
	if err != nil {
		return err
	}
	lock, err := cluster.TakeDir(ctx, f.Dir)
	if err != nil {
		return err
	}
	door, err := f.listenDoor()
	if err != nil {
		return err
	}
	boot, err := json.Marshal(f.Boot)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	remains := parent.Remains{Cgroups: procrun.CgroupPaths(cluster.CgroupName(f.Dir)), State: cluster.State(f.Dir)}
	return parent.Become(string(boot), remains, parent.Files{Door: door, Control: control, Lock: lock})
}

func (f *upFlags) parse() error {
	f.Started, f.ParentPID = time.Now(), os.Getpid()
	f.Images, f.Arguments = map[string]string{}, map[string][]string{}
	for _, image := range f.images {
		name, folder, found := strings.Cut(image, "=")
		if !found {
			return fmt.Errorf("--image: %q is not NAME=FOLDER", image)
		}
		absolute, err := filepath.Abs(folder)
		if err != nil {
			return err
		}
		f.Images[name] = absolute
	}
	for _, argument := range f.arguments {
		name, text, found := strings.Cut(argument, "=")
		if !found || !strings.HasPrefix(text, "--") {
			return fmt.Errorf("--arg: %q is not COMPONENT=--ARGUMENT", argument)
		}
		f.Arguments[name] = append(f.Arguments[name], text)
	}
	return f.Validate()
}

func listenControl(dir string) (*os.File, error) {
	listener, err := net.Listen("unix", cluster.ControlAddress(dir))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--dir: a testbed is running in %s already", dir)
	}
	if err != nil {
		return nil, err
	}
	return listener.(*net.UnixListener).File()
}

func (f *upFlags) listenDoor() (*os.File, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", f.port))
	if err != nil {
		return nil, fmt.Errorf("--port: %w", err)
	}
	f.DoorPort = listener.Addr().(*net.TCPAddr).Port
	return listener.(*net.TCPListener).File()
}

// detach starts the same command again in the background and follows it until it is ready or has failed.
func detach(ctx context.Context, dir string) error {
	arguments := append(slices.Clone(os.Args[1:]), "--detach=false", "--detached")
	output, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	command := exec.Command("/proc/self/exe", arguments...)
	command.Stdout, command.Stderr = writer, writer
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	writer.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return follow(ctx, dir, command, lines)
}

func follow(ctx context.Context, dir string, command *exec.Cmd, lines <-chan string) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				_ = command.Wait()
				return fmt.Errorf("the testbed did not start (%s)", command.ProcessState)
			}
			fmt.Println(line)
		case <-ticker.C:
			status, err := cluster.Send(ctx, dir, cluster.Order{Verb: cluster.VerbStatus})
			if err == nil && status.Ready && status.PID == command.Process.Pid {
				return drain(lines, time.Second)
			}
		case <-ctx.Done():
			_ = command.Process.Signal(syscall.SIGTERM)
			return errors.New("interrupted")
		}
	}
}

// drain prints what has been said up to now.
func drain(lines <-chan string, most time.Duration) error {
	limit := time.After(most)
	for {
		select {
		case line, open := <-lines:
			if !open {
				return nil
			}
			fmt.Println(line)
			if strings.Contains(line, "testbed down") {
				return nil
			}
		case <-limit:
			return nil
		}
	}
}

// awaitEnd waits until a process is gone.
func awaitEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ready > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("process %d has not ended within 15 s", pid)
}
