package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"elbowroom.dev/scheduler/plugin"
	"elbowroom.dev/testbed/internal/network"
	"elbowroom.dev/testbed/internal/pki"
)

// The control plane's components, in the order of their start.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

var controlPlaneNames = []string{etcd, apiServer, controllerManager, scheduler}

func isControlPlane(name string) bool { return slices.Contains(controlPlaneNames, name) }

const apiServerURL = "https://" + network.APIServer + ":443"

func componentKubeconfig(name string) string {
	return filepath.Join(inside, "components", name+".kubeconfig")
}

func (s *Supervisor) newControlPlane() (map[string]*component, error) {
	if err := os.MkdirAll(filepath.Join(inside, "components"), 0o700); err != nil {
		return nil, err
	}
	c := s.credentials
	for name, pair := range map[string]pki.Pair{controllerManager: c.controllerManager, scheduler: c.scheduler} {
		if err := c.kubeconfig(componentKubeconfig(name), apiServerURL, pair); err != nil {
			return nil, err
		}
	}
	if err := writeSchedulerConfig(); err != nil {
		return nil, err
	}
	components := map[string]*component{}
	for name, part := range map[string]struct {
		arguments []string
		health    string
		authority *pki.Authority
		client    pki.Pair
	}{
		etcd:              {s.etcdArguments(), "https://127.0.0.1:2379/health", c.etcd, c.etcdClient},
		apiServer:         {s.apiServerArguments(), apiServerURL + "/readyz", c.cluster, c.admin},
		controllerManager: {s.controllerManagerArguments(), "https://127.0.0.1:10257/healthz", c.cluster, c.admin},
		scheduler:         {s.schedulerArguments(), "https://127.0.0.1:10259/readyz", c.cluster, c.admin},
	} {
		health, err := healthCheck(part.health, part.authority, part.client)
		if err != nil {
			return nil, err
		}
		arguments := slices.Concat([]string{name}, part.arguments, s.boot.Arguments[name])
		components[name] = &component{
			name: name, arguments: func() []string { return arguments }, ready: health, failed: s.fail,
		}
	}
	return components, nil
}

func (s *Supervisor) etcdArguments() []string {
	c := s.credentials
	return []string{
		"--name=testbed", "--data-dir=" + filepath.Join(inside, "etcd"),
		"--listen-client-urls=https://127.0.0.1:2379", "--advertise-client-urls=https://127.0.0.1:2379",
		"--listen-peer-urls=https://127.0.0.1:2380", "--initial-advertise-peer-urls=https://127.0.0.1:2380",
		"--initial-cluster=testbed=https://127.0.0.1:2380",
		"--cert-file=" + c.etcdServer.Cert, "--key-file=" + c.etcdServer.Key,
		"--trusted-ca-file=" + c.etcd.CertFile(), "--client-cert-auth",
		"--peer-cert-file=" + c.etcdServer.Cert, "--peer-key-file=" + c.etcdServer.Key,
		"--peer-trusted-ca-file=" + c.etcd.CertFile(), "--peer-client-cert-auth",
		// What was written survives a killed etcd all the same; only a crash of the whole machine could lose it.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func (s *Supervisor) apiServerArguments() []string {
	c := s.credentials
	return []string{
		"--bind-address=" + network.APIServer, "--advertise-address=" + network.APIServer, "--secure-port=443",
		"--tls-cert-file=" + c.apiServer.Cert, "--tls-private-key-file=" + c.apiServer.Key,
		"--etcd-servers=https://127.0.0.1:2379", "--etcd-cafile=" + c.etcd.CertFile(),
		"--etcd-certfile=" + c.etcdClient.Cert, "--etcd-keyfile=" + c.etcdClient.Key,
		"--client-ca-file=" + c.cluster.CertFile(), "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-certificate-authority=" + c.cluster.CertFile(), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.kubeletClient.Cert, "--kubelet-client-key=" + c.kubeletClient.Key,
		"--service-cluster-ip-range=" + network.ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.tokenPublicKey, "--service-account-signing-key-file=" + c.tokenKey,
		// Webhooks and aggregated APIs are called at their pods' addresses: there is no kube-proxy on the control plane.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=" + c.frontProxy.CertFile(), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.proxy.Cert, "--proxy-client-key-file=" + c.proxy.Key,
	}
}

// own are the arguments that controller manager and scheduler share. Each runs alone: an election would only end the
// process when etcd is away for a while, which is what fault tests do.
func (s *Supervisor) own(name string, pair pki.Pair) []string {
	kubeconfig := componentKubeconfig(name)
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + s.credentials.cluster.CertFile(),
		"--requestheader-client-ca-file=" + s.credentials.frontProxy.CertFile(),
		"--bind-address=127.0.0.1", "--tls-cert-file=" + pair.Cert, "--tls-private-key-file=" + pair.Key, "--leader-elect=false",
	}
}

func (s *Supervisor) controllerManagerArguments() []string {
	c := s.credentials
	return append(s.own(controllerManager, c.controllerManager),
		"--use-service-account-credentials", "--service-account-private-key-file="+c.tokenKey, "--root-ca-file="+c.cluster.CertFile(),
		"--cluster-signing-cert-file="+c.cluster.CertFile(), "--cluster-signing-key-file="+c.cluster.KeyFile(),
		"--cluster-cidr="+network.PodCIDR, "--service-cluster-ip-range="+network.ServiceCIDR, "--allocate-node-cidrs=false",
		// At the default rate it takes 5 s until every controller has its client, and with it the first service account.
		"--kube-api-qps=500", "--kube-api-burst=500",
		"--node-monitor-period=1s", "--node-monitor-grace-period="+s.boot.NodeGrace.String(),
	)
}

func (s *Supervisor) schedulerArguments() []string {
	return append(s.own(scheduler, s.credentials.scheduler), "--config="+schedulerConfig())
}

func schedulerConfig() string { return filepath.Join(inside, "components", scheduler+".yaml") }

// writeSchedulerConfig enables our plugins for every pod. A configuration file has to say where the API server is, too.
func writeSchedulerConfig() error {
	config := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": componentKubeconfig(scheduler), "qps": 500, "burst": 500},
		"profiles": []any{map[string]any{
			"schedulerName": "default-scheduler",
			"plugins": map[string]any{"multiPoint": map[string]any{
				"enabled":  []any{map[string]any{"name": plugin.Name, "weight": 10}, map[string]any{"name": plugin.PreemptionName}},
				"disabled": []any{map[string]any{"name": names.DefaultPreemption}},
			}},
		}},
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(schedulerConfig(), text, 0o600)
}

// healthCheck asks an address over TLS, with the server's certificate verified, whether all is well.
func healthCheck(url string, authority *pki.Authority, client pki.Pair) (func(context.Context) error, error) {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(authority.CertFile())
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + authority.CertFile())
	}
	certificate, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil {
		return nil, err
	}
	httpClient := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true, // a restarted server is a new one
	}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := httpClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, answer.Status)
		}
		return nil
	}, nil
}
