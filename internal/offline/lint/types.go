package lint

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/offline/schema"
)

var definitionKind = k8sschema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// types are what the kinds of the objects want, and how objects that name policies
// differ from it as they are on the hub.
type types struct {
	schemas *schema.Schemas
	// invalid are the findings on definitions of the input that cannot be used.
	invalid []*Finding
	wrong   map[*render.Outcome][]schema.Mismatch
}

// typesOf compares the objects with their types, until ended says so.
func typesOf(objects []manifest.Object, outcomes []render.Outcome, ended func() bool) *types {
	var definitions []*unstructured.Unstructured
	var subjects []*subject
	for i := range objects {
		o := &objects[i]
		if o.Content.GroupVersionKind().GroupKind() == definitionKind {
			definitions = append(definitions, o.Content)
			subjects = append(subjects, subjectOf(o))
		}
	}
	schemas, errs := schema.New(definitions)
	t := &types{schemas: schemas, wrong: map[*render.Outcome][]schema.Mismatch{}}
	for _, err := range errs {
		t.invalid = append(t.invalid, subjects[err.Index].finding(InvalidObject, "spec", "%v", err.Err))
	}
	for i := range outcomes {
		o := &outcomes[i]
		if !namesPolicy(o.Object.Content.GetLabels()) || ended() {
			continue
		}
		object := run{outcome: o}.template()
		if found := t.check(object); len(found) > 0 {
			t.wrong[o] = found
		}
		if more := refused(object); len(more) > 0 && !t.misshapen(o) {
			t.wrong[o] = slices.Concat(t.wrong[o], more)
		}
	}
	return t
}

func namesPolicy(labels map[string]string) bool {
	return slices.ContainsFunc(policyLabels, func(p policyLabel) bool {
		_, ok := labels[p.key]
		return ok
	})
}

// Facts that schemas state.
const (
	noSuchField = "there is no such field"
	isMissing   = "is missing"
)

// check compares an object with its type. What is missing is not told where it is
// there by another name.
func (t *types) check(object map[string]any) []schema.Mismatch {
	found := t.schemas.Check(object)
	return slices.DeleteFunc(slices.Clone(found), func(missing schema.Mismatch) bool {
		return missing.Message == isMissing && slices.ContainsFunc(found, func(m schema.Mismatch) bool {
			return m.Message == noSuchField && around(m.Path) == around(missing.Path) &&
				m.Hint == fmt.Sprintf("did you mean %s?", lastKey(missing.Path))
		})
	})
}

// around returns the path without its last segment.
func around(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// misshapen reports whether an object is not what its type wants in a way that
// keeps rules from finding what they are about.
func (t *types) misshapen(o *render.Outcome) bool {
	return slices.ContainsFunc(t.wrong[o], func(m schema.Mismatch) bool {
		return m.Message == noSuchField || m.Message == isMissing || m.Path == "/kind" || m.Path == "/apiVersion"
	})
}
