package crd

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/fleet/offline/manifest"
)

// Validate checks objects as an API server does before it stores them: it decodes each object, which finds unknown
// fields, and validates it. If old has an object of the same kind, namespace and name, the object is checked as an
// update. A status with an endpoint of its own is not checked, because a create drops it and an update keeps the old
// one. The problems are about objects that cannot be compared with their old ones, and about old objects that occur
// twice.
func Validate(objects, old []Object) (*Report, []*manifest.Problem) {
	r := &Report{Findings: []Finding{}, one: "object", many: "objects"}
	var problems []*manifest.Problem
	before := make(map[[4]string]*Object, len(old))
	for i := range old {
		o := &old[i]
		if first, ok := before[o.id()]; ok {
			problems = append(problems, problem(&o.Document, "", fmt.Sprintf("is there already, at %s", first.Document.Place), ""))
			continue
		}
		before[o.id()] = o
	}
	for i := range objects {
		findings, err := objects[i].validate(before[objects[i].id()])
		if err != nil {
			problems = append(problems, problem(&objects[i].Document, "", err.Error(), hintOf(err)))
			continue
		}
		r.add(&objects[i].Document, findings)
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Kind, f.Namespace, f.Name, f.File = f.object.Kind, f.object.Namespace, f.object.Name, filepath.ToSlash(f.place.File)
	}
	return r, problems
}

// errConvert means that the version of the new object requires a conversion of the old object by a webhook.
var errConvert = errors.New("a webhook would convert it")

func hintOf(err error) string {
	if errors.Is(err, errConvert) {
		return "give the old object in the version of the new one"
	}
	return ""
}

// validate checks one object. old may be nil.
func (o *Object) validate(old *Object) ([]structural.Finding, error) {
	if !o.Version.Served() {
		return []structural.Finding{pipeline.NotServed(o.Version)}, nil
	}
	decoded, err := o.Version.Decode(o.sent())
	if err != nil {
		malformed := structural.Finding{Message: err.Error(), Severity: structural.Error, Rule: pipeline.RuleMalformed}
		return []structural.Finding{malformed}, nil //nolint:nilerr // The error is a finding.
	}
	findings := pipeline.Unknown(decoded)
	if old == nil {
		return append(findings, o.Version.Validate(pipeline.Prepared(o.Version, decoded.Object, nil))...), nil
	}
	was, err := old.as(o.Version)
	if err != nil {
		return nil, fmt.Errorf("reading the old object, at %s: %w", old.Document.Place, err)
	}
	return append(findings, o.Version.ValidateUpdate(pipeline.Prepared(o.Version, decoded.Object, was), was)...), nil
}

// as returns an old object as an API server would return it in this version.
func (o *Object) as(version *structural.Version) (map[string]any, error) {
	stored, err := o.Version.Decode(o.sent())
	if err != nil {
		return nil, err
	}
	if o.Version.Name() == version.Name() {
		return stored.Object, nil
	}
	if strategy := ConversionOf(&o.Definition.Document).Strategy; strategy != "None" {
		return nil, fmt.Errorf("it is %s, not %s: %w", o.Version.Name(), version.Name(), errConvert)
	}
	relabelled := maps.Clone(stored.Object)
	relabelled["apiVersion"] = version.APIVersion()
	pruned, err := version.Prune(relabelled)
	if err != nil {
		return nil, err
	}
	return pruned.Object, nil
}

// New returns the objects that have no old object of the same kind, namespace and name.
func New(objects, old []Object) []*Object {
	before := make(map[[4]string]bool, len(old))
	for i := range old {
		before[old[i].id()] = true
	}
	var created []*Object
	for i := range objects {
		if !before[objects[i].id()] {
			created = append(created, &objects[i])
		}
	}
	return created
}
