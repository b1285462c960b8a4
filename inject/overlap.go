package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Overlap says that two policies cannot both hold for some pods.
type Overlap struct {
	// Witness is a set of labels that both policies select. A label that is not in it
	// does not matter, or must not be there.
	Witness map[string]string
	// Reason is that of the first conflict: ReasonEnvConflict, ReasonEnvFromConflict,
	// ReasonVolumeConflict or ReasonMountConflict.
	Reason string
	// Message says what conflicts and what becomes of a pod that both select, for
	// people. It holds no value of a variable.
	Message string
}

// FindOverlap returns how two policies get into each other's way, or nil if they
// do not: they are of different namespaces, or one and the same; no pod has labels
// that both select; or all that they inject under the same name is the same. It
// does not matter in which order they are given.
//
// Containers count as far as their names tell: policies that name different ones
// conflict over volumes alone. In doubt, with patterns on both sides, it is assumed
// that a container may be chosen by both.
func FindOverlap(a, b *Policy) *Overlap {
	if a.object.Namespace != b.object.Namespace || a.object.Name == b.object.Name {
		return nil
	}
	if Compare(a, b) > 0 {
		a, b = b, a
	}
	reason, conflicts := findConflicts(a, b)
	if len(conflicts) == 0 {
		return nil
	}
	witness, ok := findWitness(a.selector, b.selector)
	if !ok {
		return nil
	}
	outcome := "the former is applied and the latter is left out for it"
	if b.onConflict == refractv1beta1.ConflictReject {
		outcome = "the latter has it refused"
	}
	if a.mode == refractv1beta1.ModeAudit || b.mode == refractv1beta1.ModeAudit {
		outcome = "as soon as both are enforced, " + outcome
	}
	return &Overlap{
		Witness: witness,
		Reason:  reason,
		Message: fmt.Sprintf("a pod %s is selected by both %s and %s, which differ in %s: %s",
			describeLabels(witness), a.object.Name, b.object.Name, joinSome(conflicts), outcome),
	}
}

func describeLabels(witness map[string]string) string {
	switch len(witness) {
	case 0:
		return "without labels"
	case 1:
		return "with the label " + labels.FormatLabels(witness)
	default:
		return "with the labels " + labels.FormatLabels(witness)
	}
}

// joinSome joins the first few of a list that is not empty.
func joinSome(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

// findConflicts names the items that a pod cannot have from both.
func findConflicts(a, b *Policy) (reason string, conflicts []string) {
	together := a.scope.overlaps(&b.scope)
	for _, list := range []struct {
		word, reason string
		a, b         []item
		perContainer bool
	}{
		{"variable", ReasonEnvConflict, a.env, b.env, true},
		{"envFrom", ReasonEnvFromConflict, a.envFrom, b.envFrom, true},
		{"volume", ReasonVolumeConflict, a.volumes, b.volumes, false},
		{"mount", ReasonMountConflict, a.mounts, b.mounts, true},
	} {
		if list.perContainer && !together {
			continue
		}
		for _, id := range different(list.a, list.b) {
			if reason == "" {
				reason = list.reason
			}
			conflicts = append(conflicts, list.word+" "+id)
		}
	}
	return reason, conflicts
}

// different returns the identities that items of both lists have which are not the
// same, in the order of a.
func different(a, b []item) []string {
	others := make(map[string]*item, len(b))
	for i := range b {
		others[b[i].id] = &b[i]
	}
	var out []string
	for i := range a {
		if other := others[a[i].id]; other != nil && !equal(a[i].normal, other.normal) {
			out = append(out, a[i].id)
		}
	}
	return out
}

// overlaps reports whether there may be a container that both choose. The list in
// which it stands does not matter: both choose ordinary ones.
func (s *scope) overlaps(other *scope) bool {
	for _, p := range s.patterns() {
		for _, q := range other.patterns() {
			if s.leaves(p) && s.leaves(q) && other.leaves(p) && other.leaves(q) && meet(p, q) {
				return true
			}
		}
	}
	return false
}

func (s *scope) patterns() []string {
	if len(s.include) == 0 {
		return []string{"*"}
	}
	return s.include
}

// leaves reports whether anything is left of a pattern. One that fits another, taken
// for a name, is as a whole among what that stands for.
func (s *scope) leaves(pattern string) bool { return !matchesAny(s.exclude, pattern) }

// meet reports whether a name may fit both patterns.
func meet(p, q string) bool {
	pStart, pEnd, pOpen := ends(p)
	qStart, qEnd, qOpen := ends(q)
	switch {
	case !pOpen:
		return glob(q, p)
	case !qOpen:
		return glob(p, q)
	default:
		return (strings.HasPrefix(pStart, qStart) || strings.HasPrefix(qStart, pStart)) &&
			(strings.HasSuffix(pEnd, qEnd) || strings.HasSuffix(qEnd, pEnd))
	}
}

// ends returns what stands before the first * of a pattern and behind the last.
func ends(pattern string) (start, end string, open bool) {
	first, last := strings.IndexByte(pattern, '*'), strings.LastIndexByte(pattern, '*')
	if first < 0 {
		return pattern, pattern, false
	}
	return pattern[:first], pattern[last+1:], true
}

// findWitness returns labels that both selectors match, and whether there are any.
// Each key is for itself: nothing that a selector says relates two of them.
func findWitness(a, b labels.Selector) (map[string]string, bool) {
	first, ok := a.Requirements()
	if !ok {
		return nil, false
	}
	second, ok := b.Requirements()
	if !ok {
		return nil, false
	}
	demands := map[string]*demand{}
	for _, r := range slices.Concat(first, second) {
		if demands[r.Key()] == nil {
			demands[r.Key()] = &demand{not: map[string]bool{}}
		}
		if !demands[r.Key()].add(r.Operator(), r.ValuesUnsorted()) {
			return nil, false // An operator that no label selector has.
		}
	}
	witness := make(map[string]string, len(demands))
	for key, d := range demands {
		value, present, possible := d.meet()
		switch {
		case !possible:
			return nil, false
		case present:
			witness[key] = value
		}
	}
	return witness, true
}

// demand is what is asked of the value of one key.
type demand struct {
	present, absent bool
	among           []string // Sorted; if limited, the value is one of these.
	limited         bool
	not             map[string]bool
}

// add adds a requirement. It returns false for one that it does not know.
func (d *demand) add(op selection.Operator, values []string) bool {
	switch op {
	case selection.In, selection.Equals, selection.DoubleEquals:
		slices.Sort(values)
		if d.limited {
			values = slices.DeleteFunc(values, func(v string) bool { return !slices.Contains(d.among, v) })
		}
		d.present, d.limited, d.among = true, true, values
	case selection.NotIn, selection.NotEquals:
		for _, v := range values {
			d.not[v] = true
		}
	case selection.Exists:
		d.present = true
	case selection.DoesNotExist:
		d.absent = true
	default:
		return false
	}
	return true
}

// meet returns a value that meets the demand; present is false if the key is to be
// left out, possible if nothing meets it.
func (d *demand) meet() (value string, present, possible bool) {
	switch {
	case d.absent:
		return "", false, !d.present
	case !d.present:
		return "", false, true // NotIn is true of no label, too.
	case d.limited:
		i := slices.IndexFunc(d.among, func(v string) bool { return !d.not[v] })
		if i < 0 {
			return "", false, false
		}
		return d.among[i], true, true
	}
	value = "any"
	for i := 2; d.not[value]; i++ {
		value = "any-" + strconv.Itoa(i)
	}
	return value, true, true
}
