package expression

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// A shape is a schema in the form that the package uses: the type in expressions, and the rules to decode JSON.
type shape struct {
	typ *cel.Type
	// number is "integer" or "number" if this is the type of the schema; otherwise "".
	number string
	// fields are the fields of the schema, by their JSON names.
	fields map[string]*shape
	// names are the JSON names of fields, by their escaped names in expressions.
	names map[string]string
	// elements is the shape of the elements of a list, or of the values of a map.
	elements *shape
}

// anything is the shape without a schema.
var anything = &shape{typ: cel.DynType}

// field returns the shape of the member with this key.
func (s *shape) field(key string) *shape {
	if f, ok := s.fields[key]; ok {
		return f
	}
	return s.element()
}

func (s *shape) element() *shape {
	if s.elements == nil {
		return anything
	}
	return s.elements
}

// objects are the types of objects with known fields, by the names of the types.
type objects map[string]*object

type object struct {
	typ    *cel.Type
	fields map[string]*cel.Type // By their names in expressions.
}

// shape converts a schema. The type of an object is named after its place, for messages.
func (o objects) shape(s *schema.Structural, place string) *shape {
	switch {
	case s == nil || s.XIntOrString:
		return anything
	case s.Type == "object":
		return o.object(s, place)
	case s.Type == "array":
		elements := o.shape(s.Items, place+"[*]")
		return &shape{typ: cel.ListType(elements.typ), elements: elements}
	}
	scalar := map[string]*cel.Type{"string": cel.StringType, "integer": cel.IntType, "number": cel.DoubleType, "boolean": cel.BoolType}[s.Type]
	if scalar == nil {
		return anything
	}
	out := &shape{typ: scalar}
	if s.Type == "integer" || s.Type == "number" {
		out.number = s.Type
	}
	if s.Nullable {
		out.typ = cel.NullableType(scalar)
	}
	return out
}

func (o objects) object(s *schema.Structural, place string) *shape {
	out := &shape{fields: map[string]*shape{}, names: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		out.fields[name] = o.shape(&p, place+"."+name)
	}
	if s.XEmbeddedResource {
		for name, typ := range map[string]*cel.Type{"apiVersion": cel.StringType, "kind": cel.StringType, "metadata": cel.DynType} {
			if out.fields[name] == nil {
				out.fields[name] = &shape{typ: typ}
			}
		}
	}
	known := map[string]*cel.Type{}
	for name, f := range out.fields {
		escaped, ok := apiservercel.Escape(name)
		if !ok {
			continue // Only dyn(value)["a b"] can select this field.
		}
		known[escaped] = f.typ
		if escaped != name {
			out.names[escaped] = name
		}
	}
	additional := s.AdditionalProperties
	switch {
	case s.XPreserveUnknownFields:
		out.typ = cel.DynType
	case additional != nil && additional.Structural != nil:
		out.elements = o.shape(additional.Structural, place+"[*]")
		out.typ = cel.MapType(cel.StringType, out.elements.typ)
	case len(out.fields) == 0:
		out.typ = cel.MapType(cel.StringType, cel.DynType)
	default:
		name := "object(" + place + ")" // Expressions cannot construct this type, because its name is not an identifier.
		out.typ = cel.ObjectType(name)
		o[name] = &object{typ: out.typ, fields: known}
	}
	return out
}

var (
	undefined = regexp.MustCompile(`^undefined field '(.*)'$`)
	overload  = regexp.MustCompile(`^found no matching overload for '([^']*)' applied`)
	branches  = regexp.MustCompile(`^found no matching overload for '_\?_:_' applied to '\(bool, (.*)\)'$`)
)

// explain adds advice to the messages of CEL.
func (o objects) explain(problems []Problem) []Problem {
	for i := range problems {
		message := &problems[i].Message
		if m := undefined.FindStringSubmatch(*message); m != nil {
			*message += o.written(m[1])
		}
		if m := branches.FindStringSubmatch(*message); m != nil {
			*message = "the branches of ?: are of two types (" + m[1] + "): write dyn(...) around one of them"
		}
		if m := overload.FindStringSubmatch(*message); m != nil {
			*message = strings.Replace(*message, m[1], name(m[1]), 1)
		}
	}
	return problems
}

// written returns advice about an escaped field name. field is the beginning of the JSON name up to a character that
// needs an escape. The result is "" if there is no such field.
func (o objects) written(field string) string {
	var found []string
	for _, object := range o {
		for escaped := range object.fields {
			json, ok := apiservercel.Unescape(escaped)
			if rest, begins := strings.CutPrefix(json, field); ok && escaped != json && begins && (rest == "" || strings.ContainsAny(rest[:1], "-./")) {
				found = append(found, fmt.Sprintf(": the field %q is written %s", json, escaped))
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// provider adds the types of objects to those of the libraries.
type provider struct {
	types.Provider

	objects objects
}

// FindStructType implements [types.Provider].
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if o, ok := p.objects[name]; ok {
		return types.NewTypeTypeWithParam(o.typ), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements [types.Provider].
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if o, ok := p.objects[name]; ok {
		return slices.Sorted(maps.Keys(o.fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements [types.Provider].
func (p provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	o, ok := p.objects[name]
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	typ, ok := o.fields[field]
	return &types.FieldType{Type: typ}, ok
}

// NewValue implements [types.Provider].
func (p provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := p.objects[name]; ok {
		return types.WrapErr(errors.New("objects are written as {\"field\": value}"))
	}
	return p.Provider.NewValue(name, fields)
}
