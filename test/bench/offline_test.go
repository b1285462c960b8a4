package bench

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/output"
	"refract.dev/test/generate"
)

// large is a fleet with a million copies, and larger is one with ten million.
var (
	large  = generate.Size{Objects: 1000, Clusters: 1000, Policies: 50}
	larger = generate.Size{Objects: 5000, Clusters: 2000, Policies: 250}
)

// BenchmarkOffline reports the time and the maximum memory of the offline commands, as whole processes: medians of
// several runs.
func BenchmarkOffline(b *testing.B) {
	o := &offline{dir: b.TempDir(), fleet: generate.Large(large)}
	o.refract = build(b, "-trimpath", "-buildvcs=false", "-ldflags", "-X refract.dev/internal/cli.version=bench", "refract.dev/cmd/refract")
	if err := o.fleet.WriteDir(o.dir); err != nil {
		b.Fatal(err)
	}
	b.Run("Variants", func(b *testing.B) { o.variants(b, large) })
	b.Run("VariantsOfMore", func(b *testing.B) {
		more := &offline{dir: b.TempDir(), refract: o.refract}
		if err := generate.Large(larger).WriteDir(more.dir); err != nil {
			b.Fatal(err)
		}
		more.variants(b, larger)
	})
	b.Run("Cluster", o.cluster)
	b.Run("Diff", o.diff)
	b.Run("Version", o.version)
	b.Run("Object", o.object)
	b.Run("Kustomize", o.kustomize)
}

// offline has the program, and a large fleet that is written to dir.
type offline struct {
	refract string
	dir     string
	fleet   generate.Fleet
}

// variants renders all objects for all clusters, and prints the variants.
func (o *offline) variants(b *testing.B, fleet generate.Size) {
	b.Helper()
	want := fmt.Sprintf("%s: %s across %s", output.Count(fleet.Objects, "object", "objects"), output.Count(3*fleet.Objects, "variant", "variants"),
		output.Count(fleet.Clusters, "cluster", "clusters"))
	for b.Loop() {
		runs := repeat(rounds, func() *process { return run(b, o.refract, "render", "-f", o.dir, "-o", "variants") })
		for _, r := range runs {
			if got := lastLine(r.stdout); r.code != 0 || got != want {
				b.Fatalf("exit %d and %q, want 0 and %q\n%s", r.code, got, want, r.stderr)
			}
		}
		report(b, "", runs)
	}
}

// cluster renders all objects for one cluster, and prints them.
func (o *offline) cluster(b *testing.B) {
	for b.Loop() {
		runs := repeat(rounds, func() *process { return run(b, o.refract, "render", "-f", o.dir, "--member", "cluster-0000") })
		for _, r := range runs {
			if n := len(objectsOf(b, r)); n != large.Objects {
				b.Fatalf("%d objects, want %d", n, large.Objects)
			}
		}
		report(b, "", runs)
	}
}

// diff compares the fleet before and after the change of one policy.
func (o *offline) diff(b *testing.B) {
	file := generate.LargePolicy(0)
	text, err := fs.ReadFile(o.fleet.FS(), file)
	if err != nil {
		b.Fatal(err)
	}
	changed := bytes.Replace(text, []byte("value: 10\n"), []byte("value: 77\n"), 1)
	if bytes.Equal(changed, text) {
		b.Fatalf("%s does not set 10 replicas", file)
	}
	to := filepath.Join(b.TempDir(), "changed.yaml")
	if err := os.WriteFile(to, changed, 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		runs := repeat(rounds, func() *process { return run(b, o.refract, "diff", "-f", o.dir, "--to", to, "-o", "text") })
		for _, r := range runs {
			want := fmt.Sprintf("\n%d objects on ", large.Objects/large.Policies)
			if r.code != 1 || !bytes.Contains(r.stdout, []byte(want)) {
				b.Fatalf("exit %d, want 1 and%s…\n%s%s", r.code, want, r.stdout, r.stderr)
			}
		}
		report(b, "", runs)
	}
}

// starts is the number of runs of very short commands.
const starts = 20

