package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The types of values that a shape can want, in addition to those of JSON schema.
const (
	anything    = ""
	intOrString = "int-or-string"
	quantity    = "quantity"
)

// shape is a schema in a form for checking values. It is immutable once compiled.
type shape struct {
	// want is a type of JSON schema, or one of the constants above.
	want   string
	format string
	// typed values are decoded into Go types, like all built-in types: null is equivalent to an absent value, and an
	// empty string to the default of an enumeration. Other values are not decoded.
	typed    bool
	nullable bool
	// fallback is the default value, if any. A member with a default may be absent.
	fallback any

	members  map[string]*shape
	rest     *shape // The shape of members that are not in members.
	open     bool   // Members without a shape are allowed, with any value.
	required []string
	// base is set for an alternative: the shape that has the alternative.
	base *shape

	items  *shape
	keys   []string // The members that identify elements.
	unique bool     // No two elements may be equal.

	limits *limits // Nil for most shapes.
}

// limits are the bounds of a value that has the right type.
type limits struct {
	enum                         []any
	minimum, maximum, multipleOf *float64
	above, below                 bool // The minimum or maximum itself is not allowed.
	length, elements, members    span
	pattern                      *regexp.Regexp

	allOf, anyOf, oneOf []*shape
	not                 *shape
}

// span is a minimum and a maximum; nil if there is no bound.
type span struct{ least, most *int64 }

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
		want:     props.Type,
		format:   props.Format,
		typed:    c.typed,
		nullable: props.Nullable,
		open:     props.XPreserveUnknownFields != nil && *props.XPreserveUnknownFields,
		required: props.Required,
		keys:     props.XListMapKeys,
		unique:   props.UniqueItems || props.XListType != nil && *props.XListType == "set",
		base:     to.base,
	}
	switch {
	case props.XIntOrString:
		to.want = intOrString
	case c.typed && props.Format == quantity:
		to.want = quantity
	}
	if to.base != nil {
		to.open = true // The base determines the allowed members.
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
		to.required = slices.Concat(to.required, []string{"apiVersion", "kind"})
		if err := c.addIdentity(props, to); err != nil {
			return err
		}
	}
	return c.compileLimits(props, to)
}

// compileInside compiles the shapes of members and elements.
func (c *compiler) compileInside(props *apiextensionsv1.JSONSchemaProps, to *shape) error {
	var err error
	if len(props.Properties) > 0 {
		to.members = make(map[string]*shape, len(props.Properties))
	}
	for _, name := range slices.Sorted(maps.Keys(props.Properties)) {
		p := props.Properties[name]
		if to.members[name], err = c.within(&p, to.base.member(name), to.base != nil); err != nil {
			return fmt.Errorf("properties/%s: %w", name, err)
		}
	}
	if more := props.AdditionalProperties; more != nil {
		to.open = to.open || more.Allows && more.Schema == nil
		if more.Schema != nil {
			if to.rest, err = c.within(more.Schema, to.base.member(""), to.base != nil); err != nil {
				return fmt.Errorf("additionalProperties: %w", err)
			}
		}
	}
	if props.Items != nil && props.Items.Schema != nil {
		var base *shape
		if to.base != nil {
			base = to.base.items
		}
		if to.items, err = c.within(props.Items.Schema, base, to.base != nil); err != nil {
			return fmt.Errorf("items: %w", err)
		}
	}
	return nil
}

// within compiles the shape of a member or element. Inside an alternative the shape gets a base, empty if the
// alternative's base does not have the member.
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
	members := map[string]*shape{"apiVersion": {want: "string"}, "kind": {want: "string"}}
	maps.Copy(members, to.members)
	metadata := *c.objectMeta
	if p, ok := props.Properties["metadata"]; ok {
		more, err := c.within(&p, nil, true)
		if err != nil {
			return fmt.Errorf("properties/metadata: %w", err)
		}
		metadata.limits = &limits{allOf: []*shape{more}}
	}
	members["metadata"] = &metadata
	to.members = members
	return nil
}

func (c *compiler) compileLimits(props *apiextensionsv1.JSONSchemaProps, to *shape) error {
	l := limits{
		minimum: props.Minimum, above: props.ExclusiveMinimum,
		maximum: props.Maximum, below: props.ExclusiveMaximum,
		multipleOf: props.MultipleOf,
		length:     span{props.MinLength, props.MaxLength},
		elements:   span{props.MinItems, props.MaxItems},
		members:    span{props.MinProperties, props.MaxProperties},
	}
	for _, value := range props.Enum {
		var v any
		if err := json.Unmarshal(value.Raw, &v); err != nil {
			return fmt.Errorf("enum: %w", err)
		}
		l.enum = append(l.enum, v)
	}
	var err error
	if props.Pattern != "" {
		if l.pattern, err = regexp.Compile(props.Pattern); err != nil {
			return fmt.Errorf("pattern: %w", err)
		}
	}
	if l.allOf, err = c.alternatives(props.AllOf, to, "allOf"); err != nil {
		return err
	}
	if l.anyOf, err = c.alternatives(props.AnyOf, to, "anyOf"); err != nil {
		return err
	}
	if l.oneOf, err = c.alternatives(props.OneOf, to, "oneOf"); err != nil {
		return err
	}
	if props.Not != nil {
		if l.not, err = c.within(props.Not, to, true); err != nil {
			return fmt.Errorf("not: %w", err)
		}
	}
	if !l.empty() {
		to.limits = &l
	}
	return nil
}

// alternatives compiles schemas that restrict the values of base further.
func (c *compiler) alternatives(list []apiextensionsv1.JSONSchemaProps, base *shape, name string) ([]*shape, error) {
	var shapes []*shape
	for i := range list {
		s, err := c.within(&list[i], base, true)
		if err != nil {
			return nil, fmt.Errorf("%s/%d: %w", name, i, err)
		}
		shapes = append(shapes, s)
	}
	return shapes, nil
}

func (l *limits) empty() bool {
	return l.enum == nil && l.minimum == nil && l.maximum == nil && l.multipleOf == nil && l.pattern == nil &&
		l.length == span{} && l.elements == span{} && l.members == span{} &&
		l.allOf == nil && l.anyOf == nil && l.oneOf == nil && l.not == nil
}

// member returns the shape of a member; nil if the shape has none for it.
func (s *shape) member(name string) *shape {
	if s == nil {
		return nil
	}
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
	return m.fallback != nil || ok && m.nullable
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

// declared returns the shape that declares the members.
func (s *shape) declared() *shape {
	if s.base != nil {
		return s.base.declared()
	}
	return s
}
