// Package suggest drafts a ConversionPolicy from the differences between the schemas of the versions of a definition:
// values that only one version has, values that seem to have another name or place, and values of another type.
//
// A schema does not say what a value means. So each guess has a note with the decision that the author must make. A
// value without a known counterpart gets an entry that keeps it, so no value is lost.
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
	"refract.dev/conversion/structural"
)

// Policy returns a draft policy for a definition. An empty hub means the version that Kubernetes prefers: the newest
// stable version or, without a stable version, the newest version. The spokes are the other versions that are served or
// stored, in the order of the definition.
//
// The strings are notes about decisions that the author must make, in the order of the policy. A note about an entry or
// a spoke begins with the path, such as spec.spokes[0].fields[2], and a colon. The policy compiles unless a note names
// something to do before.
//
// Policy returns an error if the definition does not have the version hub, or if it has no other version. It does not
// modify the definition.
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

// errOneVersion is the error for a definition with only one version that is served or stored.
var errOneVersion = errors.New("there is no other version that is served or stored: nothing is to be converted")

// used reports whether a version is served or stored.
func used(def *structural.Definition, v *structural.Version) bool {
	return v.Served() || v.Name() == def.Storage()
}

// preferred returns the version that Kubernetes prefers, among the versions that are served or stored.
func preferred(def *structural.Definition) string {
	names := []string{def.Storage()}
	for _, v := range def.Versions() {
		if used(def, v) {
			names = append(names, v.Name())
		}
	}
	return slices.MaxFunc(names, version.CompareKubeAwareVersionStrings)
}

// differences are the differences between the hub and one spoke.
type differences struct {
	hubVersion, spokeVersion string

	entries []entry
	lists   []list     // Lists that both versions have, and whose elements were compared.
	lonely  []oneSided // Values for which no counterpart is known.
	notes   []string   // Notes that are not about an entry.
}

// entry is the entry for a difference, with its notes.
type entry struct {
	refractv1alpha1.FieldConversion

	notes []string
}

// list is a list that both versions have at the same place.
type list struct {
	place string
	hub   *schema.Structural
}

// oneSided is a value that only one version has.
type oneSided struct {
	place    string
	name     string
	scope    string // The place of the innermost list or table that contains it.
	value    *schema.Structural
	required bool
	hub      bool // True if the hub has the value, false if the spoke has it.
	// instead is the place of the value that seems to replace this one in the other version. It is set only if each
	// version requires its value and there is only one candidate; otherwise it is empty.
	instead string
}

// place returns the place by which entries are sorted: the place in the hub or, without one, the place in the spoke.
func (e *entry) place() string {
	if e.Hub != "" {
		return e.Hub
	}
	return e.Spoke
}

// spoke returns the differences between the hub and a spoke as entries, and the notes.
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

// without returns the schema of a resource without apiVersion, kind and metadata, because policies do not convert
// these.
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
