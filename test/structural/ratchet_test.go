package structural

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural/generate"
	"refract.dev/test/harness"
)

// TestRatchetingAgreesWithTheServer: after a schema has become stricter, an object may keep invalid values that do not
// change:
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-ratcheting.
// structural and a server agree on updates of such objects.
func TestRatchetingAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	const schemas = 22
	updates, tolerated := &comparison{}, &atomic.Int64{}
	all, group := make([]*change, schemas), groupOf(t)
	for i := range all {
		all[i] = newChange(t, uint64(i), fmt.Sprintf("ratchets%d.%s", i, group))
	}
	for _, c := range all {
		shared.must(t, http.MethodPost, definitions, c.before.crd)
	}
	each(t, schemas, func(t *testing.T, i uint64) { //nolint:thelper // This function is the test.
		src, before, after := all[i].src, all[i].before, all[i].after
		shared.served(t, before.crd)
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
		replace(t, after.crd)
		for n := range objects {
			name := fmt.Sprintf("object-%d", n)
			obj, ok := stored[name]
			if !ok {
				continue
			}
			harness.Eventually(t, "the strict schema is served", func(ctx context.Context) error {
				a, err := shared.do(ctx, http.MethodGet, after.path(name), nil)
				if err != nil {
					return err
				}
				if err := a.want(http.StatusOK); err != nil {
					return err
				}
				got, err := a.object()
				if err == nil && got["marked"] != true {
					err = fmt.Errorf("it is not: %s", a.body)
				}
				return err
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
	t.Logf("%d pairs, %d accepted, %d rejected; %d objects may stay, although they could not be created",
		updates.pairs.Load(), updates.accepted.Load(), updates.refused.Load(), tolerated.Load())
	if updates.accepted.Load() < 100 || updates.refused.Load() < 50 || tolerated.Load() < 15 {
		t.Error("too few objects of a kind were compared")
	}
}

// change has two versions of a schema; the second one is stricter.
type change struct {
	src           *rand.PCG // Source of the objects, the same for both schemas.
	before, after *subject
}

func newChange(t *testing.T, seed uint64, name string) *change {
	t.Helper()
	src := source(seed + 3_000_000)
	strict := generate.CRD(src, name, generate.SchemaOptions{Depth: 3})
	mark(strict)
	lax := runtime.DeepCopyJSON(strict)
	for _, node := range schemaNodes(lax) {
		loosen(node)
	}
	return &change{src: src, before: newSubject(t, lax), after: newSubject(t, strict)}
}

// mark adds a field with a default to every schema. The default shows whether the server already uses the schema.
func mark(crd map[string]any) {
	for _, version := range list(crd, "spec", "versions") {
		v, _ := version.(map[string]any)
		properties, _ := at(v, "schema", "openAPIV3Schema", "properties").(map[string]any)
		properties["marked"] = map[string]any{"type": "boolean", "default": true}
	}
}

// loosen removes the field of mark and the restrictions of values from a schema, but keeps its types.
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

// replace replaces the existing definition.
func replace(t *testing.T, crd map[string]any) {
	t.Helper()
	path := definitions + "/" + text(crd, "metadata", "name")
	harness.Eventually(t, "the definition is replaced", func(ctx context.Context) error {
		now := shared.must(t, http.MethodGet, path, nil)
		next := runtime.DeepCopyJSON(crd)
		metadata, _ := next["metadata"].(map[string]any)
		metadata["resourceVersion"] = text(now, "metadata", "resourceVersion")
		a, err := shared.do(ctx, http.MethodPut, path, encode(t, next))
		if err != nil {
			return err
		}
		if a.code != http.StatusOK && a.code != http.StatusConflict {
			t.Fatalf("PUT %s: %d %s", path, a.code, a.body)
		}
		return a.want(http.StatusOK)
	})
}
