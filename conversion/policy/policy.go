package policy

import (
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
)

// Policy is a ConversionPolicySpec that was compiled for the versions of a definition. It is immutable, and safe for
// concurrent use.
type Policy struct {
	resource convert.Resource
	versions []string
	spokes   []*spoke
	// placed has the entries between two versions. They are computed on demand.
	placed map[[2]string]func() []placed
}

// Compile compiles a spec for a definition. It keeps no reference to spec, and modifies neither argument. The findings
// are in the order of [structural.Sort]; nil means no findings. Their paths are paths in the policy, such as
// spec.spokes[0].fields[2].toHub. If a finding is an error, the Policy is nil, because its conversions would lose
// values.
func Compile(spec *refractv1alpha1.ConversionPolicySpec, def *structural.Definition) (*Policy, []structural.Finding) {
	spec = spec.DeepCopy()
	r := &report{}
	if r.excessive(spec); r.failed() {
		return nil, structural.Sort(r.findings)
	}
	if !r.versions(spec, def) {
		return nil, structural.Sort(r.findings)
	}
	p := &Policy{
		resource: convert.Resource{Group: def.Group(), Kind: def.Kind(), Hub: spec.Hub},
		versions: []string{spec.Hub},
	}
	if spec.OnError == refractv1alpha1.ConversionKeep {
		p.resource.OnError = convert.Keep
	}
	hub := schemaOf(def, spec.Hub)
	for i := range spec.Spokes {
		s := compileSpoke(i, spec, [2]*schema.Structural{onSpoke: schemaOf(def, spec.Spokes[i].Version), onHub: hub})
		if !s.failed() {
			p.resource.Spokes = append(p.resource.Spokes, s.resource(def.Group(), def.Kind()))
		}
		p.versions = append(p.versions, s.version())
		p.spokes = append(p.spokes, s)
		r.findings = append(r.findings, s.findings...)
	}
	if r.failed() {
		return nil, structural.Sort(r.findings)
	}
	for _, s := range p.spokes {
		s.index()
	}
	p.placed = map[[2]string]func() []placed{}
	for _, version := range p.versions {
		for _, other := range p.versions {
			p.placed[[2]string{version, other}] = sync.OnceValue(func() []placed { return p.place(version, other) })
		}
	}
	return p, structural.Sort(r.findings)
}

// schemaOf returns the schema of an existing version.
func schemaOf(def *structural.Definition, version string) *schema.Structural {
	v, err := def.Version(version)
	if err != nil {
		return anything
	}
	return v.Structural()
}

// Resource returns the conversions in the form for [convert.New].
func (p *Policy) Resource() convert.Resource { return p.resource }

// Hub returns the hub: all conversions go through this version.
func (p *Policy) Hub() string { return p.versions[0] }

// Versions returns the hub, followed by the spokes in the order of the policy. Callers must not modify the slice.
func (p *Policy) Versions() []string { return p.versions }
