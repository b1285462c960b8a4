package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/decide"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

var (
	everywhere = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: "shop", Name: "everywhere"}
	one        = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: "shop", Name: "one"}
	europe     = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: "shop", Name: "europe"}
	web        = tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "web"}
	gone       = tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "gone"}
)

const (
	places    = "kubeadmiral.io/propagation-policy-name: "
	overrides = "kubeadmiral.io/override-policy-name: "
	tries     = `kubeadmiral.io/dry-run: "true"`
)

// TestDecide decides on ConfigMap shop/settings in a fleet of eu-1, eu-2 and us-1, which has the policies above.
func TestDecide(t *testing.T) {
	cases := map[string]struct {
		reason      string
		labels      string
		annotations string
		metadata    string
		object      string // Another object than a ConfigMap.
		was         decide.Previous
		world       func(*decide.World)
		want        string
	}{
		"Placed": {
			reason: "The policy places the object.", labels: places + "everywhere", want: "Placed on eu-1 eu-2 us-1; leads",
		},
		"Nothing": {
			reason: "An object without a label goes nowhere.", want: "Gone: NotRequested",
		},
		"Default": {
			reason: "Without a hub, an object without a label is shown everywhere.",
			world:  func(w *decide.World) { w.Default = on("eu-1", "us-1") }, want: "Placed on eu-1 us-1",
		},
		"DefaultWasPlaced": {
			reason: "The object had copies, so its label was removed.", was: decide.Previous{Placed: on("us-1"), Gone: true},
			world: func(w *decide.World) { w.Default = on("eu-1", "us-1") }, want: "Gone: NotRequested",
		},
		"Deleting": {
			reason: "An object in deletion has no copies, whatever its labels are.", labels: places + "everywhere",
			metadata: `, deletionTimestamp: "2026-01-01T00:00:00Z"`, was: decide.Previous{Placed: on("us-1")}, want: "Gone: Deleting",
		},
		"NeverPlaced": {
			reason: "Leases are never placed.", object: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: web, namespace: shop, labels: {" + places + "everywhere}}}",
			want: "Gone: NotPlaced",
		},
		"MadeByEachCluster": {
			reason: "Each cluster has its own kube-root-ca.crt.",
			object: "{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: shop, labels: {" + places + "everywhere}}}",
			want:   "Blocked: MadeByEachCluster",
		},
		"Narrow": {
			reason: "maxClusters keeps the present cluster.", labels: places + "one", was: decide.Previous{Placed: on("us-1")}, want: "Placed on us-1; leads",
		},
		"Loses": {
			reason: "A loss of many clusters waits for an approval.", labels: places + "europe", was: decide.Previous{Placed: on("eu-1", "us-1", "us-2", "us-3"), ChosenBy: tree.Policy{}},
			world: func(w *decide.World) { w.Clusters = append(w.Clusters, clusterOf("us-2"), clusterOf("us-3")) },
			want:  "Placed on eu-1 us-1 us-2 us-3; held; leads",
		},
		"LosesApproved": {
			reason: "All changes count as approved. The change stays known.", labels: places + "europe", was: decide.Previous{Placed: on("eu-1", "us-1", "us-2", "us-3")},
			world: func(w *decide.World) {
				w.Clusters = append(w.Clusters, clusterOf("us-2"), clusterOf("us-3"))
				w.ApproveAll = true
			},
			want: "Placed on eu-1 eu-2; held; leads",
		},
		"LosesBesides": {
			reason: "Clusters of the leaders are not lost.", labels: places + "europe", was: decide.Previous{Placed: on("eu-1", "us-1", "us-2", "us-3")},
			world: func(w *decide.World) {
				w.Clusters = append(w.Clusters, clusterOf("us-2"), clusterOf("us-3"))
				w.Leaders = decide.Leaders{Any: true, Clusters: []string{"us-1", "us-2", "us-3"}}
			},
			want: "Placed on eu-1 eu-2 us-1 us-2 us-3; leads",
		},
		"PolicyMissing": {
			reason: "The object waits for its policy.", labels: places + "later", want: "Blocked: PolicyNotFound",
		},
		"PolicyDeleted": {
			reason: "The loss of a policy removes no copy from a present cluster.", labels: places + "later", was: decide.Previous{Placed: on("left", "us-1")},
			want: "Placed on us-1; PropagationPolicy shop/later was deleted: the object stays on the clusters that have it; leads",
		},
		"InvalidLabel": {
			reason: "An empty label names no policy. Other problems are reported, too.", labels: places + `"", ` + overrides + "later", want: "Blocked: InvalidLabel PolicyNotFound",
		},
		"Overridden": {
			reason: "The override policy applies.", labels: places + "one, " + overrides + "web", was: decide.Previous{Placed: on("us-1")},
			want: "Placed on us-1; with web; leads",
		},
		"OverrideMissing": {
			reason: "No copy lacks its overrides.", labels: places + "one, " + overrides + "gone", want: "Blocked: PolicyNotFound",
		},
		"OverrideDeleted": {
			reason: "The changes of a deleted policy are reverted.", labels: places + "one, " + overrides + "gone",
			was:  decide.Previous{Placed: on("us-1"), Rendered: []tree.Policy{gone}},
			want: "Placed on us-1; OverridePolicy shop/gone was deleted: its changes are reverted; without gone; leads",
		},
		"Withdrawn": {
			reason: "The label of a widely placed object may be missing by mistake.", was: decide.Previous{UID: "u", Placed: on("eu-1", "eu-2", "us-1")},
			want: "Stays; held",
		},
		"WithdrawnApproved": {
			reason: "All changes count as approved.", was: decide.Previous{UID: "u", Placed: on("eu-1", "eu-2", "us-1")},
			world: func(w *decide.World) { w.ApproveAll = true }, want: "Gone: NotRequested; held",
		},
		"WithdrawnFollower": {
			reason: "A new reference to another object is no mistake.", was: decide.Previous{UID: "u", Placed: on("eu-1", "eu-2", "us-1"), Follows: true},
			want: "Gone: NotRequested",
		},
		"WithdrawnInDryRun": {
			reason: "A dry run removes nothing.", annotations: tries, was: decide.Previous{UID: "u", Placed: on("us-1")}, want: "Stays",
		},
		"WithdrawnBefore": {
			reason: "The object requested nothing before, either: its copies are going.", annotations: tries,
			was: decide.Previous{UID: "u", Placed: on("us-1"), Gone: true}, want: "Gone: NotRequested",
		},
		"Follows": {
			reason: "The object goes where its leader is.", world: func(w *decide.World) { w.Leaders = decide.Leaders{Any: true, Clusters: []string{"us-1"}} },
			want: "Placed on us-1",
		},
		"FollowsNothing": {
			reason: "The object disables following.", annotations: `kubeadmiral.io/disable-following: "true"`,
			world: func(w *decide.World) { w.Leaders = decide.Leaders{Any: true, Clusters: []string{"us-1"}} }, want: "Gone: NotRequested",
		},
		"LeaderGone": {
			reason: "The copies stay for a while.", world: func(w *decide.World) { w.Leaders = decide.Leaders{Any: true, Unsure: true, Clusters: []string{"us-1"}} },
			want: "Blocked: LeaderGone",
		},
		"Companions": {
			reason: "The annotation names objects that travel with this one.", labels: places + "one",
			annotations: `kubeadmiral.io/followers: '[{"group": "", "kind": "Secret", "name": "keys"}, {"group": "", "kind": "ConfigMap", "name": "settings"}]'`,
			want:        "Placed on eu-1; leads secrets/keys",
		},
		"Frozen": {
			reason: "The object is added to no cluster.", labels: places + "everywhere", annotations: `kubeadmiral.io/no-scheduling: "true"`,
			was:  decide.Previous{Placed: on("us-1")},
			want: "Placed on us-1; PropagationPolicy shop/everywhere: a new decision would also place the object on eu-1, eu-2: annotation kubeadmiral.io/no-scheduling keeps it where it is; leads",
		},
		"FrozenUnknown": {
			reason: "Its clusters are unknown.", labels: places + "everywhere", annotations: `kubeadmiral.io/no-scheduling: "true"`,
			was: decide.Previous{Unknown: true}, want: "Placed on eu-1 eu-2 us-1; leads",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := tc.object
			if text == "" {
				text = fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, uid: u, labels: {%s}, annotations: {%s}%s}}",
					tc.labels, tc.annotations, tc.metadata)
			}
			o := &decide.Object{Content: objectOf(t, text), Resource: schema.GroupResource{Resource: "configmaps"}}
			w := world(t)
			if tc.world != nil {
				tc.world(w)
			}
			content, was := o.Content.DeepCopy(), tc.was
			if diff := cmp.Diff(tc.want, summary(decide.Decide(o, &tc.was, w))); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if !cmp.Equal(content, o.Content) || !cmp.Equal(was, tc.was) {
				t.Error("Decide() has modified its arguments")
			}
		})
	}
}

