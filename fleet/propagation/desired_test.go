package propagation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/reference"
	"refract.dev/tree"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func TestDecide(t *testing.T) {
	op := tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: "op"}
	pp := map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}
	both := map[string]string{corev1alpha1.PropagationPolicyLabel: "pp", corev1alpha1.OverridePolicyLabel: "op"}
	replicas := map[string]override.Policy{"op": *compile(t, "op", rule("eu-1", "/spec/replicas", "5"))}
	type outcome struct {
		Blocked  string
		Gone     bool
		Placed   []string          // Clusters with a variant.
		Failed   map[string]string // Cluster to error.
		Variants int
		Warnings []string
		Rendered []tree.Policy // The policies remembered after the decision.
	}
	cases := map[string]struct {
		reason      string
		labels      map[string]string
		annotations map[string]string
		deleting    bool
		absent      bool
		was         previous
		mode        corev1alpha1.SchedulingMode
		noPolicy    bool
		overrides   map[string]override.Policy
		leaders     followed
		want        outcome
	}{
		"NoObject": {
			reason: "A missing object must not be on a member.",
			absent: true, was: previous{placed: on("eu-1")},
			want: outcome{Gone: true},
		},
		"NoLabel": {
			reason: "An object without a request for propagation counts as gone.",
			want:   outcome{Gone: true},
		},
		"Deleting": {
			reason: "Finalizers of others on the hub do not keep copies alive.",
			labels: pp, deleting: true,
			want: outcome{Gone: true},
		},
		"Placed": {
			reason: "Two clusters without overrides get the same variant.",
			labels: pp,
			want:   outcome{Placed: []string{"eu-1", "us-1"}, Variants: 1},
		},
		"Overridden": {
			reason: "A rule for one cluster makes two variants, and the policy is remembered.",
			labels: both, overrides: replicas,
			want: outcome{Placed: []string{"eu-1", "us-1"}, Variants: 2, Rendered: []tree.Policy{op}},
		},
		"PropagationPolicyMissing": {
			reason: "Manifests may arrive in any order: the object waits for its policy.",
			labels: pp, noPolicy: true,
			want: outcome{Blocked: reasonPolicyNotFound},
		},
		"PropagationPolicyDeleted": {
			reason: "The deletion of a policy neither removes copies nor stops their updates.",
			labels: pp, noPolicy: true, was: previous{placed: on("us-1")},
			want: outcome{
				Placed: []string{"us-1"}, Variants: 1,
				Warnings: []string{"PropagationPolicy shop/pp was deleted: the object stays on the clusters that have it"},
			},
		},
		"OverridePolicyMissing": {
			reason: "An object that was never rendered with the policy must not be propagated without it.",
			labels: both, was: previous{placed: on("us-1")},
			want: outcome{Blocked: reasonPolicyNotFound},
		},
		"OverridePolicyDeleted": {
			reason: "The object was rendered with the policy: the changes are reverted, and the policy is still remembered.",
			labels: both, was: previous{placed: on("us-1"), rendered: []tree.Policy{op}},
			want: outcome{
				Placed: []string{"eu-1", "us-1"}, Variants: 1, Rendered: []tree.Policy{op},
				Warnings: []string{"PolicyDeleted: OverridePolicy shop/op was deleted: its changes are reverted"},
			},
		},
		"MadeAgain": {
			reason: "Another object of the same name has no memory: its policy may still arrive.",
			labels: both, was: previous{uid: "0", placed: on("us-1"), rendered: []tree.Policy{op}},
			want: outcome{Blocked: reasonPolicyNotFound},
		},
		"OverrideFailsOnOneCluster": {
			reason:    "The other clusters get their variants.",
			labels:    both,
			overrides: map[string]override.Policy{"op": *compile(t, "op", rule("eu-1", "/spec/no/where", "5"))},
			want: outcome{
				Placed: []string{"us-1"}, Variants: 1, Rendered: []tree.Policy{op},
				Failed: map[string]string{"eu-1": "OverridePolicy shop/op rule 0 jsonpatch[0]: /spec/no does not exist"},
			},
		},
		"EmptyLabel": {
			reason: "An empty label names no policy.",
			labels: map[string]string{corev1alpha1.PropagationPolicyLabel: ""},
			want:   outcome{Blocked: reasonInvalidLabel},
		},
		"Divide": {
			reason: "Each cluster gets its share. The shares are equal, so there is one variant.",
			labels: pp, mode: corev1alpha1.SchedulingModeDivide,
			want: outcome{Placed: []string{"eu-1", "us-1"}, Variants: 1},
		},
		"DividedAndOverridden": {
			reason:    "An override sees the share and may change it.",
			labels:    both,
			mode:      corev1alpha1.SchedulingModeDivide,
			overrides: replicas,
			want:      outcome{Placed: []string{"eu-1", "us-1"}, Variants: 2, Rendered: []tree.Policy{op}},
		},
		"DryRun": {
			reason: "The decision is complete; the applier writes nothing.",
			labels: pp, annotations: map[string]string{"kubeadmiral.io/dry-run": "true"},
			want: outcome{Placed: []string{"eu-1", "us-1"}, Variants: 1},
		},
		"NoScheduling": {
			reason: "The object keeps its clusters, and is updated there.",
			labels: pp, annotations: map[string]string{"kubeadmiral.io/no-scheduling": "true"},
			was: previous{placed: on("us-1")},
			want: outcome{
				Placed: []string{"us-1"}, Variants: 1,
				Warnings: []string{"PropagationPolicy shop/pp: a new decision would also place the object on eu-1: " +
					"annotation kubeadmiral.io/no-scheduling keeps it where it is"},
			},
		},
		"Follows": {
			reason:  "An object without a label goes to the clusters of the objects that refer to it.",
			leaders: followed{by: []Key{{}}, clusters: []string{"eu-1"}},
			want:    outcome{Placed: []string{"eu-1"}, Variants: 1},
		},
		"FollowsBesidesItsOwnPolicy": {
			reason:  "With a label of its own, the object also goes to the clusters of its policy.",
			labels:  pp,
			leaders: followed{by: []Key{{}}, clusters: []string{"eu-1"}},
			want:    outcome{Placed: []string{"eu-1", "us-1"}, Variants: 1},
		},
		"FollowsSomethingUnknown": {
			reason:  "While the placement of its leader (the object that it travels with) is unknown, the object loses no cluster.",
			leaders: followed{unknown: []Key{{}}},
			was:     previous{placed: on("us-1")},
			want:    outcome{Placed: []string{"us-1"}, Variants: 1},
		},
		"DoesNotFollow": {
			reason:      "The annotation disables following.",
			annotations: map[string]string{"kubeadmiral.io/disable-following": "true"},
			leaders:     followed{by: []Key{{}}, clusters: []string{"eu-1"}},
			want:        outcome{Gone: true},
		},
		"StepsOverThePolicy": {
			reason: "An object may not widen its own placement, and its report says so.",
			labels: pp, annotations: map[string]string{"kubeadmiral.io/placements": "[]"},
			want: outcome{
				Placed: []string{"eu-1", "us-1"}, Variants: 1,
				Warnings: []string{"annotation kubeadmiral.io/placements is ignored: the policy decides the placement"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			src := source{gvr: deployments, kind: "Deployment"}
			if !tc.absent {
				src.object = deployment(tc.labels, tc.annotations, tc.deleting)
			}
			if tc.was.uid == "" {
				tc.was.uid = "1"
			}
			before := src.object.DeepCopy()
			s := around(t, tc.mode, tc.noPolicy, tc.overrides)
			s.followed = tc.leaders
			p := decide(src, tc.was, s)
			got := outcome{Blocked: p.blocked, Gone: p.gone, Variants: len(p.variants), Warnings: p.warnings}
			for _, c := range []string{"eu-1", "us-1"} {
				switch target := p.targets[c]; {
				case target == nil:
				case target.err != nil:
					if got.Failed == nil {
						got.Failed = map[string]string{}
					}
					got.Failed[c] = target.err.Error()
				default:
					got.Placed = append(got.Placed, c)
				}
			}
			if p.blocked == "" && !p.gone {
				got.Rendered = p.remember(tc.was).rendered
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\ndecide(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, src.object); diff != "" {
				t.Errorf("decide() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestUnconvertedIsBlocked: an object with a field that could not be converted is blocked.
func TestUnconvertedIsBlocked(t *testing.T) {
	obj := sourceObject("example.org/v1", "Widget", "w", "pp")
	obj.SetAnnotations(map[string]string{refractv1alpha1.UnconvertedAnnotation: `{"v1alpha1":"spec.size: no size"}`})
	src := source{gvr: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, kind: "Widget", object: obj}
	p := decide(src, previous{uid: "1", placed: on("us-1")}, around(t, "", false, nil))
	if p.blocked != reasonUnconverted || len(p.targets) > 0 || !strings.Contains(p.blockedMessage, "spec.size: no size") {
		t.Errorf("want the object blocked, got %q (%s), with %d targets", p.blocked, p.blockedMessage, len(p.targets))
	}
}

// TestNativesAreBlocked: objects that each cluster makes for itself are blocked.
func TestNativesAreBlocked(t *testing.T) {
	placed := map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}
	cases := map[string]struct {
		reason      string
		namespace   string
		labels      map[string]string
		was         previous
		wantBlocked string
		wantGone    bool
		wantOn      []string
	}{
		"Labelled":      {reason: "It is not placed, and its report says why.", namespace: "default", labels: placed, wantBlocked: reasonMadeByEachCluster},
		"AdoptedBefore": {reason: "Copies from an earlier version stay until the label is removed.", namespace: "default", labels: placed, was: previous{placed: on("us-1")}, wantBlocked: reasonMadeByEachCluster, wantOn: []string{"us-1"}},
		"LabelOff":      {reason: "The object no longer asks for propagation, so its copies are released.", namespace: "default", was: previous{placed: on("us-1")}, wantGone: true, wantOn: []string{"us-1"}},
		"InvalidLabel":  {reason: "The report names the kind of object, not the invalid label, as the reason.", namespace: "default", labels: map[string]string{corev1alpha1.PropagationPolicyLabel: ""}, wantBlocked: reasonMadeByEachCluster},
		"Elsewhere":     {reason: "In another namespace it is a Service like others.", namespace: "shop", labels: placed, wantOn: []string{"eu-1", "us-1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "kubernetes", "namespace": tc.namespace, "uid": "1"},
			}}
			obj.SetLabels(tc.labels)
			obj.SetAnnotations(map[string]string{
				corev1alpha1.ConflictResolutionAnnotation: "adopt", corev1alpha1.ClustersToAdoptAnnotation: `{"regexp":".*"}`,
			})
			tc.was.uid = "1"
			s := around(t, "", false, nil)
			src := source{gvr: schema.GroupVersionResource{Version: "v1", Resource: "services"}, kind: "Service", object: obj}
			p := decide(src, tc.was, s)
			var on []string
			for _, target := range p.remember(tc.was).placed {
				on = append(on, target.Cluster)
			}
			if p.blocked != tc.wantBlocked || p.gone != tc.wantGone || !slices.Equal(on, tc.wantOn) || (p.blocked != "" && len(p.targets) > 0) {
				t.Errorf("%s\ndecide(): want held %q, gone %t, on %q, got %q (%s), %t, %q",
					tc.reason, tc.wantBlocked, tc.wantGone, tc.wantOn, p.blocked, p.blockedMessage, p.gone, on)
			}
		})
	}
}

// TestStays: some copies are left to their clusters and not deleted.
func TestStays(t *testing.T) {
	cases := map[string]struct {
		reason string
		row    clusterStatus
		have   member.Copy
		gone   bool
		want   bool
	}{
		"Copy":                 {"The copy is deleted with its object.", clusterStatus{}, member.Copy{}, true, false},
		"Adopted":              {"An adopted copy is deleted, too, without the annotation.", clusterStatus{adopted: true}, member.Copy{Adopted: true}, true, false},
		"OrphanAll":            {"The annotation says that copies stay.", clusterStatus{}, member.Copy{Orphan: placement.OrphanAll}, true, true},
		"OrphanAllElsewhere":   {"The object still has other clusters.", clusterStatus{}, member.Copy{Orphan: placement.OrphanAll}, false, false},
		"OrphanAdopted":        {"The annotation says that adopted copies stay.", clusterStatus{}, member.Copy{Orphan: placement.OrphanAdopted, Adopted: true}, true, true},
		"OrphanAdoptedLost":    {"The mark may have been removed.", clusterStatus{adopted: true}, member.Copy{Orphan: placement.OrphanAdopted}, true, true},
		"OrphanAdoptedNot":     {"The copy was not adopted.", clusterStatus{}, member.Copy{Orphan: placement.OrphanAdopted}, true, false},
		"Native":               {"An earlier version adopted the cluster's object.", clusterStatus{}, member.Copy{Native: true, Adopted: true}, true, true},
		"NativeWithoutMark":    {"The mark of the adoption is lost.", clusterStatus{}, member.Copy{Native: true}, true, true},
		"NativeNoLongerPlaced": {"The object always belongs to the cluster.", clusterStatus{}, member.Copy{Native: true}, false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.row.stays(tc.have, tc.gone); got != tc.want {
				t.Errorf("%s\nstays(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

// on returns targets on clusters.
func on(clusters ...string) []placement.Target {
	var targets []placement.Target
	for _, name := range clusters {
		targets = append(targets, placement.Target{Cluster: name})
	}
	return targets
}

// TestLeads: the followers of a workload, and their clusters.
func TestLeads(t *testing.T) {
	obj := deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp", corev1alpha1.OverridePolicyLabel: "op"},
		map[string]string{corev1alpha1.FollowersAnnotation: `[{"kind":"ConfigMap","name":"extra"},{"kind":"ConfigMap","name":"kube-root-ca.crt"}]`}, false)
	secret := func(name string) string {
		return `{"metadata":{},"spec":{"containers":[{"name":"web","image":"web","envFrom":[{"secretRef":{"name":"` + name + `"}}]}]}}`
	}
	overrides := map[string]override.Policy{"op": *compile(t, "op", rule("eu-1", "/spec/template", secret("eu")), rule("us-1", "/spec/template", secret("us")))}
	s := around(t, "", false, overrides)
	s.resource = func(gk schema.GroupKind) (schema.GroupResource, bool) {
		return schema.GroupResource{Group: gk.Group, Resource: "configmaps"}, gk.Kind == "ConfigMap"
	}
	s.may = func(policy tree.Policy, namespace string, _ reference.Reference) bool {
		return policy.Name == "op" && namespace == "shop"
	}
	p := decide(source{gvr: deployments, kind: "Deployment", object: obj}, previous{uid: "1"}, s)
	got := map[string][]string{}
	for key, clusters := range p.followers {
		got[key.Resource+" "+key.NamespacedName.String()] = clusters
	}
	want := map[string][]string{
		"configmaps shop/extra": {"eu-1", "us-1"},
		"secrets shop/eu":       {"eu-1"},
		"secrets shop/us":       {"us-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("follows: -want, +got:\n%s", diff)
	}
	wantWarnings := []string{"annotation kubeadmiral.io/followers: ConfigMap kube-root-ca.crt does not travel: " +
		"each cluster creates this object itself, and keeps its own"}
	if diff := cmp.Diff(wantWarnings, p.warnings); diff != "" {
		t.Errorf("warnings: -want, +got:\n%s", diff)
	}
	s.may = nobodyMay
	p = decide(source{gvr: deployments, kind: "Deployment", object: obj}, previous{uid: "1"}, s)
	if len(p.followers) != 1 || len(p.withheld) != 2 || len(p.warnings) != 3 {
		t.Errorf("want references of overrides followed only with authorization: follows %v, withheld %v, warnings %v", p.followers, p.withheld, p.warnings)
	}
}

func nobodyMay(tree.Policy, string, reference.Reference) bool { return false }

// TestFollowersWait: followers lose no cluster after a restart until their leaders are decided.
func TestFollowersWait(t *testing.T) {
	leader, follower := keyOf("deployments", "web"), keyOf("secrets", "db")
	l := newState()
	if got := l.followed(follower, []Key{leader}); len(got.unknown) != 1 {
		t.Errorf("the leader has not been decided: followed() = %+v", got)
	}
	l.setDesired(leader, &desiredState{blocked: reasonPolicyNotFound}, previous{}, nil)
	if got := l.followed(follower, []Key{leader}); !got.blocked || len(got.unknown) != 0 {
		t.Errorf("the placement of the leader is unknown: followed() = %+v", got)
	}
	_, _, touched := l.setDesired(leader, &desiredState{followers: map[Key][]string{follower: {"eu-1"}}}, previous{}, nil)
	if diff := cmp.Diff([]Key{follower}, touched); diff != "" {
		t.Errorf("put() of a leader: -want, +got:\n%s", diff)
	}
	if got := l.followed(follower, []Key{leader}); got.blocked || !slices.Equal(got.clusters, []string{"eu-1"}) {
		t.Errorf("followed() = %+v", got)
	}
	if _, _, touched := l.setDesired(leader, &desiredState{gone: true}, previous{}, nil); len(touched) != 1 {
		t.Error("put() of a gone leader does not enqueue its follower")
	}
	now := time.Now()
	l.gone.now = func() time.Time { return now.Add(leaderGrace) }
	if got := l.followed(follower, []Key{leader}); len(got.by) != 0 || got.blocked || len(got.unknown) != 0 {
		t.Errorf("no leader is left: followed() = %+v", got)
	}
}

func keyOf(resource, name string) Key {
	return Key{GroupResource: schema.GroupResource{Resource: resource}, NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}
}

func TestEncode(t *testing.T) {
	obj := deployment(nil, nil, false)
	rendered := override.Template(obj)
	first, err := encode(rendered, deployments, "hub/uid", &placement.Keeping{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := encode(rendered, deployments, "hub/uid", &placement.Keeping{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := encode(rendered, deployments, "hub/other", &placement.Keeping{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.hash != again.hash || first.hash == other.hash {
		t.Errorf("encode(): want equal hashes only for equal content, got %s, %s and %s", first.hash, again.hash, other.hash)
	}
	want := `{"metadata":{"uid":"u-1","annotations":{"refract.dev/applied":"` + first.hash + `","refract.dev/source":"hub/uid"},` +
		`"labels":{"kubeadmiral.io/managed":"true"},"name":"web","namespace":"shop"},` +
		`"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":2}}`
	if diff := cmp.Diff(want, string(first.body.Load().forKnown("u-1", false))); diff != "" {
		t.Errorf("forKnown(): -want, +got:\n%s", diff)
	}
	if got := string(first.body.Load().forKnown("u-1", true)); !strings.Contains(got, `"refract.dev/adopted":"true"`) {
		t.Errorf("forKnown() of an adopted copy: got %s", got)
	}
	retained, err := encode(rendered, deployments, "hub/uid", &placement.Keeping{}, leftTo(&placement.Keeping{RetainReplicas: true}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(retained.body.Load().forKnown("u-1", false)); strings.Contains(got, "replicas") || !strings.Contains(string(retained.body.Load().forNew()), `"replicas":2`) {
		t.Errorf("want retained replicas only in the first write, got %s", got)
	}
	if got := string(first.body.Load().forNew()); !strings.HasPrefix(got, `{"metadata":{"resourceVersion":"1",`) {
		t.Errorf("forNew(): want a resourceVersion that no object has, got %s", got)
	}
}

func TestRecordName(t *testing.T) {
	cases := map[string]struct{ reason, group, resource, name, want string }{
		"Plain":   {"A readable name.", "apps", "deployments", "web", "web.deployments.apps"},
		"Core":    {"The name of the core group is empty.", "", "configmaps", "web", "web.configmaps"},
		"Illegal": {"Names of roles may contain characters that names of Propagations may not.", "rbac.authorization.k8s.io", "clusterroles", "sys:Reader", "sys--eader.clusterroles.rbac.authorization.k8s.io-14c1e9f7"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key := Key{GroupResource: schema.GroupResource{Group: tc.group, Resource: tc.resource}}
			key.Name = tc.name
			if got := recordName(key); got != tc.want {
				t.Errorf("%s\nrecordName(): want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
	long := Key{GroupResource: deployments.GroupResource()}
	long.Name = strings.Repeat("a", 250)
	if got := recordName(long); len(got) > 253 {
		t.Errorf("recordName() of a long name: want at most 253 characters, got %d", len(got))
	}
}

func around(tb testing.TB, mode corev1alpha1.SchedulingMode, noPolicy bool, overrides map[string]override.Policy) *inputs {
	tb.Helper()
	if mode == "" {
		mode = corev1alpha1.SchedulingModeDuplicate
	}
	pp, errs := placement.Compile(&corev1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp"},
		Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: mode},
	})
	if len(errs) > 0 {
		tb.Fatal(errs.ToAggregate())
	}
	return &inputs{
		hub: "hub", may: nobodyMay,
		clusters: []placement.Cluster{
			{Cluster: match.Cluster{Name: "eu-1"}, Ready: true},
			{Cluster: match.Cluster{Name: "us-1"}, Ready: true},
		},
		propagation: func(tree.Policy) *placement.Policy {
			if noPolicy {
				return nil
			}
			return pp
		},
		override: func(ref tree.Policy) *override.Policy {
			if p, ok := overrides[ref.Name]; ok {
				return &p
			}
			return nil
		},
	}
}

func deployment(labels, annotations map[string]string, deleting bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "uid": "1"},
		"spec":     map[string]any{"replicas": int64(2)},
	}}
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
	if deleting {
		now := metav1.Now()
		u.SetDeletionTimestamp(&now)
	}
	return u
}

func rule(cluster, path, value string) corev1alpha1.OverrideRule {
	return corev1alpha1.OverrideRule{
		TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{cluster}},
		Overriders: &corev1alpha1.Overriders{JSONPatch: []corev1alpha1.JSONPatchOverrider{
			{Path: path, Operator: corev1alpha1.OpAdd, Value: &apiextensionsv1.JSON{Raw: []byte(value)}},
		}},
	}
}

func compile(t *testing.T, name string, rules ...corev1alpha1.OverrideRule) *override.Policy {
	t.Helper()
	p, errs := override.Compile(&corev1alpha1.OverridePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1alpha1.OverridePolicySpec{OverrideRules: rules},
	})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func TestLeavingIsRemembered(t *testing.T) {
	key := Key{}
	l := newState()
	p := &desiredState{targets: map[string]*target{"us-1": {}}}
	clusters, _, _ := l.setDesired(key, p, previous{placed: on("us-1"), statuses: []refractv1alpha1.ClusterStatus{
		{Name: "eu-1", State: refractv1alpha1.StateDeleting}, {Name: "us-1", State: refractv1alpha1.StateSynced},
	}}, nil)
	if diff := cmp.Diff([]string{"eu-1", "us-1"}, clusters); diff != "" {
		t.Errorf("a deletion from before a restart goes on: put(): -want, +got:\n%s", diff)
	}
	if !l.concerns(key, "eu-1") {
		t.Error("concerns() omits the cluster")
	}
	l.report(key, "eu-1", clusterStatus{absent: true})
	if l.concerns(key, "eu-1") {
		t.Error("concerns() does not notice that the copy is gone")
	}
}

// TestDecideSafely: an object whose decision panics keeps its copies, and reports the error.
func TestDecideSafely(t *testing.T) {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "uid": "u", "labels": map[string]any{corev1alpha1.PropagationPolicyLabel: "pp"}},
	}}
	s := &inputs{propagation: func(tree.Policy) *placement.Policy { panic("oh") }}
	was := previous{uid: "u", placed: on("eu-1")}
	p := decideSafely(Key{}, source{object: obj, kind: "ConfigMap"}, was, s, logr.Discard())
	if p.blocked != reasonInternalError || !strings.Contains(p.blockedMessage, "Refract stumbled") || p.gone {
		t.Errorf("want the object blocked, with the error, got %q %q", p.blocked, p.blockedMessage)
	}
	if diff := cmp.Diff(was.placed, p.placed); diff != "" {
		t.Errorf("want the former placement: -want, +got:\n%s", diff)
	}
	if p := decideSafely(Key{}, source{}, previous{}, s, logr.Discard()); !p.gone {
		t.Error("the desired state of a missing object is not gone")
	}
}
