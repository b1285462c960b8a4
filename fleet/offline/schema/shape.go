package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The values of Type in addition to those of JSON schema.
const (
	anything    = ""
	intOrString = "int-or-string"
	quantity    = "quantity"
)

// shape is a schema in a form for checking values. It is immutable once compiled.
type shape struct {
	// The schema. The fields below replace its parts that contain schemas, JSON or a regular expression.
	apiextensionsv1.JSONSchemaProps

	// typed is whether values are decoded into Go types, like all values of built-in types. For such values, null is
	// equivalent to an absent value, and an empty string to the default of an enumeration.
	typed bool
	// fallback is the default value, if any. A member with a default may be absent.
	fallback any
	enum     []any
	pattern  *regexp.Regexp

	members map[string]*shape
	rest    *shape // The shape of members that are not in members.
	open    bool   // Members without a shape are allowed, with any value.
	items   *shape

	allOf, anyOf, oneOf []*shape
	not                 *shape
	// base is set in an alternative: it is the shape to which the alternative belongs or, for a part of the
	// alternative, the same part of that shape.
	base *shape
}

// compiler compiles schemas to shapes.
type compiler struct {
	typed bool
	// resolve returns the shape of a type by name.
	resolve func(name string) (*shape, error)
	// objectMeta is the shape of metadata, for schemas that leave it out.
	objectMeta *shape
}

// compile compiles a schema to a shape. The text of an error has the place in the schema.
func (c *compiler) compile(props *apiextensionsv1.JSONSchemaProps, to *shape) error {
	*to = shape{
		JSONSchemaProps: *props,
		typed:           c.typed,
		// In an alternative, the base determines the allowed members.
		open: to.base != nil || props.XPreserveUnknownFields != nil && *props.XPreserveUnknownFields,
		base: to.base,
	}
	switch {
	case props.XIntOrString:
		to.Type = intOrString
	case c.typed && props.Format == quantity:
		to.Type = quantity
	}
	if props.Default != nil {
		if err := json.Unmarshal(props.Default.Raw, &to.fallback); err != nil {
			return fmt.Errorf("default: %w", err)
		}
	}
	if err := c.compileInside(props, to); err != nil {
		return err
	}
	if props.XEmbeddedResource {
		to.Required = slices.Concat(to.Required, []string{"apiVersion", "kind"})
		if err := c.addIdentity(props, to); err != nil {
			return err
		}
	}
	return c.compileLimits(to)
}

// compileInside compiles the shapes of members and elements.
func (c *compiler) compileInside(props *apiextensionsv1.JSONSchemaProps, to *shape) error {
	var err error
	base := cmp.Or(to.base, &shape{})
	if len(props.Properties) > 0 {
		to.members = make(map[string]*shape, len(props.Properties))
	}
	for _, name := range slices.Sorted(maps.Keys(props.Properties)) {
		p := props.Properties[name]
		if to.members[name], err = c.within(&p, base.member(name), to.base != nil); err != nil {
			return fmt.Errorf("properties/%s: %w", name, err)
		}
	}
	if more := props.AdditionalProperties; more != nil {
		to.open = to.open || more.Allows && more.Schema == nil
		if more.Schema != nil {
			if to.rest, err = c.within(more.Schema, base.member(""), to.base != nil); err != nil {
				return fmt.Errorf("additionalProperties: %w", err)
			}
		}
	}
	if props.Items != nil && props.Items.Schema != nil {
		if to.items, err = c.within(props.Items.Schema, base.items, to.base != nil); err != nil {
			return fmt.Errorf("items: %w", err)
		}
	}
	return nil
}

// within compiles the shape of a member or element. In an alternative, the base of the new shape is the same member of
// the alternative's base, or an empty shape if the member is missing there.
func (c *compiler) within(props *apiextensionsv1.JSONSchemaProps, base *shape, alternative bool) (*shape, error) {
	if props.Ref != nil {
		return c.resolve(*props.Ref)
	}
	if alternative && base == nil {
		base = &shape{}
	}
	s := &shape{base: base}
	return s, c.compile(props, s)
}

// addIdentity adds the members of every object (apiVersion, kind, metadata), whether or not the schema has them. A
// schema can only restrict metadata further.
func (c *compiler) addIdentity(props *apiextensionsv1.JSONSchemaProps, to *shape) error {
	text := &shape{JSONSchemaProps: apiextensionsv1.JSONSchemaProps{Type: "string"}}
	members := map[string]*shape{"apiVersion": text, "kind": text}
	maps.Copy(members, to.members)
	metadata := *c.objectMeta
	if p, ok := props.Properties["metadata"]; ok {
		more, err := c.within(&p, nil, true)
		if err != nil {
			return fmt.Errorf("properties/metadata: %w", err)
		}
		metadata.allOf = []*shape{more}
	}
	members["metadata"] = &metadata
	to.members = members
	return nil
}

// compileLimits compiles the bounds of a value that has the right type.
func (c *compiler) compileLimits(to *shape) error {
	for _, value := range to.Enum {
		var v any
		if err := json.Unmarshal(value.Raw, &v); err != nil {
			return fmt.Errorf("enum: %w", err)
		}
		to.enum = append(to.enum, v)
	}
	var err error
	if to.Pattern != "" {
		if to.pattern, err = regexp.Compile(to.Pattern); err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
	}
	for _, list := range []struct {
		name string
		from []apiextensionsv1.JSONSchemaProps
		to   *[]*shape
	}{{"allOf", to.AllOf, &to.allOf}, {"anyOf", to.AnyOf, &to.anyOf}, {"oneOf", to.OneOf, &to.oneOf}} {
		for i := range list.from {
			s, err := c.within(&list.from[i], to, true)
			if err != nil {
				return fmt.Errorf("%s/%d: %w", list.name, i, err)
			}
			*list.to = append(*list.to, s)
		}
	}
	if to.Not != nil {
		if to.not, err = c.within(to.Not, to, true); err != nil {
			return fmt.Errorf("not: %w", err)
		}
	}
	return nil
}

// member returns the shape of a member; nil if the shape has none for it.
func (s *shape) member(name string) *shape {
	if m, ok := s.members[name]; ok {
		return m
	}
	return s.rest
}

// has reports whether an object has a member, explicitly or by a default. Null counts only where it is a valid value.
func (s *shape) has(object map[string]any, name string) bool {
	value, ok := object[name]
	if value != nil {
		return true
	}
	m := s.declared().member(name)
	if m == nil {
		return ok && !s.typed
	}
	return m.fallback != nil || ok && m.Nullable
}

// size returns the number of members of an object, including those with a default.
func (s *shape) size(object map[string]any) int {
	n := 0
	for name := range object {
		if s.has(object, name) {
			n++
		}
	}
	for name, m := range s.declared().members {
		if _, ok := object[name]; !ok && m.fallback != nil {
			n++
		}
	}
	return n
}

// declared returns the shape that declares the members: the outermost base of an alternative, or else the shape itself.
func (s *shape) declared() *shape {
	if s.base != nil {
		return s.base.declared()
	}
	return s
}
