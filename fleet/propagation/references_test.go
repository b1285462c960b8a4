package propagation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/reference"
	"refract.dev/tree"
)

// TestUnasked covers references that an override adds without permission, and the policy that the error names.
func TestUnasked(t *testing.T) {
	const (
		workload = `{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: web, image: web}],
  volumes: [{name: v, secret: {secretName: mine}}]}}}}`
		pulling = `{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: web, image: web}],
  imagePullSecrets: [{name: pull}], volumes: [{name: v, secret: {secretName: mine}}]}}}}`
		service = `{apiVersion: v1, kind: Service, metadata: {annotations: {refract.dev/env-from: secret/mine}}, spec: {}}`
		policy  = `{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, spec: {service: db, selector: {}, env: [{name: A, value: b}]}}`
		byImage = `image: [{imagePath: /spec/template/spec/volumes/0/secret/secretName, operations: [{imageComponent: Repository, operator: overwrite, value: theirs}]}]`
	)
	cases := map[string]struct {
		reason   string
		object   string
		company  string // Overriders of the ClusterOverridePolicy; none if empty.
		shop     string // Overriders of the OverridePolicy.
		may      []string
		withheld []string
		fails    string
	}{
		"ImagePath": {
			reason: "An image path may lead to any field, and the written text becomes a name.",
			object: workload, shop: byImage, withheld: []string{"Secret theirs by web"},
		},
		"Asked": {
			reason: "The author of the policy may read the Secret.",
			object: workload, shop: byImage, may: []string{"web Secret theirs"},
		},
		"AskedAboutAnother": {
			reason: "The permissions are for another Secret and for another policy.",
			object: workload, shop: byImage, may: []string{"web Secret other", "company Secret theirs"}, withheld: []string{"Secret theirs by web"},
		},
		"ByAnotherPolicy": {
			reason: "The reference in the company's policy needs a permission of the company. The shop's policy adds no reference.",
			object: workload, company: `jsonpatch: [{path: /spec/template/spec/imagePullSecrets, operator: add, value: [{name: pull}]}]`,
			shop: `labels: [{value: {a: b}}]`, may: []string{"company Secret pull"},
		},
		"Own": {
			reason: "The author of the object was already checked for this reference.",
			object: workload, shop: `jsonpatch: [{path: /spec/template/spec/volumes/-, operator: add, value: {name: w, secret: {secretName: mine}}}]`,
		},
		"PullShown": {
			reason: "A Secret that pulls images travels in any case; to withhold it would not keep it from the pods.",
			object: pulling, shop: strings.ReplaceAll(byImage, "theirs", "pull"),
			fails: "OverridePolicy shop/web makes it show more of Secret pull on clusters than it does itself, and no user with read access has approved it",
		},
		"PullShownAsked": {
			reason: "The author of the policy may read the Secret.",
			object: pulling, shop: strings.ReplaceAll(byImage, "theirs", "pull"), may: []string{"web Secret pull"},
		},
		"Service": {
			reason: "The Service hands out the Secret on the cluster, without a check there. No follower can be withheld, so the Service is.",
			object: service, shop: `annotations: [{operator: overwrite, value: {refract.dev/env-from: secret/theirs}}]`,
			fails: "OverridePolicy shop/web makes it hand out Secret theirs on clusters, and no user with read access has approved it",
		},
		"Implicit": {
			reason: "From then on, the Service that the policy names is handed out.",
			object: policy, shop: `jsonpatch: [{path: /spec/implicit, operator: add, value: true}]`,
			fails: "OverridePolicy shop/web makes it hand out Service db on clusters, and no user with read access has approved it",
		},
		"ImplicitAsked": {
			reason: "The author of the policy may read the Service that it names.",
			object: policy, shop: `jsonpatch: [{path: /spec/implicit, operator: add, value: true}]`, may: []string{"web Service db"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &obj.Object); err != nil {
				t.Fatal(err)
			}
			obj.SetNamespace("shop")
			var policies []*override.Policy
			if tc.company != "" {
				p, errs := override.CompileCluster(&corev1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "company"}, Spec: rulesOf(t, tc.company)})
				policies = append(policies, p)
				if len(errs) > 0 {
					t.Fatal(errs)
				}
			}
			p, errs := override.Compile(&corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: rulesOf(t, tc.shop)})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			policies = append(policies, p)
			cluster := match.Cluster{Name: "eu-1"}
			v := override.Apply(obj, cluster, policies...)
			if v.Err != nil {
				t.Fatal(v.Err)
			}
			got, err := unasked(obj, &v, cluster, policies, &inputs{may: func(by tree.Policy, _ string, ref reference.Reference) bool {
				return slices.Contains(tc.may, by.Name+" "+ref.Kind+" "+ref.Name)
			}})
			if (err != nil) != (tc.fails != "") || err != nil && !strings.HasPrefix(err.Error(), tc.fails) {
				t.Errorf("%s\nunasked(): want error %q, got %v", tc.reason, tc.fails, err)
			}
			var withheld []string
			for ref, by := range got {
				withheld = append(withheld, ref.Kind+" "+ref.Name+" by "+by.Name)
			}
			if diff := cmp.Diff(tc.withheld, withheld); diff != "" {
				t.Errorf("%s\nunasked(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func rulesOf(t *testing.T, overriders string) corev1alpha1.OverridePolicySpec {
	t.Helper()
	var spec corev1alpha1.OverridePolicySpec
	if err := yaml.Unmarshal([]byte("{overrideRules: [{overriders: {"+overriders+"}}]}"), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestWithheldStays: a follower does not leave a cluster for lack of a permission, because an older version of
// Refract may not have recorded the permission. It also stays in the moment before the permission is recorded.
func TestWithheldStays(t *testing.T) {
	leader, follower := keyOf("deployments", "web"), keyOf("secrets", "db")
	l := newState()
	l.setDesired(leader, &desiredState{followers: map[Key][]string{follower: {"eu-1"}}}, previous{}, nil)
	if _, _, touched := l.setDesired(leader, &desiredState{withheld: map[Key][]string{follower: {"eu-1", "us-1"}}}, previous{}, nil); len(touched) != 1 {
		t.Errorf("put() of a leader with a withheld reference: got %v", touched)
	}
	got := l.followed(follower, []Key{leader})
	if len(got.clusters) != 0 || !got.failing["eu-1"] || !slices.Equal(got.by, []Key{leader}) {
		t.Errorf("leading() = %+v: want the follower to keep its cluster, and to get no other", got)
	}
	if got := l.followed(follower, nil); len(got.by) != 0 || len(got.clusters) != 0 {
		t.Errorf("leading() = %+v: want no cluster for an object that never travelled", got)
	}
	if _, _, touched := l.setDesired(leader, &desiredState{}, previous{}, nil); len(touched) != 1 {
		t.Errorf("put() of a leader without the reference: got %v", touched)
	}
	if got := l.followed(follower, []Key{leader}); len(got.by) != 0 {
		t.Errorf("leading() = %+v: want no leader left", got)
	}
}

// TestMay covers the permissions in the status of a policy.
func TestMay(t *testing.T) {
	ref := reference.Reference{Kind: reference.Secret, Name: "db"}
	policy := tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "web", Generation: 2}
	company := tree.Policy{Kind: corev1alpha1.KindClusterOverridePolicy, Name: "company", Generation: 2}
	mark := func(generation int64, namespace, kind, name string) *corev1alpha1.CheckedReferences {
		return &corev1alpha1.CheckedReferences{ObservedGeneration: generation, Items: []corev1alpha1.CheckedReference{{Kind: kind, Namespace: namespace, Name: name}}}
	}
	cases := map[string]struct {
		reason string
		policy tree.Policy
		mark   *corev1alpha1.CheckedReferences
		want   bool
	}{
		"None":             {"No user was checked.", policy, nil, false},
		"Asked":            {"The author may read the object.", policy, mark(2, "", "Secret", "db"), true},
		"BeforeItChanged":  {"Another user may have changed it since.", policy, mark(1, "", "Secret", "db"), false},
		"OtherName":        {"The permission is for another name.", policy, mark(2, "", "Secret", "dc"), false},
		"OtherKind":        {"The permission is for another kind.", policy, mark(2, "", "ConfigMap", "db"), false},
		"EveryNamespace":   {"The permission is for all namespaces.", company, mark(2, "", "Secret", "db"), true},
		"ThisNamespace":    {"The permission is for this namespace.", company, mark(2, "shop", "Secret", "db"), true},
		"AnotherNamespace": {"The permission is for another namespace.", company, mark(2, "other", "Secret", "db"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := 0
			p := newPolicies(discard)
			p.changed = func(tree.Policy) { changed++ }
			view := &policyView{policies: p, kind: tc.policy.Kind}
			meta := metav1.ObjectMeta{Namespace: tc.policy.Namespace, Name: tc.policy.Name, Generation: tc.policy.Generation}
			add := func(mark *corev1alpha1.CheckedReferences) {
				var obj client.Object = &corev1alpha1.OverridePolicy{ObjectMeta: meta, Status: corev1alpha1.PolicyStatus{References: mark}}
				if tc.policy.Kind == corev1alpha1.KindClusterOverridePolicy {
					obj = &corev1alpha1.ClusterOverridePolicy{ObjectMeta: meta, Status: corev1alpha1.PolicyStatus{References: mark}}
				}
				if err := view.Add(obj); err != nil {
					t.Fatal(err)
				}
			}
			add(nil)
			if p.may(tc.policy, "shop", ref) {
				t.Error("a reference is permitted before the check")
			}
			add(tc.mark)
			if tc.mark != nil && changed != 2 {
				t.Errorf("want the objects decided again when a policy may add more references: got %d changes, want 2", changed)
			}
			if got := p.may(tc.policy, "shop", ref); got != tc.want {
				t.Errorf("%s\nmay(): want %v, got %v", tc.reason, tc.want, got)
			}
		})
	}
}

// TestPolicySetBack: on a hub that is restored from a backup, generations count up again, and the watch may miss
// those in between. A policy with other content counts as changed, whatever its generation.
func TestPolicySetBack(t *testing.T) {
	overrides := corev1alpha1.OverridePolicySpec{OverrideRules: []corev1alpha1.OverrideRule{{}}}
	placement := corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{{Cluster: "us-1"}}}
	waves := refractv1alpha1.RolloutPolicySpec{Waves: []refractv1alpha1.RolloutWave{{Name: "first"}}}
	for _, tc := range []struct{ was, is client.Object }{
		{&corev1alpha1.OverridePolicy{}, &corev1alpha1.OverridePolicy{Spec: overrides}},
		{&corev1alpha1.ClusterOverridePolicy{}, &corev1alpha1.ClusterOverridePolicy{Spec: overrides}},
		{&corev1alpha1.PropagationPolicy{}, &corev1alpha1.PropagationPolicy{Spec: placement}},
		{&corev1alpha1.ClusterPropagationPolicy{}, &corev1alpha1.ClusterPropagationPolicy{Spec: placement}},
		{&refractv1alpha1.RolloutPolicy{}, &refractv1alpha1.RolloutPolicy{Spec: waves}},
		{&refractv1alpha1.ClusterRolloutPolicy{}, &refractv1alpha1.ClusterRolloutPolicy{Spec: refractv1alpha1.ClusterRolloutPolicySpec{RolloutPolicySpec: waves}}},
	} {
		t.Run(kindOf(tc.was), func(t *testing.T) {
			changed := 0
			p := newPolicies(discard)
			p.changed = func(tree.Policy) { changed++ }
			view := &policyView{policies: p, kind: kindOf(tc.was)}
			for i, o := range []client.Object{tc.was, tc.was, tc.is} {
				o.SetName("web")
				o.SetUID("web")
				o.SetGeneration(2)
				if err := view.Replace([]any{o.DeepCopyObject()}, ""); err != nil {
					t.Fatal(err)
				}
				if want := []int{1, 1, 2}[i]; changed != want {
					t.Errorf("after list %d: want the objects decided again for a new policy, and for other content: got %d changes, want %d", i+1, changed, want)
				}
			}
		})
	}
}
