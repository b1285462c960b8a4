// Command dist makes all parts of a release of Refract: static binaries for each platform with man pages and
// completions, a bill of materials for each, an image, the Helm chart, and the checksums of all files. It needs no
// container engine. The same commit and version of Go give the same bytes on every machine.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// platform is the operating system and the architecture of a binary.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// release is the release that this command makes.
type release struct {
	source  string // The root of the repository.
	out     string // The output folder. It contains only the release.
	version string
	commit  string
	created time.Time // The time of the commit, which is used for all times in the release.
	digest  string    // The digest of the image; empty until the image is written.
	say     func(format string, args ...any)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("dist", flag.ContinueOnError)
	source := f.String("source", "..", "the root of the repository")
	out := f.String("out", "../bin/dist", "the folder for what is made; what was there is removed")
	platforms := f.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "what to build for")
	key := f.String("key", "", "a file with a private key, as cosign generate-key-pair writes it: sign the image by it; its password is $COSIGN_PASSWORD")
	push := f.String("push", "", "push the image that is in the folder as REGISTRY/NAME:TAG, and make nothing")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *push != "" {
		return pushImage(ctx, filepath.Join(*out, imageDir), *push)
	}
	wanted, err := parsePlatforms(*platforms)
	if err != nil {
		return err
	}
	var sign *signing
	if *key != "" { // The key is read before the build, which takes minutes.
		if sign, err = signingBy(*key, os.Getenv("COSIGN_PASSWORD")); err != nil {
			return err
		}
	}
	r := &release{source: *source, out: *out, say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "==> "+format+"\n", args...) }}
	if err := r.describe(ctx); err != nil {
		return err
	}
	if err := r.make(ctx, wanted); err != nil || sign == nil {
		return err
	}
	return r.sign(sign)
}

func parsePlatforms(text string) ([]platform, error) {
	var all []platform
	for one := range strings.SplitSeq(text, ",") {
		system, arch, ok := strings.Cut(one, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("-platforms: want OS/ARCH, as linux/amd64, got %q", one)
		}
		all = append(all, platform{system, arch})
	}
	return all, nil
}

// make makes all parts of the release in an empty folder.
func (r *release) make(ctx context.Context, platforms []platform) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "refract-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r.say("building refract %s to print completions", r.version)
	completions, err := r.completions(ctx)
	if err != nil {
		return err
	}
	var images []binary
	for _, p := range platforms {
		r.say("building refract %s for %s by %s", r.version, p, runtime.Version())
		b, err := r.build(ctx, p, work)
		if err != nil {
			return err
		}
		if err := r.archive(b, completions); err != nil {
			return fmt.Errorf("packing refract for %s: %w", p, err)
		}
		if err := r.materials(ctx, b); err != nil {
			return err
		}
		if p.os == "linux" {
			images = append(images, b)
		}
	}
	if len(images) > 0 {
		r.say("writing the image")
		if err := r.image(images); err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
	}
	if err := r.charts(ctx); err != nil {
		return err
	}
	return r.checksums()
}

// name returns the path of a file of the release.
func (r *release) name(p platform, suffix string) string {
	return filepath.Join(r.out, fmt.Sprintf("refract_%s_%s_%s%s", strings.TrimPrefix(r.version, "v"), p.os, p.arch, suffix))
}

// checksums writes the checksums of all files of the release. It leaves out the folder of the image, whose files are
// named by their digests.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(text), e.Name()))
	}
	if len(lines) == 0 {
		return errors.New("nothing was made")
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
