package preview

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/injection/inject"
)

// policies are in every input of the tests: a Service completes b, and b conflicts with a in a variable.
const policies = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: a, namespace: shop}
spec:
  selector: {matchLabels: {a: "1"}}
  env: [{name: X, value: 1}]
  volumes: [{name: v, emptyDir: {}}]
  volumeMounts: [{name: v, mountPath: /v}]
---
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: b, namespace: shop}
spec: {service: s, implicit: true, selector: {matchLabels: {b: "1"}}}
---
apiVersion: v1
kind: Service
metadata: {name: s, namespace: shop, annotations: {refract.dev/env: '{"X": "2"}'}}
spec: {ports: [{port: 80}]}
`

func read(t *testing.T, pods string) *manifest.Set {
	t.Helper()
	set, problems := manifest.ReadFS(fstest.MapFS{"policies.yaml": {Data: []byte(policies)}, "pods.yaml": {Data: []byte(pods)}})
	for _, p := range problems {
		t.Fatal(p)
	}
	return set
}

// TestEvaluate verifies the resulting pods and the places of conflicts, and that the input is not modified.
func TestEvaluate(t *testing.T) {
	const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: LABELS}
    spec:
      containers: [{name: c, image: c}, {name: d, env: ENV}]
      volumes: [{name: w, emptyDir: {}}]
`
	type skipped struct {
		Policy, Reason, Pointer string
		Conflicts               bool
		Line                    int
	}
	cases := map[string]struct {
		reason      string
		labels, env string
		applied     []string
		skipped     []skipped
	}{
		"NotSelected": {
			reason: "No policy selects the pod.",
			labels: "{}", env: "[]",
		},
		"Applied": {
			reason: "The policy's items are added to every container.",
			labels: `{a: "1"}`, env: "[]", applied: []string{"a"},
		},
		"Completed": {
			reason: "A policy is completed by its Service.",
			labels: `{b: "1"}`, env: "[]", applied: []string{"b"},
		},
		"Conflict": {
			reason: "The conflicting variable is in the template, and belongs to the pod itself.",
			labels: `{a: "1"}`, env: `[{name: X, value: "3"}]`,
			skipped: []skipped{{Policy: "a", Reason: inject.ReasonEnvConflict, Pointer: "/spec/template/spec/containers/1/env/0", Conflicts: true, Line: 9}},
		},
		"ConflictOfPolicies": {
			reason: "The second policy is omitted because of the first one, not because of the pod.",
			labels: `{a: "1", b: "1"}`, env: "[]", applied: []string{"a"},
			skipped: []skipped{{Policy: "b", Reason: inject.ReasonEnvConflict, Pointer: "", Conflicts: false, Line: 2}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := read(t, replaced(deployment, "LABELS", tc.labels, "ENV", tc.env))
			var before []*unstructured.Unstructured
			for i := range set.Objects {
				before = append(before, set.Objects[i].Content.DeepCopy())
			}
			e := Evaluate(set)
			for i := range set.Objects {
				if diff := cmp.Diff(before[i], set.Objects[i].Content); diff != "" {
					t.Errorf("Evaluate() modified its input: -before, +after:\n%s", diff)
				}
			}
			if len(e.Pods) != 1 || e.Pods[0].Err != nil {
				t.Fatalf("%s\n%d pods, want 1 without an error", tc.reason, len(e.Pods))
			}
			pod := &e.Pods[0]
			var applied []string
			for i := range pod.Result.Applied {
				applied = append(applied, pod.Result.Applied[i].Policy.Name())
			}
			var left []skipped
			for i := range pod.Result.Skipped {
				s := &pod.Result.Skipped[i]
				left = append(left, skipped{s.Policy.Name(), s.Reason, pod.Pointer(s), pod.Conflicts(s.Policy), pod.Place(s).Line})
			}
			if diff := cmp.Diff(tc.applied, applied); diff != "" {
				t.Errorf("%s\napplied: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.skipped, left); diff != "" {
				t.Errorf("%s\nskipped: -want, +got:\n%s", tc.reason, diff)
			}
			// An annotation records the omitted policies.
			if changed := len(tc.applied)+len(tc.skipped) > 0; pod.Changed() != changed {
				t.Errorf("%s\nChanged() is %t, want %t", tc.reason, pod.Changed(), changed)
			}
		})
	}
}

func replaced(text string, oldNew ...string) string {
	return strings.NewReplacer(oldNew...).Replace(text)
}

// TestExempt verifies that nothing is injected into pods of the cluster itself and of Refract, and that a warning says
// so.
func TestExempt(t *testing.T) {
	for namespace, exempt := range map[string]bool{"kube-system": true, "kube-node-lease": true, "kube-admiral-system": true, "kube-public": false} {
		set := read(t, replaced(`
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: all, namespace: NAMESPACE}
spec: {selector: {}, env: [{name: X, value: 1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: NAMESPACE}
spec: {containers: [{name: c, image: c}]}
`, "NAMESPACE", namespace))
		e := Evaluate(set)
		if got := e.Pods[0].Changed(); got == exempt {
			t.Errorf("A pod of %s: changed is %t, want %t", namespace, got, !exempt)
		}
		warnings := e.Result(set, nil).Warnings
		warned := slices.ContainsFunc(warnings, func(f Finding) bool {
			return strings.Contains(f.String(), "metadata.namespace: nothing is injected into pods of namespace "+namespace)
		})
		if warned != exempt {
			t.Errorf("Warnings about %s: got %v", namespace, warnings)
		}
	}
}
