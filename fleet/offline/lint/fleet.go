package lint

import (
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// fleet is the information about the input. It is gathered once, and each check gets the part that it needs.
type fleet struct {
	set        *manifest.Set
	lost       *lost
	policies   *policies
	clusters   *clusters
	outcomes   []render.Outcome
	types      *types
	injections *injections
	// ended reports whether the caller has canceled the lint. Long checks call it repeatedly, and may then end with
	// only a part of their findings.
	ended func() bool
}

// gather returns the error of the callback each, if there is one.
func gather(set *manifest.Set, problems []*manifest.Problem, each func(*render.Outcome) error) (*fleet, error) {
	ended := func() bool { return each(nil) != nil }
	f := &fleet{set: set, lost: lostIn(problems), policies: policiesOf(set), ended: ended}
	if err := f.evaluate(each); err != nil {
		return nil, err
	}
	f.types = typesOf(set.Objects, f.outcomes, f.ended)
	if err := each(nil); err != nil {
		return nil, err
	}
	observe(f.outcomes, f.policies, f.types, f.ended)
	f.injections = injectionsOf(set)
	return f, nil
}

// evaluate computes the outcomes of the objects. It returns the error of the callback each.
func (f *fleet) evaluate(each func(*render.Outcome) error) error {
	var ended error
	options := render.Options{Each: func(o *render.Outcome) error {
		ended = each(o)
		return ended
	}}
	known := len(f.set.Clusters) > 0
	if !known {
		options.Clusters = f.policies.clustersNamed()
	}
	e, err := render.Evaluate(f.set, options)
	if err != nil { // If the error does not come from the callback, the fleet has no known clusters.
		f.clusters = clustersOf(nil, known)
		return ended
	}
	f.clusters, f.outcomes = clustersOf(e.Clusters, known), e.Outcomes
	return nil
}

// subjectOf returns an object as the subject of findings.
func subjectOf(o *manifest.Object) *subject {
	return &subject{object: objectOf(o), at: o.At}
}

func objectOf(o *manifest.Object) *render.Object {
	c := o.Content
	return &render.Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
}
