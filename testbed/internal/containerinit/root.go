package containerinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// enterRoot builds the container's file system and makes it the process's root.
func enterRoot(spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	root := spec.Root
	layers := "lowerdir=" + root.Lower + ",upperdir=" + root.Upper + ",workdir=" + root.Work
	if err := unix.Mount("overlay", root.Merged, "overlay", 0, layers); err != nil {
		return fmt.Errorf("mount the container's root: %w", err)
	}
	// Sources are opened in the machine's tree and attached in the container's: a symbolic link such as
	// /var/run -> /run must lead to the container's own /run.
	carried, err := openMounts(carriedMounts(root))
	if err != nil {
		return err
	}
	volumes, err := openMounts(spec.Mounts)
	if err != nil {
		return err
	}
	devices, err := openDevices()
	if err != nil {
		return err
	}
	if err := changeRoot(root.Merged); err != nil {
		return err
	}
	if err := mountSystem(devices, spec.Privileged); err != nil {
		return err
	}
	if err := attachAll(carried); err != nil {
		return err
	}
	// After what is carried: a folder to hide may be in it.
	for _, dir := range root.Hide {
		if err := mountAt(dir, "tmpfs", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return err
		}
	}
	if err := attachAll(volumes); err != nil {
		return err
	}
	if root.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	return nil
}

type tree struct {
	fd     int
	mount  Mount
	folder bool
}

// carriedMounts can be read only: they have no layer of the container's own on top.
func carriedMounts(root Root) []Mount {
	var mounts []Mount
	for _, path := range root.Carry {
		mounts = append(mounts, Mount{Source: path, Target: path, ReadOnly: true})
	}
	return mounts
}

func attachAll(trees []tree) error {
	for _, tree := range trees {
		if err := tree.attach(); err != nil {
			return err
		}
	}
	return nil
}

func openMounts(wanted []Mount) ([]tree, error) {
	trees := make([]tree, 0, len(wanted))
	for _, mount := range wanted {
		info, err := os.Stat(mount.Source)
		if errors.Is(err, os.ErrNotExist) {
			if err = os.MkdirAll(mount.Source, 0o755); err == nil {
				info, err = os.Stat(mount.Source)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", mount.Target, err)
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, mount.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, fmt.Errorf("volume %s: open %s: %w", mount.Target, mount.Source, err)
		}
		trees = append(trees, tree{fd: fd, mount: mount, folder: info.IsDir()})
	}
	return trees, nil
}

func (t tree) attach() error {
	target := t.mount.Target
	if err := t.makeTarget(); err != nil {
		return fmt.Errorf("volume %s: %w", target, err)
	}
	if t.mount.ReadOnly {
		// With all that is mounted below it.
		readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(t.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, readOnly); err != nil {
			return fmt.Errorf("volume %s: make it read-only: %w", target, err)
		}
	}
	if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("volume %s: attach: %w", target, err)
	}
	return unix.Close(t.fd)
}

func (t tree) makeTarget() error {
	if t.folder {
		return os.MkdirAll(t.mount.Target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(t.mount.Target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(t.mount.Target, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func changeRoot(merged string) error {
	if err := os.Chdir(merged); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root: %w", err)
	}
	return os.Chdir("/")
}

// mountSystem gives the container its own /proc, /sys and /dev.
func mountSystem(devices []tree, privileged bool) error {
	readOnly := uintptr(unix.MS_RDONLY)
	if privileged {
		readOnly = 0
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, mount := range []struct {
		target, kind string
		flags        uintptr
		data         string
	}{
		{"/proc", "proc", quiet, ""},
		{"/sys", "sysfs", quiet | readOnly, ""},
		{"/dev", "tmpfs", unix.MS_NOSUID, "mode=755,size=64k"},
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"},
		{"/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if err := mountAt(mount.target, mount.kind, mount.kind, mount.flags, mount.data); err != nil {
			return err
		}
	}
	for _, device := range devices {
		if err := device.attach(); err != nil {
			return err
		}
	}
	return linkDevices()
}

func openDevices() ([]tree, error) {
	var devices []tree
	// The last two are there on machines that can run VMs; a container may use them as on a node with a device plugin.
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "kvm", "net/tun"} {
		path := "/dev/" + name
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", path, err)
		}
		devices = append(devices, tree{fd: fd, mount: Mount{Target: path}})
	}
	return devices, nil
}

func linkDevices() error {
	for link, target := range map[string]string{
		"/dev/ptmx": "pts/ptmx", "/dev/fd": "/proc/self/fd",
		"/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return nil
}

func mountAt(target, source, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}
