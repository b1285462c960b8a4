package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// everything enables all parts of the chart at once.
const everything = `
createNamespace: true
injection: {enabled: true}
conversion: {enabled: true}
member: {enabled: true}
metrics:
  serviceMonitor: {enabled: true}
  prometheusRule: {enabled: true}
  dashboard: {enabled: true}
`

// settings returns the values that the tests render the whole chart with.
func settings(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{"default": {}, "everything": parse(t, everything)}
	for installation := range installations {
		text, err := os.ReadFile(filepath.Join(valuesDir, installation+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		all[installation] = parse(t, string(text))
	}
	return all
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return values
}

func load(t *testing.T, path string) *chart.Chart {
	t.Helper()
	c, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// object is a rendered object with its text, including comments.
type object struct {
	*unstructured.Unstructured

	text string
}

// key returns the kind and the name of an object.
func (o object) key() string { return o.GetKind() + "/" + o.GetName() }

// objects parses rendered texts into objects by kind and name.
func objects(t *testing.T, texts map[string]string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for name, text := range texts {
		for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			o := object{&unstructured.Unstructured{}, string(document)}
			if err := yaml.UnmarshalStrict(document, &o.Object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, o.text)
			}
			if len(o.Object) == 0 {
				continue
			}
			if _, twice := all[o.key()]; twice {
				t.Errorf("%s is rendered twice", o.key())
			}
			all[o.key()] = o
		}
	}
	return all
}

// render renders the chart as `helm template` does, including Helm's checks. Without a version of Kubernetes it uses
// the newest.
func render(t *testing.T, c *chart.Chart, values map[string]any, kubernetes string) (map[string]object, *releasev1.Release, error) {
	t.Helper()
	install := action.NewInstall(action.NewConfiguration())
	install.ReleaseName, install.Namespace, install.DryRunStrategy = "refract", systemNamespace, action.DryRunClient
	if kubernetes == "" {
		kubernetes = "v1.37.1"
	}
	version, err := common.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	install.KubeVersion = version
	made, err := install.RunWithContext(t.Context(), c, named(values))
	if err != nil {
		return nil, nil, err
	}
	release, ok := made.(*releasev1.Release)
	if !ok {
		t.Fatalf("want a release, got %T", made)
	}
	return objects(t, map[string]string{"manifest": release.Manifest}), release, nil
}

// named adds a registry to the given values, because the chart requires one.
func named(values map[string]any) map[string]any {
	all := maps.Clone(values)
	if all == nil {
		all = map[string]any{}
	}
	image := map[string]any{"registry": "registry.example.com"}
	given, ok := all["image"].(map[string]any)
	if maps.Copy(image, given); ok || all["image"] == nil {
		all["image"] = image
	}
	return all
}

// TestImageIsNamed: the chart has no default registry, and the pods pull no image from a host that the user did not name.
func TestImageIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"image: {registry: ''}":   "image.registry: want the host of a registry of yours",
		"image: {registry: team}": "image.registry: want the host of a registry of yours",
		"{image: {registry: ''}, injection: {enabled: true, image: {registry: registry.example.com}}}": "image.registry: want the host of a registry of yours",
		"image: {registry: '', repository: registry.example.com/team/refract}":                         "",
		"image: {registry: 'localhost:5000'}":                                                          "",
		"{image: {registry: ''}, propagation: {enabled: false}, member: {enabled: true}}":              "",
	} {
		_, _, err := render(t, load(t, chartDir), parse(t, text), "")
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want error %q, got %v", text, want, err)
		}
	}
}

