package procrun

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCapabilities(t *testing.T) {
	number := func(name string) uintptr { return uintptr(slices.Index(capabilityNames, name)) }
	for name, example := range map[string]struct {
		add, drop []string
		want      []uintptr
	}{
		"nothing but one":       {[]string{"NET_BIND_SERVICE"}, []string{"ALL"}, []uintptr{number("NET_BIND_SERVICE")}},
		"none":                  {nil, []string{"ALL"}, []uintptr{}},
		"with the long name":    {[]string{"CAP_SYS_TIME"}, []string{"all"}, []uintptr{number("SYS_TIME")}},
		"the default minus one": {nil, []string{"KILL"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := capabilitiesOf(&runtimeapi.Capability{AddCapabilities: example.add, DropCapabilities: example.drop})
			if err != nil {
				t.Fatal(err)
			}
			if example.want != nil && !slices.Equal(got, example.want) {
				t.Errorf("got %v, want %v", got, example.want)
			}
			if example.want == nil && (slices.Contains(got, number("KILL")) || len(got) != len(defaultCapabilities)-1) {
				t.Errorf("got %v", got)
			}
		})
	}
	if _, err := capabilitiesOf(&runtimeapi.Capability{AddCapabilities: []string{"FLY"}}); err == nil || !strings.Contains(err.Error(), `"FLY"`) {
		t.Errorf("an unknown capability gets %v", err)
	}
}

func TestImagesStandForFoldersByNameOrByNameAndTag(t *testing.T) {
	all, tagged := t.TempDir(), t.TempDir()
	images := &Images{}
	for name, folder := range map[string]string{"host:5000/app": all, "host:5000/app:v2": tagged} {
		if err := images.Map(name, folder); err != nil {
			t.Fatal(err)
		}
	}
	for image, want := range map[string]string{
		"host:5000/app": all, "host:5000/app:v1": all, "host:5000/app:v2": tagged, "host:5000/app@sha256:abc": all,
		"host:5000/app:v9@sha256:abc": all, "host:5000/other": "",
	} {
		if got := images.folder(image); got != want {
			t.Errorf("%s stands for %q, want %q", image, got, want)
		}
	}
	if err := images.Map("x", filepath.Join(all, "missing")); err == nil {
		t.Error("a folder that does not exist was accepted")
	}
}

func TestCommandLine(t *testing.T) {
	folder := t.TempDir()
	entrypoint := filepath.Join(folder, "entrypoint")
	if err := os.WriteFile(entrypoint, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, example := range map[string]struct {
		command, args []string
		folder        string
		want          string
	}{
		"command and args":         {[]string{"sh"}, []string{"-c"}, "", "sh -c"},
		"args of an entrypoint":    {nil, []string{"run"}, folder, entrypoint + " run"},
		"a command overrides it":   {[]string{"sh"}, nil, folder, "sh"},
		"args alone are a command": {nil, []string{"sh"}, "", "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := commandLine(&runtimeapi.ContainerConfig{Command: example.command, Args: example.args}, "image", image{programs: example.folder})
			if err != nil || strings.Join(got, " ") != example.want {
				t.Errorf("got %q, %v; want %q", got, err, example.want)
			}
		})
	}
}

func TestEnvironmentHasEachNameOnce(t *testing.T) {
	config := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "PATH", Value: []byte("/mine")}, {Key: "A", Value: []byte("1")}, {Key: "A", Value: []byte("2")}}}
	got := environment(config, image{programs: "/folder"}, "host", "/root")
	if want := []string{"HOSTNAME=host", "HOME=/root", "PATH=/mine", "A=2"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAnImageThatIsARootOfItsOwnSaysWhatRunsInIt(t *testing.T) {
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "rootfs", "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", `{"Env": ["PATH=/opt/bin:/bin", "A=1"], "Entrypoint": ["serve"], "Cmd": ["--all"], "User": "65532:65532", "WorkingDir": "/work"}`)
	write("rootfs/etc/passwd", "somebody:x:65532:65532::/home/somebody:/bin/false\n")
	images := &Images{}
	if err := images.Map("app", folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"app:v1", imageID("app:v1")} { // by its name, and then as the kubelet may call it
		found, err := images.find(name)
		if err != nil || found.root != filepath.Join(folder, "rootfs") {
			t.Fatalf("%s is %+v, %v", name, found, err)
		}
		args, err := commandLine(&runtimeapi.ContainerConfig{}, name, found)
		if err != nil || strings.Join(args, " ") != "serve --all" {
			t.Errorf("it runs %q, %v", args, err)
		}
		if args, _ = commandLine(&runtimeapi.ContainerConfig{Args: []string{"--some"}}, name, found); strings.Join(args, " ") != "serve --some" {
			t.Errorf("with arguments it runs %q", args)
		}
		config := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("2")}}}
		if got := environment(config, found, "host", "/"); !slices.Equal(got, []string{"HOSTNAME=host", "HOME=/", "PATH=/opt/bin:/bin", "A=2"}) {
			t.Errorf("its environment is %q", got)
		}
		user, home, err := userOf(nil, found)
		if err != nil || user.UID != 65532 || user.GID != 65532 || home != "/home/somebody" {
			t.Errorf("it runs as %+v at %s, %v", user, home, err)
		}
	}
	write("config.json", `{"User": "somebody"}`)
	found, err := images.find("app")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := userOf(nil, found); err == nil || !strings.Contains(err.Error(), `"somebody" is no number`) {
		t.Errorf("a user by name gets %v", err)
	}
}
