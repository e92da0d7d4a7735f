package procrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const cgroupMount = "/sys/fs/cgroup"

// CgroupParent is the testbed's own corner of the machine's cgroups, in either version of them.
type CgroupParent struct {
	unified bool     // version 2: one tree; else version 1: a tree per controller
	paths   []string // the testbed's folder in each tree
}

// controllers of version 1 that a container gets a group in.
var controllers = []string{"cpu", "cpuacct", "memory"}

// CgroupPaths are where a testbed of the given name keeps its groups, in whichever version the machine has.
func CgroupPaths(name string) []string {
	paths := []string{filepath.Join(cgroupMount, name)}
	for _, controller := range controllers {
		paths = append(paths, filepath.Join(cgroupMount, controller, name))
	}
	return paths
}

// NewCgroupParent makes the testbed's groups. Where they cannot be written it returns nil: sizes are recorded only.
func NewCgroupParent(name string) *CgroupParent {
	parent := &CgroupParent{}
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		parent.unified = true
		parent.paths = []string{filepath.Join(cgroupMount, name)}
	} else {
		for _, controller := range controllers {
			parent.paths = append(parent.paths, filepath.Join(cgroupMount, controller, name))
		}
	}
	if err := parent.make(); err != nil {
		for _, path := range parent.paths {
			_ = os.Remove(path) // what could be made is taken back
		}
		return nil
	}
	return parent
}

func (p *CgroupParent) make() error {
	for _, path := range p.paths {
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		// Without this file it is an ordinary folder: nothing is mounted there.
		if _, err := os.Stat(filepath.Join(path, "cgroup.procs")); err != nil {
			return err
		}
	}
	if !p.unified {
		return nil
	}
	// A group limits only what its parent lets it: the machine's root first, where an init system has mostly done so already.
	const wanted = "+cpu +memory"
	_ = os.WriteFile(filepath.Join(cgroupMount, "cgroup.subtree_control"), []byte(wanted), 0o644)
	return os.WriteFile(filepath.Join(p.paths[0], "cgroup.subtree_control"), []byte(wanted), 0o644)
}

// cgroup is one container's group. A nil cgroup accepts everything and enforces nothing.
type cgroup struct {
	parent *CgroupParent
	name   string
}

func (p *CgroupParent) child(name string) (*cgroup, error) {
	if p == nil {
		return nil, nil
	}
	group := &cgroup{parent: p, name: name}
	for _, path := range p.paths {
		if err := os.Mkdir(filepath.Join(path, name), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make the container's cgroup: %w", err)
		}
	}
	return group, nil
}

func (g *cgroup) file(controller, name string) string {
	if g.parent.unified {
		return filepath.Join(g.parent.paths[0], g.name, name)
	}
	for index, candidate := range controllers {
		if candidate == controller {
			return filepath.Join(g.parent.paths[index], g.name, name)
		}
	}
	panic("no such controller: " + controller)
}

func (g *cgroup) write(controller, name, value string) error {
	if err := os.WriteFile(g.file(controller, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// add moves a process, and what it starts later, into the group.
func (g *cgroup) add(pid int) error {
	if g == nil {
		return nil
	}
	for _, path := range g.parent.paths {
		if err := os.WriteFile(filepath.Join(path, g.name, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("move process %d into its cgroup: %w", pid, err)
		}
	}
	return nil
}

// apply enforces the given sizes; zero means that nothing is said about one.
func (g *cgroup) apply(resources *runtimeapi.LinuxContainerResources) error {
	if g == nil || resources == nil {
		return nil
	}
	if g.parent.unified {
		return g.applyUnified(resources)
	}
	var err error
	set := func(controller, name string, value int64) {
		if value != 0 && err == nil {
			err = g.write(controller, name, strconv.FormatInt(value, 10))
		}
	}
	set("cpu", "cpu.shares", resources.CpuShares)
	set("cpu", "cpu.cfs_period_us", resources.CpuPeriod)
	set("cpu", "cpu.cfs_quota_us", resources.CpuQuota)
	set("memory", "memory.limit_in_bytes", resources.MemoryLimitInBytes)
	return err
}

func (g *cgroup) applyUnified(resources *runtimeapi.LinuxContainerResources) error {
	if shares := resources.CpuShares; shares != 0 {
		if err := g.write("cpu", "cpu.weight", strconv.FormatInt(weight(shares), 10)); err != nil {
			return err
		}
	}
	if period := resources.CpuPeriod; period != 0 {
		quota := "max"
		if resources.CpuQuota > 0 {
			quota = strconv.FormatInt(resources.CpuQuota, 10)
		}
		if err := g.write("cpu", "cpu.max", fmt.Sprintf("%s %d", quota, period)); err != nil {
			return err
		}
	}
	switch limit := resources.MemoryLimitInBytes; {
	case limit > 0:
		// Over the limit means out of memory, also on a machine that could swap.
		if err := g.writeIfThere("memory.swap.max", "0"); err != nil {
			return err
		}
		if err := g.write("memory", "memory.max", strconv.FormatInt(limit, 10)); err != nil {
			return err
		}
	case limit < 0:
		if err := g.write("memory", "memory.max", "max"); err != nil {
			return err
		}
	}
	for name, value := range resources.Unified {
		if err := g.writeIfThere(name, value); err != nil {
			return err
		}
	}
	return nil
}

// writeIfThere sets what not every kernel has.
func (g *cgroup) writeIfThere(name, value string) error {
	if _, err := os.Stat(g.file("", name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return g.write("", name, value)
}

// weight maps version 1's shares (2 to 262144) onto version 2's weight (1 to 10000).
func weight(shares int64) int64 { return 1 + (max(shares, 2)-2)*9999/262142 }

// memory tells how many bytes the group uses, and how many of them could not be taken back at once.
func (g *cgroup) memory() (usage, workingSet uint64) {
	if g == nil {
		return 0, 0
	}
	name, inactive := "memory.usage_in_bytes", "total_inactive_file"
	if g.parent.unified {
		name, inactive = "memory.current", "inactive_file"
	}
	usage = readNumber(g.file("memory", name))
	idle := readKey(g.file("memory", "memory.stat"), inactive)
	return usage, usage - min(idle, usage)
}

// cpuNanoseconds tells how long the group's processes have run.
func (g *cgroup) cpuNanoseconds() uint64 {
	if g == nil {
		return 0
	}
	if g.parent.unified {
		return 1000 * readKey(g.file("cpu", "cpu.stat"), "usage_usec")
	}
	return readNumber(g.file("cpuacct", "cpuacct.usage"))
}

func (g *cgroup) ranOutOfMemory() bool {
	if g == nil {
		return false
	}
	name := "memory.oom_control"
	if g.parent.unified {
		name = "memory.events"
	}
	return readKey(g.file("memory", name), "oom_kill") > 0
}

func (g *cgroup) remove() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, path := range g.parent.paths {
		if err := os.Remove(filepath.Join(path, g.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// readNumber and readKey answer 0 for what cannot be read: the group may vanish under a reader.
func readNumber(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	number, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return number
}

func readKey(path, key string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == key {
			number, _ := strconv.ParseUint(fields[1], 10, 64)
			return number
		}
	}
	return 0
}
