package propagation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/reference"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
	"refract.dev/tree"
)

// knowing returns a controller that knows the two clusters of [around], and no objects.
func knowing(tb testing.TB) *Controller {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1alpha1.FederatedCluster{})
	for _, name := range []string{"eu-1", "us-1"} {
		hub.WithObjects(&corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	leading := &replica{} // The replica does not lead at first, so that no request goes to the members.
	c := connected(tb, hub.Build(), nil, Options{Leadership: leading, SystemNamespace: "sys"})
	for _, name := range []string{"eu-1", "us-1"} {
		if _, err := c.clusters.Reconcile(tb.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			tb.Fatal(err)
		}
	}
	leading.leads = true
	return c
}

// restarted resets the controller to its state after a restart, before it has read any Propagation.
func (c *Controller) restarted() *recordView {
	s, fresh := c.state, newState()
	s.objects, s.users, s.leaders, s.nothing, s.copies = fresh.objects, fresh.users, fresh.leaders, fresh.nothing, fresh.copies
	c.reporter.records.items = map[Key]*known{}
	return &recordView{records: c.reporter.records}
}

// reports are contents of Propagations that Refract has not written.
func reports() []string {
	const row = `{"name":"eu-1","state":"Synced","hash":"0123","fields":"89ab@7","replicas":2,"drift":{"count":-1,"time":null},"readiness":"Ready"}`
	return []string{
		`{}`, `{"status":{"clusters":[` + row + `]}}`, `{"status":{"clusters":[` + row + `,` + row + `,{"name":"","state":""}]}}`,
		`{"status":{"placed":-1,"clusters":[{"name":"us-1","state":"Deleting"},{"name":"gone","state":"Synced"}],"alike":[{"row":` + row + `,"names":["us-1","eu-1","us-1"]}]}}`,
		`{"status":{"alike":[{"row":{"state":"Synced","replicas":-9223372036854775808},"names":["eu-1","us-1"]},{"row":{},"names":null}]}}`,
		`{"status":{"conditions":[{"type":"SourceGone","status":"True","reason":"NoLongerPlaced"},{"type":"Synced"},{"type":"Synced"}],"placementHash":"x"}}`,
		`{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["a"],"resourceVersion":"-1"},"status":{"follows":[{"resource":"a.b.c","name":"/"},{"resource":"","name":""}]}}`,
		`{"spec":{"source":{"apiVersion":"a/b/c","uid":"2"}},"status":{"overridePolicies":[{"kind":"OverridePolicy","namespace":"shop","name":"op","generation":-1}],` +
			`"deletedPolicies":[{"kind":"","name":""}],"warnings":["a"],"variants":[{"hash":""},{"hash":""}]}}`,
	}
}

// FuzzReport: whatever a Propagation contains, the controller takes over only existing clusters, and each only once.
// The object is placed, its report is written, and the report can end when the object is gone.
func FuzzReport(f *testing.F) {
	for _, text := range reports() {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	c := knowing(f)
	f.Fuzz(func(t *testing.T, text []byte, divide bool) {
		if len(text) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		taken(t, c, text, divide)
	})
}

// TestHostileReports runs the reports that cost the most.
func TestHostileReports(t *testing.T) {
	names := func(format string) string {
		var out strings.Builder
		for i := 0; out.Len() < fuzzed.MiB-100; i++ {
			fmt.Fprintf(&out, format, i)
		}
		return strings.TrimSuffix(out.String(), ",")
	}
	c := knowing(t)
	for name, text := range map[string]string{
		"Names":    `{"status":{"alike":[{"row":{},"names":[` + names(`"%x",`) + `]}]}}`,
		"Groups":   `{"status":{"alike":[` + names(`{"names":["eu-1"]},`) + `]}}`,
		"Rows":     `{"status":{"clusters":[` + names(`{"name":"%x"},`) + `]}}`,
		"Follows":  `{"status":{"follows":[` + names(`{"name":"%x"},`) + `]}}`,
		"Policies": `{"status":{"overridePolicies":[` + names(`{"name":"%x"},`) + `]}}`,
		"Warnings": `{"status":{"warnings":[` + names(`"%x",`) + `]}}`,
		"Variants": `{"status":{"variants":[` + names(`{},`) + `]}}`,
	} {
		t.Run(name, func(t *testing.T) { taken(t, c, []byte(text), false) })
	}
}

// taken lets a starting controller read a Propagation of an object.
func taken(t *testing.T, c *Controller, text []byte, divide bool) {
	t.Helper()
	p := &refractv1alpha1.Propagation{}
	if json.Unmarshal(text, p) != nil {
		t.Skip("no Propagation")
	}
	key := Key{GroupResource: deployments.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	p.Namespace, p.Name = key.Namespace, recordName(key)
	p.Spec.Source.APIVersion, p.Spec.Source.Resource, p.Spec.Source.Name = "apps/v1", key.Resource, key.Name
	if p.Spec.Source.UID == "" {
		p.Spec.Source.UID = "1" // The UID of the object.
	}
	again := p.DeepCopy()
	again.ResourceVersion += "1"
	fuzzed.Run(t, func() int {
		if err := c.restarted().Replace([]any{p}, "1"); err != nil {
			t.Errorf("Replace(): %v", err)
		}
		was := c.decider.reported(key)
		checkPlaced(t, was.placed)
		if len(was.statuses) > 2 {
			t.Errorf("want one row for each existing cluster, got %+v", was.statuses)
		}
		mode := corev1alpha1.SchedulingModeDuplicate
		if divide {
			mode = corev1alpha1.SchedulingModeDivide
		}
		src := source{object: deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}, nil, false), gvr: deployments, kind: "Deployment"}
		plan := decideSafely(key, src, was, around(t, mode, false, nil), discard)
		checkPlaced(t, plan.placed)
		c.state.setDesired(key, plan, was, policyNames(src.object))
		checkReport(t, c, key)

		// Another client has written the Propagation again.
		if err := (&recordView{records: c.reporter.records}).Add(again); err != nil {
			t.Errorf("Add(): %v", err)
		}
		checkReport(t, c, key)

		gone := decideSafely(key, source{gvr: deployments, kind: "Deployment"}, was, around(t, mode, false, nil), discard)
		clusters, _, _ := c.state.setDesired(key, gone, was, nil)
		for _, name := range clusters {
			c.state.report(key, name, clusterStatus{absent: true})
		}
		if _, rows, left, _ := c.state.snapshot(key); len(rows)+len(left.placed) > 0 {
			t.Errorf("the object is gone, and so are its copies, and the report cannot be closed: %+v %+v", rows, left.placed)
		}
		return len(text)
	}, rescue.Count)
}

// checkPlaced fails if the targets contain an unknown cluster, or a cluster twice.
func checkPlaced(t *testing.T, placed []placement.Target) {
	t.Helper()
	last := ""
	for _, target := range placed {
		if target.Cluster <= last || !slices.Contains([]string{"eu-1", "us-1"}, target.Cluster) {
			t.Errorf("want some of eu-1 and us-1, sorted, got %q after %q", target.Cluster, last)
		}
		last = target.Cluster
	}
}

// checkReport fails if the report on an object contains more than the existing clusters.
func checkReport(t *testing.T, c *Controller, key Key) {
	t.Helper()
	p, rows, was, _ := c.state.snapshot(key)
	k, _ := c.reporter.records.get(key)
	status := c.reporter.assemble(key, p, rows, was, k.conditions, nil)
	if len(status.Clusters) > 2 || len(status.Alike) > 0 {
		t.Errorf("want one row for each existing cluster, got %+v", status.Clusters)
	}
	source := sourceReference(key, p)
	if _, err := location(key, &source, p.overrides, p.deleted, p.followed(), was); err != nil {
		t.Errorf("location(): %v", err)
	}
}

// TestRecordOfAnotherName: a Propagation that describes an object under a wrong name is ignored. Otherwise Refract
// would write to it in place of the right one.
func TestRecordOfAnotherName(t *testing.T) {
	c := knowing(t)
	view := c.restarted()
	forged := &refractv1alpha1.Propagation{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "forged", UID: "f"}}
	forged.Spec.Source = refractv1alpha1.SourceReference{APIVersion: "apps/v1", Resource: "deployments", Name: "web"}
	genuine := forged.DeepCopy()
	genuine.Name, genuine.UID = "web.deployments.apps", "r"
	key := record{genuine, &genuine.Spec, &genuine.Status}.key()
	if err := view.Replace([]any{genuine, forged}, "1"); err != nil {
		t.Fatal(err)
	}
	if k, found := c.reporter.records.get(key); !found || k.uid != "r" {
		t.Errorf("want the Propagation with the right name, got %+v", k)
	}
	if err := view.Delete(forged); err != nil {
		t.Fatal(err)
	}
	if _, found := c.reporter.records.get(key); !found {
		t.Error("the right Propagation is forgotten after the deletion of the forged one")
	}
}

