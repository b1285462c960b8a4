package render

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/golden"
)

// TestGolden renders the files of an archive. The file clusters names the clusters to show. want.json is the result,
// and want.txt the output for users.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", rerun)
}

// rerun returns the files of expected output.
func rerun(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := golden.FS(golden.Inputs(archive))
	var clusters []string
	if f, ok := in["clusters"]; ok {
		clusters = strings.Fields(string(f.Data))
		delete(in, "clusters")
	}
	set, problems := manifest.ReadFS(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	before := documents(t, set)
	result, err := Render(set, clusters)
	if diff := cmp.Diff(before, documents(t, set)); diff != "" {
		t.Errorf("Render() changed its input: -before, +after:\n%s", diff)
	}
	var told strings.Builder
	if err != nil {
		told.WriteString(err.Error() + "\n")
		return []txtar.File{{Name: "want.txt", Data: []byte(told.String())}}
	}
	for _, w := range result.Warnings {
		told.WriteString("warning: " + w.String() + "\n")
	}
	for _, e := range result.Errors {
		told.WriteString("error: " + e.String() + "\n")
		if e.Hint != "" {
			told.WriteString("hint: " + e.Hint + "\n")
		}
	}
	var asJSON bytes.Buffer
	if err := WriteJSON(&asJSON, result); err != nil {
		t.Fatal(err)
	}
	return []txtar.File{{Name: "want.txt", Data: []byte(told.String())}, {Name: "want.json", Data: asJSON.Bytes()}}
}

func documents(t *testing.T, set *manifest.Set) []string {
	t.Helper()
	var all []string
	for _, o := range set.Manifests {
		text, err := o.Content.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

func TestClusters(t *testing.T) {
	const members = `
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: member-2}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: member-1}}
---
`
	const leaving = `{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: member-3, deletionTimestamp: "2026-01-01T00:00:00Z"}}`
	cases := map[string]struct {
		reason string
		in     string
		only   []string
		want   []string
		err    error
		near   string
	}{
		"All":            {reason: "Without names, all clusters are shown, sorted.", in: members, want: []string{"member-1", "member-2"}},
		"Some":           {reason: "With names, only those are shown, once.", in: members, only: []string{"member-2", "member-2"}, want: []string{"member-2"}},
		"Unknown":        {reason: "A mistyped name is an error, not an empty result.", in: members, only: []string{"membr-1"}, near: "member-1"},
		"UnknownFar":     {reason: "A far-fetched suggestion is worse than none.", in: members, only: []string{"tokyo"}},
		"None":           {reason: "Without FederatedClusters and names, no cluster is known.", err: ErrNoClusters},
		"NoneButNamed":   {reason: "Without FederatedClusters, names are enough.", only: []string{"b", "a", "b"}, want: []string{"a", "b"}},
		"NameOfThePage":  {reason: "A name with capital letters, as in KubeAdmiral's documentation, is accepted although no FederatedCluster can have it.", only: []string{"Cluster-01"}, want: []string{"Cluster-01"}},
		"Leaving":        {reason: "A cluster that leaves the fleet gets nothing.", in: members + leaving, want: []string{"member-1", "member-2"}},
		"LeavingNamed":   {reason: "A leaving cluster is known, but gets nothing.", in: members + leaving, only: []string{"member-3"}, want: []string{}},
		"AllLeave":       {reason: "Leaving clusters are known, but get nothing.", in: leaving, want: []string{}},
		"NamedInNoOrder": {reason: "The order of the names does not matter.", in: members, only: []string{"member-2", "member-1"}, want: []string{"member-1", "member-2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := manifest.ReadFS(fstest.MapFS{"a.yaml": {Data: []byte(tc.in)}})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			result, err := Render(set, tc.only)
			var unknown *UnknownClusterError
			switch {
			case tc.want != nil && err != nil:
				t.Fatalf("%s\nRender(): %v", tc.reason, err)
			case tc.want != nil:
			case tc.err != nil:
				if !errors.Is(err, tc.err) {
					t.Errorf("%s\nRender(): error %v, want %v", tc.reason, err, tc.err)
				}
				return
			default:
				if !errors.As(err, &unknown) || unknown.Name != tc.only[0] || unknown.Near != tc.near {
					t.Errorf("%s\nRender(): error %#v, want an UnknownClusterError near %q", tc.reason, err, tc.near)
				}
				return
			}
			got := []string{}
			for _, c := range result.Clusters {
				got = append(got, c.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nRender(): clusters: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWriteYAML(t *testing.T) {
	r := &Result{Clusters: []Cluster{
		{Name: "a", Objects: []map[string]any{
			{"apiVersion": "v1", "kind": "X", "value": int64(9007199254740993), "text": "yes", "metadata": map[string]any{"name": "x"}},
			{"apiVersion": "v1", "kind": "Y"},
		}},
		{Name: "b", Objects: []map[string]any{}},
		{Name: "c", Objects: []map[string]any{{"apiVersion": "v1", "kind": "Z"}}},
	}}
	const want = `---
# cluster: a
apiVersion: v1
kind: X
metadata:
  name: x
text: "yes"
value: 9007199254740993
---
# cluster: a
apiVersion: v1
kind: "Y"
---
# cluster: c
apiVersion: v1
kind: Z
`
	var got bytes.Buffer
	if err := WriteYAML(&got, r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("WriteYAML(): -want, +got:\n%s", diff)
	}
}

func TestFiles(t *testing.T) {
	object := func(apiVersion, kind, namespace, name string) map[string]any {
		m := map[string]any{"name": name}
		if namespace != "" {
			m["namespace"] = namespace
		}
		return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": m}
	}
	cases := map[string]struct {
		reason  string
		cluster string
		objects []map[string]any
		want    []string
		fails   bool
	}{
		"CoreGroup":     {reason: "The core group is not part of the file name.", objects: []map[string]any{object("v1", "ConfigMap", "shop", "a")}, want: []string{"m/shop/configmap-a.yaml"}},
		"Group":         {reason: "The group follows the kind.", objects: []map[string]any{object("apps/v1", "Deployment", "shop", "a")}, want: []string{"m/shop/deployment.apps-a.yaml"}},
		"ClusterScoped": {reason: "The folder _cluster is for cluster-scoped objects: no namespace can have that name.", objects: []map[string]any{object("v1", "Namespace", "", "a")}, want: []string{"m/_cluster/namespace-a.yaml"}},
		"Colon":         {reason: "Some file systems do not allow a colon.", objects: []map[string]any{object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:a%b")}, want: []string{"m/_cluster/clusterrole.rbac.authorization.k8s.io-system%3Aa%25b.yaml"}},
		"Outside":       {reason: "No name leads out of the folder.", cluster: "../..", objects: []map[string]any{object("v1", "X", "", "a")}, want: []string{"%2E.%2F../_cluster/x-a.yaml"}},
		"Capitals":      {reason: "Capital letters are kept.", cluster: "Cluster-01", objects: []map[string]any{object("v1", "X", "", "a")}, want: []string{"Cluster-01/_cluster/x-a.yaml"}},
		"OneFile":       {reason: "Some file systems do not distinguish capital and small letters.", objects: []map[string]any{object("v1", "X", "", "Admin"), object("v1", "X", "", "admin")}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.cluster == "" {
				tc.cluster = "m"
			}
			files, err := Files(&Result{Clusters: []Cluster{{Name: tc.cluster, Objects: tc.objects}}})
			if (err != nil) != tc.fails {
				t.Fatalf("%s\nFiles(): error %v", tc.reason, err)
			}
			var got []string
			for _, f := range files {
				got = append(got, f.Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nFiles(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGroupsOfMany(t *testing.T) {
	// Twenty combinations of rules that give three different objects, and two failures.
	var fleet strings.Builder
	fleet.WriteString(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {kubeadmiral.io/override-policy-name: a}}, data: {n: "0"}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: a}
spec:
  overrideRules:
`)
	for i := range 20 {
		fmt.Fprintf(&fleet, "  - {targetClusters: {clusters: [c%02d]}, overriders: {jsonpatch: [{path: /data/n, value: %q}]}}\n", i, fmt.Sprint(i%3))
	}
	for i := range 2 {
		fmt.Fprintf(&fleet, "  - {targetClusters: {clusters: [d%d]}, overriders: {jsonpatch: [{path: /no, operator: remove}]}}\n", i)
	}
	for i := range 20 {
		fmt.Fprintf(&fleet, "---\n{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: c%02d}}\n", i)
	}
	for i := range 2 {
		fmt.Fprintf(&fleet, "---\n{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: d%d}}\n", i)
	}
	set, problems := manifest.ReadFS(fstest.MapFS{"fleet.yaml": {Data: []byte(fleet.String())}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	e, err := Evaluate(set, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range e.Outcomes[0].Groups() {
		got = append(got, strings.Join(e.Outcomes[0].Names(g.Clusters), " "))
	}
	want := []string{"c00 c03 c06 c09 c12 c15 c18", "c01 c04 c07 c10 c13 c16 c19", "c02 c05 c08 c11 c14 c17", "d0", "d1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Clusters with the same result are a group; failures of different rules are not alike.\nGroups(): -want, +got:\n%s", diff)
	}
}
