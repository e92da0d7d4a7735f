package cluster

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Inside its mount namespace the testbed's folder is at a short path, whatever its real one: unix sockets below it may
// have at most 107 characters. /run itself is the testbed's own there, and in memory.
const (
	inside        = "/run/testbed"
	socketsDir    = "/run/sockets"
	containersDir = "/run/containers"
)

// prepareMachine turns the fresh namespaces of the calling process into the testbed's machine.
func prepareMachine(dir string) (carry []string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	if carry, err = machineMounts(); err != nil {
		return nil, err
	}
	folder, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(folder)
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount /run: %w", err)
	}
	for _, path := range []string{inside, socketsDir, containersDir} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.MoveMount(folder, "", unix.AT_FDCWD, inside, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("bring %s to %s: %w", dir, inside, err)
	}
	return carry, unix.Sethostname([]byte("testbed"))
}

// machineMounts are the machine's own mount points that containers should see as well, such as a separate /home.
func machineMounts() ([]string, error) {
	points, err := mountPoints()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(points, func(point string) bool {
		// Temporary files are each container's own.
		for _, system := range []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"} {
			if point == "/" || point == system || strings.HasPrefix(point, system+"/") {
				return true
			}
		}
		// Only whole folders are worth it: single files are bound over by container engines, such as /etc/hosts.
		info, err := os.Stat(point)
		return err != nil || !info.IsDir()
	}), nil
}

func mountPoints() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points, lines.Err()
}

// unmountBelow takes away every mount below a folder, the latest first.
func unmountBelow(folder string) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	slices.Reverse(points)
	for _, point := range points {
		if strings.HasPrefix(point, filepath.Clean(folder)+"/") {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
				return fmt.Errorf("unmount %s: %w", point, err)
			}
		}
	}
	return nil
}