// version measures the start of the program.
func (o *offline) version(b *testing.B) {
	for b.Loop() {
		runs := repeat(starts, func() *process { return run(b, o.refract, "version") })
		for _, r := range runs {
			if r.code != 0 || !bytes.HasPrefix(r.stdout, []byte("refract bench ")) {
				b.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		}
		report(b, "", runs)
	}
}

// object renders one object for one cluster.
func (o *offline) object(b *testing.B) {
	dir := b.TempDir()
	if err := generate.Large(generate.Size{Objects: 1, Clusters: 1, Policies: 1}).WriteDir(dir); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		runs := repeat(starts, func() *process { return run(b, o.refract, "render", "-f", dir) })
		for _, r := range runs {
			if n := len(objectsOf(b, r)); n != 1 {
				b.Fatalf("%d objects, want 1", n)
			}
		}
		report(b, "", runs)
	}
}

// kustomize compares kustomize with refract: in turn, both print 1,000 Deployments with other replicas, another image
// and one more label. The outputs must be equal.
func (o *offline) kustomize(b *testing.B) {
	program := build(b, "-modfile=../../go.tools.mod", "sigs.k8s.io/kustomize/kustomize/v5")
	dir := overlay(b)
	for b.Loop() {
		var theirs, ours []*process
		for range rounds {
			theirs = append(theirs, run(b, program, "build", filepath.Join(dir, "overlay")))
			ours = append(ours, run(b, o.refract, "render", "-f", filepath.Join(dir, "base", "objects.yaml"), "-f", filepath.Join(dir, "fleet")))
		}
		for i := range rounds {
			want, got := objectsOf(b, theirs[i]), objectsOf(b, ours[i])
			if diff := cmp.Diff(want, got); len(want) != large.Objects || diff != "" {
				b.Fatalf("%d objects, want %d, and: -kustomize, +refract\n%s", len(want), large.Objects, diff)
			}
		}
		report(b, "kustomize-", theirs)
		report(b, "refract-", ours)
		b.ReportMetric(median(theirs, seconds)/median(ours, seconds), "ratio")
	}
}

// overlay writes 1,000 Deployments and the files with which kustomize and refract change them, and returns the folder.
// The Deployments are in ten namespaces: with a single one, kustomize takes twice the time.
func overlay(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	text, err := os.ReadFile("testdata/overlay/policy.yaml")
	if err != nil {
		b.Fatal(err)
	}
	var policy generate.Document
	if err := yaml.Unmarshal(text, &policy); err != nil {
		b.Fatal(err)
	}
	all := generate.Large(generate.Size{Objects: large.Objects, Clusters: 1, Policies: 10})
	base, rest := generate.Fleet{}, generate.Fleet{}
	for _, file := range all.Paths() {
		switch folder, _, _ := strings.Cut(file, "/"); folder {
		case generate.LargeObjects:
			base["objects.yaml"] = append(base["objects.yaml"], all[file]...)
		case generate.LargePolicies:
			all[file][0]["spec"] = policy["spec"]
			rest[file] = all[file]
		default:
			rest[file] = all[file]
		}
	}
	base["kustomization.yaml"] = []generate.Document{{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []any{"objects.yaml"},
	}}
	for name, f := range map[string]generate.Fleet{"base": base, "fleet": rest} {
		if err := f.WriteDir(filepath.Join(dir, name)); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "overlay"), os.DirFS("testdata/overlay")); err != nil {
		b.Fatal(err)
	}
	return dir
}

// objectsOf returns the objects in the YAML output of a process, by namespace and name, without the labels for the hub.
func objectsOf(b *testing.B, p *process) map[string]any {
	b.Helper()
	if p.code != 0 {
		b.Fatalf("exit %d\n%s", p.code, p.stderr)
	}
	set, problems := manifest.Read([]string{manifest.Stdin}, bytes.NewReader(p.stdout))
	if len(problems) > 0 {
		b.Fatal(problems[0])
	}
	objects := map[string]any{}
	for _, o := range set.Objects {
		labels := o.Content.GetLabels()
		for key := range labels {
			if strings.HasPrefix(key, corev1alpha1.Prefix) {
				delete(labels, key)
			}
		}
		o.Content.SetLabels(labels)
		objects[path.Join(o.Content.GetNamespace(), o.Content.GetName())] = o.Content.Object
	}
	return objects
}
