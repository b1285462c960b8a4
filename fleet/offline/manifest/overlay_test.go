package manifest

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestOverlay(t *testing.T) {
	const (
		policies = `
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: p, namespace: a}, spec: {}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: p, namespace: b}, spec: {}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: ClusterOverridePolicy, metadata: {name: p}, spec: {}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: p}, spec: {schedulingMode: Duplicate}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: p}, spec: {schedulingMode: Duplicate}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: p}}
---
{apiVersion: refract.dev/v1alpha1, kind: Propagation, metadata: {name: p}, spec: {source: {apiVersion: v1, kind: ConfigMap, resource: configmaps, name: p}}}
---
{apiVersion: refract.dev/v1alpha1, kind: ClusterPropagation, metadata: {name: p}, spec: {source: {apiVersion: v1, kind: Node, resource: nodes, name: p}}}
`
		objects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two}}
`
	)
	cases := map[string]struct {
		reason        string
		below, over   string
		want          []string // In the order of Manifests.
		wantOfObjects []string
	}{
		"Nothing": {reason: "Two empty Sets give an empty Set."},
		"Same": {
			reason: "Without manifests over it, a Set does not change.",
			below:  objects, want: []string{"below:2 one", "below:4 two"}, wantOfObjects: []string{"below:2 one", "below:4 two"},
		},
		"InPlace": {
			reason: "An existing manifest is replaced in its place, whatever its version, and a new one is appended.",
			below:  objects,
			over: `{apiVersion: v2, kind: ConfigMap, metadata: {name: one}}
---
{apiVersion: v1, kind: Secret, metadata: {name: two}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: shop}}
`,
			want:          []string{"over:1 one", "below:4 two", "over:3 two", "over:5 two"},
			wantOfObjects: []string{"over:1 one", "below:4 two", "over:3 two", "over:5 two"},
		},
		"EveryList": {
			reason: "In each list, a manifest is replaced by one of the same identity, and by no other.",
			below:  policies + "---" + objects, over: policies,
			want: []string{
				"over:2 p", "over:4 p", "over:6 p", "over:8 p", "over:10 p", "over:12 p", "over:14 p", "over:16 p",
				"below:18 one", "below:20 two",
			},
			wantOfObjects: []string{"below:18 one", "below:20 two"},
		},
		"EveryListAdded": {
			reason: "Manifests of all kinds are added.",
			below:  objects, over: policies,
			want: []string{
				"below:2 one", "below:4 two",
				"over:2 p", "over:4 p", "over:6 p", "over:8 p", "over:10 p", "over:12 p", "over:14 p", "over:16 p",
			},
			wantOfObjects: []string{"below:2 one", "below:4 two"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			below, over := setOf(t, "below", tc.below), setOf(t, "over", tc.over)
			before := describe(below, nil) + describe(over, nil)
			got := below.Overlay(over)
			if diff := cmp.Diff(tc.want, placesOf(got.Manifests)); diff != "" {
				t.Errorf("%s\nOverlay(): Manifests: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.wantOfObjects, placesOf(got.Objects)); diff != "" {
				t.Errorf("%s\nOverlay(): Objects: -want, +got:\n%s", tc.reason, diff)
			}
			// describe names the list of each manifest.
			if text := describe(got, nil); strings.Contains(text, "in \n") || strings.Count(text, "\n") != membersOf(got) {
				t.Errorf("%s\nOverlay(): lists differ from Manifests:\n%s", tc.reason, text)
			}
			if diff := cmp.Diff(before, describe(below, nil)+describe(over, nil)); diff != "" {
				t.Errorf("Overlay() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func setOf(t *testing.T, file, text string) *Set {
	t.Helper()
	set, problems := ReadFS(fstest.MapFS{file + ".yaml": {Data: []byte(text)}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

func placesOf(objects []Object) []string {
	var out []string
	for _, o := range objects {
		place, _, _ := strings.Cut(o.Place.String(), ": ")
		out = append(out, strings.Replace(place, ".yaml", "", 1)+" "+o.Content.GetName())
	}
	return out
}

// membersOf counts the members of all lists except Manifests.
func membersOf(s *Set) int {
	return len(s.Objects) + len(s.OverridePolicies) + len(s.ClusterOverridePolicies) + len(s.PropagationPolicies) +
		len(s.ClusterPropagationPolicies) + len(s.Clusters) + len(s.Propagations)
}

// TestOverlayInjectionPolicies verifies that the compiled policy is replaced together with the object.
func TestOverlayInjectionPolicies(t *testing.T) {
	const (
		a = "{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: a}, spec: {selector: {}, env: [{name: A}]}}"
		b = "{apiVersion: extensions/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: b}, spec: {selector: {}, env: [{name: A}]}}"
	)
	got := setOf(t, "below", a+"\n---\n"+b).Overlay(setOf(t, "over", b))
	want := []string{"below:1 a", "over:1 b"}
	if diff := cmp.Diff(want, placesOf(got.Objects)); diff != "" {
		t.Errorf("Overlay(): Objects: -want, +got:\n%s", diff)
	}
	var policies []string
	for i := range got.InjectionPolicies {
		place, _, _ := strings.Cut(got.InjectionPolicies[i].Place.String(), ".yaml")
		policies = append(policies, place+" "+got.InjectionPolicies[i].Compiled.Name())
	}
	if diff := cmp.Diff([]string{"below a", "over b"}, policies); diff != "" {
		t.Errorf("Overlay(): InjectionPolicies: -want, +got:\n%s", diff)
	}
	if len(got.Notes) != 1 || got.Notes[0].Place.File != "over.yaml" {
		t.Errorf("Overlay(): want one note, about the manifest of over, got %v", got.Notes)
	}
}

func TestOverlayKeepsObserved(t *testing.T) {
	read := func(text string) *Set {
		t.Helper()
		set, problems := ReadFS(fstest.MapFS{"a.yaml": {Data: []byte(text)}})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return set
	}
	below := read(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: u-1, deletionTimestamp: "2026-01-01T00:00:00Z", labels: {a: b}}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu-1, uid: u-2, deletionTimestamp: "2026-01-01T00:00:00Z", labels: {region: eu}}
status: {conditions: [{type: Ready, status: "False", lastProbeTime: null, lastTransitionTime: null, reason: Down, message: down}]}
`)
	over := read(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {a: c}}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1, labels: {region: us}}}
`)
	set := below.Overlay(over)
	object, cluster := set.Objects[0].Content, set.Clusters[0].Cluster
	if object.GetUID() != "u-1" || object.GetDeletionTimestamp() == nil || object.GetLabels()["a"] != "c" {
		t.Errorf("want the object to keep its deletion timestamp, got %v", object.Object)
	}
	if cluster.UID != "u-2" || len(cluster.Status.Conditions) != 1 || cluster.Labels["region"] != "us" {
		t.Errorf("want the cluster to keep its status, got %v", cluster)
	}
	if cluster.DeletionTimestamp.IsZero() {
		t.Error("want the leaving cluster to keep its deletion timestamp")
	}
	if o := over.Objects[0].Content; o.GetUID() != "" || over.Clusters[0].Cluster.UID != "" {
		t.Error("Overlay() changed its argument")
	}
}
