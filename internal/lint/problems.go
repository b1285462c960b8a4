package lint

import (
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/manifest"
	"refract.dev/internal/render"
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
		return slices.Contains(ourKinds, p.Kind) && p.Kind != corev1alpha1.KindFederatedCluster && strings.HasPrefix(p.Field, "spec")
	}},
}

func says(facts ...string) func(*manifest.Problem) bool {
	return func(p *manifest.Problem) bool {
		return slices.ContainsFunc(facts, func(fact string) bool { return strings.Contains(p.Fact, fact) })
	}
}

// problems reports what is wrong with the input as it stands.
func (r *report) problems(problems []*manifest.Problem) {
	for _, p := range problems {
		code := InvalidManifest
		for _, c := range problemCodes {
			if c.fits(p) {
				code = c.code
				break
			}
		}
		f := &Finding{Code: code, Severity: explain(code).Severity, Place: p.Place, Field: p.Field, Message: p.Fact, Hint: p.Hint}
		switch {
		case p.Kind == "" && p.Name == "":
		case strings.HasSuffix(p.Kind, "Policy") && slices.Contains(ourKinds, p.Kind):
			f.Policy = &render.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
		default:
			f.Object = &render.Object{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
		}
		r.add(f)
	}
}
