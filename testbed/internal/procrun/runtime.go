// Package procrun is the container runtime under the testbed's kubelets: a container is a process of this machine, in
// namespaces of its own, started by the supervisor. Each node has a Runtime that its kubelet reaches over the container
// runtime interface (CRI) on a unix socket, like containerd: a kubelet can be killed and its containers run on.
package procrun

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"elbowroom.dev/testbed/internal/network"
)

// Config is what one node's runtime is given.
type Config struct {
	Node    string
	Network *network.Node
	Images  *Images
	Cgroups *CgroupParent // nil where cgroups cannot be written: limits are then recorded only
	Socket  string        // where the kubelet finds the runtime
	Dir     string        // for what containers write; in memory
	Carry   []string      // mount points of the machine that containers see, too
	Hide    []string      // directories of the machine that containers do not see
}

// Runtime is one node's container runtime.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	Config

	mutex      sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
	starts     sync.RWMutex // held for writing while the node loses its power: nothing starts then
	powered    bool

	streams      streaming.Server
	streamServer *http.Server
	server       *grpc.Server
}

// New makes a node's runtime and serves it until Close.
func New(config Config) (*Runtime, error) {
	r := &Runtime{
		Config: config, sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		powered: true, server: grpc.NewServer(),
	}
	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := r.serveStreams(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(config.Socket), 0o755); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", config.Socket)
	if err != nil {
		return nil, fmt.Errorf("serve the runtime of %s: %w", config.Node, err)
	}
	runtimeapi.RegisterRuntimeServiceServer(r.server, r)
	runtimeapi.RegisterImageServiceServer(r.server, r)
	go func() { _ = r.server.Serve(listener) }() // ends with Close
	return r, nil
}

// serveStreams answers exec, attach and port-forward on the node's own loopback address, where only its kubelet is.
func (r *Runtime) serveStreams() error {
	var listener net.Listener
	err := r.Network.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		return fmt.Errorf("listen for streams on %s: %w", r.Node, err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	if r.streams, err = streaming.NewServer(config, streamRuntime{r}); err != nil {
		return err
	}
	r.streamServer = &http.Server{Handler: r.streams, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.streamServer.Serve(listener) }() // ends with Close
	return nil
}

// Close ends the runtime's service. Its containers have been ended before, by PowerOff.
func (r *Runtime) Close() {
	r.server.Stop()
	_ = r.streamServer.Close()
	// What cannot be removed now goes with the testbed: files are in memory, and cgroups are the janitor's.
	for _, c := range r.all() {
		_ = r.forget(c)
	}
	_ = os.RemoveAll(r.Dir)
}

// PowerOff ends every container of the node: with a grace as a shutdown does, without one as a power cut does. The runtime
// remembers them as dead.
func (r *Runtime) PowerOff(grace time.Duration) {
	r.starts.Lock()
	r.powered = false
	r.starts.Unlock()
	r.stopAll(grace)
}

// PowerOn lets containers start again.
func (r *Runtime) PowerOn() {
	r.starts.Lock()
	defer r.starts.Unlock()
	r.powered = true
}

func (r *Runtime) stopAll(grace time.Duration) {
	r.mutex.Lock()
	sandboxes := make([]*sandbox, 0, len(r.sandboxes))
	for _, s := range r.sandboxes {
		sandboxes = append(sandboxes, s)
	}
	r.mutex.Unlock()
	var group sync.WaitGroup
	for _, c := range r.all() {
		group.Go(func() { c.stop(context.Background(), grace) })
	}
	group.Wait()
	for _, s := range sandboxes {
		s.stop()
	}
}

func (r *Runtime) all() []*container {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Collect(maps.Values(r.containers))
}

// Counts tells how many pods and running containers the node has.
func (r *Runtime) Counts() (pods, containers int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, s := range r.sandboxes {
		if s.ready() {
			pods++
		}
	}
	for _, c := range r.containers {
		if c.state() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			containers++
		}
	}
	return pods, containers
}

// Version names the runtime.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "process", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1"}, nil
}

// Status says that runtime and network are ready: without them the process would not be here.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: true},
		}},
		Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: false},
	}, nil
}

// RuntimeConfig names the cgroup driver; the kubelet asks at its start.
func (r *Runtime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig is the kubelet's word on pod addresses; the testbed's network has settled them already.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

var errPowerOff = errors.New("the node is powered off")

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
