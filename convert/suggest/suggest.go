// Package suggest writes a first ConversionPolicy from what differs between the schemas
// of the versions of a definition: what one version has and another does not, what seems
// to have another name or place, and what is of another type.
//
// A schema does not say what a value means. So every guess has a note, which says what
// there is to decide; and what is no more than a guess never loses anything: a value
// that has no counterpart is kept.
package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/structural"
)

// Policy returns a first policy for a definition. An empty hub stands for the version
// that Kubernetes prefers to all others: the newest that is stable, or else the newest.
// The spokes are the other versions that are served or stored, in the definition's order.
//
// The strings are notes on what the author must decide. One that is about an entry or a
// spoke begins with its path, such as spec.spokes[0].fields[2], and a colon; they come in
// the order of the policy. The policy compiles unless a note says what is to be done before.
//
// It is an error if there is no version hub, or no other one. The definition is not
// modified.
func Policy(def *structural.Definition, hub string) (*refractv1alpha1.ConversionPolicy, []string, error) {
	if hub == "" {
		hub = preferred(def)
	}
	center, err := def.Version(hub)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for the hub: %w", err)
	}
	p := &refractv1alpha1.ConversionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: refractv1alpha1.GroupVersion.String(), Kind: "ConversionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: def.Plural()},
		Spec:       refractv1alpha1.ConversionPolicySpec{CRD: def.Name(), Hub: hub},
	}
	var notes []string
	for _, v := range def.Versions() {
		if v.Name() == hub || !used(def, v) {
			continue
		}
		d := &differences{hubVersion: hub, spokeVersion: v.Name()}
		spoke, said := d.spoke(center.Structural(), v.Structural(), len(p.Spec.Spokes))
		p.Spec.Spokes = append(p.Spec.Spokes, spoke)
		notes = append(notes, said...)
	}
	if len(p.Spec.Spokes) == 0 {
		return nil, nil, errOneVersion
	}
	return p, notes, nil
}

// errOneVersion is for a definition in which there is nothing to convert.
var errOneVersion = errors.New("there is no other version that is served or stored: nothing is to be converted")

// used reports whether clients or the storage may have objects of a version.
func used(def *structural.Definition, v *structural.Version) bool {
	return v.Served() || v.Name() == def.Storage()
}

// preferred returns the version that Kubernetes prefers, of those that are used.
func preferred(def *structural.Definition) string {
	names := []string{def.Storage()}
	for _, v := range def.Versions() {
		if used(def, v) {
			names = append(names, v.Name())
		}
	}
	return slices.MaxFunc(names, version.CompareKubeAwareVersionStrings)
}

// differences are those between the hub and one spoke.
type differences struct {
	hubVersion, spokeVersion string

	entries []entry
	lists   []list     // Those that both have, whose elements are looked into.
	lonely  []oneSided // What only one of them has, as far as is known.
	notes   []string   // On what is no entry's.
}

// entry is a difference, and what is to be said of it.
type entry struct {
	refractv1alpha1.FieldConversion

	notes []string
}

// list is a list that both versions have at one place.
type list struct {
	place string
	hub   *schema.Structural
}

// oneSided is a value that only one version has.
type oneSided struct {
	place    string
	name     string
	scope    string // The place of the innermost list or table that it is in.
	value    *schema.Structural
	required bool
	hub      bool // Which of the versions has it.
	// instead is the place of the only value that the other version has where it lacks this
	// one, if both versions require theirs; empty if there is none.
	instead string
}

// place returns the place of a sort order: that of the hub, if it has one.
func (e *entry) place() string {
	if e.Hub != "" {
		return e.Hub
	}
	return e.Spoke
}

// spoke returns how a spoke differs, and notes.
func (d *differences) spoke(hub, spoke *schema.Structural, index int) (refractv1alpha1.ConversionSpoke, []string) {
	d.object(without(hub), without(spoke), "", "")
	d.moves()
	d.replaced()
	for i := range d.lonely {
		d.keep(&d.lonely[i])
	}
	slices.SortStableFunc(d.entries, func(a, b entry) int { return strings.Compare(a.place(), b.place()) })
	out := refractv1alpha1.ConversionSpoke{Version: d.spokeVersion}
	var notes []string
	for _, n := range d.notes {
		notes = append(notes, fmt.Sprintf("spec.spokes[%d]: %s", index, n))
	}
	for i := range d.entries {
		out.Fields = append(out.Fields, d.entries[i].FieldConversion)
		for _, n := range d.entries[i].notes {
			notes = append(notes, fmt.Sprintf("spec.spokes[%d].fields[%d]: %s", index, i, n))
		}
	}
	keys, said := d.keys()
	out.Lists = keys
	for i, n := range said {
		notes = append(notes, fmt.Sprintf("spec.spokes[%d].lists[%d]: %s", index, i, n))
	}
	return out, notes
}

// without returns a root without what is not converted.
func without(root *schema.Structural) *schema.Structural {
	out := *root
	out.Properties = make(map[string]schema.Structural, len(root.Properties))
	for name, value := range root.Properties {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			out.Properties[name] = value
		}
	}
	return &out
}
