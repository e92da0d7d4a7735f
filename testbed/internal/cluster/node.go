package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"

	"elbowroom.dev/testbed/internal/network"
	"elbowroom.dev/testbed/internal/pki"
	"elbowroom.dev/testbed/internal/procrun"
)

// shutdownGrace is what containers get when their node is stopped, not killed.
const shutdownGrace = 10 * time.Second

// node is one machine of the cluster: a network, a container runtime and a kubelet.
type node struct {
	place             int
	name, cpu, memory string
	network           *network.Node
	runtime           *procrun.Runtime
	kubelet           *component
	bootID            string
	on                atomic.Bool
	unplugged         atomic.Bool
}

// addNode builds a node that is switched off. Orders come one at a time, so nobody else builds one meanwhile.
func (s *Supervisor) addNode(name, cpu, memory string) (*node, error) {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("node name %q: %s", name, problems[0])
	}
	if isControlPlane(name) {
		return nil, fmt.Errorf("node name %q: that is a component of the control plane", name)
	}
	if _, err := s.node(name); err == nil {
		return nil, fmt.Errorf("there is a node %s already", name)
	}
	if err := ValidateSize(cpu, memory); err != nil {
		return nil, err
	}
	place := s.freePlace()
	wire, err := s.fabric.AddNode(place)
	if err != nil {
		return nil, err
	}
	n := &node{place: place, name: name, cpu: cpu, memory: memory, network: wire}
	if err := s.furnish(n); err != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.nodes = append(s.nodes, n)
	return n, nil
}

// freePlace is the lowest place in the network that no node has.
func (s *Supervisor) freePlace() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for place := 1; ; place++ {
		if !slices.ContainsFunc(s.nodes, func(n *node) bool { return n.place == place }) {
			return place
		}
	}
}

func (s *Supervisor) furnish(n *node) error {
	dir, socket := filepath.Join(inside, "nodes", n.name), filepath.Join(socketsDir, n.name+".sock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pair, err := s.credentials.cluster.Issue(pki.Subject{
		File: "kubelet-" + n.name, Name: "system:node:" + n.name, Group: "system:nodes", Hosts: []string{n.name, n.network.IP},
	})
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := s.credentials.kubeconfig(kubeconfig, apiServerURL, pair); err != nil {
		return err
	}
	n.runtime, err = procrun.New(procrun.Config{
		Node: n.name, Network: n.network, Images: s.images, Cgroups: s.cgroups, Socket: socket,
		Dir: filepath.Join(containersDir, n.name), Carry: s.carry, Hide: []string{"/run", s.boot.Dir},
	})
	if err != nil {
		return err
	}
	health, err := healthCheck("https://"+n.network.IP+":10250/healthz", s.credentials.cluster, s.credentials.admin)
	if err != nil {
		return err
	}
	n.kubelet = &component{
		name: n.name, network: n.network.Namespace, failed: s.fail,
		arguments: func() []string {
			return []string{
				"kubelet", "--name=" + n.name, "--ip=" + n.network.IP, "--dir=" + filepath.Join(dir, "kubelet"), "--socket=" + socket,
				"--kubeconfig=" + kubeconfig, "--ca=" + s.credentials.cluster.CertFile(), "--cert=" + pair.Cert, "--key=" + pair.Key,
				"--cpu=" + n.cpu, "--memory=" + n.memory, "--boot-id=" + n.bootID, "--dns=" + network.DNS,
				fmt.Sprintf("--lease-seconds=%d", int(s.boot.NodeGrace.Seconds())),
			}
		},
		ready: func(ctx context.Context) error {
			if err := health(ctx); err != nil {
				return err
			}
			return s.nodeReady(ctx, n.name)
		},
	}
	return nil
}

func (s *Supervisor) nodeReady(ctx context.Context, name string) error {
	object, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == v1.NodeReady && condition.Status != v1.ConditionTrue {
			return fmt.Errorf("node %s is not ready: %s", name, condition.Message)
		}
	}
	for _, taint := range object.Spec.Taints {
		if taint.Key == v1.TaintNodeNotReady || taint.Key == v1.TaintNodeUnreachable {
			return fmt.Errorf("node %s still has the taint %s", name, taint.Key)
		}
	}
	return nil
}

var errOff, errOn = errors.New("it is switched off"), errors.New("it is switched on")

func (s *Supervisor) switchOn(ctx context.Context, n *node) error {
	if !n.on.CompareAndSwap(false, true) {
		return fmt.Errorf("node %s: %w", n.name, errOn)
	}
	n.bootID = string(uuid.NewUUID())
	n.runtime.PowerOn()
	return n.kubelet.start(ctx)
}

// stopNode shuts a node down as an administrator would: the kubelet goes, then the containers end in peace.
func (s *Supervisor) stopNode(n *node) error {
	return s.switchOff(n, syscall.SIGTERM, shutdownGrace)
}

// killNode is a power cut: the kubelet dies first, so that it cannot report what happens to its containers.
func (s *Supervisor) killNode(n *node) error {
	return s.switchOff(n, syscall.SIGKILL, 0)
}

func (s *Supervisor) switchOff(n *node, signal syscall.Signal, grace time.Duration) error {
	if !n.on.CompareAndSwap(true, false) {
		return fmt.Errorf("node %s: %w", n.name, errOff)
	}
	n.kubelet.stop(signal)
	n.runtime.PowerOff(grace)
	// What a node keeps in memory, such as secrets, is gone when it is switched off.
	return unmountBelow(filepath.Join(inside, "nodes", n.name))
}

// removeNode takes a node out of the cluster for good; pods that were on it are collected by the controllers.
func (s *Supervisor) removeNode(ctx context.Context, n *node) error {
	if n.on.Load() {
		if err := s.killNode(n); err != nil {
			return err
		}
	}
	if err := s.client.CoreV1().Nodes().Delete(ctx, n.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", n.name, err)
	}
	s.mutex.Lock()
	s.nodes = slices.DeleteFunc(s.nodes, func(other *node) bool { return other == n })
	s.mutex.Unlock()
	n.runtime.Close()
	n.network.Close()
	// A node that is added under this name later is a new one.
	return os.RemoveAll(filepath.Join(inside, "nodes", n.name))
}

func (s *Supervisor) node(name string) (*node, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, n := range s.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("there is no node %q", name)
}
