package policies

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// mostAsked limits the pairs of kind and namespace that the authorizer checks for one write. Objects of further pairs
// are hidden.
const mostAsked = 20

// visibility decides which facts the author of a write may learn: only those about objects that the author may list.
// Findings about other objects would reveal their names, and perhaps their keys and values.
type visibility struct {
	ctx     context.Context //nolint:containedctx // A visibility is for one request.
	allowed Authorizer
	user    *authenticationv1.UserInfo
	within  string // The namespace of the written object; if empty, each check is for all namespaces at once.

	kinds map[string][]seen // By the name in findings.
	known map[seen]bool
}

// seen is a kind in a namespace.
type seen struct {
	kind      schema.GroupVersionKind
	namespace string
}

func (v *validator) visibility(ctx context.Context, w *write, sets ...*manifest.Set) *visibility {
	s := &visibility{ctx: ctx, allowed: v.Allowed, user: w.author, within: w.ref.Namespace, kinds: map[string][]seen{}, known: map[seen]bool{}}
	for _, set := range sets {
		for i := range set.Objects {
			o := set.Objects[i].Content
			name := (&render.Object{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}).String()
			s.kinds[name] = append(s.kinds[name], seen{o.GroupVersionKind(), o.GetNamespace()})
		}
	}
	return s
}

// seesAll reports whether the author may list all objects of the kinds that findings call by this name.
func (s *visibility) seesAll(name string) bool {
	kinds := s.kinds[name]
	for _, at := range kinds {
		if !s.lists(at) {
			return false
		}
	}
	return len(kinds) > 0
}

func (s *visibility) lists(at seen) bool {
	if s.within == "" {
		at.namespace = ""
	}
	may, asked := s.known[at]
	if asked || len(s.known) == mostAsked {
		return may
	}
	// The guess is wrong for resources with an irregular name; the author then may not list them.
	resource, _ := meta.UnsafeGuessKindToResource(at.kind)
	may, err := s.allowed(s.ctx, s.user, &authorizationv1.ResourceAttributes{
		Verb: "list", Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Namespace: at.namespace,
	})
	s.known[at] = may && err == nil
	return s.known[at]
}

// listsPolicy reports whether the author may list policies like this one.
func (s *visibility) listsPolicy(p *render.Policy) bool {
	gv := corev1alpha1.GroupVersion
	if p.Kind == refractv1alpha1.KindRolloutPolicy || p.Kind == refractv1alpha1.KindClusterRolloutPolicy {
		gv = refractv1alpha1.GroupVersion
	}
	return s.lists(seen{gv.WithKind(p.Kind), p.Namespace})
}

// seesRollout reports whether the author may list all objects of a rollout, and the policies that define it.
func (s *visibility) seesRollout(r *diff.Rollout) bool {
	for i := range r.Policies {
		if !s.listsPolicy(&r.Policies[i]) {
			return false
		}
	}
	hidden := func(o render.Object) bool { return !s.seesAll(o.String()) }
	return !slices.ContainsFunc(r.Objects, hidden) && !slices.ContainsFunc(r.Followers, hidden)
}

// of returns the finding with only those facts that the author may learn.
func (s *visibility) of(w *write, f *lint.Finding) *lint.Finding {
	told := *f
	hidden := false
	switch {
	case w.isAbout(f):
	case f.Object != nil:
		hidden = !s.seesAll(f.Object.String())
	case f.Policy != nil:
		hidden = !s.listsPolicy(f.Policy)
	}
	if hidden {
		told.Object, told.Policy, told.Field = nil, nil, ""
	}
	for _, name := range f.Objects {
		hidden = hidden || !s.seesAll(name)
	}
	if hidden {
		told.Message = fmt.Sprintf("%s in objects that you may not list: a user with this permission can run refract lint", f.Code)
		told.Hint, told.Objects = "", nil
	}
	return &told
}
