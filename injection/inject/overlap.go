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

// Overlap is a conflict of two policies: some pods cannot get both.
type Overlap struct {
	// Witness is a set of labels that both selectors match. Other labels of the pod do not matter, except for labels
	// that a selector forbids.
	Witness map[string]string
	// Reason is the reason of the first conflict: ReasonEnvConflict, ReasonEnvFromConflict, ReasonVolumeConflict or
	// ReasonMountConflict.
	Reason string
	// Message describes, for users, the conflicting items and the result for a pod that both policies select. It
	// contains no values of variables.
	Message string
}

// FindOverlap returns the conflict of two policies, or nil without a conflict. There is no conflict in three cases: the
// policies have different namespaces or the same name; no labels match both selectors; or all items with the same
// identity are equal. The order of the arguments does not matter.
//
// Policies conflict over items of containers only if they may choose the same container. In doubt FindOverlap assumes
// that two patterns match the same container name.
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
		outcome = "the latter rejects the pod"
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

// joinSome joins the first few elements of a non-empty list.
func joinSome(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}

// findConflicts names the items that a pod cannot have from both policies.
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

// different returns the identities that have different items in the two lists, in the order of a.
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

// overlaps reports whether both scopes may choose the same container. Init containers and ephemeral containers need no
// check, because every scope also includes ordinary containers.
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

// leaves reports whether the scope leaves some names of the pattern: no excluded pattern covers all of them. An
// excluded pattern covers them if it matches the text of the pattern.
func (s *scope) leaves(pattern string) bool { return !matchesAny(s.exclude, pattern) }

// meet reports whether some name may match both patterns.
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

// ends returns the parts of a pattern before the first * and after the last one. open is false if the pattern has no *.
func ends(pattern string) (start, end string, open bool) {
	first, last := strings.IndexByte(pattern, '*'), strings.LastIndexByte(pattern, '*')
	if first < 0 {
		return pattern, pattern, false
	}
	return pattern[:first], pattern[last+1:], true
}

// findWitness returns labels that match both selectors, and whether there are such labels. It treats each key
// separately, because no requirement of a selector relates two keys.
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
			return nil, false // Label selectors do not have this operator.
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

// demand combines the requirements of both selectors for the value of one key.
type demand struct {
	present, absent bool
	among           []string // If limited is true, the value must be one of these. Sorted.
	limited         bool
	not             map[string]bool
}

// add adds a requirement. It returns false for an unknown operator.
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

// meet returns a value that fulfills the demand. possible is false if there is no such value. present is false if the
// witness needs no label with this key.
func (d *demand) meet() (value string, present, possible bool) {
	switch {
	case d.absent:
		return "", false, !d.present
	case !d.present:
		return "", false, true // NotIn also matches a pod without the label.
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
