// Package kubelet runs the real kubelet as one process of the testbed. Three things differ from a kubelet on a machine
// of its own: it is told how large its node is, it keeps pod-level cgroup settings in files (the runtime enforces the
// containers' own), and it does not watch the machine's disks and memory.
package kubelet

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// Options are a node's, given on the command line by the supervisor.
type Options struct {
	Name, IP, Dir, Socket, Kubeconfig string
	CAFile, CertFile, KeyFile         string
	CPU, Memory                       string
	Pods                              int32
	LeaseSeconds                      int32
	BootID                            string
	DNS                               string
}

// NewCommand is `testbed kubelet`.
func NewCommand() *cobra.Command {
	var o Options
	command := &cobra.Command{
		Use: "kubelet", Hidden: true, Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return o.run(genericapiserver.SetupSignalContext()) },
	}
	flags := command.Flags()
	flags.StringVar(&o.Name, "name", "", "the node's name")
	flags.StringVar(&o.IP, "ip", "", "the node's address")
	flags.StringVar(&o.Dir, "dir", "", "where the kubelet keeps its files")
	flags.StringVar(&o.Socket, "socket", "", "where the container runtime listens")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.StringVar(&o.CAFile, "ca", "", "who signs clients' certificates")
	flags.StringVar(&o.CertFile, "cert", "", "the kubelet's serving certificate")
	flags.StringVar(&o.KeyFile, "key", "", "its key")
	flags.StringVar(&o.CPU, "cpu", "4", "the node's CPUs")
	flags.StringVar(&o.Memory, "memory", "8Gi", "the node's memory")
	flags.Int32Var(&o.Pods, "pods", 110, "how many pods it takes")
	flags.Int32Var(&o.LeaseSeconds, "lease-seconds", 20, "how long a sign of life is good for")
	flags.StringVar(&o.BootID, "boot-id", "", "changes when the node is switched off and on")
	flags.StringVar(&o.DNS, "dns", "", "the cluster's name server")
	return command
}

func (o Options) run(ctx context.Context) error {
	logs.InitLogs()
	defer logs.FlushLogs()
	server, err := o.server()
	if err != nil {
		return err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(server.FeatureGates); err != nil {
		return fmt.Errorf("feature gates: %w", err)
	}
	dependencies, err := kubeletapp.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	if dependencies.CAdvisorInterface, err = newMachine(o); err != nil {
		return err
	}
	dependencies.ContainerManager = newContainerManager(o.Dir)
	return kubeletapp.Run(ctx, server, dependencies, utilfeature.DefaultFeatureGate)
}

func (o Options) server() (*options.KubeletServer, error) {
	server, err := options.NewKubeletServer()
	if err != nil {
		return nil, err
	}
	// Static pods: a folder that is not there when the kubelet starts is looked for every 20 s only.
	if err := os.MkdirAll(o.Dir+"/manifests", 0o755); err != nil {
		return nil, err
	}
	server.HostnameOverride, server.NodeIP = o.Name, o.IP
	server.KubeConfig, server.RootDirectory, server.CertDirectory = o.Kubeconfig, o.Dir, o.Dir+"/pki"
	// The default is a folder of the machine outside the testbed's.
	server.VolumePluginDir = o.Dir + "/volume-plugins"
	// Two minutes of keeping dead containers would hide nothing from a test, but keep their files in memory.
	server.MinimumGCAge = metav1.Duration{Duration: time.Minute}
	o.configure(&server.KubeletConfiguration)
	return server, nil
}

func (o Options) configure(c *kubeletconfig.KubeletConfiguration) {
	c.ContainerRuntimeEndpoint, c.ImageServiceEndpoint = "unix://"+o.Socket, "unix://"+o.Socket
	c.Address, c.HealthzPort, c.ReadOnlyPort = o.IP, 0, 0
	c.TLSCertFile, c.TLSPrivateKeyFile = o.CertFile, o.KeyFile
	c.Authentication.Anonymous.Enabled = false
	c.Authentication.Webhook.Enabled = true
	c.Authentication.X509.ClientCAFile = o.CAFile
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	c.PodLogsDir, c.MaxPods = o.Dir+"/logs", o.Pods
	c.StaticPodPath = o.Dir + "/manifests"
	c.ResolverConfig = ""
	c.ClusterDomain = "cluster.local"
	if o.DNS != "" {
		c.ClusterDNS = []string{o.DNS}
	}
	c.NodeLeaseDurationSeconds = o.LeaseSeconds
	c.FailSwapOn = false
	c.FailCgroupV1 = false
	c.EnableControllerAttachDetach = false
	c.CgroupsPerQOS, c.EnforceNodeAllocatable = false, nil
	// Several nodes share one machine: its fill level says nothing about one of them.
	c.EvictionHard = map[string]string{}
	c.LocalStorageCapacityIsolation = true
	c.FeatureGates = map[string]bool{
		// cAdvisor is replaced: without this the kubelet finds no usage, and refuses to lower a memory limit.
		"PodAndContainerStatsFromCRI": true,
	}
}

func quantity(flag, text string) (resource.Quantity, error) {
	parsed, err := resource.ParseQuantity(text)
	if err != nil || parsed.Sign() <= 0 {
		return resource.Quantity{}, fmt.Errorf("--%s: %q is not a positive quantity such as 4 or 8Gi", flag, text)
	}
	return parsed, nil
}
