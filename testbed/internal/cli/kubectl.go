package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// RunKubectl is kubectl itself, with the arguments of the process.
func RunKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints as kubectl does, and exits
	}
	return 0
}

func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl ...", Short: "kubectl of the same version, for the testbed in TESTBED_DIR or .testbed unless KUBECONFIG is set",
		DisableFlagParsing: true,
		Run: func(_ *cobra.Command, args []string) {
			if os.Getenv("KUBECONFIG") == "" {
				os.Setenv("KUBECONFIG", filepath.Join(defaultDir(), "kubeconfig"))
			}
			os.Args = append([]string{"kubectl"}, args...)
			os.Exit(RunKubectl())
		},
	}
}
