package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/policy/placement"
)

func TestScales(t *testing.T) {
	workload := func(group, kind, name string) placement.Workload {
		return placement.Workload{GroupKind: schema.GroupKind{Group: group, Kind: kind}, Name: name}
	}
	const hpa, keda = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: ", "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: "
	cases := map[string]struct {
		reason string
		object string
		want   placement.Workload
		ok     bool
	}{
		"Deployment": {
			"Most autoscalers scale a Deployment.",
			hpa + "{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}", workload("apps", "Deployment", "web"), true,
		},
		"OldVersion":   {"Versions do not matter.", "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {apiVersion: apps/v1beta1, kind: Deployment, name: web}}", workload("apps", "Deployment", "web"), true},
		"Core":         {"A ReplicationController has no group.", hpa + "{scaleTargetRef: {apiVersion: v1, kind: ReplicationController, name: web}}", workload("", "ReplicationController", "web"), true},
		"Custom":       {"A custom resource may have the subresource scale.", hpa + "{scaleTargetRef: {apiVersion: example.com/v1, kind: App, name: web}}", workload("example.com", "App", "web"), true},
		"KEDA":         {"The default kind of KEDA is Deployment.", keda + "{scaleTargetRef: {name: web}}", workload("apps", "Deployment", "web"), true},
		"KEDAKind":     {"A KEDA reference may have the kind Deployment without an apiVersion.", keda + "{scaleTargetRef: {kind: Deployment, name: web}}", workload("apps", "Deployment", "web"), true},
		"KEDACustom":   {"A KEDA reference may have another kind with its group.", keda + "{scaleTargetRef: {apiVersion: example.com/v1, kind: App, name: web}}", workload("example.com", "App", "web"), true},
		"NoName":       {"Without a name, there is no workload.", hpa + "{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment}}", placement.Workload{}, false},
		"NoKind":       {"A reference without a kind is invalid.", hpa + "{scaleTargetRef: {name: web}}", placement.Workload{}, false},
		"Rubbish":      {"A reference of another type names no workload.", hpa + "{scaleTargetRef: [web]}", placement.Workload{}, false},
		"NoSpec":       {"An object without a spec names no workload.", hpa + "null", placement.Workload{}, false},
		"NoAutoscaler": {"A kind of another group may have a field of this name.", "apiVersion: example.com/v1\nkind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}", placement.Workload{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &obj.Object); err != nil {
				t.Fatal(err)
			}
			got, ok := placement.Scales(obj)
			if !ok {
				got = placement.Workload{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
				t.Errorf("%s\nScales(): want %t, got %t\n-want, +got:\n%s", tc.reason, tc.ok, ok, diff)
			}
		})
	}
}
