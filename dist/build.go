package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// binary is the refract program for one platform.
type binary struct {
	platform

	path string
}

// describe sets the version, the commit and its time. The version is the tag of the commit, or else the commit itself.
// It ends in -dirty if files differ from the commit, because such a tree is no release.
func (r *release) describe(ctx context.Context) error {
	var seconds, changes string
	for _, ask := range []struct {
		into *string
		args []string
	}{
		{&r.version, []string{"describe", "--tags", "--match=v*", "--always", "--abbrev=12"}},
		{&r.commit, []string{"rev-parse", "HEAD"}},
		{&seconds, []string{"log", "-1", "--format=%ct"}},
		{&changes, []string{"status", "--porcelain"}},
	} {
		out, err := r.git(ctx, ask.args...)
		if err != nil {
			return err
		}
		*ask.into = out
	}
	if changes != "" { // Files that git does not know are also compiled and packed.
		r.version += "-dirty"
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the time of the commit: %w", err)
	}
	r.created = time.Unix(at, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.source
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// build builds refract for a platform. The binary is static, so that it starts in an empty image, and contains neither
// the path nor the time of the build.
func (r *release) build(ctx context.Context, p platform, work string) (binary, error) {
	b := binary{p, filepath.Join(work, p.os+"-"+p.arch, "refract")}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -X refract.dev/internal/cli.version="+r.version, "-o", b.path, "./cmd/refract")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return binary{}, fmt.Errorf("building refract for %s: %w", p, err)
	}
	return b, nil
}

// shells maps each shell that refract has completions for to the file name of its completions.
var shells = map[string]string{"bash": "refract", "zsh": "_refract", "fish": "refract.fish"}

// completions returns the completions by shell. A refract program for this machine prints them.
func (r *release) completions(ctx context.Context) (map[string][]byte, error) {
	all := map[string][]byte{}
	for shell := range shells {
		cmd := exec.CommandContext(ctx, "go", "run", "-buildvcs=false", "./cmd/refract", "completion", shell)
		cmd.Dir, cmd.Stderr = r.source, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("refract completion %s: %w", shell, err)
		}
		all[shell] = out
	}
	return all, nil
}

// materials writes the bill of materials of a binary as CycloneDX, from the build information that Go embeds in the
// binary.
func (r *release) materials(ctx context.Context, b binary) error {
	cmd := exec.CommandContext(ctx, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-notimestamp", "-version", r.version, b.path)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("writing the bill of materials for %s: %w", b.platform, err)
	}
	if text, err = withoutTools(text); err != nil {
		return fmt.Errorf("reading the bill of materials for %s: %w", b.platform, err)
	}
	return os.WriteFile(r.name(b.platform, ".cdx.json"), text, 0o644)
}

// withoutTools returns a bill without the digests of the program that wrote it, because they differ on each machine.
func withoutTools(bill []byte) ([]byte, error) {
	var b cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(bill), cyclonedx.BOMFileFormatJSON).Decode(&b); err != nil {
		return nil, err
	}
	if b.Metadata != nil {
		b.Metadata.Tools = nil
	}
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(&b, b.SpecVersion); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// tagged matches the version of a commit with a tag.
var tagged = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// charts writes the Helm chart and the manifests that are rendered from it. It runs the module in charts. The chart
// contains its own version, which must be equal to the version of the tag, if the commit has one.
func (r *release) charts(ctx context.Context) error {
	out, err := filepath.Abs(r.out)
	if err != nil {
		return err
	}
	r.say("packing the chart (the libraries of Helm are built at first)")
	args := []string{"run", ".", "package"}
	if tagged.MatchString(r.version) {
		args = append(args, "-tag", r.version)
	}
	if r.digest != "" {
		args = append(args, "-digest", r.digest)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, out)...)
	cmd.Dir = filepath.Join(r.source, "charts")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	return nil
}
