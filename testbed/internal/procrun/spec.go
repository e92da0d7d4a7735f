package procrun

import (
	"bufio"
	"cmp"
	"errors"
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
	image, err := r.Images.find(c.image)
	if err != nil {
		return containerinit.Spec{}, err
	}
	args, err := commandLine(c.config, c.image, image)
	if err != nil {
		return containerinit.Spec{}, err
	}
	security := c.config.GetLinux().GetSecurityContext()
	user, home, err := userOf(security, image)
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
	carry, hide := r.Carry, r.Hide
	if image.root != "" {
		carry, hide = nil, nil // nothing of this machine is in there
	}
	return containerinit.Spec{
		Args: args, Env: environment(c.config, image, hostname, home), Dir: cmp.Or(c.config.WorkingDir, image.config.WorkingDir), Hostname: hostname, Terminal: c.config.Tty,
		Root: containerinit.Root{
			Lower: cmp.Or(image.root, "/"), Upper: filepath.Join(c.dir, "upper"), Work: filepath.Join(c.dir, "work"), Merged: filepath.Join(c.dir, "root"),
			ReadOnly: security.GetReadonlyRootfs(), Carry: carry, Hide: hide,
		},
		Mounts: mounts, User: user, OOMScore: int(c.resources.GetOomScoreAdj()), Privileged: security.GetPrivileged(),
		Capabilities: capabilities, NoNewPrivs: security.GetNoNewPrivs(),
	}, nil
}

// commandLine is the container's command and arguments; what it leaves out is its image's.
func commandLine(config *runtimeapi.ContainerConfig, name string, image image) ([]string, error) {
	command, arguments := config.Command, config.Args
	if len(command) == 0 {
		command = image.config.Entrypoint
		if len(arguments) == 0 {
			arguments = image.config.Cmd
		}
		if entrypoint := filepath.Join(image.programs, "entrypoint"); image.programs != "" && isExecutable(entrypoint) {
			command = []string{entrypoint}
		}
	}
	args := slices.Concat(command, arguments)
	if len(args) == 0 {
		return nil, fmt.Errorf("image %q is only a name in the testbed: give the container a command, "+
			"or map the image to a folder with an executable named entrypoint (testbed image add)", name)
	}
	return args, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

func environment(config *runtimeapi.ContainerConfig, image image, hostname, home string) []string {
	path := standardPath
	if image.programs != "" {
		path = image.programs + ":" + path
	}
	env := []string{"PATH=" + path, "HOSTNAME=" + hostname, "HOME=" + home}
	if config.Tty {
		env = append(env, "TERM=xterm")
	}
	wanted := slices.Clone(image.config.Env)
	for _, variable := range config.Envs {
		wanted = append(wanted, variable.Key+"="+string(variable.Value))
	}
	for _, entry := range wanted {
		// The first of two entries wins in some programs and the last in others: keep one.
		name, _, _ := strings.Cut(entry, "=")
		env = slices.DeleteFunc(env, func(known string) bool { return strings.HasPrefix(known, name+"=") })
		env = append(env, entry)
	}
	return env
}

// userOf finds out who the container runs as: who the pod says, else who its image says, else root.
func userOf(security *runtimeapi.LinuxContainerSecurityContext, image image) (user containerinit.User, home string, err error) {
	if user.UID, user.GID, err = image.config.user(); err != nil {
		return user, "", err
	}
	name := security.GetRunAsUsername()
	if uid := security.GetRunAsUser(); uid != nil {
		user.UID = uint32(uid.Value)
	}
	home = "/"
	entry, found, err := findUser(filepath.Join(cmp.Or(image.root, "/"), "etc/passwd"), name, user.UID)
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

func findUser(path, name string, uid uint32) (passwdEntry, bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return passwdEntry{}, false, nil // an image with hardly more than one program
	}
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
