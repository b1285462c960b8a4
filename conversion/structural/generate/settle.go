package generate

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// settled returns a schema with the restrictions of s, of its allOf, and of one branch of its anyOf and oneOf. A value
// for this schema is likely to be valid for s. The result always has a ValueValidation, and shares unchanged parts with
// s.
func settled(c choices, s *schema.Structural) *schema.Structural {
	out := *s
	out.ValueValidation = &schema.ValueValidation{}
	if s.ValueValidation == nil {
		return &out
	}
	*out.ValueValidation = *s.ValueValidation
	settle(c, &out, s.ValueValidation)
	return &out
}

// settle adds the restrictions of allOf, anyOf, oneOf and not to a schema.
func settle(c choices, s *schema.Structural, from *schema.ValueValidation) {
	for i := range from.AllOf {
		narrow(c, s, &from.AllOf[i])
	}
	if len(from.AnyOf) > 0 {
		narrow(c, s, &from.AnyOf[c.below(len(from.AnyOf))])
	}
	if len(from.OneOf) > 0 {
		chosen := c.below(len(from.OneOf))
		for i := range from.OneOf {
			if i != chosen {
				avoid(s, &from.OneOf[i])
			}
		}
		narrow(c, s, &from.OneOf[chosen])
	}
	if from.Not != nil {
		avoid(s, from.Not)
	}
}

// avoid adds the opposite of a restriction to a schema of settled. It does so only for a single limit or property.
func avoid(s *schema.Structural, what *schema.NestedValueValidation) {
	opposite := &schema.ValueValidation{}
	switch {
	case what.MaxLength != nil:
		opposite.MinLength = new(*what.MaxLength + 1)
	case what.MinItems != nil && *what.MinItems > 0:
		opposite.MaxItems = new(*what.MinItems - 1)
	case what.Minimum != nil:
		opposite.Maximum, opposite.ExclusiveMaximum = what.Minimum, true
	case what.Maximum != nil:
		opposite.Minimum, opposite.ExclusiveMinimum = what.Maximum, true
	case len(what.Required) == 1 && !slices.Contains(s.ValueValidation.Required, what.Required[0]):
		s.Properties = maps.Clone(s.Properties)
		delete(s.Properties, what.Required[0])
	}
	tighten(s.ValueValidation, opposite)
}

// narrow adds the restrictions of a branch to a schema of settled.
func narrow(c choices, s *schema.Structural, branch *schema.NestedValueValidation) {
	tighten(s.ValueValidation, &branch.ValueValidation)
	for _, name := range slices.Sorted(maps.Keys(branch.Properties)) {
		property, known := s.Properties[name]
		if !known {
			continue
		}
		s.Properties = maps.Clone(s.Properties)
		within := branch.Properties[name]
		inner := settled(c, &property)
		narrow(c, inner, &within)
		// Already settled.
		inner.ValueValidation.AllOf, inner.ValueValidation.AnyOf, inner.ValueValidation.OneOf = nil, nil, nil
		s.Properties[name] = *inner
	}
	settle(c, s, &branch.ValueValidation)
}

// tighten adds the limits in by to limits. The pattern, format and enum in by replace those in limits, because no value
// can be generated for two patterns, formats or enums.
func tighten(limits, by *schema.ValueValidation) {
	limits.Maximum, limits.ExclusiveMaximum = nearer(limits.Maximum, limits.ExclusiveMaximum, by.Maximum, by.ExclusiveMaximum, -1)
	limits.Minimum, limits.ExclusiveMinimum = nearer(limits.Minimum, limits.ExclusiveMinimum, by.Minimum, by.ExclusiveMinimum, 1)
	limits.MaxLength, limits.MinLength = stricter(limits.MaxLength, by.MaxLength, -1), stricter(limits.MinLength, by.MinLength, 1)
	limits.MaxItems, limits.MinItems = stricter(limits.MaxItems, by.MaxItems, -1), stricter(limits.MinItems, by.MinItems, 1)
	limits.MaxProperties, limits.MinProperties = stricter(limits.MaxProperties, by.MaxProperties, -1), stricter(limits.MinProperties, by.MinProperties, 1)
	limits.Required = append(slices.Clone(limits.Required), by.Required...)
	if by.MultipleOf != nil {
		limits.MultipleOf = by.MultipleOf
	}
	if by.Pattern != "" {
		limits.Pattern = by.Pattern
	}
	if by.Format != "" {
		limits.Format = by.Format
	}
	if len(by.Enum) > 0 {
		limits.Enum = by.Enum
	}
}

// nearer returns the stricter of two numeric limits. With sign 1 the larger limit is stricter, and with sign -1 the
// smaller one.
func nearer(limit *float64, exclusive bool, by *float64, byExclusive bool, sign float64) (*float64, bool) {
	switch {
	case by == nil || limit != nil && *limit*sign > *by*sign:
		return limit, exclusive
	case limit != nil && *limit == *by:
		return limit, exclusive || byExclusive
	default:
		return by, byExclusive
	}
}

// stricter is nearer for limits of lengths.
func stricter(limit, by *int64, sign int) *int64 {
	if limit == nil || by != nil && cmp.Compare(*by, *limit) == sign {
		return by
	}
	return limit
}
