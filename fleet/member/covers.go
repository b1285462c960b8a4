package member

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// mostCompared is the maximum number of comparisons of list elements with elements in a set of fields.
const mostCompared = 1 << 20

// Covers reports whether o has every field of an applied object. Then no other manager has changed or removed any of
// them since the apply. If this is not certain, Covers returns false.
//
// The meaning of a set of fields depends on the schema. In a set, a field without inner fields is either a map or a
// list that is owned as a whole, or an entry of a map that has lost its content. Kubernetes' own types have no such
// entries; builtin says that the object is of one of these types.
func (o Ownership) Covers(object map[string]any, builtin bool) bool {
	if o.fields == nil || !o.named() {
		return false
	}
	c := coverage{builtin: builtin, left: mostCompared}
	set := o.set()
	for key, v := range object {
		switch key {
		case "apiVersion", "kind":
		case "metadata":
			if metadata, ok := v.(map[string]any); !ok || !c.metadata(metadata, child(set, key)) {
				return false
			}
		default:
			if !c.field(set, fieldpath.PathElement{FieldName: &key}, v) {
				return false
			}
		}
	}
	return true
}

// coverage compares an object with a set of fields.
type coverage struct {
	builtin bool
	left    int // Comparisons of elements that may still be made.
}

// metadata compares the fields of the metadata that can have an owner.
func (c *coverage) metadata(metadata map[string]any, set *fieldpath.Set) bool {
	for key, v := range metadata {
		switch key {
		case "labels", "annotations", "finalizers", "ownerReferences":
			if !c.field(set, fieldpath.PathElement{FieldName: &key}, v) {
				return false
			}
		}
	}
	return true
}

// child returns the inner fields of a field, possibly an empty set.
func child(set *fieldpath.Set, key string) *fieldpath.Set {
	if inner, ok := set.Children.Get(fieldpath.PathElement{FieldName: &key}); ok {
		return inner
	}
	return &fieldpath.Set{}
}

// field reports whether the set has the field at, with all of the content v.
func (c *coverage) field(set *fieldpath.Set, at fieldpath.PathElement, v any) bool {
	inner, ok := set.Children.Get(at)
	if !ok || inner.Empty() {
		return c.whole(set, at, v)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if !c.field(inner, fieldpath.PathElement{FieldName: &key}, member) {
				return false
			}
		}
		return true
	case []any:
		return c.list(inner, v)
	default:
		return false // The value has another type than the owned field.
	}
}

// whole reports whether the set has the field at as a whole, without inner fields.
func (c *coverage) whole(set *fieldpath.Set, at fieldpath.PathElement, v any) bool {
	if isNull(v) {
		return true // Null has no content that a manager could change.
	}
	if !set.Members.Has(at) {
		return false
	}
	m, isMap := v.(map[string]any)
	return !isMap || len(m) == 0 || c.builtin
}

// isNull reports whether a value is null, or a map with only such values.
func isNull(v any) bool {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		return v == nil
	}
	for _, member := range m {
		if !isNull(member) {
			return false
		}
	}
	return true
}

// list reports whether the set has all elements of a list with all of their content.
func (c *coverage) list(set *fieldpath.Set, elements []any) bool {
	for _, e := range elements {
		m, isMap := e.(map[string]any)
		if !isMap {
			v := value.NewValueInterface(e)
			if !set.Members.Has(fieldpath.PathElement{Value: &v}) {
				return false
			}
			continue
		}
		if !c.element(set, m) {
			return false
		}
	}
	return true
}

// element reports whether exactly one element in the set has the keys of e, and whether it has all content of e. If e
// lacks a key, any value of the key matches, because the API server sets a default.
func (c *coverage) element(set *fieldpath.Set, e map[string]any) bool {
	candidates, covered := 0, false
	set.Children.Iterate(func(at fieldpath.PathElement) {
		if c.left--; c.left < 0 || at.Key == nil {
			return
		}
		for _, key := range *at.Key {
			if v, ok := e[key.Name]; ok && !value.Equals(value.NewValueInterface(v), key.Value) {
				return
			}
		}
		inner, _ := set.Children.Get(at)
		candidates++
		covered = true
		for key, member := range e {
			if !c.field(inner, fieldpath.PathElement{FieldName: &key}, member) {
				covered = false
				return
			}
		}
	})
	return candidates == 1 && covered && c.left >= 0 // Several candidates are ambiguous.
}

// SameFields reports whether o and other have the same fields, and at least one. The times of their applies may differ.
func (o Ownership) SameFields(other Ownership) bool {
	return o.fields != nil && o.fields == other.fields
}
