package procrun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"elbowroom.dev/testbed/internal/network"
)

// sandbox is a pod: the network and the name that its containers share.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	created time.Time
	dir     string
	network *network.Namespace // the node's own for a pod with hostNetwork
	pod     *network.Pod       // nil for a pod with hostNetwork

	mutex   sync.Mutex
	stopped bool
}

// RunPodSandbox makes a pod's surroundings.
func (r *Runtime) RunPodSandbox(_ context.Context, request *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.starts.RLock()
	defer r.starts.RUnlock()
	if !r.powered {
		return nil, errPowerOff
	}
	s := &sandbox{id: newID(), config: request.Config, created: time.Now()}
	s.dir = filepath.Join(r.Dir, s.id)
	if err := s.prepare(r.Network); err != nil {
		return nil, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sandboxes[s.id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

func (s *sandbox) prepare(node *network.Node) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if logs := s.config.LogDirectory; logs != "" {
		if err := os.MkdirAll(logs, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(s.resolvConf(), []byte(resolvConf(s.config.DnsConfig)), 0o644); err != nil {
		return err
	}
	if s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		s.network = node.Namespace
		return nil
	}
	pod, err := node.AddPod()
	if err != nil {
		return err
	}
	s.pod, s.network = pod, pod.Namespace
	return nil
}

func (s *sandbox) resolvConf() string { return filepath.Join(s.dir, "resolv.conf") }

func resolvConf(config *runtimeapi.DNSConfig) string {
	var text strings.Builder
	if len(config.GetSearches()) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(config.GetSearches(), " "))
	}
	for _, server := range config.GetServers() {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	if len(config.GetOptions()) > 0 {
		fmt.Fprintf(&text, "options %s\n", strings.Join(config.GetOptions(), " "))
	}
	return text.String()
}

func (s *sandbox) ready() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return !s.stopped
}

func (s *sandbox) stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.stopped && s.pod != nil {
		s.pod.Remove()
	}
	s.stopped = true
}

// StopPodSandbox ends what still runs in the pod and takes its network away.
func (r *Runtime) StopPodSandbox(ctx context.Context, request *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	s, containers := r.podOf(request.PodSandboxId)
	for _, c := range containers {
		c.stop(ctx, 0)
	}
	if s != nil {
		s.stop()
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox forgets a pod.
func (r *Runtime) RemovePodSandbox(ctx context.Context, request *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	if _, err := r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: request.PodSandboxId}); err != nil {
		return nil, err
	}
	s, containers := r.podOf(request.PodSandboxId)
	for _, c := range containers {
		if err := r.forget(c); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.mutex.Lock()
	delete(r.sandboxes, s.id)
	r.mutex.Unlock()
	return &runtimeapi.RemovePodSandboxResponse{}, os.RemoveAll(s.dir)
}

func (r *Runtime) podOf(id string) (*sandbox, []*container) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var containers []*container
	for _, c := range r.containers {
		if c.sandbox.id == id {
			containers = append(containers, c)
		}
	}
	return r.sandboxes[id], containers
}

// PodSandboxStatus tells a pod's state and address.
func (r *Runtime) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s, _ := r.podOf(request.PodSandboxId)
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %s is not on %s", request.PodSandboxId, r.Node)
	}
	answer := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
		Labels: s.config.Labels, Annotations: s.config.Annotations,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}
	if s.pod != nil {
		answer.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: s.pod.IP}
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: answer}, nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready() {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// ListPodSandbox lists the node's pods.
func (r *Runtime) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter := request.GetFilter()
	var items []*runtimeapi.PodSandbox
	for _, s := range r.sandboxes {
		state := s.state()
		if (filter.GetId() != "" && filter.GetId() != s.id) ||
			(filter.GetState() != nil && filter.GetState().State != state) || !matches(filter.GetLabelSelector(), s.config.Labels) {
			continue
		}
		items = append(items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: state, CreatedAt: s.created.UnixNano(),
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		})
	}
	return &runtimeapi.ListPodSandboxResponse{Items: items}, nil
}

// UpdatePodSandboxResources is news of a resize; the containers' own limits are what is enforced.
func (r *Runtime) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}
