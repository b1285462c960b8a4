package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestKept(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   string
	}{
		"Noise": {
			reason: "What changes with every write would be a difference each time.",
			in: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, uid: u, generation: 3, resourceVersion: "7", selfLink: /x, managedFields: [{manager: kubectl}]}
spec: {replicas: 1}
status: {replicas: 1}`,
			want: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, uid: u, generation: 3}
spec: {replicas: 1}`,
		},
		"LastApplied": {
			reason: "The annotation of kubectl repeats the object; all others are part of it.",
			in: `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", team: shop}}`,
			want: `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, annotations: {team: shop}}`,
		},
		"Cluster": {
			reason: "Whether a cluster is ready decides who gets what.",
			in: `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu, annotations: {config.kubernetes.io/local-config: "true"}}
status: {conditions: [{type: Ready}]}`,
			want: `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu, annotations: {}}
status: {conditions: [{type: Ready}]}`,
		},
		"References": {
			reason: "What a policy may have objects refer to is known to the hub alone, and decides what travels.",
			in: `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: shop, generation: 2}
status: {refCount: 1, references: {observedGeneration: 2, items: [{kind: Secret, name: db}]}}`,
			want: `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: shop, generation: 2}
status: {references: {observedGeneration: 2, items: [{kind: Secret, name: db}]}}`,
		},
		"LocalPolicy": {
			reason: "A policy that is on the hub is in force: read from the snapshot it must not be left out.",
			in: `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: shop, annotations: {config.kubernetes.io/local-config: "true", team: shop}}`,
			want: `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: shop, annotations: {team: shop}}`,
		},
		"LocalObject": {
			reason: "On all else the annotation is part of what is placed.",
			in: `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, annotations: {config.kubernetes.io/local-config: "true"}}`,
			want: `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, annotations: {config.kubernetes.io/local-config: "true"}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := parse(t, tc.in)
			u := &unstructured.Unstructured{Object: in}
			before := u.DeepCopy()
			if diff := cmp.Diff(parse(t, tc.want), kept(u)); diff != "" {
				t.Errorf("%s\nkept(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before.Object, in); diff != "" {
				t.Errorf("kept() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestWithoutValues(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   string
	}{
		"Data": {
			reason: "The keys stay, and so does all that is no value.",
			in: `
apiVersion: v1
kind: Secret
metadata: {name: a, labels: {kubeadmiral.io/propagation-policy-name: all}}
type: Opaque
data: {password: aHVudGVyMg==, empty: ""}`,
			want: `
apiVersion: v1
kind: Secret
metadata: {name: a, labels: {kubeadmiral.io/propagation-policy-name: all}}
type: Opaque
data: {password: bGVmdCBvdXQgb2YgdGhlIHNuYXBzaG90, empty: bGVmdCBvdXQgb2YgdGhlIHNuYXBzaG90}`,
		},
		"StringData": {
			reason: "No API server returns it, but what it holds is a value.",
			in:     `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: hunter2}}`,
			want:   `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: left out of the snapshot}}`,
		},
		"Annotations": {
			reason: "Tools keep copies of the object in annotations; only ours say nothing but what they are for.",
			in: `
apiVersion: v1
kind: Secret
metadata:
  name: a
  annotations:
    kapp.k14s.io/original: '{"stringData":{"password":"hunter2"}}'
    objectset.rio.cattle.io/applied: H4sIAAAA
    plain: hunter2
    notkubeadmiral.io/a: hunter2
    refract.dev.example.com/a: hunter2
    kubeadmiral.io/sticky-cluster: "true"
    core.kubeadmiral.io/a: b
    refract.dev/a: c`,
			want: `
apiVersion: v1
kind: Secret
metadata:
  name: a
  annotations:
    kapp.k14s.io/original: left out of the snapshot
    objectset.rio.cattle.io/applied: left out of the snapshot
    plain: left out of the snapshot
    notkubeadmiral.io/a: left out of the snapshot
    refract.dev.example.com/a: left out of the snapshot
    kubeadmiral.io/sticky-cluster: "true"
    core.kubeadmiral.io/a: b
    refract.dev/a: c`,
		},
		"Nothing": {
			reason: "What is not there stays so.",
			in:     `{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: null}, data: null}`,
			want:   `{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: null}, data: null}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := parse(t, tc.in)
			before := (&unstructured.Unstructured{Object: in}).DeepCopy()
			if diff := cmp.Diff(parse(t, tc.want), withoutValues(in)); diff != "" {
				t.Errorf("%s\nwithoutValues(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before.Object, in); diff != "" {
				t.Errorf("withoutValues() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u.Object
}
