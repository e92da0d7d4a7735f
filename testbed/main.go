// Testbed is one binary with many faces: etcd, the Kubernetes control plane, the kubelet and kubectl, a container's first
// process, and the commands that put them together into a cluster on one machine.
package main

import (
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/etcd/server/v3/etcdmain"
	componentcli "k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	stock "k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric

	scheduler "elbowroom.dev/scheduler/app"
	"elbowroom.dev/testbed/internal/cli"
	"elbowroom.dev/testbed/internal/footprint"
	"elbowroom.dev/testbed/internal/parent"
)

// faces are the programs that keep their own command lines.
var faces = map[string]func() int{
	"kubectl":                 cli.RunKubectl,
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return componentcli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return componentcli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return componentcli.Run(scheduler.NewCommand()) },
	// Without our plugins: what clusters have that place pods by somebody else as well.
	"stock-scheduler": func() int { return componentcli.Run(stock.NewSchedulerCommand()) },
}

func init() {
	// The supervisor throws threads away that have been in other namespaces. The first thread cannot be thrown away: it stays
	// with the main goroutine, and out of their hands.
	if len(os.Args) > 1 && os.Args[1] == parent.SuperviseCommand {
		runtime.LockOSThread()
	}
}

func main() { os.Exit(run()) }

func run() int {
	footprint.Release()
	// By the name it was called by, such as a link bin/kubectl, or by the first argument.
	if face, found := faces[filepath.Base(os.Args[0])]; found {
		return face()
	}
	if len(os.Args) > 1 && os.Args[1] != "kubectl" {
		if face, found := faces[os.Args[1]]; found {
			os.Args = os.Args[1:]
			return face()
		}
	}
	return cli.Run()
}