// FuzzPolicyStatus: whatever the status of an override policy contains, it authorizes only the named references, and
// only for the named generation.
func FuzzPolicyStatus(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"metadata":{"generation":2},"status":{"references":{"observedGeneration":2,"items":[{"kind":"Secret","name":"db"}]}}}`,
		`{"metadata":{"generation":2},"status":{"references":{"observedGeneration":1,"items":[{"kind":"Secret","name":"db","namespace":"shop"}]}}}`,
		`{"status":{"references":{"items":[{},{"kind":"Secret","namespace":"shop"},{"kind":"ConfigMap","name":"db","namespace":"other"}]}}}`,
		`{"metadata":{"generation":-1},"status":{"references":{"observedGeneration":-1,"items":null},"refCount":-1,"unmatchedRules":[-1],"conditions":[{"type":"Accepted"},{"type":"Accepted"}]}}`,
	} {
		f.Add([]byte(text), int64(2), "Secret", "db", false)
		f.Add([]byte(text), int64(0), "", "", true)
	}
	f.Fuzz(func(t *testing.T, text []byte, generation int64, kind, name string, cluster bool) {
		var policy client.Object = &corev1alpha1.OverridePolicy{}
		ref := tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "web", Generation: generation}
		if cluster {
			policy, ref.Kind, ref.Namespace = &corev1alpha1.ClusterOverridePolicy{}, corev1alpha1.KindClusterOverridePolicy, ""
		}
		if len(text) > fuzzed.MiB || json.Unmarshal(text, policy) != nil {
			t.Skip("no policy")
		}
		policy.SetNamespace(ref.Namespace)
		policy.SetName(ref.Name)
		fuzzed.Run(t, func() int {
			p := newPolicies(discard)
			view := &policyView{policies: p, kind: ref.Kind}
			for range 2 { // The second time, the policy is already known.
				if err := view.Add(policy); err != nil {
					t.Errorf("Add(): %v", err)
				}
			}
			may := p.may(ref, "shop", reference.Reference{Kind: kind, Name: name})
			if want := allows(checkedIn(policy), generation, kind, name); may != want {
				t.Errorf("may(): want %t, got %t", want, may)
			}
			return len(text)
		}, rescue.Count)
	})
}

// allows returns whether a mark authorizes the reference.
func allows(mark *corev1alpha1.CheckedReferences, generation int64, kind, name string) bool {
	if mark == nil || mark.ObservedGeneration != generation {
		return false
	}
	for _, item := range mark.Items {
		if item.Kind == kind && item.Name == name && (item.Namespace == "" || item.Namespace == "shop") {
			return true
		}
	}
	return false
}

// FuzzMarks: whatever the marks of copies contain, an object on a member is a copy of this hub only if they name this
// hub and the object itself.
func FuzzMarks(f *testing.F) {
	for _, source := range []string{"", theHub, theHub + "/", theHub + "/u/deployments.apps/shop/web", "other/u/deployments.apps/shop/web", theHub + "/u/deployments.apps/shop/webs"} {
		f.Add(source, "0123", "all", true)
	}
	f.Fuzz(func(t *testing.T, source, hash, orphan string, adopted bool) {
		key := keyOf("deployments", "web")
		have := member.Copy{Source: source, Hash: hash, Orphan: orphan, Adopted: adopted}
		if cameFrom(theHub, key, have) && (!strings.HasPrefix(source, theHub+"/") || !strings.HasSuffix(source, "/shop/web")) {
			t.Errorf("%q is taken for a copy of %v of this hub", source, key)
		}
		r := clusterStatus{}
		if r.stays(have, false) || r.stays(have, true) && orphan != placement.OrphanAll && (orphan != placement.OrphanAdopted || !adopted) {
			t.Errorf("the copy stays because of %q", orphan)
		}
		if (&clusterStatus{hash: hash}).asWritten(have) && have.Owned != (member.Ownership{}) {
			t.Error("a copy that Refract has not written counts as unchanged since its write")
		}
	})
}
