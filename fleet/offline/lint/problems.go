package lint

import (
	"regexp"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/offline/schema"
)

// problemCodes are the codes of problems, by the text of their facts. The first match counts.
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

// isPolicy reports whether a kind is one of Refract's policies.
func isPolicy(kind string) bool {
	return kind == refractv1beta1.KindServiceInjectionPolicy || (slices.Contains(ourKinds, kind) && kind != corev1alpha1.KindFederatedCluster)
}

func says(facts ...string) func(*manifest.Problem) bool {
	return func(p *manifest.Problem) bool {
		return slices.ContainsFunc(facts, func(fact string) bool { return strings.Contains(p.Fact, fact) })
	}
}

// problems reports the problems of reading the input.
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

// withoutEmpty merges the problems of a document that has neither apiVersion nor kind nor metadata.name: one problem
// replaces the three.
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

// inside matches a path into a single label or annotation. It finds paths in which a slash of the key is not escaped.
var inside = regexp.MustCompile(`(/metadata/(?:labels|annotations)/)([^/ ]+/[^ ":]+)`)

// unescaped returns advice for a fact that names such a path, with the escaped path; empty for other facts.
func unescaped(fact string) string {
	found := inside.FindStringSubmatch(fact)
	if found == nil || !strings.Contains(fact, "go inside") {
		return ""
	}
	return "write the slash of a key as ~1: " + found[1] + strings.ReplaceAll(found[2], "/", "~1")
}