// TestMissing: the copies of a missing object go.
func TestMissing(t *testing.T) {
	if got := summary(decide.Decide(&decide.Object{}, &decide.Previous{Placed: on("us-1")}, world(t))); got != "Gone: Missing" {
		t.Errorf("got %q", got)
	}
}

// TestWithdrawn: an object that its watch no longer shows is read by name. It travels with no object; otherwise the
// watch would show it.
func TestWithdrawn(t *testing.T) {
	o := &decide.Object{Content: objectOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, uid: u}}"), Withdrawn: true}
	w := world(t)
	w.Leaders = decide.Leaders{Any: true, Clusters: []string{"us-1"}}
	if got := summary(decide.Decide(o, &decide.Previous{Placed: on("us-1")}, w)); got != "Gone: NotRequested" {
		t.Errorf("got %q", got)
	}
}

// TestPlaceIsReused: the hook answers in place of the policy.
func TestPlaceIsReused(t *testing.T) {
	w := world(t)
	w.Place = func(*placement.Policy, *placement.Request) (placement.Decision, error) {
		return placement.Decision{Targets: on("eu-2"), Hash: "7"}, nil
	}
	o := &decide.Object{Content: objectOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, labels: {"+places+"one}}}")}
	if d := decide.Decide(o, &decide.Previous{}, w); summary(d) != "Placed on eu-2; leads" || d.Hash != "7" {
		t.Errorf("got %q with hash %q", summary(d), d.Hash)
	}
}

