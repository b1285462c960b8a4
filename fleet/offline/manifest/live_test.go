package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kyaml "sigs.k8s.io/yaml"

	"refract.dev/fleet/policy/override"
)

func TestFromObjects(t *testing.T) {
	cases := map[string]struct {
		reason     string
		objects    []string
		namespaced func(schema.GroupKind) (namespaced, known bool)
		want       string
	}{
		"Sorted": {
			reason: "Stored objects are sorted into the same lists as manifests; the fields that an API server adds are no mistakes.",
			objects: []string{
				`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, uid: u, generation: 2}, spec: {replicas: 2}, status: {replicas: 2}}`,
				`{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: op, namespace: shop, creationTimestamp: "2026-01-02T03:04:05Z", resourceVersion: "7", managedFields: [{manager: kubectl, operation: Apply, apiVersion: core.kubeadmiral.io/v1alpha1, time: "2026-01-02T03:04:05Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]}, spec: {}, status: {refCount: 1}}`,
				`{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: eu-1}, spec: {apiEndpoint: "https://eu-1", secretRef: {name: eu-1}}, status: {conditions: []}}`,
				`{apiVersion: refract.dev/v1alpha1, kind: Propagation, metadata: {name: web.deployments.apps, namespace: shop}, spec: {source: {apiVersion: apps/v1, kind: Deployment, resource: deployments, name: web}}}`,
			},
			want: `hub: Deployment shop/web, namespaced, in Objects
hub: OverridePolicy shop/op, namespaced, in OverridePolicies
hub: FederatedCluster eu-1, cluster-scoped, in Clusters
hub: Propagation shop/web.deployments.apps, namespaced, in Propagations
`,
		},
		"Checked": {
			reason: "Mistakes are found, and reported without a line.",
			objects: []string{
				`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop}}`,
				`{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: op, namespace: shop}, spec: {overrideRule: []}}`,
				`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}`,
				`{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: web, namespace: shop}}`,
				`{}`,
			},
			want: `error: hub: ConfigMap shop/: metadata.name: is missing
error: hub: apiVersion: is missing
error: hub: kind: is missing
error: hub: metadata.name: is missing
error: hub: Deployment shop/web: is there already, at hub
error: hub: OverridePolicy shop/op: spec.overrideRule: there is no such field
hint: did you mean overrideRules?
`,
		},
		"InjectionPolicies": {
			reason: "An invalid injection policy is in Objects, because it exists, but not in InjectionPolicies.",
			objects: []string{
				`{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: good, namespace: shop, creationTimestamp: "2026-01-02T03:04:05Z"}, spec: {selector: {}, env: [{name: A, value: 1}]}, status: {matched: 1, later: true}}`,
				`{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: bad, namespace: shop}, spec: {selector: {matchExpressions: [{key: a, operator: Foo}]}, env: [{name: A}]}}`,
			},
			want: `hub: ServiceInjectionPolicy shop/good, namespaced, in Objects and InjectionPolicies
hub: ServiceInjectionPolicy shop/bad, namespaced, in Objects
error: hub: ServiceInjectionPolicy shop/bad: spec.selector.matchExpressions[0].operator: Invalid value: "Foo": not a valid selector operator
`,
		},
		"ScopeSeen": {
			reason: "A stored object without a namespace is cluster-scoped, whatever its kind.",
			objects: []string{
				`{apiVersion: example.com/v1, kind: Tenant, metadata: {name: acme}}`,
				`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}`,
			},
			want: `hub: Tenant acme, cluster-scoped, in Objects
hub: Widget shop/w, namespaced, in Objects
`,
		},
		"ScopeKnown": {
			reason: "The scopes from the caller extend the built-in scopes, and do not replace them.",
			objects: []string{
				`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}`,
				`{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`,
			},
			namespaced: func(schema.GroupKind) (namespaced, known bool) { return true, true },
			want: `hub: Widget default/w, namespaced, in Objects
hub: Namespace shop, cluster-scoped, in Objects
`,
		},
		"NamespaceTakenAway": {
			reason:  "A cluster-scoped object loses its namespace in the Set; the given object does not change.",
			objects: []string{`{apiVersion: v1, kind: Node, metadata: {name: node-1, namespace: shop}}`},
			want:    "hub: Node node-1, cluster-scoped, in Objects\n",
		},
		"AsHeld": {
			reason: "A stored object is neither divided like a list nor left out.",
			objects: []string{
				`{apiVersion: example.com/v1, kind: AllowList, metadata: {name: a, namespace: shop}, items: [{a: b}]}`,
				`{apiVersion: v1, kind: ConfigMap, metadata: {name: l, namespace: shop, annotations: {config.kubernetes.io/local-config: "true"}}}`,
			},
			want: `hub: AllowList shop/a, namespaced, in Objects
hub: ConfigMap shop/l, namespaced, in Objects
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var objects, before []*unstructured.Unstructured
			for _, text := range tc.objects {
				u := &unstructured.Unstructured{Object: parse(t, text)}
				objects, before = append(objects, u), append(before, u.DeepCopy())
			}
			set, problems := FromObjects("hub", objects, tc.namespaced)
			if diff := cmp.Diff(tc.want, describe(set, problems)); diff != "" {
				t.Errorf("%s\nFromObjects(): -want, +got:\n%s", tc.reason, diff)
			}
			for _, o := range set.Manifests {
				if got := o.At("metadata.name"); got != (Place{File: "hub"}) {
					t.Errorf("%s\nAt() = %v, want no line", tc.reason, got)
				}
			}
			if diff := cmp.Diff(before, objects); diff != "" {
				t.Errorf("FromObjects() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// parse returns an object in the form of an API client.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := kyaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, data).(map[string]any)
}

func TestDefinitions(t *testing.T) {
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: zones.example.com%s}
spec: {group: example.com, scope: Cluster, names: {kind: Zone}}
---
apiVersion: example.com/v1
kind: Zone
metadata: {name: eu}
`
	cases := map[string]struct {
		reason      string
		annotations string
		objects     []string
		manifests   int
	}{
		"Object": {
			reason: "A CustomResourceDefinition is an object, and defines the kinds of others.", objects: []string{"zones.example.com", "eu"}, manifests: 2,
		},
		"Local": {
			reason:      "A CustomResourceDefinition with the annotation local-config defines kinds, but is not an object of the Set.",
			annotations: `, annotations: {config.kubernetes.io/local-config: "true"}`, objects: []string{"eu"}, manifests: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := ReadFS(fstest.MapFS{"a.yaml": {Data: fmt.Appendf(nil, crd, tc.annotations)}})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var objects []string
			for i := range set.Objects {
				objects = append(objects, set.Objects[i].Content.GetName())
				if set.Objects[i].Namespaced {
					t.Errorf("%s\n%s: want it to belong to no namespace", tc.reason, set.Objects[i].Identity())
				}
			}
			if diff := cmp.Diff(tc.objects, objects); diff != "" {
				t.Errorf("%s\nObjects: -want, +got:\n%s", tc.reason, diff)
			}
			if len(set.Definitions) != 1 || len(set.Manifests) != tc.manifests {
				t.Errorf("%s\ngot %d definitions and %d manifests, want 1 and %d", tc.reason, len(set.Definitions), len(set.Manifests), tc.manifests)
			}
		})
	}
}

// TestMemory verifies that repeated objects give the same results as the first time, whichever other objects are added
// or removed, and that identical objects are not compiled again.
func TestMemory(t *testing.T) {
	read := func(texts ...string) []*unstructured.Unstructured {
		var objects []*unstructured.Unstructured
		for _, text := range texts {
			objects = append(objects, &unstructured.Unstructured{Object: parse(t, text)})
		}
		return objects
	}
	const policy = `{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: op, namespace: shop}, spec: {overrideRules: [{overriders: {labels: [{value: {a: b}}]}}]}}`
	all := read(
		policy,
		`{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: wrong, namespace: shop}, spec: {overrideRule: []}}`,
		`{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: nameless}, spec: {}}`,
		`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop}}`,
		`{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}`,
		`{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: bad, namespace: shop}, spec: {selector: {matchExpressions: [{key: a, operator: Foo}]}, env: [{name: A}]}}`,
	)
	twice := read(strings.Replace(policy, "a: b", "a: c", 1))
	definition := read(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com},
  spec: {group: example.com, names: {kind: Widget, plural: widgets}, scope: Namespaced, versions: []}}`)
	m := &Previous{}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("it takes too long"))
	var compiled *override.Policy
	for _, step := range []struct {
		name    string
		ctx     context.Context //nolint:containedctx // It is for one step.
		objects []*unstructured.Unstructured
	}{
		{"First", t.Context(), all},
		{"Again", t.Context(), all},
		{"Reversed", t.Context(), slices.Concat(all[3:], all[:3])},
		{"Twice", t.Context(), slices.Concat(all, twice)},
		{"Once", t.Context(), all},
		{"Defined", t.Context(), slices.Concat(all, definition)},
		{"Ended", ended, slices.Concat(twice, all[1:])},
		{"Undefined", t.Context(), all},
		{"Fewer", t.Context(), all[:1]},
	} {
		set, problems, err := m.FromObjects(step.ctx, "hub", step.objects, nil)
		if step.ctx == ended {
			if err == nil || err.Error() != "it takes too long" {
				t.Errorf("%s: want the cause, got %v", step.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fresh, found := FromObjects("hub", step.objects, nil)
		if diff := cmp.Diff(describe(fresh, found), describe(set, problems)); diff != "" {
			t.Errorf("%s: -as without a Previous, +got:\n%s", step.name, diff)
		}
		for i := range set.OverridePolicies {
			p := &set.OverridePolicies[i]
			if p.Policy.Name != "op" {
				continue
			}
			if compiled != nil && p.Compiled != compiled && step.name != "Undefined" {
				t.Errorf("%s: the policy is the same, and was compiled again", step.name)
			}
			compiled = p.Compiled
		}
	}
}