// TestDigest: a chart that is packed with the digest of an image refers to the image by this digest.
func TestDigest(t *testing.T) {
	dir := t.TempDir()
	if err := writePackage(dir, "", digest, time.Unix(1_700_000_000, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	for name, text := range read(t, dir) {
		switch {
		case name == "install-member.yaml":
		case strings.HasSuffix(name, ".yaml"):
			if got := strings.Count(text, "image: registry.invalid/refract@"+digest+"\n"); got != 1 {
				t.Errorf("%s: want the image by its digest, got\n%s", name, text)
			}
		default:
			packed, err := loader.LoadArchive(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			all := rendered(t, packed, nil)
			check(t, all, shown{at: container + "/image", want: "registry.example.com/refract@" + digest}, "Deployment/refract")
		}
	}
	if err := writePackage(t.TempDir(), "", "sha256:abc", time.Now()); err == nil {
		t.Error("want an error for what is no digest")
	}
}

// TestConfigIsRendered: config/install and config/rbac have the files that the chart renders, and otherwise only
// kustomization files.
func TestConfigIsRendered(t *testing.T) {
	want, err := config()
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "run `make charts`, and commit what it changes"
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(root, "config", name))
		if err != nil {
			t.Errorf("%v: %s", err, remedy)
			continue
		}
		if diff := cmp.Diff(text, string(got)); diff != "" {
			t.Errorf("config/%s is not what the chart gives: %s\n%s", name, remedy, diff)
		}
	}
	for _, dir := range []string{"install", "rbac"} {
		err := fs.WalkDir(os.DirFS(filepath.Join(root, "config")), dir, func(name string, d fs.DirEntry, err error) error {
			if _, made := want[name]; err == nil && !d.IsDir() && !made && d.Name() != "kustomization.yaml" {
				t.Errorf("config/%s is not made by the chart: write it into a template, and remove it", name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamespaceIsAWord: the text for another namespace differs only in the name of the namespace. So a user of the
// rendered manifests can install them in another namespace by replacing the text.
func TestNamespaceIsAWord(t *testing.T) {
	c := load(t, chartDir)
	for name, values := range settings(t) {
		t.Run(name, func(t *testing.T) {
			values := named(values)
			here, err := manifests(c, values, systemNamespace)
			if err != nil {
				t.Fatal(err)
			}
			there, err := manifests(c, values, "other")
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range here {
				here[file] = strings.ReplaceAll(text, systemNamespace, "other")
			}
			if diff := cmp.Diff(here, there); diff != "" {
				t.Errorf("-the word replaced, +rendered for it:\n%s", diff)
			}
		})
	}
}

// TestLint: helm lint reports nothing about the chart, not even a warning.
func TestLint(t *testing.T) {
	for name, values := range settings(t) {
		t.Run(name, func(t *testing.T) {
			lint := action.NewLint()
			lint.Strict, lint.Namespace = true, systemNamespace
			result := lint.Run([]string{chartDir}, values)
			for _, m := range result.Messages {
				t.Errorf("%s", m)
			}
			for _, err := range result.Errors {
				t.Error(err)
			}
			if result.TotalChartsLinted != 1 {
				t.Errorf("want one chart to be looked at, got %d", result.TotalChartsLinted)
			}
		})
	}
}

// TestKubeVersion: the chart accepts the versions of Kubernetes that Refract supports.
func TestKubeVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.34.9": "chart requires kubeVersion: >=1.35.0-0 which is incompatible with Kubernetes v1.34.9",
		"v1.35.0": "", "v1.35.1-gke.100": "", "v1.37.1": "",
	} {
		_, _, err := render(t, load(t, chartDir), nil, version)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: want %q, got %q", version, want, got)
		}
	}
}

// notKept is the admission policy that the account of `refract run` may not change. So the installation writes it.
const notKept = "refract-injection-pods"

// keptByRun are the kinds of the objects that `refract run` itself maintains.
var keptByRun = []string{
	"CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// TestObjects: the API server knows each rendered field. No object is a hook or is maintained by `refract run`. All
// objects name their owner in labels, except Namespaces, which other objects can use too.
func TestObjects(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, monitoringv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, values := range settings(t) {
		t.Run(name, func(t *testing.T) {
			all, release, err := render(t, load(t, chartDir), values, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(release.Hooks) > 0 || strings.Contains(release.Manifest, "helm.sh/hook") {
				t.Errorf("hooks leave jobs behind that failed, and hold up who uninstalls: got %d", len(release.Hooks))
			}
			if !strings.Contains(release.Info.Notes, "refract check") {
				t.Errorf("want the notes to say how to see whether all is well, got %q", release.Info.Notes)
			}
			for key, o := range all {
				if _, _, err := strict.Decode([]byte(o.text), nil, nil); err != nil {
					t.Errorf("%s: %v", key, err)
				}
				if slices.Contains(keptByRun, o.GetKind()) && o.GetName() != notKept {
					t.Errorf("%s: `refract run` keeps it, and two cannot own one object", key)
				}
				labels := o.GetLabels()
				if o.GetKind() != "Namespace" && (labels["app.kubernetes.io/name"] == "" || labels["app.kubernetes.io/part-of"] != "refract") {
					t.Errorf("%s: want labels that say whose it is, got %v", key, labels)
				}
			}
		})
	}
}

// TestPackage: two packages of the same files are equal, byte for byte, even if the files have other times. The package
// is the whole chart, the manifests are beside it, and the tag is the version of the chart.
func TestPackage(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	c := load(t, chartDir)
	archive := "refract-" + c.Metadata.Version + ".tgz"
	dir := t.TempDir()
	if err := writePackage(dir, "", "", at); err != nil {
		t.Fatal(err)
	}
	made := read(t, dir)
	later := load(t, chartDir)
	later.ModTime, later.SchemaModTime = time.Now(), time.Now()
	for _, f := range slices.Concat(later.Raw, later.Templates, later.Files) {
		f.ModTime = time.Now()
	}
	slices.Reverse(later.Templates)
	again := t.TempDir()
	if _, err := pack(later, again, at); err != nil {
		t.Fatal(err)
	}
	if read(t, again)[archive] != made[archive] {
		t.Error("packed again from files that were written later: want the same bytes")
	}
	want := []string{"install-conversion.yaml", "install-injection.yaml", "install-member.yaml", "install-propagation.yaml", archive}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(made))); diff != "" {
		t.Errorf("files: -want, +got:\n%s", diff)
	}
	packed, err := loader.LoadArchive(bytes.NewReader([]byte(made[archive])))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range settings(t) {
		values := named(values)
		want, err := manifests(c, values, systemNamespace)
		if err != nil {
			t.Fatal(err)
		}
		got, err := manifests(packed, values, systemNamespace)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, -from the folder, +from the archive:\n%s", name, diff)
		}
		if _, ok := installations[name]; !ok {
			continue
		}
		in := objects(t, map[string]string{"": made["install-"+name+".yaml"]})
		if diff := cmp.Diff(slices.Sorted(maps.Keys(objects(t, want))), slices.Sorted(maps.Keys(in))); diff != "" {
			t.Errorf("install-%s.yaml: -want, +got:\n%s", name, diff)
		}
	}
	if err := writePackage(t.TempDir(), "v9.9.9", "", at); err == nil || !strings.Contains(err.Error(), "Chart.yaml") {
		t.Errorf("want an error that says where the version stands, got %v", err)
	}
	if err := writePackage(t.TempDir(), c.Metadata.AppVersion, "", at); err != nil {
		t.Errorf("the chart's own version: %v", err)
	}
}

// read returns the files of a folder.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

func TestCommands(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing": nil, "unknown": {"publish"}, "no folder": {"package"}, "two folders": {"package", "a", "b"}, "unknown flag": {"package", "-sign", "a"},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	dir := t.TempDir()
	if err := run(t.Context(), []string{"package", dir}); err != nil {
		t.Fatal(err)
	}
	if len(read(t, dir)) == 0 {
		t.Error("package wrote nothing")
	}
}

// TestVersions: the Kubernetes libraries of this module have the versions that Refract uses, so that the tests cover
// them.
func TestVersions(t *testing.T) {
	line := regexp.MustCompile(`(?m)^\t(k8s\.io/(?:api|apimachinery|client-go|apiextensions-apiserver)) (v\S+)`)
	versions := func(file string) map[string]string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = m[2]
		}
		return all
	}
	if diff := cmp.Diff(versions(filepath.Join(root, "go.mod")), versions("go.mod")); diff != "" {
		t.Errorf("-go.mod, +charts/go.mod: run `go get MODULE@VERSION` where it is older\n%s", diff)
	}
}
