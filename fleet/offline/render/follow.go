package render

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/podtemplate"
)

// followers are the relations between leaders and their followers: a follower travels with each of its leaders.
type followers struct {
	// could has the objects of the set that can follow others.
	could map[manifest.Identity]bool
	// collecting is true while the followers of each object are collected. During that time, the evaluation of an
	// object ignores its own leaders.
	collecting bool
	// leads are the leaders of each object.
	leads map[manifest.Identity][]followed
	// stays has, for each leader, the clusters where its former followers stay, because the leader stays there. blocked
	// has the leaders whose former followers stay on all clusters.
	stays   map[leader][]string
	blocked map[leader]bool
	// outcomes are the outcomes of leaders.
	outcomes map[leader]*Outcome
	// plurals are the resources of kinds that CustomResourceDefinitions of the set define.
	plurals map[schema.GroupKind]string
}

// leader names an object that others follow.
type leader struct {
	namespace string
	refractv1alpha1.FollowedObject
}

// followed is a leader of an object, with the clusters to which the object travels with it.
type followed struct {
	by       refractv1alpha1.FollowedObject
	clusters []string // Unsorted, possibly with duplicates.
}

func newFollowers(set *manifest.Set) *followers {
	f := &followers{
		could:   map[manifest.Identity]bool{},
		leads:   map[manifest.Identity][]followed{},
		stays:   map[leader][]string{},
		blocked: map[leader]bool{}, outcomes: map[leader]*Outcome{},
		plurals: map[schema.GroupKind]string{},
	}
	for i := range set.Definitions {
		content := set.Definitions[i].Content.Object
		group, _, _ := unstructured.NestedString(content, "spec", "group")
		kind, _, _ := unstructured.NestedString(content, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(content, "spec", "names", "plural")
		f.plurals[schema.GroupKind{Group: group, Kind: kind}] = plural
	}
	for i := range set.Objects {
		o := &set.Objects[i]
		if id := o.Identity(); id.Namespace != "" && placement.Follows(id.GroupKind) && placement.Native(f.resource(id.GroupKind), o.Content) == "" {
			f.could[id] = true
		}
	}
	return f
}

// objects evaluates the chosen objects. First it evaluates all objects that may be leaders of chosen ones.
func (e *evaluator) objects(set *manifest.Set, chosen func(*manifest.Object) bool) (err error) {
	e.followers = newFollowers(set)
	is := make([]bool, len(set.Objects))
	namespaces := map[string]bool{} // The namespaces of chosen objects that can follow others.
	for i := range set.Objects {
		o := &set.Objects[i]
		if is[i] = chosen == nil || chosen(o); is[i] && e.followers.could[o.Identity()] {
			namespaces[o.Content.GetNamespace()] = true
		}
	}
	outcomes := make([]*Outcome, len(set.Objects))
	e.followers.collecting = true
	for i := range set.Objects {
		if o := &set.Objects[i]; namespaces[o.Content.GetNamespace()] && mayHaveFollowers(o) {
			e.quiet = !is[i]
			if outcomes[i], err = e.object(o); err != nil {
				return err
			}
			e.addFollowers(outcomes[i])
		}
	}
	e.followers.collecting, e.quiet = false, false
	for i := range set.Objects {
		o := &set.Objects[i]
		if !is[i] {
			continue
		}
		if outcomes[i] == nil || e.followers.could[o.Identity()] {
			if outcomes[i], err = e.object(o); err != nil {
				return err
			}
		}
		e.out.byID[outcomes[i].ID] = len(e.out.Outcomes)
		e.out.Outcomes = append(e.out.Outcomes, *outcomes[i])
	}
	return nil
}

// mayHaveFollowers reports whether an object can have followers.
func mayHaveFollowers(o *manifest.Object) bool {
	keeping, _ := placement.KeepingOf(o.Content.GetAnnotations())
	if keeping.DisableFollowing {
		return false
	}
	_, labelled, _, _ := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace()) //nolint:dogsled // Mistakes are found later.
	return (labelled || keeping.DryRun) && (len(keeping.Followers) > 0 || !placement.Follows(o.Content.GroupVersionKind().GroupKind()))
}

// addFollowers adds the followers of an object to the relations.
func (e *evaluator) addFollowers(o *Outcome) {
	if o.Gone != "" {
		return
	}
	resource := e.followers.resource(o.ID.GroupKind).String()
	by := leader{namespace: o.ID.Namespace, FollowedObject: refractv1alpha1.FollowedObject{Resource: resource, Name: o.ID.Name}}
	if o.Held != "" || (len(o.Variants) == 0 && len(o.errors) > 0) {
		e.followers.blocked[by] = true
		return
	}
	if !o.leads {
		return
	}
	clusters := map[manifest.Identity][]string{}
	take := func(group, kind, name string, to []int) {
		id := manifest.Identity{GroupKind: schema.GroupKind{Group: group, Kind: kind}, Namespace: o.ID.Namespace, Name: name}
		if !e.followers.could[id] || id == o.ID {
			return
		}
		for _, c := range to {
			clusters[id] = append(clusters[id], o.Clusters[c].Name)
		}
	}
	for i := range o.Variants {
		v := &o.Variants[i]
		for _, c := range o.companions {
			take(c.Group, c.Kind, c.Name, v.Clusters)
		}
		if v.Err != nil {
			for _, c := range v.Clusters {
				e.followers.stays[by] = append(e.followers.stays[by], o.Clusters[c].Name)
			}
			continue
		}
		for _, ref := range podtemplate.References(v.Object) {
			take(ref.Group, ref.Kind, ref.Name, v.Clusters)
		}
	}
	for id, names := range clusters {
		e.followers.leads[id] = append(e.followers.leads[id], followed{by: by.FollowedObject, clusters: names})
		e.followers.outcomes[by] = o
	}
}

// of returns the outcomes of leaders.
func (f *followers) of(namespace string, leaders []refractv1alpha1.FollowedObject) (all []*Outcome) {
	for _, by := range leaders {
		if o := f.outcomes[leader{namespace, by}]; o != nil {
			all = append(all, o)
		}
	}
	return all
}

// resource returns the resource of a kind.
func (f *followers) resource(kind schema.GroupKind) schema.GroupResource {
	if plural := f.plurals[kind]; plural != "" {
		return schema.GroupResource{Group: kind.Group, Resource: plural}
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	return guess.GroupResource()
}

// with returns the leaders of an object and the clusters where it follows them, each sorted.
func (f *followers) with(id manifest.Identity, was previous) (by []refractv1alpha1.FollowedObject, clusters []string) {
	if f.collecting || !f.could[id] {
		return nil, nil
	}
	for _, l := range f.leads[id] {
		by = append(by, l.by)
		clusters = append(clusters, l.clusters...)
	}
	for _, before := range was.following {
		at := leader{namespace: id.Namespace, FollowedObject: before}
		there := was.placed.names
		if !f.blocked[at] {
			failing := f.stays[at]
			there = slices.DeleteFunc(slices.Clone(there), func(name string) bool { return !slices.Contains(failing, name) })
		}
		if len(there) > 0 {
			by = append(by, before)
			clusters = append(clusters, there...)
		}
	}
	slices.SortFunc(by, func(a, b refractv1alpha1.FollowedObject) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	})
	slices.Sort(clusters)
	return slices.Compact(by), slices.Compact(clusters)
}
