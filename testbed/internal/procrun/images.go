package procrun

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images are names. Some stand for a folder, which is put in front of PATH in containers of that image; or, where there is a folder
// `rootfs` in it, for a whole file system, with an image's configuration (as of OCI) in `config.json`.
type Images struct {
	mutex   sync.Mutex
	folders map[string]string
	// The kubelet may ask for an image by the ID that it was told.
	names map[string]string
}

// image is what a name stands for: nothing, programs, or a root of its own.
type image struct {
	programs, root string
	config         imageConfig
}

type imageConfig struct {
	Env             []string
	Entrypoint, Cmd []string
	WorkingDir      string
	User            string
}

// user is who an image's processes are. Images of ours say it in numbers, so that a cluster can tell that it is not root.
func (c imageConfig) user() (uid, gid uint32, err error) {
	if c.User == "" {
		return 0, 0, nil
	}
	first, second, both := strings.Cut(c.User, ":")
	number, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("config.json: User: %q is no number", c.User)
	}
	group := uint64(0)
	if both {
		if group, err = strconv.ParseUint(second, 10, 32); err != nil {
			return 0, 0, fmt.Errorf("config.json: User: %q is no pair of numbers", c.User)
		}
	}
	return uint32(number), uint32(group), nil
}

// Map makes an image name stand for a folder of this machine. A name without a tag stands for all its tags.
func (i *Images) Map(name, folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("image %s: %s is not a folder", name, folder)
	}
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.folders == nil {
		i.folders = map[string]string{}
	}
	i.folders[name] = folder
	return nil
}

// All tells which image stands for which folder.
func (i *Images) All() map[string]string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return maps.Clone(i.folders)
}

func (i *Images) folder(image string) string {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if folder, found := i.folders[image]; found {
		return folder
	}
	return i.folders[withoutTag(image)]
}

// find tells what an image is.
func (i *Images) find(name string) (image, error) {
	i.mutex.Lock()
	if known, found := i.names[name]; found {
		name = known
	} else {
		if i.names == nil {
			i.names = map[string]string{}
		}
		i.names[imageID(name)] = name
	}
	i.mutex.Unlock()
	folder := i.folder(name)
	root := filepath.Join(folder, "rootfs")
	if info, err := os.Stat(root); folder == "" || err != nil || !info.IsDir() {
		return image{programs: folder}, nil
	}
	found := image{root: root}
	text, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err == nil {
		err = json.Unmarshal(text, &found.config)
	}
	if err != nil {
		return image{}, fmt.Errorf("image %s: %w", name, err)
	}
	return found, nil
}

func withoutTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	slash, colon := strings.LastIndex(image, "/"), strings.LastIndex(image, ":")
	if colon > slash {
		return image[:colon]
	}
	return image
}

// imageName is what the pod's author wrote; the kubelet itself asks by an image's ID.
func imageName(image *runtimeapi.ImageSpec) string {
	return cmp.Or(image.GetUserSpecifiedImage(), image.GetImage())
}

func imageID(image string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(image)))
}

func describeImage(name string, uid uint32) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: imageID(name), RepoTags: []string{name}, Size: 1, Spec: &runtimeapi.ImageSpec{Image: name},
		Uid: &runtimeapi.Int64Value{Value: int64(uid)},
	}
}

// ImageStatus says of every image that it is here: its name is all there is of it.
func (r *Runtime) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	name := request.GetImage().GetImage()
	found, err := r.Images.find(name)
	if err != nil {
		return nil, err
	}
	uid, _, err := found.config.user()
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ImageStatusResponse{Image: describeImage(name, uid)}, nil
}

// PullImage has nothing to fetch.
func (r *Runtime) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return &runtimeapi.PullImageResponse{ImageRef: imageID(request.GetImage().GetImage())}, nil
}

// ListImages lists the images that stand for a folder.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	answer := &runtimeapi.ListImagesResponse{}
	for image := range r.Images.All() {
		answer.Images = append(answer.Images, describeImage(image, 0))
	}
	return answer, nil
}

// RemoveImage has nothing to remove.
func (r *Runtime) RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo tells where images and written layers are, for the kubelet's housekeeping.
func (r *Runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.Dir},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
