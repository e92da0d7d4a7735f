package procrun

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"elbowroom.dev/testbed/internal/containerinit"
)

const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// specFor translates what the kubelet asks for into what the container's first process does.
func (r *Runtime) specFor(c *container) (containerinit.Spec, error) {
	folder := r.Images.folder(c.image)
	args, err := commandLine(c.config, c.image, folder)
	if err != nil {
		return containerinit.Spec{}, err
	}
	security := c.config.GetLinux().GetSecurityContext()
	user, home, err := userOf(security)
	if err != nil {
		return containerinit.Spec{}, err
	}
	capabilities, err := capabilitiesOf(security.GetCapabilities())
	if err != nil {
		return containerinit.Spec{}, err
	}
	hostname := c.sandbox.config.Hostname
	if hostname == "" {
		hostname = r.Node // a pod with hostNetwork has its node's name
	}
	mounts := []containerinit.Mount{{Source: c.sandbox.resolvConf(), Target: "/etc/resolv.conf", ReadOnly: true}}
	for _, mount := range c.config.Mounts {
		mounts = append(mounts, containerinit.Mount{Source: mount.HostPath, Target: mount.ContainerPath, ReadOnly: mount.Readonly})
	}
	return containerinit.Spec{
		Args: args, Env: environment(c.config, folder, hostname, home), Dir: c.config.WorkingDir, Hostname: hostname, Terminal: c.config.Tty,
		Root: containerinit.Root{
			Upper: filepath.Join(c.dir, "upper"), Work: filepath.Join(c.dir, "work"), Merged: filepath.Join(c.dir, "root"),
			ReadOnly: security.GetReadonlyRootfs(), Carry: r.Carry, Hide: r.Hide,
		},
		Mounts: mounts, User: user, OOMScore: int(c.resources.GetOomScoreAdj()), Privileged: security.GetPrivileged(),
		Capabilities: capabilities, NoNewPrivs: security.GetNoNewPrivs(),
	}, nil
}

// commandLine is the container's command and arguments; where it has no command, its image's entrypoint stands in.
func commandLine(config *runtimeapi.ContainerConfig, image, folder string) ([]string, error) {
	command := config.Command
	if len(command) == 0 && folder != "" {
		if entrypoint := filepath.Join(folder, "entrypoint"); isExecutable(entrypoint) {
			command = []string{entrypoint}
		}
	}
	args := slices.Concat(command, config.Args)
	if len(args) == 0 {
		return nil, fmt.Errorf("image %q is only a name in the testbed: give the container a command, "+
			"or map the image to a folder with an executable named entrypoint (testbed image add)", image)
	}
	return args, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

func environment(config *runtimeapi.ContainerConfig, folder, hostname, home string) []string {
	path := standardPath
	if folder != "" {
		path = folder + ":" + path
	}
	env := []string{"PATH=" + path, "HOSTNAME=" + hostname, "HOME=" + home}
	if config.Tty {
		env = append(env, "TERM=xterm")
	}
	for _, variable := range config.Envs {
		// The first of two entries wins in some programs and the last in others: keep one.
		prefix := variable.Key + "="
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, prefix) })
		env = append(env, prefix+string(variable.Value))
	}
	return env
}

// userOf finds out who the container runs as, with the same defaults as an image without a USER: root.
func userOf(security *runtimeapi.LinuxContainerSecurityContext) (user containerinit.User, home string, err error) {
	name := security.GetRunAsUsername()
	if uid := security.GetRunAsUser(); uid != nil {
		user.UID = uint32(uid.Value)
	}
	home = "/"
	entry, found, err := findUser(name, user.UID)
	if err != nil {
		return user, "", err
	}
	if found {
		user.UID, user.GID, home = entry.uid, entry.gid, entry.home
	} else if name != "" {
		return user, "", fmt.Errorf("runAsUserName: there is no user %q on this machine", name)
	}
	if gid := security.GetRunAsGroup(); gid != nil {
		user.GID = uint32(gid.Value)
	}
	for _, group := range security.GetSupplementalGroups() {
		user.Groups = append(user.Groups, uint32(group))
	}
	return user, home, nil
}

type passwdEntry struct {
	uid, gid uint32
	home     string
}

func findUser(name string, uid uint32) (passwdEntry, bool, error) {
	file, err := os.Open("/etc/passwd")
	if err != nil {
		return passwdEntry{}, false, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 6 {
			continue
		}
		lineUID, errUID := strconv.ParseUint(fields[2], 10, 32)
		lineGID, errGID := strconv.ParseUint(fields[3], 10, 32)
		if errUID != nil || errGID != nil {
			continue
		}
		if (name != "" && fields[0] == name) || (name == "" && uint32(lineUID) == uid) {
			return passwdEntry{uid: uint32(lineUID), gid: uint32(lineGID), home: fields[5]}, true, nil
		}
	}
	return passwdEntry{}, false, nil
}
