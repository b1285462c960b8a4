package manifest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/internal/manifest/nearest"
	"refract.dev/tree"
)

// mismatch is a place where a value is not as a Go type wants it.
type mismatch struct {
	path *field.Path
	fact string
	hint string
}

// conform returns every place where value, decoded from JSON, is not what t can
// be decoded from: fields that t does not have, and values of a wrong type; and
// if strict, fields that t requires, which by the conventions of Kubernetes are
// those without omitempty. Null is as good as nothing.
func conform(value any, t reflect.Type, at *field.Path, strict bool) []mismatch {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil {
		return nil
	}
	if decodesItself(t) {
		return conformItself(value, t, at)
	}
	var want string
	switch t.Kind() {
	case reflect.Struct:
		if m, ok := value.(map[string]any); ok {
			return conformStruct(m, t, at, strict)
		}
		want = "an object"
	case reflect.Map:
		if m, ok := value.(map[string]any); ok {
			var found []mismatch
			for _, key := range slices.Sorted(maps.Keys(m)) {
				found = append(found, conform(m[key], t.Elem(), at.Key(key), strict)...)
			}
			return found
		}
		want = "an object"
	case reflect.Slice:
		if list, ok := value.([]any); ok {
			var found []mismatch
			for i, item := range list {
				found = append(found, conform(item, t.Elem(), at.Index(i), strict)...)
			}
			return found
		}
		want = "an array"
	case reflect.String:
		if _, ok := value.(string); ok {
			return nil
		}
		return []mismatch{{path: at, fact: fmt.Sprintf("is %s, want a string", show(value)), hint: hintQuote(value)}}
	case reflect.Bool:
		if _, ok := value.(bool); ok {
			return nil
		}
		want = "a boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		if _, ok := value.(int64); ok {
			return nil
		}
		want = "an integer"
	default:
		return nil // Decoding will say.
	}
	return []mismatch{{path: at, fact: fmt.Sprintf("is %s, want %s", show(value), want)}}
}

// hintQuote is for a value that was meant as a string and reads as something else.
func hintQuote(value any) string {
	switch value.(type) {
	case map[string]any, []any:
		return ""
	default:
		return "quote the value"
	}
}

// show returns a value as a person would quote it in a sentence.
func show(value any) string {
	switch value.(type) {
	case map[string]any, []any:
		return tree.TypeName(value)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return tree.TypeName(value)
		}
		return fmt.Sprintf("%s (%s)", text, tree.TypeName(value))
	}
}

func conformStruct(value map[string]any, t reflect.Type, at *field.Path, strict bool) []mismatch {
	fields := map[string]jsonField{}
	fieldsOf(t, fields)
	var found []mismatch
	for _, key := range slices.Sorted(maps.Keys(value)) {
		f, ok := fields[key]
		if ok {
			found = append(found, conform(value[key], f.Type, child(at, key), strict)...)
			continue
		}
		m := mismatch{path: child(at, key), fact: "there is no such field"}
		if near := nearest.To(key, slices.Sorted(maps.Keys(fields))); near != "" {
			m.hint = fmt.Sprintf("did you mean %s?", near)
		}
		found = append(found, m)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if strict && fields[key].required && value[key] == nil {
			found = append(found, mismatch{path: child(at, key), fact: "is missing"})
		}
	}
	return found
}

func child(at *field.Path, key string) *field.Path {
	if at == nil {
		return field.NewPath(key)
	}
	return at.Child(key)
}

type jsonField struct {
	reflect.Type

	required bool
}

// fieldsOf adds the fields of a struct, by their names in JSON.
func fieldsOf(t reflect.Type, to map[string]jsonField) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fieldsOf(f.Type, to)
		case name != "" && name != "-":
			to[name] = jsonField{Type: f.Type, required: !strings.Contains(options, "omitempty")}
		}
	}
}

// conformItself asks a type that has a syntax of its own.
func conformItself(value any, t reflect.Type, at *field.Path) []mismatch {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, reflect.New(t).Interface())
	}
	if err == nil {
		return nil
	}
	hint := ""
	if _, isString := value.(string); !isString {
		hint = hintQuote(value)
	}
	return []mismatch{{path: at, fact: fmt.Sprintf("cannot be %s: %v", show(value), err), hint: hint}}
}

// decodesItself reports whether a type has a syntax of its own.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
