package policy

import (
	"fmt"
	"regexp"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/expression"
)

// entry is a compiled FieldConversion.
type entry struct {
	path  string // Such as spec.spokes[0].fields[2].
	field *refractv1alpha1.FieldConversion
	// at are the places relative to the object. in are the places relative to the innermost element of a list or table.
	// A side that does not have the value has no place and no schema.
	at, in  [2]place
	schemas [2]*schema.Structural
	// to are the functions that make the values of a side. A function is nil if the value only moves, or if the side
	// does not have the value.
	to [2]transform
	// plain is true if the value only moves.
	plain bool
	// loses is true for a side whose values may get lost without an annotation.
	loses [2]bool
	// normal are the expressions for the normal forms of a side's values; nil if only equal values are equivalent.
	normal [2]*expression.Program
	// fill is the default of a value that only one side has; nil for none.
	fill []byte
	// hubKeys are the keys that the policy declares for a list.
	hubKeys []string
}

// has reports whether a side has the value.
func (e *entry) has(s side) bool { return e.schemas[s] != nil }

// fieldCompiler compiles the fields of a spoke to entries. It compiles each field alone.
type fieldCompiler struct {
	versionPair

	coverage *coverage
}

// entry compiles a field. It returns nil if a place is unknown or the parts of the field are incompatible.
func (c *fieldCompiler) entry(i int, f *refractv1alpha1.FieldConversion) *entry {
	e := &entry{path: fmt.Sprintf("%s.fields[%d]", c.path, i), field: f}
	if !c.shape(e) {
		return nil
	}
	known := true
	for sd, text := range []string{onSpoke: f.Spoke, onHub: f.Hub} {
		if text != "" && !c.locate(e, side(sd), text) {
			known = false
		}
	}
	if !known {
		return nil
	}
	if e.has(onSpoke) && e.has(onHub) {
		if a, b := e.at[onSpoke].scopes(), e.at[onHub].scopes(); a != b {
			c.errorf(e.path, rulePlace,
				"spoke has %d [*], and hub %d: want as many in both, since elements are converted one by one", a, b)
			return nil
		}
	}
	c.operation(e)
	c.equivalence(e)
	return e
}

// locate finds a place of an entry in the schema of its side.
func (c *fieldCompiler) locate(e *entry, sd side, text string) bool {
	path := e.path + "." + sd.name()
	p, err := parsePlace(text)
	if err == nil {
		err = checkPlace(p)
	}
	if err == nil {
		e.schemas[sd], err = find(c.schemas[sd], p)
	}
	if err != nil {
		c.errorf(path, rulePlace, "in %s: %v", c.versions[sd], err)
		return false
	}
	e.at[sd] = p
	return true
}

// shape reports whether the parts of a field are compatible. The validation in the CustomResourceDefinition has the
// same rules.
func (c *fieldCompiler) shape(e *entry) bool {
	f := e.field
	ways := 0
	for _, there := range []bool{
		f.Map != nil, f.Scale != nil, f.Cast != nil, f.Keyed != nil, f.Wrap != nil, f.Added != nil, f.Removed != nil,
		f.ToHub != "" || f.ToSpoke != "",
	} {
		if there {
			ways++
		}
	}
	switch {
	case ways > 1:
		c.errorf(e.path, ruleField,
			"takes one of map, scale, cast, keyed, wrap, added, removed, and the pair toHub and toSpoke")
	case (f.ToHub == "") != (f.ToSpoke == ""):
		c.errorf(e.path, ruleField, "toHub and toSpoke go together")
	case f.Added != nil && (f.Hub == "" || f.Spoke != ""):
		c.errorf(e.path, ruleField, "added needs the place hub alone")
	case f.Removed != nil && (f.Spoke == "" || f.Hub != ""):
		c.errorf(e.path, ruleField, "removed needs the place spoke alone")
	case f.Added == nil && f.Removed == nil && (f.Hub == "" || f.Spoke == ""):
		c.errorf(e.path, ruleField, "needs both places, hub and spoke; added needs hub alone, and removed spoke alone")
	default:
		return true
	}
	return false
}

