package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"elbowroom.dev/testbed/internal/cluster"
)

func (s *settings) send(command *cobra.Command, order cluster.Order, done string) error {
	if _, err := cluster.Send(command.Context(), s.dir, order); err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", order.Name, done)
	return nil
}

func newNode(s *settings) *cobra.Command {
	node := &cobra.Command{Use: "node", Short: "Add a node, or switch one off and on"}
	var cpu, memory string
	add := &cobra.Command{
		Use: "add NAME", Short: "Add a node and wait until it is ready", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return s.send(command, cluster.Order{Verb: cluster.NodeAdd, Name: args[0], CPU: cpu, Memory: memory}, "added")
		},
	}
	add.Flags().StringVar(&cpu, "cpu", "", "its CPUs; as many as the first nodes have, if not given")
	add.Flags().StringVar(&memory, "memory", "", "its memory, likewise")
	node.AddCommand(add)
	for _, verb := range []struct{ verb, short, done string }{
		{cluster.NodeStop, "Shut a node down: its kubelet ends, its containers get SIGTERM and 10 s", "stopped"},
		{cluster.NodeKill, "Cut a node's power: its kubelet and containers are killed at once", "killed"},
		{cluster.NodeStart, "Switch a node on again and wait until it is ready", "started"},
		{cluster.NodeRemove, "Kill a node and take it out of the cluster", "removed"},
		{cluster.NodeUnplug, "Cut a node off from the network; its containers run on", "unplugged"},
		{cluster.NodePlug, "Connect a node again", "plugged in"},
	} {
		_, use, _ := strings.Cut(verb.verb, " ")
		node.AddCommand(&cobra.Command{
			Use: use + " NAME", Short: verb.short, Args: cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return s.send(command, cluster.Order{Verb: verb.verb, Name: args[0]}, verb.done)
			},
		})
	}
	return node
}

const componentsHelp = "COMPONENT is etcd, kube-apiserver, kube-controller-manager, kube-scheduler or a node's name, for its kubelet alone."

func newRestart(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "restart COMPONENT", Short: "End a component with SIGTERM if it runs, start it and wait until it is ready",
		Long: componentsHelp + " A node's containers run on.", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return s.send(command, cluster.Order{Verb: cluster.VerbRestart, Name: args[0]}, "restarted")
		},
	}
}

func newKill(s *settings) *cobra.Command {
	return &cobra.Command{
		Use: "kill COMPONENT", Short: "End a component with SIGKILL; it stays down until `testbed restart`",
		Long: componentsHelp + " A node's containers run on.", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return s.send(command, cluster.Order{Verb: cluster.VerbKill, Name: args[0]}, "killed")
		},
	}
}

func newImage(s *settings) *cobra.Command {
	image := &cobra.Command{Use: "image", Short: "Let an image name stand for a folder"}
	image.AddCommand(&cobra.Command{
		Use: "add NAME FOLDER", Short: "Containers of this image started from now on find the folder in front of their PATH",
		Long: "Containers of this image started from now on find the folder in front of their PATH.\n" +
			"An executable named entrypoint in it runs where a container has no command. A NAME without a tag stands for all tags.",
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			folder, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			return s.send(command, cluster.Order{Verb: cluster.VerbImage, Name: args[0], Folder: folder}, "stands for "+folder)
		},
	})
	return image
}
