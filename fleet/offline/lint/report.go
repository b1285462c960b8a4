package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
)

// report collects findings.
type report struct {
	findings []*Finding
	causes   map[string]*Finding
}

func (r *report) add(f *Finding) {
	r.findings = append(r.findings, f)
}

// once adds a finding. If an earlier finding has the same code and cause, it adds the place, objects and clusters to
// that one.
func (r *report) once(cause string, f *Finding) {
	if r.causes == nil {
		r.causes = map[string]*Finding{}
	}
	key := string(f.Code) + " " + cause
	first, ok := r.causes[key]
	if !ok {
		r.causes[key] = f
		r.add(f)
		return
	}
	if f.Place != first.Place && !slices.Contains(first.Also, f.Place) {
		first.Also = append(first.Also, f.Place)
	}
	first.Objects = union(first.Objects, f.Objects)
	first.Clusters = union(first.Clusters, f.Clusters)
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// sorted returns the findings by file, line and code.
func (r *report) sorted() []Finding {
	sorted := make([]Finding, len(r.findings))
	for i, f := range r.findings {
		slices.Sort(f.Clusters)
		sorted[i] = *f
	}
	slices.SortStableFunc(sorted, func(a, b Finding) int {
		return cmp.Or(
			strings.Compare(a.Place.File, b.Place.File), cmp.Compare(a.Place.Line, b.Place.Line),
			strings.Compare(string(a.Code), string(b.Code)),
			strings.Compare(a.Field, b.Field), strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message),
		)
	})
	return sorted
}

// subject is a manifest that findings concern.
type subject struct {
	object *render.Object
	policy *render.Policy
	at     func(field string) manifest.Place
}

// finding returns a finding at one of the manifest's fields; an empty field means the manifest as a whole.
func (s *subject) finding(code Code, field, format string, args ...any) *Finding {
	return &Finding{
		Code: code, Severity: explain(code).Severity, Place: s.at(field), Object: s.object, Policy: s.policy,
		Field: field, Message: fmt.Sprintf(format, args...),
	}
}

// hint adds a hint, unless there already is one.
func (f *Finding) hint(format string, args ...any) *Finding {
	if f.Hint == "" {
		f.Hint = fmt.Sprintf(format, args...)
	}
	return f
}

// on sets the affected objects and clusters.
func (f *Finding) on(objects, clusters []string) *Finding {
	f.Objects, f.Clusters = objects, clusters
	return f
}

// mean adds the hint that the most similar candidate may be meant, if there is one.
func (f *Finding) mean(name string, candidates []string) *Finding {
	if n := near(name, candidates); n != "" {
		return f.hint("did you mean %q?", n)
	}
	return f
}

// meanOf is [Finding.mean] and also lists the candidates: with short names, the most similar one may be wrong.
func (f *Finding) meanOf(name, what string, candidates []string) *Finding {
	if n := near(name, candidates); n != "" && len(candidates) > 1 {
		return f.hint("did you mean %q? The %s are %s", n, what, render.Few(candidates))
	}
	return f.mean(name, candidates).choices("the "+what+" are %s", candidates)
}

// choices adds a hint with all existing names, if there are any.
func (f *Finding) choices(format string, names []string) *Finding {
	if len(names) == 0 {
		return f
	}
	return f.hint(format, render.Few(names))
}

// near returns the most similar candidate, or one that differs from name only in the prefix, as label keys may; empty
// without one.
func near(name string, candidates []string) string {
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(c string) bool { return c == name })
	if n := nearest.To(name, candidates); n != "" {
		return n
	}
	_, last := cutPrefix(name)
	for _, c := range candidates {
		if _, l := cutPrefix(c); strings.EqualFold(l, last) {
			return c
		}
	}
	return ""
}

// cutPrefix cuts a label key at its slash.
func cutPrefix(key string) (prefix, name string) {
	slash := strings.LastIndexByte(key, '/')
	return key[:slash+1], key[slash+1:]
}
