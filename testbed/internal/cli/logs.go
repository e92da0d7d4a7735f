package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newLogs(s *settings) *cobra.Command {
	var follow bool
	var tail int
	command := &cobra.Command{
		Use: "logs COMPONENT", Short: "Print a component's log; also after the testbed has ended", Long: componentsHelp, Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			file, err := os.Open(filepath.Join(s.dir, "logs", filepath.Base(args[0])+".log"))
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("there is no log of %q; there are %s", args[0], strings.Join(logNames(s.dir), ", "))
			}
			if err != nil {
				return err
			}
			defer file.Close()
			if err := printTail(file, tail); err != nil || !follow {
				return err
			}
			return followFile(command.Context(), file)
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	command.Flags().IntVar(&tail, "tail", -1, "only the last lines; -1 prints all")
	return command
}

func logNames(dir string) []string {
	paths, _ := filepath.Glob(filepath.Join(dir, "logs", "*.log")) // the pattern is well-formed
	for index, path := range paths {
		paths[index] = strings.TrimSuffix(filepath.Base(path), ".log")
	}
	if len(paths) == 0 {
		return []string{"none in " + dir}
	}
	return paths
}

func printTail(file io.Reader, tail int) error {
	if tail < 0 {
		_, err := io.Copy(os.Stdout, file)
		return err
	}
	var kept []string
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			kept = append(kept, line)
			kept = kept[max(0, len(kept)-tail):]
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	_, err := io.WriteString(os.Stdout, strings.Join(kept, ""))
	return err
}

func followFile(ctx context.Context, file io.Reader) error {
	for ctx.Err() == nil {
		if _, err := io.Copy(os.Stdout, file); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}
