package procrun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Only one version of cgroups is mounted on a machine; what is written for each is checked in ordinary folders.
func TestSizesAreWrittenAsEachVersionOfCgroupsWantsThem(t *testing.T) {
	resources := &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuPeriod: 100_000, CpuQuota: 200_000, MemoryLimitInBytes: 1 << 30}
	for name, example := range map[string]struct {
		unified bool
		want    map[string]string
	}{
		"version 1": {false, map[string]string{
			"cpu/c/cpu.shares": "2048", "cpu/c/cpu.cfs_period_us": "100000", "cpu/c/cpu.cfs_quota_us": "200000",
			"memory/c/memory.limit_in_bytes": "1073741824",
		}},
		"version 2": {true, map[string]string{
			"c/cpu.weight": "79", "c/cpu.max": "200000 100000", "c/memory.max": "1073741824",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			parent := &CgroupParent{unified: example.unified, paths: []string{root}}
			if !example.unified {
				parent.paths = []string{filepath.Join(root, "cpu"), filepath.Join(root, "cpuacct"), filepath.Join(root, "memory")}
				for _, path := range parent.paths {
					if err := os.Mkdir(path, 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			group, err := parent.child("c")
			if err != nil {
				t.Fatal(err)
			}
			if err := group.apply(resources); err != nil {
				t.Fatal(err)
			}
			for file, want := range example.want {
				if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(got) != want {
					t.Errorf("%s is %q (%v), want %q", file, got, err, want)
				}
			}
		})
	}
}

func TestNoQuotaIsNoLimit(t *testing.T) {
	root := t.TempDir()
	group, err := (&CgroupParent{unified: true, paths: []string{root}}).child("c")
	if err != nil {
		t.Fatal(err)
	}
	if err := group.apply(&runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: -1}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(root, "c", "cpu.max")); string(got) != "max 100000" {
		t.Errorf("cpu.max is %q", got)
	}
	if _, err := os.Stat(filepath.Join(root, "c", "memory.max")); err == nil {
		t.Error("a memory limit was set though none was asked for")
	}
}

func TestWithoutCgroupsEverythingIsAccepted(t *testing.T) {
	var none *CgroupParent
	group, err := none.child("c")
	if err != nil || group != nil {
		t.Fatalf("got %v, %v", group, err)
	}
	if err := group.apply(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1}); err != nil {
		t.Error(err)
	}
	if group.add(1) != nil || group.remove() != nil || group.ranOutOfMemory() || group.cpuNanoseconds() != 0 {
		t.Error("a missing group has opinions")
	}
}

func TestAnUpdateChangesOnlyWhatItNames(t *testing.T) {
	current := &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 1 << 20, OomScoreAdj: 7}
	merged := mergeResources(current, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 2 << 20})
	if merged.CpuShares != 1024 || merged.CpuQuota != 100_000 || merged.MemoryLimitInBytes != 2<<20 || merged.OomScoreAdj != 7 {
		t.Errorf("got %v", merged)
	}
	if current.MemoryLimitInBytes != 1<<20 {
		t.Error("the old value was changed in place: a reader may hold it")
	}
}

func TestUsageIsReadFromTheGroup(t *testing.T) {
	root := t.TempDir()
	group, err := (&CgroupParent{unified: true, paths: []string{root}}).child("c")
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"memory.current": "5000\n", "memory.stat": "anon 3000\ninactive_file 1500\n", "memory.events": "oom 1\noom_kill 1\n", "cpu.stat": "usage_usec 42\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "c", file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	usage, workingSet := group.memory()
	if usage != 5000 || workingSet != 3500 || group.cpuNanoseconds() != 42_000 || !group.ranOutOfMemory() {
		t.Errorf("got %d, %d, %d, %v", usage, workingSet, group.cpuNanoseconds(), group.ranOutOfMemory())
	}
}

func TestResolvConf(t *testing.T) {
	got := resolvConf(&runtimeapi.DNSConfig{Searches: []string{"a.local", "b.local"}, Servers: []string{"10.0.0.1"}, Options: []string{"ndots:5"}})
	if want := "search a.local b.local\nnameserver 10.0.0.1\noptions ndots:5\n"; got != want {
		t.Errorf("got %q", got)
	}
	if got := resolvConf(nil); strings.TrimSpace(got) != "" {
		t.Errorf("got %q", got)
	}
}
