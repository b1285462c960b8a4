package lint

import (
	"regexp"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/offline/schema"
)

// kinds of problems, by what their facts say. The first that fits counts.
var problemCodes = []struct {
	code Code
	fits func(p *manifest.Problem) bool
}{
	{SyntaxError, says("is not valid YAML", "is not valid JSON")},
	{UnknownField, says("there is no such field")},
	{DuplicateField, says("is set twice")},
	{DuplicateObject, says("is there already")},
	{ProtectedField, says("may not be overridden")},
	{InvalidImage, says("is not a valid Registry", "is not a valid Repository", "is not a valid Tag", "is not a valid Digest")},
	{InvalidPolicy, func(p *manifest.Problem) bool {
		return isPolicy(p.Kind) && strings.HasPrefix(p.Field, "spec")
	}},
}

// isPolicy reports whether a kind is one of our policies.
func isPolicy(kind string) bool {
	return kind == refractv1beta1.KindServiceInjectionPolicy || (slices.Contains(ourKinds, kind) && kind != corev1alpha1.KindFederatedCluster)
}

func says(facts ...string) func(*manifest.Problem) bool {
	return func(p *manifest.Problem) bool {
		return slices.ContainsFunc(facts, func(fact string) bool { return strings.Contains(p.Fact, fact) })
	}
}

// problems reports what is wrong with the input as it stands.
func (r *report) problems(problems []*manifest.Problem) {
	for _, p := range withoutEmpty(problems) {
		code := InvalidManifest
		for _, c := range problemCodes {
			if c.fits(p) {
				code = c.code
				break
			}
		}
		f := &Finding{Code: code, Severity: explain(code).Severity, Place: p.Place, Field: p.Field, Message: p.Fact, Hint: p.Hint}
		if f.Hint == "" {
			f.Hint = unescaped(p.Fact)
		}
		switch {
		case p.Kind == "" && p.Name == "":
		case isPolicy(p.Kind):
			f.Policy = &render.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
		default:
			f.Object = &render.Object{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
		}
		r.add(f)
	}
}

// withoutEmpty returns the problems with one for each document that has nothing of
// what every object has, in the place of one for each thing that it lacks.
func withoutEmpty(problems []*manifest.Problem) []*manifest.Problem {
	type document struct {
		file   string
		number int
	}
	of := func(p *manifest.Problem) document { return document{p.Place.File, p.Place.Document} }
	lacks := map[document]int{}
	nothing := func(p *manifest.Problem) bool { return p.Kind == "" && p.Name == "" && p.Fact == schema.IsMissing }
	for _, p := range problems {
		if nothing(p) {
			lacks[of(p)]++
		}
	}
	var kept []*manifest.Problem
	said := map[document]bool{}
	for _, p := range problems {
		if d := of(p); nothing(p) && lacks[d] == 3 { // apiVersion, kind and metadata.name.
			if said[d] {
				continue
			}
			said[d] = true
			p = &manifest.Problem{Place: p.Place, Fact: "has no apiVersion, kind and metadata.name"}
		}
		kept = append(kept, p)
	}
	return kept
}

// inside is a path that goes into a label or an annotation, as keys with a slash
// do that is not escaped.
var inside = regexp.MustCompile(`(/metadata/(?:labels|annotations)/)([^/ ]+/[^ ":]+)`)

// unescaped returns how to write the path that a fact says goes inside a value of
// a map; nothing if it is about something else.
func unescaped(fact string) string {
	found := inside.FindStringSubmatch(fact)
	if found == nil || !strings.Contains(fact, "go inside") {
		return ""
	}
	return "write the slash of a key as ~1: " + found[1] + strings.ReplaceAll(found[2], "/", "~1")
}
