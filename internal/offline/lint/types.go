package lint

import (
	"slices"
	"strings"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/offline/schema"
	"refract.dev/internal/offline/validation"
)

// types are what the kinds of the objects want, and how objects that name policies
// differ from it as they are on the hub.
type types struct {
	*render.Types

	// invalid are the findings on definitions of the input that cannot be used.
	invalid []*Finding
	wrong   map[*render.Outcome][]schema.Mismatch
}

// typesOf compares the objects with their types, until ended says so.
func typesOf(objects []manifest.Object, outcomes []render.Outcome, ended func() bool) *types {
	t := &types{Types: render.TypesOf(objects), wrong: map[*render.Outcome][]schema.Mismatch{}}
	for _, unusable := range t.Unusable {
		t.invalid = append(t.invalid, subjectOf(unusable.Object).finding(InvalidObject, "spec", "%v", unusable.Err))
	}
	for i := range outcomes {
		o := &outcomes[i]
		if !namesPolicy(o.Object.Content.GetLabels()) || ended() {
			continue
		}
		object := run{outcome: o}.template()
		if found := t.Check(object, nil); len(found) > 0 {
			t.wrong[o] = found
		}
		if more := validation.Check(object); len(more) > 0 && !t.misshapen(o) {
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

// around returns the path without its last segment.
func around(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// misshapen reports whether an object is not what its type wants in a way that
// keeps rules from finding what they are about.
func (t *types) misshapen(o *render.Outcome) bool { return validation.Misshapen(t.wrong[o]) }