func summary(d *decide.Desired) string {
	var parts []string
	switch d.Verdict {
	case decide.Placed:
		names := make([]string, len(d.Targets))
		for i := range d.Targets {
			names[i] = d.Targets[i].Cluster
		}
		parts = append(parts, "Placed on "+strings.Join(names, " "))
	case decide.Blocked:
		names := make([]string, len(d.Problems))
		for i := range d.Problems {
			names[i] = string(d.Problems[i].Reason)
		}
		return "Blocked: " + strings.Join(names, " ")
	case decide.Stays:
		parts = append(parts, "Stays")
	case decide.Gone:
		parts = append(parts, "Gone: "+string(d.Why))
	}
	if d.Held != nil {
		parts = append(parts, "held")
	}
	for i := range d.Warnings {
		parts = append(parts, d.Warnings[i].String())
	}
	for _, p := range d.Overrides {
		parts = append(parts, "with "+p.Ref.Name)
	}
	for _, ref := range d.Deleted {
		parts = append(parts, "without "+ref.Name)
	}
	if d.Leads {
		names := []string{"leads"}
		for _, c := range d.Companions {
			names = append(names, c.Resource.String()+"/"+c.Name)
		}
		parts = append(parts, strings.Join(names, " "))
	}
	return strings.Join(parts, "; ")
}

func world(t *testing.T) *decide.World {
	t.Helper()
	propagations := map[tree.Policy]*placement.Policy{}
	for ref, spec := range map[tree.Policy]corev1alpha1.PropagationPolicySpec{
		everywhere: {SchedulingMode: corev1alpha1.SchedulingModeDuplicate},
		one:        {SchedulingMode: corev1alpha1.SchedulingModeDuplicate, MaxClusters: new(int64(1))},
		europe:     {SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: map[string]string{"region": "eu"}},
	} {
		p := &corev1alpha1.PropagationPolicy{Spec: spec}
		p.Namespace, p.Name = ref.Namespace, ref.Name
		policy, errs := placement.Compile(p)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		propagations[ref] = policy
	}
	o := &corev1alpha1.OverridePolicy{}
	o.Namespace, o.Name = web.Namespace, web.Name
	compiled, errs := override.Compile(o)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return &decide.World{
		Clusters:    []placement.Cluster{clusterOf("eu-1"), clusterOf("eu-2"), clusterOf("us-1")},
		Propagation: func(ref tree.Policy) *placement.Policy { return propagations[ref] },
		Override: func(ref tree.Policy) *override.Policy {
			if ref != web {
				return nil
			}
			return compiled
		},
		Resource: func(kind schema.GroupKind) (schema.GroupResource, bool) {
			return schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}, true
		},
	}
}

func clusterOf(name string) placement.Cluster {
	region, _, _ := strings.Cut(name, "-")
	return placement.Cluster{Cluster: match.Cluster{Name: name, Labels: map[string]string{"region": region}}, Ready: true}
}

func on(names ...string) []placement.Target {
	targets := make([]placement.Target, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		targets[i].Cluster = name
	}
	return targets
}

func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}
