// Package cli is the testbed's command line.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"elbowroom.dev/testbed/internal/cluster"
	"elbowroom.dev/testbed/internal/kubelet"
	"elbowroom.dev/testbed/internal/parent"
)

// settings are what all commands share.
type settings struct{ dir string }

// Run runs the command line and returns the exit code.
func Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use:   "testbed",
		Short: "A real Kubernetes on one machine: etcd, API server, controllers, scheduler and nodes that run pods as processes",
		Long: `A real Kubernetes on one machine, for tests and demos.

Control plane and kubelets are Kubernetes' own code. Only the container runtime is the testbed's: a container is a process
of this machine, in namespaces of its own. Everything lives in namespaces that go away with ` + "`testbed up`" + `.`,
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&s.dir, "dir", defaultDir(), "the testbed's folder; TESTBED_DIR sets another default")
	root.PersistentPreRunE = func(command *cobra.Command, _ []string) error { return s.resolveDir() }
	root.AddCommand(
		newUp(s), newDown(s), newStatus(s), newNode(s), newRestart(s), newKill(s), newLogs(s), newImage(s), newKubectl(),
		kubelet.NewCommand(), newSupervise(),
	)
	return root
}

func defaultDir() string {
	if dir := os.Getenv("TESTBED_DIR"); dir != "" {
		return dir
	}
	return ".testbed"
}

// resolveDir makes the folder's path the same however it is written: it is what a testbed is known by.
func (s *settings) resolveDir() error {
	absolute, err := filepath.Abs(s.dir)
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
		absolute = resolved
	} else if parentDir, err := filepath.EvalSymlinks(filepath.Dir(absolute)); err == nil {
		absolute = filepath.Join(parentDir, filepath.Base(absolute))
	}
	s.dir = absolute
	return nil
}

func newSupervise() *cobra.Command {
	return &cobra.Command{
		Use: parent.SuperviseCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return cluster.Run() },
	}
}

func newDown(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the testbed and remove its state; the logs stay", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			status, err := cluster.Send(command.Context(), s.dir, cluster.Order{Verb: cluster.VerbDown})
			if errors.Is(err, cluster.ErrNotRunning) {
				fmt.Println("No testbed is running in", s.dir)
				return cluster.CleanDir(command.Context(), s.dir)
			}
			if err != nil {
				return err
			}
			if err := awaitEnd(command.Context(), status.PID); err != nil {
				return err
			}
			fmt.Println("Stopped the testbed in", s.dir)
			return cluster.CleanDir(command.Context(), s.dir)
		},
	}
}
