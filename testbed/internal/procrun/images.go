package procrun

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images are names, and for some of them a folder that is put in front of PATH in containers of that image.
type Images struct {
	mutex   sync.Mutex
	folders map[string]string
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

func describeImage(image string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: imageID(image), RepoTags: []string{image}, Size: 1, Spec: &runtimeapi.ImageSpec{Image: image},
		Uid: &runtimeapi.Int64Value{Value: 0},
	}
}

// ImageStatus says of every image that it is here: its name is all there is of it.
func (r *Runtime) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: describeImage(request.GetImage().GetImage())}, nil
}

// PullImage has nothing to fetch.
func (r *Runtime) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return &runtimeapi.PullImageResponse{ImageRef: imageID(request.GetImage().GetImage())}, nil
}

// ListImages lists the images that stand for a folder.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	answer := &runtimeapi.ListImagesResponse{}
	for image := range r.Images.All() {
		answer.Images = append(answer.Images, describeImage(image))
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
