package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// podImage is the image of test containers. sandboxImage is the image of the pause containers. They have the same
// content.
const (
	podImage     = "refract.test/pod:1"
	sandboxImage = "refract.test/pause:1"
)

// descriptor is a reference between parts of an image: https://github.com/opencontainers/image-spec/blob/v1.1.1/descriptor.md
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// writeImage writes an archive in OCI layout, with an image that contains and runs a single program.
func writeImage(path, name, program string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	at := "/" + filepath.Base(program)
	layer, err := archive(map[string][]byte{at[1:]: text}, 0o755)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	add := func(mediaType string, blob []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(blob))
		files["blobs/sha256/"+sum] = blob
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(blob)}
	}
	addJSON := func(mediaType string, value any) descriptor {
		blob, _ := json.Marshal(value) //nolint:errchkjson // Maps of strings and the like can be encoded.
		return add(mediaType, blob)
	}
	content := add("application/vnd.oci.image.layer.v1.tar", layer)
	config := addJSON("application/vnd.oci.image.config.v1+json", map[string]any{
		"os": runtime.GOOS, "architecture": runtime.GOARCH,
		"config": map[string]any{"Entrypoint": []string{at}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{content.Digest}},
	})
	manifest := addJSON(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []descriptor{content},
	})
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	files["index.json"] = index
	files["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	all, err := archive(files, 0o644)
	if err != nil {
		return err
	}
	return os.WriteFile(path, all, 0o600)
}

// archive returns a tar archive of files.
func archive(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
