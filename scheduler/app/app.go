// Package app is the Kubernetes scheduler with our plugins in it.
package app

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	stock "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"elbowroom.dev/scheduler/book"
	"elbowroom.dev/scheduler/keeper"
	"elbowroom.dev/scheduler/plugin"
)

// NewCommand returns kube-scheduler's command, with its flags, and a keeper of holds beside it.
func NewCommand() *cobra.Command {
	opts := options.NewOptions()
	command := &cobra.Command{
		Use:   "kube-scheduler",
		Short: "The Kubernetes scheduler, which keeps room for whom it was promised to",
		Long: `The Kubernetes scheduler with two plugins more: ` + plugin.Name + ` keeps the room of CapacityHolds for their claimants, and
` + plugin.PreemptionName + ` takes the place of DefaultPreemption. Every profile in --config has to enable the first, and to disable DefaultPreemption.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return opts.ComponentGlobalsRegistry.Set() // feature gates, before anything asks for them
		},
		RunE: func(command *cobra.Command, _ []string) error { return run(command, opts) },
	}
	verflag.AddFlags(opts.Flags.FlagSet("global"))
	globalflag.AddGlobalFlags(opts.Flags.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range opts.Flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, *opts.Flags, columns)
	return command
}

func run(command *cobra.Command, opts *options.Options) error {
	verflag.PrintAndExitIfRequested()
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return err
	}
	cliflag.PrintFlags(command.Flags())
	ctx := server.SetupSignalContext()
	plugins := &plugin.Plugins{Book: book.New()}
	config, scheduler, err := stock.Setup(ctx, opts,
		stock.WithPlugin(plugin.Name, plugins.Factory()), stock.WithPlugin(plugin.PreemptionName, plugins.PreemptionFactory()))
	if err != nil {
		return err
	}
	for name, profile := range scheduler.Profiles {
		if err := checkProfile(name, profile.ListPlugins()); err != nil {
			return err
		}
	}
	kept, err := keeper.New(config.KubeConfig, scheduler, plugins, identity())
	if err != nil {
		return err
	}
	kept.Gate(ctx)
	go func() {
		if err := kept.Run(ctx); err != nil && ctx.Err() == nil {
			// As the stock scheduler ends when it has lost its lease: at once, so that it binds nobody any more.
			klog.FromContext(ctx).Error(err, "Holds cannot be kept any more, this scheduler ends")
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	}()
	if mutable, is := gates.(featuregate.MutableFeatureGate); is {
		mutable.AddMetrics()
	}
	opts.ComponentGlobalsRegistry.AddMetrics()
	return stock.Run(ctx, config, scheduler)
}

// identity names this scheduler among all that ever led: a process leads once at most.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s_%s", host, uuid.NewUUID())
}
