package member

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCovers uses sets of fields that an API server wrote.
func TestCovers(t *testing.T) {
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","uid":"u","labels":{"app":"web"},"annotations":{"a.b/c":"1"}},` +
		`"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":[` +
		`{"name":"web","image":"i","args":["a","b"],"ports":[{"containerPort":80}]}],"tolerations":[]}}}}`
	const whole = `{"f:metadata":{"f:labels":{"f:app":{}},"f:annotations":{"f:a.b/c":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:spec":{` +
		`"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{},"f:args":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}},"f:tolerations":{}}}}}`
	without := func(part string) string {
		if !strings.Contains(whole, part) {
			t.Fatalf("%s is not in the set", part)
		}
		rest := strings.Replace(whole, part, "", 1)
		return strings.NewReplacer("{,", "{", ",}", "}").Replace(rest)
	}
	cases := map[string]struct {
		reason        string
		object, set   string
		builtin, want bool
	}{
		"All":           {"The set has all applied fields.", deployment, whole, true, true},
		"Replicas":      {"An autoscaler took the replicas.", deployment, without(`"f:replicas":{},`), true, false},
		"Image":         {"Another manager changed the image.", deployment, without(`"f:image":{},`), true, false},
		"Label":         {"Another manager changed a label.", deployment, without(`"f:labels":{"f:app":{}},`), true, false},
		"Args":          {"Another manager changed an atomic list.", deployment, without(`"f:args":{},`), true, false},
		"Port":          {"Another manager took a field of a port.", deployment, without(`,"f:containerPort":{}`), true, false},
		"Element":       {"Another manager removed the container.", deployment, without(`"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{},"f:args":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}},`), true, false},
		"More":          {"The set may have additional fields, such as defaults.", `{"spec":{"replicas":2}}`, whole, true, true},
		"Custom":        {"In a custom resource, a map without inner fields may be atomic, or may have lost its entries.", deployment, whole, false, false},
		"CustomScalars": {"Scalars are unambiguous.", `{"spec":{"size":1,"tags":["x","y"]}}`, `{"f:spec":{"f:size":{},"f:tags":{"v:\"x\"":{},"v:\"y\"":{}}}}`, false, true},
		"Set":           {"An element of a set is gone.", `{"spec":{"tags":["x","y"]}}`, `{"f:spec":{"f:tags":{"v:\"x\"":{}}}}`, true, false},
		"Empty":         {"An empty set covers no field.", deployment, `{}`, true, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			if err := json.Unmarshal([]byte(tc.object), &object); err != nil {
				t.Fatal(err)
			}
			o := ours([]metav1.ManagedFieldsEntry{{
				Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(tc.set),
			}}, newAccount())
			if got := o.Covers(object, tc.builtin); got != tc.want {
				t.Errorf("%s\nCovers() = %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
