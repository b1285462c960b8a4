package policy

import (
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/structural"
)

// lone is a place that one side has alone.
type lone struct {
	side side
	at   place
}

// field is the entry that covers it.
func (l lone) field() refractv1alpha1.FieldConversion {
	if l.side == onHub {
		return refractv1alpha1.FieldConversion{Hub: l.at.String(), Added: &refractv1alpha1.OneSided{}}
	}
	return refractv1alpha1.FieldConversion{Spoke: l.at.String(), Removed: &refractv1alpha1.OneSided{}}
}

// Complete returns a spec that compiles against a definition: spec itself or, if nothing
// but places that one version has alone keeps it from that, a copy with one more entry for
// each of them, {hub: ..., added: {}} or {spoke: ..., removed: {}}. These entries are kept,
// in the order of the spokes and of the places. They are behind those of spec: [Without]
// takes them out again.
//
// Complete reports false if that is not enough, as for a place that is required, or part of
// what another entry converts; and if what is kept would be found by the position of an
// element alone, where spec relies on no position yet. It keeps nothing of its arguments,
// and modifies neither.
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

// Without returns a copy of a spec that has none of the entries that [Complete] made for
// these places.
func Without(spec *refractv1alpha1.ConversionPolicySpec, kept []refractv1alpha1.KeptField) *refractv1alpha1.ConversionPolicySpec {
	out := spec.DeepCopy()
	for i := range out.Spokes {
		s := &out.Spokes[i]
		s.Fields = slices.DeleteFunc(s.Fields, func(f refractv1alpha1.FieldConversion) bool {
			oneSided := f.Added != nil && f.Added.Default == nil || f.Removed != nil && f.Removed.Default == nil
			return oneSided && slices.Contains(kept, refractv1alpha1.KeptField{Version: s.Version, Hub: f.Hub, Spoke: f.Spoke})
		})
		if len(s.Fields) == 0 {
			s.Fields = nil // As it is read from an API server.
		}
	}
	return out
}

// errors returns how many findings are errors.
func (r *report) errors() int {
	n := 0
	for _, f := range r.findings {
		if f.Severity == structural.Error {
			n++
		}
	}
	return n
}

// byPosition returns of how many lists the elements are found by their position.
func byPosition(findings []structural.Finding) int {
	n := 0
	for _, f := range findings {
		if f.Rule == warnKeys {
			n++
		}
	}
	return n
}
