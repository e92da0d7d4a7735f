package kubelet

import (
	"context"
	"os"
	"strings"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// machine answers the kubelet's questions about the machine it runs on: a node as large as its options say, with the
// real kernel and the real disk.
type machine struct {
	info *cadvisorapi.MachineInfo
	dir  string
}

var _ cadvisor.Interface = (*machine)(nil)

func newMachine(o Options) (*machine, error) {
	cpu, err := quantity("cpu", o.CPU)
	if err != nil {
		return nil, err
	}
	memory, err := quantity("memory", o.Memory)
	if err != nil {
		return nil, err
	}
	return &machine{dir: o.Dir, info: &cadvisorapi.MachineInfo{
		NumCores: int(cpu.Value()), MemoryCapacity: uint64(memory.Value()),
		MachineID: o.Name, SystemUUID: o.Name, BootID: o.BootID, InstanceID: cadvisorapi.InstanceID(o.Name),
	}}, nil
}

func (m *machine) Start() error { return nil }

func (m *machine) MachineInfo() (*cadvisorapi.MachineInfo, error) { return m.info.Clone(), nil }

func (m *machine) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	info := &cadvisorapi.VersionInfo{KernelVersion: "unknown", ContainerOsVersion: "unknown"}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err == nil {
		info.KernelVersion = unix.ByteSliceToString(uname.Release[:])
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, found := strings.CutPrefix(line, "PRETTY_NAME="); found {
				info.ContainerOsVersion = strings.Trim(strings.TrimSpace(name), `"`)
			}
		}
	}
	return info, nil
}

// ContainerInfoV2 is asked for the node as a whole: it exists, and nothing is known of its usage.
func (m *machine) ContainerInfoV2(name string, _ cadvisorapiv2.RequestOptions) (map[string]cadvisorapiv2.ContainerInfo, error) {
	return map[string]cadvisorapiv2.ContainerInfo{name: {Stats: []*cadvisorapiv2.ContainerStats{{Timestamp: time.Now()}}}}, nil
}

func (m *machine) GetRequestedContainersInfo(string, cadvisorapiv2.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

func (m *machine) ImagesFsInfo(context.Context) (cadvisorapiv2.FsInfo, error)    { return m.disk() }
func (m *machine) RootFsInfo() (cadvisorapiv2.FsInfo, error)                     { return m.disk() }
func (m *machine) ContainerFsInfo(context.Context) (cadvisorapiv2.FsInfo, error) { return m.disk() }
func (m *machine) GetDirFsInfo(string) (cadvisorapiv2.FsInfo, error)             { return m.disk() }

func (m *machine) disk() (cadvisorapiv2.FsInfo, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(m.dir, &stat); err != nil {
		return cadvisorapiv2.FsInfo{}, err
	}
	size := uint64(stat.Bsize)
	return cadvisorapiv2.FsInfo{
		Mountpoint: m.dir, Capacity: stat.Blocks * size, Available: stat.Bavail * size,
		Usage: (stat.Blocks - stat.Bfree) * size, Inodes: &stat.Files, InodesFree: &stat.Ffree,
	}, nil
}
