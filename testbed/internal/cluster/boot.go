// Package cluster is the testbed's supervisor: it sets the machine up, starts the control plane and the nodes, keeps
// watch over them and does what `testbed node`, `restart`, `kill` and the like ask for.
package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"elbowroom.dev/testbed/internal/network"
)

// Boot is what `testbed up` was asked for.
type Boot struct {
	Dir       string // absolute
	Nodes     int
	CPU       string
	Memory    string
	Images    map[string]string   // image name to folder
	Arguments map[string][]string // component to extra arguments
	NodeGrace time.Duration       // how long a silent node is still taken for alive
	DoorPort  int
	ParentPID int
	Started   time.Time
}

// Validate answers with one sentence that names the flag.
func (b Boot) Validate() error {
	if b.Nodes < 0 || b.Nodes > network.MaxNodes {
		return fmt.Errorf("--nodes: %d is not between 0 and %d", b.Nodes, network.MaxNodes)
	}
	if b.NodeGrace < 4*time.Second {
		return fmt.Errorf("--node-grace: %s is too short, at least 4s is needed to tell a slow node from a dead one", b.NodeGrace)
	}
	for component := range b.Arguments {
		if !isControlPlane(component) {
			return fmt.Errorf("--arg: %q is not one of %s", component, strings.Join(controlPlaneNames, ", "))
		}
	}
	return ValidateSize(b.CPU, b.Memory)
}

// ValidateSize checks a node's size.
func ValidateSize(cpu, memory string) error {
	if cores, err := resource.ParseQuantity(cpu); err != nil || cores.Sign() <= 0 || cores.MilliValue()%1000 != 0 {
		return fmt.Errorf("--cpu: %q is not a whole number of CPUs", cpu)
	}
	if bytes, err := resource.ParseQuantity(memory); err != nil || bytes.Sign() <= 0 {
		return fmt.Errorf("--memory: %q is not an amount of memory such as 8Gi", memory)
	}
	return nil
}

// ID tells testbeds on one machine apart. It follows from the folder, so that every command finds the testbed by it.
func ID(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:6])
}

// CgroupName is what the testbed's folders in the machine's cgroups are called.
func CgroupName(dir string) string { return "elbowroom-testbed-" + ID(dir) }

// marker in a folder says that a testbed may throw its content away.
const marker = ".elbowroom-testbed"

// parts of a testbed's folder. Logs are kept by `testbed down`, to be read afterwards.
var parts = []string{"kubeconfig", "pki", "etcd", "nodes", "components"}

// PrepareDir makes the testbed's folder, empty but for our marker.
func PrepareDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("--dir: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil && len(entries) > 0 {
		return fmt.Errorf("--dir: %s is not empty and not a testbed's; name an empty or a new folder", dir)
	}
	if err := CleanDir(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "logs")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, marker), nil, 0o644)
}

// CleanDir removes a testbed's state, not its logs. A folder that is not a testbed's is left alone.
func CleanDir(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
		return nil
	}
	for _, part := range parts {
		if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
			return err
		}
	}
	return nil
}
