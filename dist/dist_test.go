package main

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func releaseOf(t *testing.T, out string) *release {
	t.Helper()
	return &release{
		source: "..", out: out, version: "v0.1.0", commit: strings.Repeat("c", 40),
		created: time.Unix(1_700_000_000, 0).UTC(), say: t.Logf,
	}
}

// programs returns stand-ins for refract on two platforms.
func programs(t *testing.T) []binary {
	t.Helper()
	var all []binary
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(t.TempDir(), "refract")
		if err := os.WriteFile(path, []byte("program for "+arch), 0o700); err != nil {
			t.Fatal(err)
		}
		all = append(all, binary{platform{"linux", arch}, path})
	}
	return all
}

// TestImage: the image contains only the program, the authorities and a user. A label has the version, and the program
// runs as an unprivileged user.
func TestImage(t *testing.T) {
	r := releaseOf(t, t.TempDir())
	if err := r.image(programs(t)); err != nil {
		t.Fatal(err)
	}
	all, err := layout.ImageIndexFromPath(filepath.Join(r.out, imageDir))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Fatal(err)
	}
	tops, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := all.ImageIndex(tops.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 {
		t.Fatalf("want an image for each platform, got %d", len(manifest.Manifests))
	}
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, d.Platform)
	}
}

func checkImage(t *testing.T, img v1.Image, p *v1.Platform) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != p.Architecture || config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/usr/local/bin/refract" {
		t.Errorf("want it to run refract on %s as 65532, got %s/%s %+v", p, config.OS, config.Architecture, config.Config)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v0.1.0" {
		t.Errorf("want the version in a label, got %q", got)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("want one layer, got %d, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-rw-r--r-- 0:0 etc/passwd", "-rw-r--r-- 0:0 etc/ssl/certs/ca-certificates.crt", "-rwxr-xr-x 0:0 usr/local/bin/refract"}
	if got := list(t, content); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("want these files, and no others:\n%s\ngot\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

// list returns the files of a tar archive, with mode and owner.
func list(t *testing.T, from io.Reader) []string {
	t.Helper()
	var files []string
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1_700_000_000 {
			t.Errorf("%s: want the time of the commit, got %s", h.Name, h.ModTime)
		}
		files = append(files, h.FileInfo().Mode().String()+" "+strings.TrimSpace(owner(h))+" "+h.Name)
	}
}

func owner(h *tar.Header) string {
	if h.Uid == 0 && h.Gid == 0 && h.Uname == "" && h.Gname == "" {
		return "0:0"
	}
	return "somebody"
}

// TestSameBytes: two builds from the same input are equal, byte for byte.
func TestSameBytes(t *testing.T) {
	bs := programs(t)
	var sums [2]string
	for i := range sums {
		r := releaseOf(t, t.TempDir())
		if err := r.image(bs); err != nil {
			t.Fatal(err)
		}
		for _, b := range bs {
			if err := r.archive(b, map[string][]byte{"bash": []byte("a"), "zsh": []byte("b"), "fish": []byte("c")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.checksums(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 3 {
		t.Errorf("want three files with the same checksums, got\n%s\n%s", sums[0], sums[1])
	}
}

// TestAuthorities: the authorities are certificates, and enough to trust a hub behind a public name.
func TestAuthorities(t *testing.T) {
	n := 0
	for rest := authorities(); ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Errorf("certificate %d: %v", n, err)
		}
	}
	if n < 100 {
		t.Errorf("want some hundred authorities, got %d", n)
	}
}

// TestPush: the registry has the image that was built.
func TestPush(t *testing.T) {
	r := releaseOf(t, t.TempDir())
	if err := r.image(programs(t)); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New())
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/refract:v0.1.0"
	if err := pushImage(t.Context(), filepath.Join(r.out, imageDir), to); err != nil {
		t.Fatal(err)
	}
	if err := pushImage(t.Context(), t.TempDir(), to); err == nil || !strings.Contains(err.Error(), "make dist") {
		t.Errorf("want an error that says who writes the image, got %v", err)
	}
	if err := pushImage(t.Context(), filepath.Join(r.out, imageDir), "no reference"); err == nil {
		t.Error("want an error for what is no reference")
	}
}

func TestPlatforms(t *testing.T) {
	got, err := parsePlatforms("linux/amd64,darwin/arm64")
	if err != nil || len(got) != 2 || got[1] != (platform{"darwin", "arm64"}) {
		t.Errorf("want two platforms, got %v, %v", got, err)
	}
	for _, wrong := range []string{"", "linux", "linux/", "/arm64", "linux/amd64,"} {
		if _, err := parsePlatforms(wrong); err == nil {
			t.Errorf("%q: want an error", wrong)
		}
	}
}

// TestTagged: the version of the chart must match a tag, but not the version of a commit without a tag.
func TestTagged(t *testing.T) {
	for version, want := range map[string]bool{
		"v0.1.0": true, "v1.20.3-rc.1": true, "v0.1.0-dirty": false, "v0.1.0-3-g4a5124b0c0de": false, "4a5124b0c0de": false, "4a5124b0c0de-dirty": false,
	} {
		if got := tagged.MatchString(version); got != want {
			t.Errorf("%s: want %t, got %t", version, want, got)
		}
	}
}
