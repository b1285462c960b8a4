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
	"refract.dev/internal/offline/diff"
	"refract.dev/internal/offline/lint"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
)

// mostAsked is how many kinds in namespaces the authorizer is asked about for one write.
// What is beyond is not told.
const mostAsked = 20

// visibility is what the author of a write may be told of: objects that he may list. What is
// found out about others tells their names, and perhaps their keys and values.
type visibility struct {
	ctx     context.Context //nolint:containedctx // It is for one request, like the visibility.
	allowed Authorizer
	user    *authenticationv1.UserInfo
	within  string // The namespace of what is written; if empty, all namespaces are asked about at once.

	kinds map[string][]seen // Of objects, by what findings call them.
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

// seesAll reports whether the author may list all objects that a finding calls so.
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
	// A resource that is called in another way than most is one that he may not list.
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

// seesRollout reports whether the author may list all that go out in the same way, and the
// policies that say so.
func (s *visibility) seesRollout(r *diff.Rollout) bool {
	for i := range r.Policies {
		if !s.listsPolicy(&r.Policies[i]) {
			return false
		}
	}
	hidden := func(o render.Object) bool { return !s.seesAll(o.String()) }
	return !slices.ContainsFunc(r.Objects, hidden) && !slices.ContainsFunc(r.Followers, hidden)
}

// of returns what the author may be told of a finding.
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
		told.Message = fmt.Sprintf("%s in what you may not list: have somebody who may run refract lint", f.Code)
		told.Hint, told.Objects = "", nil
	}
	return &told
}
