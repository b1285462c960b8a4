package policytest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

func quote(text string) string { return strconv.Quote(text) }

// pointer parses a JSON pointer in a key or an element of the format.
func pointer(at *value, text string) (tree.Pointer, bool) {
	p, err := tree.Parse(text)
	if err != nil {
		at.report(err.Error(), "")
	}
	return p, err == nil
}

// fieldChecks verify the value at each JSON pointer.
func fieldChecks(at *value) []check {
	var checks []check
	for _, e := range at.entries() {
		p, ok := pointer(&e, e.key())
		if !ok {
			continue
		}
		checks = append(checks, check{at: e, judge: func(at *value, got *arrival) verdict {
			is, err := tree.Lookup(got.object(), p)
			if err != nil {
				return verdict{failures: []Failure{got.differs(at, p.String(), at.is, nil)}}
			}
			v := verdict{now: is, known: true}
			if !tree.Equal(at.is, is) {
				v.failures = []Failure{got.differs(at, p.String(), at.is, &is)}
			}
			return v
		}})
	}
	return checks
}

// absentChecks verify that the object has no value at each JSON pointer.
func absentChecks(at *value) []check {
	var checks []check
	for _, item := range at.items() {
		text, ok := item.text()
		if !ok {
			continue
		}
		p, ok := pointer(&item, text)
		if !ok {
			continue
		}
		checks = append(checks, check{at: item, judge: func(at *value, got *arrival) verdict {
			is, err := tree.Lookup(got.object(), p)
			if err != nil {
				return verdict{}
			}
			f := got.failure(at, fmt.Sprintf("%s is %s, want no value", p, render.Text(got.shown(p.String(), is))))
			f.Path, f.Got, f.By = p.String(), got.shown(p.String(), is), got.author(p.String())
			f.Traced = true
			return verdict{failures: []Failure{f}}
		}})
	}
	return checks
}

// fromHub is the author of values that no policy sets.
const fromHub = "hub"

var authorSyntax = regexp.MustCompile(`^(` + corev1alpha1.KindOverridePolicy + ` \S+/|` + corev1alpha1.KindClusterOverridePolicy + ` )` +
	`[^\s/]+( rule \d+( [a-z]+\[\d+\])?)?$`)

// setByChecks verify for each JSON pointer that the last write to the place is by the given policy, rule or item, or
// that the value comes from the hub.
func setByChecks(at *value) []check {
	var checks []check
	for _, e := range at.entries() {
		want, ok := e.text()
		p, isPointer := pointer(&e, e.key())
		if ok && want != fromHub && !authorSyntax.MatchString(want) {
			e.report(fmt.Sprintf("is %q, want a policy, and perhaps its rule", want),
				`write "OverridePolicy NAMESPACE/NAME rule 0", "ClusterOverridePolicy NAME", or hub`)
		}
		if !ok || !isPointer {
			continue
		}
		checks = append(checks, check{at: e, judge: func(at *value, got *arrival) verdict {
			by := got.author(p.String())
			is := fromHub
			if by != nil {
				is = by.String()
			}
			if is == want || strings.HasPrefix(is, want+" ") {
				return verdict{now: want, known: true}
			}
			f := got.failure(at, fmt.Sprintf("%s is set by %s, want %s", p, is, want))
			f.Path, f.Want, f.Got, f.By = p.String(), want, is, by
			return verdict{failures: []Failure{f}, now: asPrecise(is, want), known: true}
		}})
	}
	return checks
}

// asPrecise cuts an author to the precision of the expected one.
func asPrecise(author, like string) string {
	words := strings.Fields(author)
	n := len(strings.Fields(like))
	if like == fromHub {
		n = 4 // A policy and its rule.
	}
	if n == 2 || n == 4 {
		words = words[:min(n, len(words))]
	}
	return strings.Join(words, " ")
}

// objectChecks verify that the object is equal to the expected one.
func objectChecks(at *value) []check {
	if _, ok := at.is.(map[string]any); !ok {
		at.report(fmt.Sprintf("is %s, want an object", tree.TypeName(at.is)), "")
	}
	return []check{{at: *at, judge: func(at *value, got *arrival) verdict {
		v := verdict{now: got.object(), known: true}
		for _, d := range differences(at.is, got.object(), "", nil) {
			f := got.differs(at, d.path, d.want, d.got)
			if d.unwanted {
				f = got.unexpected(at, d.path, *d.got)
			}
			v.failures = append(v.failures, f)
		}
		return v
	}}}
}

// waveChecks verify that a change of the object reaches the cluster in the wave with this name. The empty name means
// the clusters that are in no wave of the policy.
func waveChecks(at *value) []check {
	want, ok := at.is.(string)
	if !ok {
		at.report(fmt.Sprintf("is %s, want the name of a wave", tree.TypeName(at.is)), "")
		return nil
	}
	return []check{{at: *at, judge: func(at *value, got *arrival) verdict {
		is, err := got.wave()
		switch {
		case err != nil:
			return verdict{failures: []Failure{got.failure(at, fmt.Sprintf("a change is in no wave, want %s: %v", quote(want), err))}}
		case is != want:
			f := got.failure(at, fmt.Sprintf("a change is in wave %s, want %s", quote(is), quote(want)))
			f.Want, f.Got = want, is
			return verdict{failures: []Failure{f}, now: is, known: true}
		default:
			return verdict{now: is, known: true}
		}
	}}}
}

// expressionChecks verify that each CEL expression is true.
func (d *decoder) expressionChecks(at *value) []check {
	items := []value{*at}
	if _, single := at.is.(string); !single {
		items = at.items()
	}
	var checks []check
	for _, item := range items {
		x, ok := d.language.compile(&item)
		if !ok {
			continue
		}
		checks = append(checks, check{at: item, judge: func(at *value, got *arrival) verdict {
			holds, err := x.holds(got.variables())
			switch {
			case err != nil:
				return verdict{failures: []Failure{got.failure(at, x.line()+got.unevaluated(err))}}
			case holds:
				return verdict{}
			}
			f := got.failure(at, x.line()+" is false")
			for _, p := range x.places {
				if is, err := tree.Lookup(got.object(), p); err == nil {
					path := p.String()
					f.Where = append(f.Where, Found{Path: path, Value: got.shown(path, is), By: got.author(path)})
				}
			}
			return verdict{failures: []Failure{f}}
		}})
	}
	return checks
}
