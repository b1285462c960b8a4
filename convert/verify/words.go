package verify

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// mostTexts is how many texts of schemas are used at most.
const mostTexts = 64

// numbers are texts of numbers that come back in other words if they were numbers meanwhile.
var numbers = []string{"1.10", "1.0", "1e1", "0.123456789012345678"}

// texts returns the texts that the schemas name as values and as defaults: what one
// version enumerates is often what another one has as a text. If one has a number, others may
// have its text.
func (r *runner) texts() []string {
	var out []string
	for _, v := range r.versions {
		out = textsOf(out, v.Structural())
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), mostTexts)]
}

func textsOf(out []string, s *schema.Structural) []string {
	if s == nil {
		return out
	}
	if text, ok := s.Default.Object.(string); ok {
		out = append(out, text)
	}
	if s.Type == "number" {
		out = append(out, numbers...)
	}
	if s.ValueValidation != nil {
		for _, v := range s.ValueValidation.Enum {
			if text, ok := v.Object.(string); ok {
				out = append(out, text)
			}
		}
	}
	for _, property := range s.Properties {
		out = textsOf(out, &property)
	}
	if s.AdditionalProperties != nil {
		out = textsOf(out, s.AdditionalProperties.Structural)
	}
	return textsOf(out, s.Items)
}
