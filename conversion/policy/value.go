package policy

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/expression"
)

// decode decodes a JSON value as API servers do.
func decode(text []byte) (any, error) {
	if len(text) == 0 {
		return nil, errors.New("want a JSON value")
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("reading the JSON value: %w", err)
	}
	return value, nil
}

func jsonText(value any) string {
	text, err := stdjson.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func sameValue(a, b any) bool { return sameJSON([]byte(jsonText(a)), []byte(jsonText(b))) }

// fits returns an error if a value does not match a schema. It checks only types, enums and required fields.
func fits(s *schema.Structural, value any) error {
	if value == nil {
		if s.Nullable || kindOf(s) == isAnything {
			return nil
		}
		return fmt.Errorf("want %s, got null", article(described(s)))
	}
	if !kindFits(kindOf(s), value) {
		return fmt.Errorf("want %s, got %s", article(described(s)), jsonText(value))
	}
	if all := enumOf(s); len(all) > 0 && !slices.ContainsFunc(all, func(v any) bool { return sameValue(v, value) }) {
		return fmt.Errorf("want one of %s, got %s", jsonText(all), jsonText(value))
	}
	switch value := value.(type) {
	case []any:
		return elementsFit(s, value)
	case map[string]any:
		return fieldsFit(s, value)
	default:
		return nil
	}
}

func elementsFit(s *schema.Structural, all []any) error {
	element := elementOf(s)
	for i, value := range all {
		if element == nil {
			break
		}
		if err := fits(element, value); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func fieldsFit(s *schema.Structural, object map[string]any) error {
	if s.ValueValidation != nil {
		for _, key := range s.ValueValidation.Required {
			if _, ok := object[key]; !ok && s.Properties[key].Default.Object == nil {
				return fmt.Errorf("%s is required", key)
			}
		}
	}
	for key, value := range object {
		field := fieldOf(s, key)
		if field == nil {
			return unknown(s, place{}, key)
		}
		if err := fits(field, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func kindFits(k kind, value any) bool {
	switch value := value.(type) {
	case string:
		return k == isText || k == isEither || k == isAnything
	case bool:
		return k == isBoolean || k == isAnything
	case int64:
		return k.number() || k == isEither || k == isAnything
	case float64:
		return k == isNumber || k == isAnything || (k == isInteger || k == isEither) && value == float64(int64(value))
	case []any:
		return k == isList || k == isAnything
	case map[string]any:
		return k == isObject || k == isAnything
	default:
		return false
	}
}

// equivalent returns a function that compares values by their normal form; nil without an expression. If the expression
// fails for a value, that value is equivalent to no other value.
func equivalent(normal *expression.Program) func(a, b []byte) bool {
	if normal == nil {
		return nil
	}
	return func(a, b []byte) bool {
		x, err := normal.Convert(nil, a)
		if err != nil {
			return false
		}
		y, err := normal.Convert(nil, b)
		return err == nil && sameJSON(x, y)
	}
}

// sameJSON reports whether two values are equal as JSON. Numbers are compared to the last digit.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := exact(a)
	if err != nil {
		return false
	}
	y, err := exact(b)
	return err == nil && equal(x, y)
}

// exact decodes a value. Numbers stay texts.
func exact(text []byte) (any, error) {
	d := stdjson.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("reading a JSON value: %w", err)
	}
	return value, nil
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case stdjson.Number:
		b, ok := b.(stdjson.Number)
		if !ok {
			return false
		}
		x, err := scalarKey([]byte(a))
		if err != nil {
			return a == b
		}
		y, err := scalarKey([]byte(b))
		return err == nil && x == y
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			other, ok := b[key]
			if !ok || !equal(value, other) {
				return false
			}
		}
		return true
	default:
		return a == b
	}
}
