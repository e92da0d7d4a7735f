package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/version"
)

// Status is what a testbed says of itself.
type Status struct {
	Dir        string            `json:"dir"`
	Ready      bool              `json:"ready"`
	Kubernetes string            `json:"kubernetes"`
	PID        int               `json:"pid"` // of `testbed up`
	Server     string            `json:"server"`
	Since      time.Time         `json:"since"`
	Components []ComponentStatus `json:"components"`
	Nodes      []NodeStatus      `json:"nodes"`
	Images     map[string]string `json:"images,omitempty"`
	// Resident is the memory of all processes of the testbed but those in containers, in bytes; pages that several
	// share count for each. Proportional counts them once.
	Resident     uint64 `json:"residentBytes"`
	Proportional uint64 `json:"proportionalBytes"`
}

// ComponentStatus is one component's.
type ComponentStatus struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Resident uint64    `json:"residentBytes"`
}

// NodeStatus is one node's.
type NodeStatus struct {
	ComponentStatus
	IP         string `json:"ip"`
	CPU        string `json:"cpu"`
	Memory     string `json:"memory"`
	Pods       int    `json:"pods"`
	Containers int    `json:"containers"`
}

func kubernetesVersion() string { return version.Get().GitVersion }

func (s *Supervisor) status() *Status {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	status := &Status{
		Dir: s.boot.Dir, Ready: s.ready, Kubernetes: kubernetesVersion(), PID: s.boot.ParentPID, Since: s.boot.Started,
		Server: fmt.Sprintf("https://127.0.0.1:%d", s.boot.DoorPort), Images: s.images.All(),
	}
	supervisor := ComponentStatus{Name: "supervisor", State: "running", Since: s.boot.Started}
	status.count(&supervisor, os.Getpid())
	for _, name := range controlPlaneNames {
		status.Components = append(status.Components, status.describe(s.components[name]))
	}
	status.Components = append(status.Components, supervisor)
	for _, n := range s.nodes {
		described := NodeStatus{ComponentStatus: status.describe(n.kubelet), IP: n.network.IP, CPU: n.cpu, Memory: n.memory}
		described.Pods, described.Containers = n.runtime.Counts()
		switch {
		case !n.on.Load():
			described.State = "off"
		case n.unplugged.Load():
			described.State = "unplugged"
		}
		status.Nodes = append(status.Nodes, described)
	}
	return status
}

func (s *Status) describe(part *component) ComponentStatus {
	described := ComponentStatus{Name: part.name, State: "down"}
	if process := part.running(); process != nil {
		described.State, described.Since = "running", process.started
		s.count(&described, process.Pid)
	}
	return described
}

func (s *Status) count(part *ComponentStatus, pid int) {
	resident, proportional := memoryOf(pid)
	part.Resident = resident
	s.Resident += resident
	s.Proportional += proportional
}

// memoryOf reads what the kernel knows; a process that has just ended uses nothing.
func memoryOf(pid int) (resident, proportional uint64) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kibibytes, _ := strconv.ParseUint(fields[1], 10, 64)
		switch fields[0] {
		case "Rss:":
			resident = kibibytes << 10
		case "Pss:":
			proportional = kibibytes << 10
		}
	}
	return resident, proportional
}
