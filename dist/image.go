package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageDir is the folder with the image, an OCI layout.
const imageDir = "image"

// imageName is the name of the image after an import, and in its signature. It has no valid host name, so the user
// names a registry for the push.
const imageName = "registry.invalid/refract"

// user is the ID of the user that runs the program. It owns no file.
const user = "65532"

// rootFiles returns the files of the image: the program, the certificate authorities that it trusts, such as that of a
// hub behind a public name, and a name for its user. The image has no shell and no writable file.
func rootFiles(program []byte) []file {
	return []file{
		{name: "usr/local/bin/refract", mode: 0o755, data: program},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/none\nrefract:x:" + user + ":" + user + ":refract:/:/none\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
	}
}

// authorities returns Mozilla's certificate authorities without those that are trusted only under a condition, because
// a file cannot express the condition.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // A write to a buffer cannot fail.
		}
	}
	return text.Bytes()
}

// image writes an OCI layout with an image for each binary, and an archive of the layout, which container engines
// import.
func (r *release) image(binaries []binary) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		img, err := r.imageOf(b)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
	}
	dir := filepath.Join(r.out, imageDir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": imageName + ":" + r.version}
	if err := path.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	r.digest = digest.String()
	return r.archiveImage(dir)
}

func (r *release) imageOf(b binary) (v1.Image, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	var root bytes.Buffer
	if err := writeTar(&root, rootFiles(program), r.created); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	at := v1.Time{Time: r.created}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer: layer, History: v1.History{Created: at, CreatedBy: "make dist"}, MediaType: types.OCILayer,
	})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, at
	config.Config = v1.Config{
		User: user + ":" + user, Entrypoint: []string{"/usr/local/bin/refract"}, Env: []string{"PATH=/usr/local/bin"}, WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "refract",
			"org.opencontainers.image.description": "Kubernetes objects, transformed at the boundaries of cluster, pod and version",
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.revision":    r.commit,
			"org.opencontainers.image.created":     r.created.Format("2006-01-02T15:04:05Z07:00"),
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

// archiveImage packs a layout. It holds the whole archive in memory, because the image is small.
func (r *release) archiveImage(dir string) error {
	var files []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at, err := filepath.Rel(dir, path)
		files = append(files, file{name: filepath.ToSlash(at), mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := writeTar(&packed, files, r.created); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "refract_image.tar"), packed.Bytes(), 0o644)
}

// pushImage pushes the image of a layout with the credentials of the container engine.
func pushImage(ctx context.Context, dir, to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return fmt.Errorf("-push: want REGISTRY/NAME:TAG: %w", err)
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("reading the image in %s (make dist writes it): %w", dir, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("reading the image in %s: want one index, got %d", dir, len(manifest.Manifests))
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing %s: %w", to, err)
	}
	fmt.Fprintf(os.Stderr, "%s@%s\n", ref.Context(), manifest.Manifests[0].Digest)
	return nil
}
