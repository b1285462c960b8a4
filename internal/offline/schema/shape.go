package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The kinds of values that a shape can want, besides those of JSON schema.
const (
	anything    = ""
	intOrString = "int-or-string"
	quantity    = "quantity"
)

// A shape is a schema made ready to check values with. Once made it is not
// changed.
type shape struct {
	// Want is a type of JSON schema, or one of the constants above.
	want   string
	format string
	// Typed values are decoded into Go types, as those of Kubernetes itself are: null
	// is as good as nothing, and an empty string as good as the default of an
	// enumeration. Other values stay as they are.
	typed    bool
	nullable bool
	// Fallback is the default, if there is one: the member may then be absent.
	fallback any

	members  map[string]*shape
	rest     *shape // What members are that members does not name.
	open     bool   // There may be such members, of any shape.
	required []string
	// Base is set for an alternative: the shape that it is an alternative of.
	base *shape

	items  *shape
	keys   []string // The members that tell elements apart.
	unique bool     // No two elements are equal.

	limits *limits // Nil for most.
}

// limits are what a value must keep to that has the right type.
type limits struct {
	enum                         []any
	minimum, maximum, multipleOf *float64
	above, below                 bool // The minimum or maximum itself is too little or too much.
	length, elements, members    span
	pattern                      *regexp.Regexp

	allOf, anyOf, oneOf []*shape
	not                 *shape
}

// A span is the least and the greatest number that is right, if there are such.
type span struct{ least, most *int64 }

// compiler makes shapes of schemas.
type compiler struct {
	typed bool
	// resolve returns the shape of a type by name.
	resolve func(name string) (*shape, error)
	// objectMeta is the shape of metadata, for schemas that leave it out.
	objectMeta *shape
}

// compile makes a shape of a schema. The place in the schema of an error is part
// of its text.
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
		to.open = true // What members there are the base says.
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

// compileInside makes the shapes of members and elements.
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

// within makes the shape of a member or element, which in an alternative has a
// base, if only an empty one.
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

// addIdentity adds what every object has, whether its schema names it or not.
// Of metadata a schema can say more, not less.
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

// alternatives makes shapes of schemas that say more of the values of base.
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

// member returns the shape of a member, or nil if nothing is said of it.
func (s *shape) member(name string) *shape {
	if s == nil {
		return nil
	}
	if m, ok := s.members[name]; ok {
		return m
	}
	return s.rest
}

// has reports whether an object has a member, or is given it. Null counts only
// where it is a value of its own.
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

// size returns how many members an object has, or is given.
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

// declared returns the shape that says what members there are.
func (s *shape) declared() *shape {
	if s.base != nil {
		return s.base.declared()
	}
	return s
}
