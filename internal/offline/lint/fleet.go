package lint

import (
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
)

// fleet is what is known of the input. It is gathered once; each check is given
// what it is about.
type fleet struct {
	set        *manifest.Set
	lost       *lost
	policies   *policies
	clusters   *clusters
	outcomes   []render.Outcome
	types      *types
	injections *injections
	// ended reports whether nobody waits for the result any more. What takes long asks it
	// again and again, and may end with half of its findings then.
	ended func() bool
}

// gather returns the error of each, if that has one.
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

// evaluate finds out what becomes of the objects. Its error is that of each.
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
	if err != nil { // If it is not that of each, there is no cluster that anything could be said of.
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
