package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"elbowroom.dev/testbed/internal/cluster"
)

func newStatus(s *settings) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use: "status", Short: "Show what runs, and how much memory it takes", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			status, err := cluster.Send(command.Context(), s.dir, cluster.Order{Verb: cluster.VerbStatus})
			if err != nil {
				return err
			}
			switch output {
			case "json":
				encoder := json.NewEncoder(os.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(status)
			case "":
				return print(status)
			default:
				return fmt.Errorf("--output: %q is not json", output)
			}
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json for machines")
	return command
}

func print(status *cluster.Status) error {
	state := "starting"
	if status.Ready {
		state = "ready"
	}
	fmt.Printf("Kubernetes %s at %s, %s, pid %d, in %s\n\n", status.Kubernetes, status.Server, state, status.PID, status.Dir)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tAGE\tRESIDENT")
	for _, part := range status.Components {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", part.Name, part.State, age(part.Since), mebibytes(part.Resident))
	}
	fmt.Fprintln(table, "\t\t\t")
	fmt.Fprintln(table, "NODE\tSTATE\tAGE\tRESIDENT\tIP\tCPU\tMEMORY\tPODS\tCONTAINERS")
	for _, node := range status.Nodes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", node.Name, node.State, age(node.Since),
			mebibytes(node.Resident), node.IP, node.CPU, node.Memory, node.Pods, node.Containers)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Printf("\n%s resident in all, %s with shared pages counted once\n", mebibytes(status.Resident), mebibytes(status.Proportional))
	return nil
}

func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Round(time.Second).String()
}

func mebibytes(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
