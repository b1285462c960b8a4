package crd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/tree"
)

// undecodable returns the reasons why a definition cannot be decoded: one finding for each value of a wrong type,
// sorted by path. If there is no such value, the only finding is err, the error of the decoder.
func undecodable(content map[string]any, err error) []structural.Finding {
	if errors.Is(err, structural.ErrNotDefinition) {
		return []structural.Finding{{Path: "apiVersion", Message: err.Error(), Severity: structural.Error, Rule: pipeline.RuleMalformed}}
	}
	if found := malformed(content); len(found) > 0 {
		return found
	}
	return []structural.Finding{{Message: err.Error(), Severity: structural.Error, Rule: pipeline.RuleMalformed}}
}

// malformed returns a finding for each value of a wrong type in a definition; none if the definition can be decoded.
func malformed(content map[string]any) []structural.Finding {
	var s search
	s.look(nil, content)
	return structural.Sort(s.found)
}

// search finds the values that cannot be decoded. The decoder reports only the first such value, and uses names of Go
// types. So search decodes the values one at a time, each with only the maps and lists around it.
type search struct{ found []structural.Finding }

// look checks a value, and the values inside it. The path consists of names and indexes.
func (s *search) look(path []any, value any) {
	err := decodes(path, value)
	if err == nil {
		return
	}
	before := len(s.found)
	switch v := value.(type) {
	case map[string]any:
		if decodes(path, map[string]any{}) == nil {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				s.look(append(slices.Clone(path), name), v[name])
			}
		}
	case []any:
		if decodes(path, []any{}) == nil {
			for i, item := range v {
				s.look(append(slices.Clone(path), i), item)
			}
		}
	}
	if len(s.found) == before {
		s.found = append(s.found, structural.Finding{
			Path: pathText(path), Message: mismatch(path, value, err), Severity: structural.Error, Rule: pipeline.RuleMalformed,
		})
	}
}

// decodes returns the error of decoding a definition that has only this value.
func decodes(path []any, value any) error {
	for _, step := range slices.Backward(path) {
		if name, ok := step.(string); ok {
			value = map[string]any{name: value}
		} else {
			value = []any{value}
		}
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &apiextensionsv1.CustomResourceDefinition{})
}

// mismatch describes the error of a value: its type and the accepted types. If the type is not the problem, it returns
// the error of the decoder.
func mismatch(path []any, value any, err error) string {
	is := tree.TypeName(value)
	var want []string
	for _, one := range []any{"", int64(0), false, []any{}, map[string]any{}} {
		switch name := tree.TypeName(one); {
		case decodes(path, one) != nil:
		case name == is:
			return err.Error()
		default:
			want = append(want, name)
		}
	}
	if len(want) == 0 {
		return err.Error()
	}
	return fmt.Sprintf("is %s, want %s", is, strings.Join(want, " or "))
}

// tables are fields that are maps with arbitrary keys.
var tables = []string{"properties", "patternProperties", "definitions", "dependencies", "labels", "annotations"}

// pathText formats a path like an API server.
func pathText(path []any) string {
	var text strings.Builder
	inTable := false
	for _, step := range path {
		name, isName := step.(string)
		switch {
		case !isName || inTable:
			fmt.Fprintf(&text, "[%v]", step)
		case text.Len() > 0:
			text.WriteString("." + name)
		default:
			text.WriteString(name)
		}
		inTable = isName && !inTable && slices.Contains(tables, name)
	}
	return text.String()
}
