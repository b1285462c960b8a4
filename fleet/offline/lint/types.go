package lint

import (
	"slices"
	"strings"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/offline/schema"
	"refract.dev/fleet/offline/validation"
)

// types are the schemas of the kinds, and the type errors of objects on the hub that name policies.
type types struct {
	*render.Types

	// invalid are the findings on definitions of the input that cannot be used.
	invalid []*Finding
	wrong   map[*render.Outcome][]schema.Mismatch
}

// typesOf checks the objects against their types, until ended returns true.
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

// misshapen reports whether an object has type errors that keep rules from finding their places.
func (t *types) misshapen(o *render.Outcome) bool { return validation.Misshapen(t.wrong[o]) }
