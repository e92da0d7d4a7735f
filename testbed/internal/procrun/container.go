package procrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"elbowroom.dev/testbed/internal/containerinit"
)

// container is one container: first only a description, then a process, at last an exit code.
type container struct {
	id      string
	config  *runtimeapi.ContainerConfig
	sandbox *sandbox
	image   string
	dir     string
	logPath string
	created time.Time
	cgroup  *cgroup // nil where cgroups cannot be written

	launched chan struct{} // closed when the attempt to start it is over
	ended    chan struct{} // closed when the process is gone and its output is in the log

	mutex     sync.Mutex
	resources *runtimeapi.LinuxContainerResources
	spec      containerinit.Spec
	claimed   bool        // it is being started, or never will be
	process   *os.Process // nil before the start
	entrance  *entrance
	streams   *containerStreams
	started   time.Time
	finished  time.Time
	exitCode  int32
	reason    string
	message   string
}

// CreateContainer takes a container's description in.
func (r *Runtime) CreateContainer(_ context.Context, request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	s, _ := r.podOf(request.PodSandboxId)
	if s == nil || !s.ready() {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %s is not ready on %s", request.PodSandboxId, r.Node)
	}
	c := &container{
		id: newID(), config: request.Config, sandbox: s, image: imageName(request.Config.GetImage()),
		created: time.Now(), launched: make(chan struct{}), ended: make(chan struct{}), resources: request.Config.GetLinux().GetResources(),
		logPath: filepath.Join(request.SandboxConfig.GetLogDirectory(), request.Config.GetLogPath()),
	}
	c.dir = filepath.Join(r.Dir, s.id, c.id)
	var err error
	if c.spec, err = r.specFor(c); err != nil {
		return nil, err
	}
	if c.cgroup, err = r.Cgroups.child(c.id); err != nil {
		return nil, err
	}
	if err := c.cgroup.apply(c.resources); err != nil {
		return nil, fmt.Errorf("container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.containers[c.id] = c
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer starts the container's process.
func (r *Runtime) StartContainer(_ context.Context, request *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	r.starts.RLock()
	defer r.starts.RUnlock()
	if !r.powered {
		return nil, errPowerOff
	}
	if !c.sandbox.ready() {
		return nil, status.Errorf(codes.FailedPrecondition, "pod sandbox %s has been stopped", c.sandbox.id)
	}
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("start container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (c *container) start() error {
	if !c.claim() {
		return errors.New("it was started or stopped before")
	}
	defer close(c.launched)
	launched, err := c.launch() // without the lock: the kubelet goes on asking for the container's state meanwhile
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err != nil {
		// As containerd has it: the container is over, with a code and a reason that the kubelet shows.
		c.started, c.finished = time.Unix(0, 0), time.Now()
		c.exitCode, c.reason, c.message = 128, "StartError", err.Error()
		close(c.ended)
		return err
	}
	c.process, c.entrance, c.streams, c.started = launched.process, launched.entrance, launched.streams, time.Now()
	go c.awaitEnd()
	return nil
}

// claim tells the first caller, who starts the container or makes sure that nobody does, that it is the first.
func (c *container) claim() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	first := !c.claimed
	c.claimed = true
	return first
}

func (c *container) awaitEnd() {
	state, err := c.process.Wait()
	c.streams.drain()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.finished = time.Now()
	c.exitCode, c.reason = 0, "Completed"
	switch {
	case err != nil:
		c.exitCode, c.reason, c.message = 255, "Unknown", err.Error()
	case state.Sys().(syscall.WaitStatus).Signaled():
		c.exitCode = 128 + int32(state.Sys().(syscall.WaitStatus).Signal())
	default:
		c.exitCode = int32(state.ExitCode())
	}
	if c.exitCode != 0 && c.reason == "Completed" {
		c.reason = "Error"
	}
	if c.exitCode == 128+int32(syscall.SIGKILL) && c.cgroup.ranOutOfMemory() {
		c.reason = "OOMKilled"
	}
	c.entrance.close()
	close(c.ended)
}

// stop asks the process to end, and ends it after the grace. It returns when the process is gone.
func (c *container) stop(ctx context.Context, grace time.Duration) {
	if c.claim() {
		return // it was never started, and now never will be
	}
	select {
	case <-c.launched: // a start that is under way has a limit of its own
	case <-c.ended:
	case <-ctx.Done():
		return
	}
	c.mutex.Lock()
	process := c.process
	c.mutex.Unlock()
	if process == nil {
		return
	}
	if grace > 0 {
		_ = process.Signal(c.stopSignal()) // it may be gone already
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.ended:
			return
		case <-timer.C:
		case <-ctx.Done():
			return // the kubelet has lost patience and will ask again
		}
	}
	_ = process.Kill()
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
}

func (c *container) stopSignal() syscall.Signal {
	if wanted := c.config.GetStopSignal(); wanted != runtimeapi.Signal_RUNTIME_DEFAULT {
		if number := unix.SignalNum(wanted.String()); number != 0 {
			return number
		}
	}
	return syscall.SIGTERM
}

// StopContainer ends the container's process within the grace that the kubelet gives.
func (r *Runtime) StopContainer(ctx context.Context, request *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return &runtimeapi.StopContainerResponse{}, nil // CRI: stopping what is not there succeeds
	}
	c.stop(ctx, time.Duration(request.Timeout)*time.Second)
	return &runtimeapi.StopContainerResponse{}, ctx.Err()
}

// RemoveContainer forgets a container, and ends it first if need be.
func (r *Runtime) RemoveContainer(ctx context.Context, request *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if c, err := r.container(request.ContainerId); err == nil {
		c.stop(ctx, 0)
		if err := r.forget(c); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *Runtime) forget(c *container) error {
	r.mutex.Lock()
	delete(r.containers, c.id)
	r.mutex.Unlock()
	return errors.Join(c.cgroup.remove(), os.RemoveAll(c.dir))
}

func (r *Runtime) container(id string) (*container, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %s is not on %s", id, r.Node)
}

func (c *container) state() runtimeapi.ContainerState {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.stateLocked()
}

func (c *container) stateLocked() runtimeapi.ContainerState {
	switch {
	case !c.finished.IsZero():
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case c.process != nil:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	}
}

// ListContainers lists the node's containers.
func (r *Runtime) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter := request.GetFilter()
	var items []*runtimeapi.Container
	for _, c := range r.containers {
		state := c.state()
		if (filter.GetId() != "" && filter.GetId() != c.id) ||
			(filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != c.sandbox.id) ||
			(filter.GetState() != nil && filter.GetState().State != state) || !matches(filter.GetLabelSelector(), c.config.Labels) {
			continue
		}
		items = append(items, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: &runtimeapi.ImageSpec{Image: c.image},
			ImageRef: imageID(c.image), ImageId: imageID(c.image), State: state, CreatedAt: c.created.UnixNano(),
			Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return &runtimeapi.ListContainersResponse{Containers: items}, nil
}

// ContainerStatus tells a container's state and the resources that it really has.
func (r *Runtime) ContainerStatus(_ context.Context, request *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	answer := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.stateLocked(), CreatedAt: c.created.UnixNano(),
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: &runtimeapi.ImageSpec{Image: c.image}, ImageRef: imageID(c.image), ImageId: imageID(c.image),
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.logPath,
		Resources:  &runtimeapi.ContainerResources{Linux: c.resources},
		StopSignal: c.config.GetStopSignal(),
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
			Uid: int64(c.spec.User.UID), Gid: int64(c.spec.User.GID), SupplementalGroups: int64s(c.spec.User.Groups),
		}},
	}
	if !c.started.IsZero() {
		answer.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		answer.FinishedAt = c.finished.UnixNano()
	}
	return &runtimeapi.ContainerStatusResponse{Status: answer}, nil
}

