package structural

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/structural/generate"
)

// What was stored before a schema became stricter may stay as it is, where it does not
// change: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-ratcheting.
// What structural says of updates of such objects is what a server says.
func TestRatchetingAgreesWithTheServer(t *testing.T) {
	const definitions = 22
	updates, tolerated := &comparison{}, &atomic.Int64{}
	each(t, definitions, func(t *testing.T, i uint64) { //nolint:thelper // It is the test.
		src := source(i + 3_000_000)
		strict := generate.CRD(src, fmt.Sprintf("ratchets%d.%s", i, group), generate.SchemaOptions{Depth: 3})
		mark(strict)
		lax := runtime.DeepCopyJSON(strict)
		for _, node := range schemaNodes(lax) {
			loosen(node)
		}
		before, after := newSubject(t, lax), newSubject(t, strict)
		shared.install(t, lax)
		stored := map[string]map[string]any{}
		for n := range objects {
			name := fmt.Sprintf("object-%d", n)
			obj := generate.Object(src, after.version, generate.ObjectOptions{Namespace: after.namespace, Name: name})
			delete(obj, "marked")
			if at(obj, "metadata", "name") == name && before.predictCreate(t, obj).Code == http.StatusOK {
				shared.must(t, http.MethodPost, before.path(""), obj)
				stored[name] = obj
			}
		}
		replace(t, strict)
		for n := range objects {
			name := fmt.Sprintf("object-%d", n)
			obj, ok := stored[name]
			if !ok {
				continue
			}
			shared.eventually(t, "the strict schema is served", func() bool {
				a, err := shared.do(t.Context(), http.MethodGet, after.path(name), nil)
				if err != nil || a.code != http.StatusOK {
					return false
				}
				got, err := a.object()
				return err == nil && got["marked"] == true
			})
			old := shared.must(t, http.MethodGet, after.path(name), nil)
			compareUpdate(t, updates, after, i, obj, old)
			touched := runtime.DeepCopyJSON(obj)
			touched["marked"] = false
			v := compareUpdate(t, updates, after, i, touched, old)
			if v.Code == http.StatusOK && after.predictCreate(t, touched).Code == http.StatusUnprocessableEntity {
				tolerated.Add(1)
			}
			for range 2 {
				compareUpdate(t, updates, after, i, mixed(src, obj, generate.Object(src, after.version, generate.ObjectOptions{})), old)
			}
		}
	})
	t.Logf("%d pairs, %d accepted, %d refused; %d objects may stay though they could not be created",
		updates.pairs.Load(), updates.accepted.Load(), updates.refused.Load(), tolerated.Load())
	if updates.accepted.Load() < 100 || updates.refused.Load() < 50 || tolerated.Load() < 15 {
		t.Error("too few of something were compared")
	}
}

// mark gives every schema a field that shows by its default that it is served.
func mark(crd map[string]any) {
	for _, version := range list(crd, "spec", "versions") {
		v, _ := version.(map[string]any)
		properties, _ := at(v, "schema", "openAPIV3Schema", "properties").(map[string]any)
		properties["marked"] = map[string]any{"type": "boolean", "default": true}
	}
}

// loosen takes from a schema what refuses values, and the mark, but not what says of
// what shape they are.
func loosen(schema map[string]any) {
	limits := []string{
		"enum", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minItems", "maxItems", "minProperties", "maxProperties", "required", "oneOf", "not", "x-kubernetes-validations", "x-kubernetes-list-type",
		"x-kubernetes-list-map-keys", "default",
	}
	if schema["x-kubernetes-int-or-string"] != true {
		limits = append(limits, "anyOf", "allOf")
	}
	maps.DeleteFunc(schema, func(key string, _ any) bool { return slices.Contains(limits, key) })
}

// replace puts a definition in the place of the one that is there.
func replace(t *testing.T, crd map[string]any) {
	t.Helper()
	path := definitions + "/" + text(crd, "metadata", "name")
	shared.eventually(t, "the definition is replaced", func() bool {
		now := shared.must(t, http.MethodGet, path, nil)
		next := runtime.DeepCopyJSON(crd)
		metadata, _ := next["metadata"].(map[string]any)
		metadata["resourceVersion"] = text(now, "metadata", "resourceVersion")
		a, err := shared.do(t.Context(), http.MethodPut, path, encode(t, next))
		if err == nil && a.code != http.StatusOK && a.code != http.StatusConflict {
			t.Fatalf("PUT %s: %d %s", path, a.code, a.body)
		}
		return err == nil && a.code == http.StatusOK
	})
}
