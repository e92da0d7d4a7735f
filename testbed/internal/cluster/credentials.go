package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"elbowroom.dev/testbed/internal/network"
	"elbowroom.dev/testbed/internal/pki"
)

// credentials are the cluster's authorities, and the certificates of its control plane.
type credentials struct {
	cluster, etcd, frontProxy *pki.Authority

	etcdServer, etcdClient              pki.Pair
	apiServer, kubeletClient, proxy     pki.Pair
	controllerManager, scheduler, admin pki.Pair
	tokenKey, tokenPublicKey            string
}

var pkiDir = filepath.Join(inside, "pki")

func newCredentials() (*credentials, error) {
	c := &credentials{}
	var err error
	for name, authority := range map[string]**pki.Authority{"ca": &c.cluster, "etcd-ca": &c.etcd, "front-proxy-ca": &c.frontProxy} {
		if *authority, err = pki.NewAuthority(pkiDir, name); err != nil {
			return nil, err
		}
	}
	local := []string{"localhost", "127.0.0.1"}
	for _, order := range []struct {
		pair    *pki.Pair
		by      *pki.Authority
		subject pki.Subject
	}{
		{&c.etcdServer, c.etcd, pki.Subject{File: "etcd", Name: "etcd", Hosts: local}},
		{&c.etcdClient, c.etcd, pki.Subject{File: "apiserver-etcd-client", Name: "kube-apiserver"}},
		{&c.apiServer, c.cluster, pki.Subject{File: "apiserver", Name: "kube-apiserver", Hosts: append([]string{
			network.APIServer, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}, local...)}},
		{&c.kubeletClient, c.cluster, pki.Subject{File: "apiserver-kubelet-client", Name: "kube-apiserver-kubelet-client", Group: "system:masters"}},
		{&c.proxy, c.frontProxy, pki.Subject{File: "front-proxy-client", Name: "front-proxy-client"}},
		{&c.controllerManager, c.cluster, pki.Subject{File: "controller-manager", Name: "system:kube-controller-manager", Hosts: local}},
		{&c.scheduler, c.cluster, pki.Subject{File: "scheduler", Name: "system:kube-scheduler", Hosts: local}},
		{&c.admin, c.cluster, pki.Subject{File: "admin", Name: "kubernetes-admin", Group: "system:masters"}},
	} {
		if *order.pair, err = order.by.Issue(order.subject); err != nil {
			return nil, err
		}
	}
	c.tokenKey, c.tokenPublicKey, err = pki.NewKey(pkiDir, "service-account")
	return c, err
}

// kubeconfig writes how a holder of the pair reaches the API server. Everything is in the one file, so that it can be moved.
func (c *credentials) kubeconfig(path, server string, pair pki.Pair) error {
	ca, err := os.ReadFile(c.cluster.CertFile())
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(pair.Cert)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(pair.Key)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["testbed"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["testbed"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["testbed"] = &clientcmdapi.Context{Cluster: "testbed", AuthInfo: "testbed"}
	config.CurrentContext = "testbed"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