// UpdateContainerResources gives a container a new size: into its cgroup first, then into what the runtime reports.
func (r *Runtime) UpdateContainerResources(_ context.Context, request *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	merged := mergeResources(c.resources, request.Linux)
	if err := c.cgroup.apply(merged); err != nil {
		return nil, fmt.Errorf("resize container %s: %w", c.config.GetMetadata().GetName(), err)
	}
	c.resources = merged
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// mergeResources changes only what the update names: the kubelet sends CPU and memory one after the other.
func mergeResources(current, update *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	merged := &runtimeapi.LinuxContainerResources{
		CpuPeriod: current.GetCpuPeriod(), CpuQuota: current.GetCpuQuota(), CpuShares: current.GetCpuShares(),
		MemoryLimitInBytes: current.GetMemoryLimitInBytes(), OomScoreAdj: current.GetOomScoreAdj(),
		MemorySwapLimitInBytes: current.GetMemorySwapLimitInBytes(), Unified: current.GetUnified(),
	}
	for _, field := range []struct{ into, from *int64 }{
		{&merged.CpuPeriod, &update.CpuPeriod}, {&merged.CpuQuota, &update.CpuQuota}, {&merged.CpuShares, &update.CpuShares},
		{&merged.MemoryLimitInBytes, &update.MemoryLimitInBytes}, {&merged.MemorySwapLimitInBytes, &update.MemorySwapLimitInBytes},
	} {
		if *field.from != 0 {
			*field.into = *field.from
		}
	}
	return merged
}

// ReopenContainerLog starts a new log file after a rotation.
func (r *Runtime) ReopenContainerLog(_ context.Context, request *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.streams == nil {
		return nil, errors.New("the container has not been started")
	}
	return &runtimeapi.ReopenContainerLogResponse{}, c.streams.log.reopen()
}

func int64s(values []uint32) []int64 {
	converted := make([]int64, len(values))
	for index, value := range values {
		converted[index] = int64(value)
	}
	return converted
}
