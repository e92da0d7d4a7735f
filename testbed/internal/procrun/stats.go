package procrun

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now().UnixNano()
	usage, workingSet := c.cgroup.memory()
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations,
		},
		Cpu: &runtimeapi.CpuUsage{
			Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: c.cgroup.cpuNanoseconds()},
		},
		Memory: &runtimeapi.MemoryUsage{
			Timestamp: now, UsageBytes: &runtimeapi.UInt64Value{Value: usage},
			WorkingSetBytes: &runtimeapi.UInt64Value{Value: workingSet},
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.dir},
			UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
		},
	}
}

// ContainerStats tells what one container uses.
func (r *Runtime) ContainerStats(_ context.Context, request *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := r.container(request.ContainerId)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats tells what the node's running containers use.
func (r *Runtime) ListContainerStats(_ context.Context, request *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter := request.GetFilter()
	answer := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.containers {
		if c.state() == runtimeapi.ContainerState_CONTAINER_RUNNING && (filter.GetId() == "" || filter.GetId() == c.id) &&
			(filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == c.sandbox.id) && matches(filter.GetLabelSelector(), c.config.Labels) {
			answer.Stats = append(answer.Stats, c.stats())
		}
	}
	return answer, nil
}

func podStats(s *sandbox, containers []*container) *runtimeapi.PodSandboxStats {
	now := time.Now().UnixNano()
	var cpu, usage, workingSet uint64
	linux := &runtimeapi.LinuxPodSandboxStats{}
	for _, c := range containers {
		if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		stats := c.stats()
		linux.Containers = append(linux.Containers, stats)
		cpu += stats.Cpu.UsageCoreNanoSeconds.Value
		usage += stats.Memory.UsageBytes.Value
		workingSet += stats.Memory.WorkingSetBytes.Value
	}
	linux.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: cpu}}
	linux.Memory = &runtimeapi.MemoryUsage{
		Timestamp: now, UsageBytes: &runtimeapi.UInt64Value{Value: usage}, WorkingSetBytes: &runtimeapi.UInt64Value{Value: workingSet},
	}
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: &runtimeapi.UInt64Value{Value: uint64(len(linux.Containers))}}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: s.id, Metadata: s.config.Metadata, Labels: s.config.Labels, Annotations: s.config.Annotations,
		},
		Linux: linux,
	}
}

// PodSandboxStats tells what one pod uses. The kubelet lowers a memory limit only after it has seen this.
func (r *Runtime) PodSandboxStats(_ context.Context, request *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	s, containers := r.podOf(request.PodSandboxId)
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %s is not on %s", request.PodSandboxId, r.Node)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: podStats(s, containers)}, nil
}

// ListPodSandboxStats tells what the node's pods use.
func (r *Runtime) ListPodSandboxStats(_ context.Context, request *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r.mutex.Lock()
	ids := make([]string, 0, len(r.sandboxes))
	for id, s := range r.sandboxes {
		if s.ready() && (request.GetFilter().GetId() == "" || request.GetFilter().GetId() == id) &&
			matches(request.GetFilter().GetLabelSelector(), s.config.Labels) {
			ids = append(ids, id)
		}
	}
	r.mutex.Unlock()
	answer := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, id := range ids {
		if s, containers := r.podOf(id); s != nil {
			answer.Stats = append(answer.Stats, podStats(s, containers))
		}
	}
	return answer, nil
}
