package variant_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

func TestRender(t *testing.T) {
	const rules = `
spec:
  overrideRules:
  - targetClusters: {clusters: [b, d]}
    overriders: {jsonpatch: [{path: /spec/paused, operator: add, value: true}]}
  - targetClusters: {clusters: [d]}
    overriders: {jsonpatch: [{path: /spec/replicas, operator: replace, value: 9}]}
  - targetClusters: {clusters: [e]}
    overriders: {jsonpatch: [{path: /no/where, operator: remove}]}
`
	cases := map[string]struct {
		reason  string
		object  string
		targets string
		want    []string
	}{
		"NotDivided": {
			reason:  "Without shares, only overrides change the object.",
			object:  "spec: {replicas: 5}",
			targets: "a b c",
			want:    []string{"a c: 5 []", "b: 5 [/spec/paused by rule 0]"},
		},
		"Divided": {
			reason:  "Each share is a change by the policy, except if it equals the object's own number.",
			object:  "spec: {replicas: 5}",
			targets: "a=5 b=2 c=2",
			want:    []string{"a: 5 []", "b: 2 [/spec/replicas 5 by policy, /spec/paused by rule 0]", "c: 2 [/spec/replicas 5 by policy]"},
		},
		"Overridden": {
			reason:  "An override is applied after the share, and hides it.",
			object:  "spec: {replicas: 5}",
			targets: "c=2 d=3",
			want:    []string{"c: 2 [/spec/replicas 5 by policy]", "d: 9 [/spec/replicas 5 by policy, /spec/paused by rule 0, /spec/replicas 3 by rule 1 hides [0]]"},
		},
		"Absent": {
			reason:  "For an object without replicas, the share is an addition.",
			object:  "spec: {}",
			targets: "a=1 c",
			want:    []string{"a: 1 [/spec/replicas <nil> by policy]", "c: <nil> []"},
		},
		"Fails": {
			reason:  "If a rule fails, its clusters get no object.",
			object:  "spec: {replicas: 5}",
			targets: "a=2 e=3",
			want:    []string{"a: 2 [/spec/replicas 5 by policy]", "e: fails"},
		},
	}
	var spec corev1alpha1.OverridePolicy
	if err := yaml.UnmarshalStrict([]byte(rules), &spec); err != nil {
		t.Fatal(err)
	}
	policy, errs := override.Compile(&spec)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := objectOf(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"+tc.object)
			before := obj.DeepCopy()
			var clusters []match.Cluster
			var targets []placement.Target
			for item := range strings.FieldsSeq(tc.targets) {
				name, count, divided := strings.Cut(item, "=")
				target := placement.Target{Cluster: name}
				if divided {
					target.Replicas = new(int64)
					if _, err := fmt.Sscan(count, target.Replicas); err != nil {
						t.Fatal(err)
					}
				}
				clusters, targets = append(clusters, match.Cluster{Name: name}), append(targets, target)
			}
			var got []string
			for _, v := range variant.Render(obj, clusters, targets, tree.Policy{Kind: "PropagationPolicy", Name: "divide"}, policy) {
				got = append(got, textOf(&v, clusters))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nRender(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("%s\nRender() changed the object: -before, +after:\n%s", tc.reason, diff)
			}
		})
	}
}

// textOf returns a variant as CLUSTERS: REPLICAS [PATH BEFORE by AUTHOR].
func textOf(v *override.Variant, clusters []match.Cluster) string {
	var names, changes []string
	for _, c := range v.Clusters {
		names = append(names, clusters[c].Name)
	}
	if v.Err != nil {
		return strings.Join(names, " ") + ": fails"
	}
	for _, c := range v.Changes {
		text := c.Path
		if c.Path == variant.ReplicasPath {
			text += fmt.Sprintf(" %v", c.Before)
		}
		if c.By.Rule == tree.NoRule {
			text += " by policy"
		} else {
			text += fmt.Sprintf(" by rule %d", c.By.Rule)
		}
		if len(c.Shadows) > 0 {
			text += fmt.Sprintf(" hides %v", c.Shadows)
		}
		changes = append(changes, text)
	}
	spec, _ := v.Object.Object["spec"].(map[string]any)
	return fmt.Sprintf("%s: %v [%s]", strings.Join(names, " "), spec["replicas"], strings.Join(changes, ", "))
}

func TestReplicas(t *testing.T) {
	cases := map[string]struct {
		reason string
		object string
		want   *int64
	}{
		"Said":     {reason: "Any kind can have spec.replicas.", object: "{apiVersion: example.com/v1, kind: Database, spec: {replicas: 3}}", want: new(int64(3))},
		"None":     {reason: "0 is a valid number.", object: "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0}}", want: new(int64(0))},
		"BuiltIn":  {reason: "The default of the API server is 1.", object: "{apiVersion: apps/v1, kind: StatefulSet, spec: {}}", want: new(int64(1))},
		"Unknown":  {reason: "The default of other kinds is unknown.", object: "{apiVersion: example.com/v1, kind: Database, spec: {}}"},
		"NoSpec":   {reason: "A ConfigMap has no replicas.", object: "{apiVersion: v1, kind: ConfigMap}"},
		"NoNumber": {reason: "A value that is no number cannot be divided.", object: "{apiVersion: example.com/v1, kind: Database, spec: {replicas: many}}"},
		"Negative": {reason: "A negative number cannot be divided.", object: "{apiVersion: example.com/v1, kind: Database, spec: {replicas: -1}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, variant.Replicas(objectOf(t, tc.object))); diff != "" {
				t.Errorf("%s\nReplicas(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}
