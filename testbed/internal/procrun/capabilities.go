package procrun

import (
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// capabilityNames are the kernel's capabilities, each at the place of its number.
var capabilityNames = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

// defaultCapabilities are what container runtimes leave to a container that asks for nothing.
var defaultCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW",
	"SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP",
}

func capabilitiesOf(wanted *runtimeapi.Capability) ([]uintptr, error) {
	keep := slices.Clone(defaultCapabilities)
	for _, name := range wanted.GetDropCapabilities() {
		if name = plainCapability(name); name == "ALL" {
			keep = nil
		} else {
			keep = slices.DeleteFunc(keep, func(kept string) bool { return kept == name })
		}
	}
	for _, name := range wanted.GetAddCapabilities() {
		if name = plainCapability(name); name == "ALL" {
			keep = capabilityNames
			break
		}
		keep = append(keep, name)
	}
	numbers := make([]uintptr, 0, len(keep))
	for _, name := range keep {
		number := slices.Index(capabilityNames, name)
		if number < 0 {
			return nil, fmt.Errorf("securityContext.capabilities: %q is not a capability", name)
		}
		numbers = append(numbers, uintptr(number))
	}
	return numbers, nil
}

func plainCapability(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "CAP_") }
