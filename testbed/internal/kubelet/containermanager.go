package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// containerManager stands where a kubelet manages pod-level cgroups: here they are files, one per pod, so that they
// outlive the kubelet as cgroups do. Everything else is the kubelet's own stub for hosts without cgroups.
type containerManager struct {
	cm.ContainerManager
	pods *podGroups
}

func newContainerManager(dir string) cm.ContainerManager {
	return containerManager{
		ContainerManager: cm.NewStubContainerManager(),
		pods: &podGroups{
			PodContainerManager: cm.NewStubContainerManager().NewPodContainerManager(),
			dir:                 filepath.Join(dir, "pod-groups"), podsDir: filepath.Join(dir, "pods"),
		},
	}
}

func (m containerManager) NewPodContainerManager() cm.PodContainerManager { return m.pods }

// GetCapacity is the room for files that pods write; a fixed, generous number, since it is not what a testbed is about.
func (m containerManager) GetCapacity(localStorage bool) v1.ResourceList {
	if !localStorage {
		return v1.ResourceList{}
	}
	return v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
}

type podGroups struct {
	cm.PodContainerManager
	dir, podsDir string
	mutex        sync.Mutex
}

func (g *podGroups) path(uid types.UID) string { return filepath.Join(g.dir, string(uid)) }

func (g *podGroups) Exists(pod *v1.Pod) bool {
	_, err := os.Stat(g.path(pod.UID))
	return err == nil
}

func (g *podGroups) EnsureExists(_ klog.Logger, pod *v1.Pod) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.Exists(pod) {
		return nil
	}
	if err := g.forgetGone(); err != nil {
		return err
	}
	return g.save(pod.UID, initialConfig(pod))
}

// forgetGone removes the files of pods that the kubelet has cleaned up; nobody calls Destroy where there are no cgroups.
// A young file may be that of a pod whose folder the kubelet is about to make.
func (g *podGroups) forgetGone() error {
	entries, err := os.ReadDir(g.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if _, err := os.Stat(filepath.Join(g.podsDir, entry.Name())); errors.Is(err, os.ErrNotExist) {
			if err := os.Remove(filepath.Join(g.dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// initialConfig is what a pod's cgroup would hold. The kubelet reads through all four pointers.
func initialConfig(pod *v1.Pod) *cm.ResourceConfig {
	const period = 100_000
	config := cm.ResourceConfigForPod(pod, true, period, false, kubeletconfig.NoneMemoryReservationPolicy)
	none, noQuota, usualPeriod, fewestShares := int64(0), int64(-1), uint64(period), uint64(cm.MinShares)
	if config.Memory == nil {
		config.Memory = &none
	}
	if config.CPUQuota == nil {
		config.CPUQuota = &noQuota
	}
	if config.CPUPeriod == nil {
		config.CPUPeriod = &usualPeriod
	}
	if config.CPUShares == nil {
		config.CPUShares = &fewestShares
	}
	return config
}

func (g *podGroups) GetPodCgroupConfig(pod *v1.Pod, _ v1.ResourceName) (*cm.ResourceConfig, error) {
	text, err := os.ReadFile(g.path(pod.UID))
	if errors.Is(err, os.ErrNotExist) {
		return initialConfig(pod), nil
	}
	if err != nil {
		return nil, err
	}
	config := &cm.ResourceConfig{}
	if err := json.Unmarshal(text, config); err != nil {
		return nil, fmt.Errorf("read the group of pod %s: %w", pod.UID, err)
	}
	return config, nil
}

func (g *podGroups) SetPodCgroupConfig(_ klog.Logger, pod *v1.Pod, update *cm.ResourceConfig) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	config, err := g.GetPodCgroupConfig(pod, "")
	if err != nil {
		return err
	}
	if update.Memory != nil {
		config.Memory = update.Memory
	}
	if update.CPUQuota != nil {
		config.CPUQuota = update.CPUQuota
	}
	if update.CPUPeriod != nil {
		config.CPUPeriod = update.CPUPeriod
	}
	if update.CPUShares != nil {
		config.CPUShares = update.CPUShares
	}
	return g.save(pod.UID, config)
}

// save replaces the file whole: the kubelet may be killed in the middle.
func (g *podGroups) save(uid types.UID, config *cm.ResourceConfig) error {
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(g.dir), "pod-group-")
	if err != nil {
		return err
	}
	_, writeErr := temporary.Write(text)
	if err := errors.Join(writeErr, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), g.path(uid))
}
