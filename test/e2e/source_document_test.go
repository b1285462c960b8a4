package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/test/harness"
)

// echoGroups is the CRD for the example of an imagePath in KubeAdmiral's documentation.
const echoGroups = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: echogroups.apps.my.company}
spec:
  group: apps.my.company
  names: {kind: EchoGroup, plural: echogroups, singular: echogroup}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// TestSourceDocument applies every example of KubeAdmiral's documentation to the hub, with the cluster names of this
// fleet, and compares the copies on the members with the expected output of refract render in examples/testdata.
func TestSourceDocument(t *testing.T) {
	t.Parallel()
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		define(t, cluster, echoGroups, "echogroups.apps.my.company")
	}
	const root = "../../examples/override"
	clusters, err := os.ReadFile(filepath.Join(root, "clusters.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	folders, err := os.ReadDir(filepath.Join(root, "source-document"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("reading the examples: %d found, %v", len(folders), err)
	}
	names := strings.NewReplacer("kubeadmiral-member-", "member-", "Cluster-01", "member-1", "Cluster-02", "member-2")
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(root, "source-document", folder.Name(), "*.yaml"))
			if err != nil || len(files) == 0 {
				t.Fatalf("reading the example: %d files, %v", len(files), err)
			}
			dir := t.TempDir()
			var manifest []string
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				manifest = append(manifest, names.Replace(string(text)))
			}
			all := strings.Join(manifest, "\n---\n")
			if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(all+"\n---\n"+string(clusters)), 0o600); err != nil {
				t.Fatal(err)
			}
			want := rendered(t, dir)
			do(t, all, "apply", "-f", "-")
			compare(t, want)
			do(t, all, "delete", "-f", "-")
			for _, o := range want {
				eventually(t, o.cluster+": "+o.object.GetName()+" is gone", "absent", func() string { return harness.Field(o.live(t), "kind") })
			}
		})
	}
}

// placed is an object and the cluster that should get it.
type placed struct {
	cluster string
	object  *unstructured.Unstructured
}

func (p placed) live(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	gvk := p.object.GroupVersionKind()
	kind := strings.ToLower(gvk.Kind) + "." + gvk.Version + "." + gvk.Group
	if gvk.Group == "" {
		kind = strings.ToLower(gvk.Kind)
	}
	return get(t, p.cluster, kind, p.object.GetNamespace(), p.object.GetName())
}

func rendered(t *testing.T, dir string) []placed {
	t.Helper()
	out, err := env.Refract("render", "-f", dir, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	all := decodeRendered(t, out)
	if len(all) == 0 {
		t.Fatal("refract render: want an object for at least one cluster, got none")
	}
	return all
}

// compare waits until the members have these objects. It ignores fields that only the copies have, because the API
// servers of the members add fields.
func compare(t *testing.T, want []placed) {
	t.Helper()
	for _, o := range want {
		eventually(t, o.cluster+": "+o.object.GetKind()+" "+o.object.GetName(), "as rendered", func() string {
			live := o.live(t)
			if live == nil {
				return "absent"
			}
			// Both objects come from the same decoder, so their numbers are comparable.
			if at := harness.Lacks("", o.object.Object, live.Object); at != "" {
				return at
			}
			return "as rendered"
		})
	}
}