// operation compiles the operation of a field.
func (c *fieldCompiler) operation(e *entry) {
	f := e.field
	grouped := e.at[onSpoke].group != nil || e.at[onHub].group != nil
	switch {
	case f.Added != nil:
		c.oneSided(e, onHub, f.Added)
	case f.Removed != nil:
		c.oneSided(e, onSpoke, f.Removed)
	case f.ToHub != "":
		c.expressions(e)
	case f.Map == nil && f.Scale == nil && f.Cast == nil && f.Keyed == nil && f.Wrap == nil:
		c.move(e)
	case grouped:
		c.errorf(e.path, ruleField, "several fields as one value allow only toHub and toSpoke")
	case f.Map != nil:
		c.pairs(e)
	case f.Scale != nil:
		c.scale(e)
	case f.Cast != nil:
		c.cast(e)
	case f.Keyed != nil:
		c.keyed(e)
	default:
		c.wrap(e)
	}
	if f.ToHub == "" && f.Lossy {
		c.warnf(e.path+".lossy", warnNoEffect,
			"has no effect without toHub and toSpoke: other conversions keep lost values anyway")
	}
	if f.ToHub == "" && f.Equivalence == nil && f.Limits != nil {
		c.warnf(e.path+".limits", warnNoEffect, "has no effect without an expression")
	}
}

func limits(f *refractv1alpha1.FieldConversion) expression.Limits {
	if f.Limits == nil {
		return expression.Limits{}
	}
	return expression.Limits{OutputItems: int(f.Limits.MaxOutputItems), Cost: uint64(max(f.Limits.MaxCost, 0))}
}

// expands matches calls whose result may be a longer list than any list in the value.
var expands = regexp.MustCompile(`\blists\s*\.\s*range\s*\(|\.\s*expand\s*\(`)

// expressions compiles toHub and toSpoke. The compiler cannot find out whether one is the inverse of the other.
// Verification tests this, unless the author allows losses with lossy.
func (c *fieldCompiler) expressions(e *entry) {
	f := e.field
	e.loses = [2]bool{f.Lossy, f.Lossy}
	for sd, text := range []string{onSpoke: f.ToSpoke, onHub: f.ToHub} {
		to := side(sd)
		path := e.path + "." + [2]string{onSpoke: "toSpoke", onHub: "toHub"}[to]
		if program := c.expression(path, text, e.schemas[to.other()], e.schemas[to], limits(f)); program != nil {
			e.to[to] = program.Convert
		}
		if expands.MatchString(text) && (f.Limits == nil || f.Limits.MaxOutputItems == 0) {
			c.warnf(path, warnExpansion,
				"makes lists with a length from the value, up to 100,000 items: set limits.maxOutputItems to the need of an object")
		}
	}
}

func (r *report) expression(path, text string, in, out *schema.Structural, l expression.Limits) *expression.Program {
	program, problems := expression.Compile(text, in, out, l)
	for _, p := range problems {
		r.errorf(path, ruleExpression, "%s", p)
	}
	if len(problems) > 0 {
		return nil
	}
	return program
}

// usesValue matches an expression that uses its input.
var usesValue = regexp.MustCompile(`\bvalue\b`)

// equivalence compiles the expressions for normal forms. If a value comes back with the same normal form, it is not
// lost. An expression that does not use the value would make all values equivalent, so it is an error.
func (c *fieldCompiler) equivalence(e *entry) {
	q := e.field.Equivalence
	if q == nil || q.Hub == "" && q.Spoke == "" {
		return
	}
	if e.plain || e.has(onSpoke) != e.has(onHub) {
		c.warnf(e.path+".equivalence", warnNoEffect, "has no effect: the value passes or is kept unchanged")
		return
	}
	for sd, text := range []string{onSpoke: q.Spoke, onHub: q.Hub} {
		if text == "" {
			continue
		}
		path := e.path + ".equivalence." + side(sd).name()
		if !usesValue.MatchString(text) {
			c.errorf(path, ruleExpression,
				"does not use value: all values would mean the same, and any of them could get lost")
			continue
		}
		e.normal[sd] = c.expression(path, text, e.schemas[sd], nil, limits(e.field))
	}
}
