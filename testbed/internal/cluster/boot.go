// Package cluster is the testbed's supervisor: it sets the machine up, starts the control plane and the nodes, keeps
// watch over them and does what `testbed node`, `restart`, `kill` and the like ask for.
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
	Detached  bool // nobody listens to what it says after the start
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

// marker in a folder says that a testbed may throw its content away. It is also the folder's lock.
const marker = ".elbowroom-testbed"

// State lists what a testbed keeps in its folder besides its logs, which are there to be read afterwards.
func State(dir string) []string {
	var paths []string
	for _, part := range []string{"kubeconfig", "pki", "etcd", "nodes", "components"} {
		paths = append(paths, filepath.Join(dir, part))
	}
	return paths
}

// TakeDir makes the folder a testbed's, empty, and its own as long as the returned lock is open.
func TakeDir(ctx context.Context, dir string) (lock *os.File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil && len(entries) > 0 {
		return nil, fmt.Errorf("--dir: %s is not empty and not a testbed's; name an empty or a new folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	lock, err = os.OpenFile(filepath.Join(dir, marker), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	if err := awaitLock(ctx, lock); err != nil {
		return nil, fmt.Errorf("--dir: %s: %w", dir, err)
	}
	for _, path := range append(State(dir), filepath.Join(dir, "logs")) {
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("--dir: %w", err)
		}
	}
	return lock, os.MkdirAll(filepath.Join(dir, "logs"), 0o755)
}

// awaitLock waits for the janitor of a testbed that has just ended; it takes 7 s at the most.
func awaitLock(ctx context.Context, lock *os.File) error {
	for end := time.Now().Add(9 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if time.Now().After(end) {
			return errors.New("the folder is still in use by a testbed")
		}
	}
}

// CleanDir waits until an ended testbed's folder is clear of its state. A folder that is not a testbed's is left alone.
func CleanDir(ctx context.Context, dir string) error {
	lock, err := os.Open(filepath.Join(dir, marker))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := awaitLock(ctx, lock); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	for _, path := range State(dir) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
