package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// kind is the type of a value according to a schema.
type kind string

// The kinds of values. Messages contain their names.
const (
	isObject   kind = "object"
	isList     kind = "list"
	isText     kind = "string"
	isInteger  kind = "integer"
	isNumber   kind = "number"
	isBoolean  kind = "boolean"
	isEither   kind = "integer or string"
	isAnything kind = "anything"
)

func kindOf(s *schema.Structural) kind {
	switch {
	case s.XIntOrString:
		return isEither
	case s.Type == "array":
		return isList
	case s.Type == "":
		return isAnything
	default:
		return kind(s.Type)
	}
}

// described returns the name of the type of a schema, for use in a sentence.
func described(s *schema.Structural) string {
	switch k := kindOf(s); k {
	case isList:
		return "list of " + elementsOf(s)
	case isObject:
		if v := valuesOf(s); v != nil {
			return "table of " + kindNamed(v)
		}
		return "object"
	default:
		return string(k)
	}
}

func elementsOf(s *schema.Structural) string {
	if s.Items == nil {
		return "anything"
	}
	return kindNamed(s.Items)
}

func kindNamed(s *schema.Structural) string {
	switch k := kindOf(s); k {
	case isAnything, isEither:
		return string(k)
	default:
		return string(k) + "s"
	}
}

func (k kind) scalar() bool {
	return k == isText || k == isInteger || k == isNumber || k == isBoolean || k == isEither
}

func (k kind) number() bool { return k == isInteger || k == isNumber }

// valuesOf returns the schema of the values of a table. It returns nil if the schema is not one of a table, or if the
// values have no schema.
func valuesOf(s *schema.Structural) *schema.Structural {
	if s == nil || s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Structural
}

// open reports whether an object keeps fields that are not in its schema, with any content.
func open(s *schema.Structural) bool {
	return s.XPreserveUnknownFields || s.AdditionalProperties != nil && s.AdditionalProperties.Structural == nil && s.AdditionalProperties.Bool
}

// anything is the schema of a field that is not in the schema of its object.
var anything = &schema.Structural{Extensions: schema.Extensions{XPreserveUnknownFields: true}}

// fieldOf returns the schema of a field of an object, or nil.
func fieldOf(s *schema.Structural, key string) *schema.Structural {
	if s == nil {
		return nil
	}
	if field, ok := s.Properties[key]; ok {
		return &field
	}
	if values := valuesOf(s); values != nil {
		return values
	}
	if open(s) {
		return anything
	}
	return nil
}

// elementOf returns the schema of the elements of a list or table, or nil.
func elementOf(s *schema.Structural) *schema.Structural {
	switch {
	case s.Items != nil:
		return s.Items
	case valuesOf(s) != nil:
		return valuesOf(s)
	case kindOf(s) == isAnything || kindOf(s) == isObject && open(s) && len(s.Properties) == 0:
		return anything
	default:
		return nil
	}
}

// find returns the schema of the value at a place. For a group, it returns the schema of an object with the fields of
// the group.
func find(root *schema.Structural, p place) (*schema.Structural, error) {
	at := root
	for i, s := range p.steps {
		here := place{steps: p.steps[:i]}
		if s.each {
			if at = elementOf(at); at == nil {
				return nil, fmt.Errorf("%s has no elements: [*] follows a list or a table", here)
			}
			continue
		}
		field := fieldOf(at, s.key)
		if field == nil {
			return nil, unknown(at, here, s.key)
		}
		at = field
	}
	if p.group == nil {
		return at, nil
	}
	return groupOf(at, p)
}

// groupOf returns the schema of an object with only the fields of a group.
func groupOf(s *schema.Structural, p place) (*schema.Structural, error) {
	group := &schema.Structural{Generic: schema.Generic{Type: "object"}, Properties: map[string]schema.Structural{}}
	var required []string
	for _, key := range p.group {
		field := fieldOf(s, key)
		if field == nil {
			return nil, unknown(s, place{steps: p.steps}, key)
		}
		group.Properties[key] = *field
		if requires(s, key) {
			required = append(required, key)
		}
	}
	if len(required) > 0 {
		group.ValueValidation = &schema.ValueValidation{Required: required}
	}
	return group, nil
}

func unknown(s *schema.Structural, at place, key string) error {
	where := at.String()
	if where == "" {
		where = "the object"
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	near := nearest(key, names)
	switch {
	case near != "":
		return fmt.Errorf("%s has no field %q; did you mean %s?", where, key, at.member(near))
	case len(names) > 0:
		return fmt.Errorf("%s has no field %q: it has %s", where, key, strings.Join(names, ", "))
	case kindOf(s) == isList:
		return fmt.Errorf("%s is a list: its elements are %s[*]", where, where)
	default:
		return fmt.Errorf("%s has no field %q: it is %s", where, key, article(described(s)))
	}
}

func article(noun string) string {
	switch {
	case noun == string(isAnything):
		return noun
	case strings.ContainsRune("aeiou", rune(noun[0])):
		return "an " + noun
	default:
		return "a " + noun
	}
}

// nearest returns the name that is most similar to an unknown name; "" if no name is similar.
func nearest(name string, names []string) string {
	best, least := "", len(name)/2+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance returns the number of letters that must be inserted, removed or changed to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(above+1, row[j]+1, change)
			diagonal = above
		}
	}
	return row[len(b)]
}

func requires(s *schema.Structural, key string) bool {
	return s != nil && s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, key)
}

// enumOf returns the allowed values of an enum. It omits null, which every conversion keeps. Without an enum it returns
// no values.
func enumOf(s *schema.Structural) []any {
	if s.ValueValidation == nil {
		return nil
	}
	all := make([]any, 0, len(s.ValueValidation.Enum))
	for _, v := range s.ValueValidation.Enum {
		if v.Object != nil {
			all = append(all, v.Object)
		}
	}
	return all
}

var errMetadata = errors.New("apiVersion, kind and metadata are the same in all versions, and are not converted")

// checkPlace returns an error if a policy may not have entries for the place.
func checkPlace(p place) error {
	switch p.steps[0].key {
	case "apiVersion", "kind", "metadata":
		return errMetadata
	}
	return nil
}
