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
			reason: "Fields that change with every write would be a difference in each snapshot.",
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
			reason: "The annotation of kubectl repeats the whole object. All other annotations are kept.",
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
			reason: "The readiness of clusters affects the placement.",
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
			reason: "The references that a policy permits are only in its status, and affect the followers of objects.",
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
			reason: "A policy on the hub has effect despite the annotation, so the annotation is removed.",
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
			reason: "On all other objects, the annotation is a part of the placed content.",
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
			reason: "The keys of the data stay, and so do all fields without values.",
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
			reason: "An API server never returns stringData, but its values would be confidential.",
			in:     `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: hunter2}}`,
			want:   `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: left out of the snapshot}}`,
		},
		"Annotations": {
			reason: "Tools store copies of the object in annotations. Only annotations of Refract and KubeAdmiral contain no values.",
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
			reason: "Missing fields stay missing.",
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
