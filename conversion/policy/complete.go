package policy

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
)

// lone is a place that only one side has.
type lone struct {
	side side
	at   place
}

// field returns an entry that covers the place.
func (l lone) field() refractv1alpha1.FieldConversion {
	if l.side == onHub {
		return refractv1alpha1.FieldConversion{Hub: l.at.String(), Added: &refractv1alpha1.OneSided{}}
	}
	return refractv1alpha1.FieldConversion{Spoke: l.at.String(), Removed: &refractv1alpha1.OneSided{}}
}

// Complete returns a spec that compiles for a definition. If the only errors of spec are about places that only one
// version has and no entry covers, the result is a copy of spec with an entry for each such place. These entries have
// the field added or removed, without a default. If spec has no errors, the result is an unchanged copy. kept lists the
// additional entries, in the order of the spokes and places. They follow the entries of spec; [Without] removes them.
//
// ok is false if such entries are not enough, for example for a required place, or for a part of a value that another
// entry converts. ok is also false if the additional entries need lists whose elements are identified only by position,
// and spec does not need such lists. Complete keeps no reference to its arguments, and does not modify them.
func Complete(spec *refractv1alpha1.ConversionPolicySpec, def *structural.Definition) (
	completed *refractv1alpha1.ConversionPolicySpec, kept []refractv1alpha1.KeptField, ok bool,
) {
	completed = spec.DeepCopy()
	r := &report{}
	r.excessive(completed)
	if !r.versions(completed, def) || r.failed() {
		return nil, nil, false
	}
	positions, hub := 0, schemaOf(def, spec.Hub)
	for i := range completed.Spokes {
		to := &completed.Spokes[i]
		s := compileSpoke(i, spec.DeepCopy(), [2]*schema.Structural{onSpoke: schemaOf(def, to.Version), onHub: hub})
		if s.errors() != len(s.lone) {
			return nil, nil, false
		}
		positions += byPosition(s.findings)
		for _, l := range s.lone {
			f := l.field()
			if len(f.Hub)+len(f.Spoke) > mostPlaceBytes || len(to.Fields) == mostFields {
				return nil, nil, false
			}
			to.Fields = append(to.Fields, f)
			kept = append(kept, refractv1alpha1.KeptField{Version: to.Version, Hub: f.Hub, Spoke: f.Spoke})
		}
	}
	p, findings := Compile(completed, def)
	if p == nil || byPosition(findings) > positions {
		return nil, nil, false
	}
	return completed, kept, true
}

// Without returns a copy of a spec without the entries that [Complete] has added for these places.
func Without(spec *refractv1alpha1.ConversionPolicySpec, kept []refractv1alpha1.KeptField) *refractv1alpha1.ConversionPolicySpec {
	out := spec.DeepCopy()
	for i := range out.Spokes {
		s := &out.Spokes[i]
		s.Fields = slices.DeleteFunc(s.Fields, func(f refractv1alpha1.FieldConversion) bool {
			oneSided := f.Added != nil && f.Added.Default == nil || f.Removed != nil && f.Removed.Default == nil
			return oneSided && slices.Contains(kept, refractv1alpha1.KeptField{Version: s.Version, Hub: f.Hub, Spoke: f.Spoke})
		})
		if len(s.Fields) == 0 {
			s.Fields = nil // As in a spec from an API server.
		}
	}
	return out
}

// errors returns the number of errors.
func (r *report) errors() int {
	n := 0
	for _, f := range r.findings {
		if f.Severity == structural.Error {
			n++
		}
	}
	return n
}

// byPosition returns the number of lists whose elements are identified only by position.
func byPosition(findings []structural.Finding) int {
	n := 0
	for _, f := range findings {
		if f.Rule == warnKeys {
			n++
		}
	}
	return n
}
