package verify

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// mostTexts is the maximum number of texts from schemas.
const mostTexts = 64

// numbers are texts that stand for numbers. A conversion to a number and back changes them.
var numbers = []string{"1.10", "1.0", "1e1", "0.123456789012345678"}

// texts returns the texts in enums and defaults of the schemas, because an enum value of one version is often a plain
// text in another version. If a schema has a number, texts that stand for numbers are added, because another version
// may have a text for it.
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
