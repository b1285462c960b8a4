package generate

import (
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/tree"
)

// Edit is one change of an object.
type Edit struct {
	// Path is the path of the value. It consists of names (string) of members and indexes (int) of elements. If the
	// index is the length of a list, the edit appends an element.
	Path []any
	// Value is the new value; unused if Removed is true.
	Value   any
	Removed bool
}

// Apply returns a copy of obj after the edits, and whether all of them were possible. The value that an edit removes
// must exist, and so must the parent of the value that it sets. The copy shares unchanged values with obj.
func Apply(obj map[string]any, edits []Edit) (map[string]any, bool) {
	for _, e := range edits {
		value := any(removed)
		if !e.Removed {
			value = runtime.DeepCopyJSONValue(e.Value)
		}
		changed, ok := with(obj, e.Path, value)
		if !ok || len(e.Path) == 0 {
			return nil, false
		}
		obj, _ = changed.(map[string]any)
	}
	return maps.Clone(obj), true
}

// Edits returns changes of an object, as users make them: at least one, and up to the number in most. An edit sets,
// adds or removes a value or an element. It does not change metadata, apiVersion and kind. The result should be valid,
// but the caller must call Validate. New values have a usual size, even if the schema allows larger ones. nil means
// that the schema has nothing to edit.
func Edits(src Source, version *structural.Version, obj map[string]any, most int) []Edit {
	v := &values{choices: choices{src}, options: ObjectOptions{Valid: true, Room: -1}, depth: 2}
	var out []Edit
	for range v.between(1, most) {
		from, ok := Apply(obj, out)
		if !ok {
			break
		}
		root := *version.Structural()
		root.XEmbeddedResource = true // Prevents edits of apiVersion, kind and metadata.
		if e, ok := v.edit(spots(nil, nil, &root, from)); ok {
			out = append(out, e)
		}
	}
	return out
}

// spot is a place for an edit.
type spot struct {
	path     []any
	schema   *schema.Structural
	required bool
	there    bool
	value    any
}

// edit returns an edit at one of the places.
func (v *values) edit(at []spot) (Edit, bool) {
	for range 5 {
		if len(at) == 0 {
			return Edit{}, false
		}
		s := pick(v.choices, at...)
		if s.there && !s.required && v.chance(30) {
			return Edit{Path: s.path, Removed: true}, true
		}
		if value := v.value(s.schema); !s.there || !tree.Equal(value, s.value) {
			return Edit{Path: s.path, Value: value}, true
		}
	}
	return Edit{}, false
}

// spots appends the places for edits inside a value.
func spots(out []spot, path []any, s *schema.Structural, value any) []spot {
	if s == nil {
		return out
	}
	switch value := value.(type) {
	case map[string]any:
		return memberSpots(out, path, s, value)
	case []any:
		if s.Items == nil {
			return out
		}
		for i, element := range value {
			at := append(slices.Clone(path), i)
			out = append(out, spot{path: at, schema: s.Items, there: true, value: element})
			out = spots(out, at, s.Items, element)
		}
		out = append(out, spot{path: append(slices.Clone(path), len(value)), schema: s.Items})
	}
	return out
}

func memberSpots(out []spot, path []any, s *schema.Structural, value map[string]any) []spot {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if s.XEmbeddedResource && everywhere(name) {
			continue
		}
		property := s.Properties[name]
		member, there := value[name]
		at := append(slices.Clone(path), name)
		required := s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
		out = append(out, spot{path: at, schema: &property, required: required, there: there, value: member})
		if there {
			out = spots(out, at, &property, member)
		}
	}
	if s.AdditionalProperties == nil || s.AdditionalProperties.Structural == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(value)) {
		at := append(slices.Clone(path), name)
		out = append(out, spot{path: at, schema: s.AdditionalProperties.Structural, there: true, value: value[name]})
		out = spots(out, at, s.AdditionalProperties.Structural, value[name])
	}
	if _, there := value["new"]; !there {
		out = append(out, spot{path: append(slices.Clone(path), "new"), schema: s.AdditionalProperties.Structural})
	}
	return out
}

// Parts returns removals from an object. The rest is a part that a field manager may have applied with server-side
// apply. Parts removes members of objects, entries of maps, and elements of sets and of lists with keys. It does not
// remove the keys of elements, or anything inside an atomic value. It may remove required fields. It does not remove
// apiVersion, kind and metadata.
func Parts(src Source, version *structural.Version, obj map[string]any) []Edit {
	p := &parts{choices: choices{src}}
	p.percent = pick(p.choices, 10, 30, 60)
	root := *version.Structural()
	root.XEmbeddedResource = true
	p.members(nil, &root, obj, nil)
	return p.out
}

// parts collects removals. It processes each list from the end, so that the indexes of earlier elements stay valid.
type parts struct {
	choices

	percent int
	out     []Edit
}

func (p *parts) value(path []any, s *schema.Structural, value any) {
	switch value := value.(type) {
	case map[string]any:
		if s.XMapType == nil || *s.XMapType != "atomic" {
			p.members(path, s, value, nil)
		}
	case []any:
		if s.XListType == nil || *s.XListType == "atomic" || s.Items == nil {
			return
		}
		for i, element := range slices.Backward(value) {
			at := append(slices.Clone(path), i)
			if p.chance(p.percent) {
				p.out = append(p.out, Edit{Path: at, Removed: true})
				continue
			}
			if members, ok := element.(map[string]any); ok && *s.XListType == "map" {
				p.members(at, s.Items, members, s.XListMapKeys)
			}
		}
	}
}

// members removes some members that are not keys of a list element.
func (p *parts) members(path []any, s *schema.Structural, value map[string]any, keys []string) {
	for _, name := range slices.Sorted(maps.Keys(value)) {
		if s.XEmbeddedResource && everywhere(name) || slices.Contains(keys, name) {
			continue
		}
		property, known := s.Properties[name]
		if !known && s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
			property = *s.AdditionalProperties.Structural
		}
		at := append(slices.Clone(path), name)
		if p.chance(p.percent) {
			p.out = append(p.out, Edit{Path: at, Removed: true})
			continue
		}
		p.value(at, &property, value[name])
	}
}
