package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/schema"
	"refract.dev/fleet/offline/validation"
	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

var definitionKind = k8sschema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// Types are the schemas of kinds: those of Kubernetes, and those of CustomResourceDefinitions among the objects.
type Types struct {
	// Unusable are the definitions that cannot be used, at least in part.
	Unusable []UnusableDefinition

	schemas *schema.Schemas
}

// UnusableDefinition is a CustomResourceDefinition that cannot be used, with the reason.
type UnusableDefinition struct {
	Object *manifest.Object
	Err    error
}

// TypesOf returns the types for checking objects, with the definitions among them. The result refers to the objects.
func TypesOf(objects []manifest.Object) *Types {
	var definitions []*unstructured.Unstructured
	var at []*manifest.Object
	for i := range objects {
		if o := &objects[i]; o.Content.GroupVersionKind().GroupKind() == definitionKind {
			definitions, at = append(definitions, o.Content), append(at, o)
		}
	}
	schemas, errs := schema.New(definitions)
	t := &Types{schemas: schemas}
	for i, err := range errs {
		if err != nil {
			t.Unusable = append(t.Unusable, UnusableDefinition{Object: at[i], Err: err})
		}
	}
	return t
}

// Check compares an object with its type. The argument before may be an earlier form of the object: mistakes that both
// have are left out. A missing field is left out if the object has the field under a misspelled name, which is reported
// anyway.
func (t *Types) Check(object, before map[string]any) []schema.Mismatch {
	found := t.schemas.CheckChanged(object, before)
	return slices.DeleteFunc(slices.Clone(found), func(missing schema.Mismatch) bool {
		if missing.Message != schema.IsMissing {
			return false
		}
		around, name := split(missing.Path)
		return slices.ContainsFunc(found, func(m schema.Mismatch) bool {
			beside, _ := split(m.Path)
			return m.Message == schema.NoSuchField && beside == around && m.Hint == fmt.Sprintf("did you mean %s?", name)
		})
	})
}

// split returns a path without its last segment, and that segment unescaped.
func split(path string) (around, last string) {
	keys := tree.MustParse(path).Keys()
	if len(keys) == 0 {
		return "", ""
	}
	return path[:strings.LastIndexByte(path, '/')], keys[len(keys)-1]
}

// CheckTypes adds a warning for each type error for which an API server rejects an object or a variant. It checks
// objects that name a policy or follow another object. It is for output to users, and must be called at most once for
// an evaluation.
func (e *Evaluation) CheckTypes(objects []manifest.Object) {
	t := TypesOf(objects)
	for _, unusable := range t.Unusable {
		c := unusable.Object.Content
		about := &Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Name: c.GetName()}
		e.Warnings = append(e.Warnings, Finding{Object: about, Message: fmt.Sprintf("spec: %v", unusable.Err)})
	}
	for i := range e.Outcomes {
		e.Outcomes[i].checkTypes(t)
	}
}

func (o *Outcome) checkTypes(t *Types) {
	if len(o.Variants) == 0 {
		return
	}
	template := override.Template(o.Object.Content).Object
	wrong := t.Check(template, nil)
	fits := !validation.Misshapen(wrong)
	if fits {
		wrong = append(wrong, validation.Check(template)...)
	}
	if o.asks() {
		for _, m := range wrong {
			o.refused = true
			o.warn(nil, refusal(m))
		}
	}
	for i := range o.Variants {
		v := &o.Variants[i]
		if v.Err != nil || len(v.Changes) == 0 {
			continue
		}
		for _, m := range t.Check(v.Object.Object, template) {
			if !slices.Contains(wrong, m) {
				o.refuse(v, m, lastAt(v.Changes, m.Path))
			}
		}
		if !fits {
			continue
		}
		for _, m := range validation.Check(v.Object.Object) {
			if !slices.ContainsFunc(wrong, func(was schema.Mismatch) bool { return was.Message == m.Message }) {
				o.refuse(v, m, lastAround(v.Changes, m.Path))
			}
		}
	}
}

// refuse adds a warning that an API server rejects a variant because of a change.
func (o *Outcome) refuse(v *override.Variant, m schema.Mismatch, by *tree.Author) {
	if by == nil || by.Rule == tree.NoRule {
		return
	}
	w := override.Warning{Author: *by, Path: m.Path, Message: refusal(m)}
	v.Warnings = append(slices.Clip(v.Warnings), w)
	if o.refusals == nil {
		o.refusals = map[override.Warning]bool{}
	}
	o.refusals[w] = true
}

// asks reports whether the object names a policy or follows an object.
func (o *Outcome) asks() bool {
	return o.Propagation != nil || len(o.Policies) > 0 || len(o.Follows) > 0
}

// lastAt returns the author of the last change at a path, around the path or inside it; nil without such a change.
func lastAt(changes []tree.Change, path string) *tree.Author {
	for i := range slices.Backward(changes) {
		if c := &changes[i]; tree.Covers(c.Path, path) || tree.Covers(path, c.Path) {
			return c.By
		}
	}
	return nil
}

// lastAround is [lastAt] for errors that depend on several fields: if no change concerns the place, it returns the
// author of the last change to the nearest place around it.
func lastAround(changes []tree.Change, path string) *tree.Author {
	for ; path != ""; path, _ = split(path) {
		if by := lastAt(changes, path); by != nil {
			return by
		}
	}
	return nil
}

// refusal returns the text of a warning about a mismatch.
func refusal(m schema.Mismatch) string {
	text := m.Path + ": " + m.Message
	if m.Hint != "" {
		text += " (" + m.Hint + ")"
	}
	return text + "; an API server rejects this"
}

// Refuses reports whether an API server rejects a variant by its type; a warning has the reason.
// [Evaluation.CheckTypes] must have been called. If the object on the hub is invalid, all its variants count as
// invalid.
func (o *Outcome) Refuses(v *override.Variant) bool {
	return o.refused || slices.ContainsFunc(v.Warnings, func(w override.Warning) bool { return o.RefusedBy(&w) })
}

// RefusedBy reports whether a warning of a variant is the reason for which an API server rejects the variant.
func (o *Outcome) RefusedBy(w *override.Warning) bool { return o.refusals[*w] }
