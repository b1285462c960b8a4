package policies

import (
	"context"
	"fmt"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/output"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
	"refract.dev/tree"
)

// deletion returns warnings about the effects of the deletion of a policy. Deleting a policy is the way to roll it
// back, so it is always allowed, even if the effects are unknown.
func (v *validator) deletion(ctx context.Context, req *admission.Request) []string {
	if req.SubResource != "" || v.Fleet == nil || len(req.OldObject) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, v.Patience, bounded.ErrTooLong)
	defer cancel()
	var w *write
	err := v.reading.Read(limited, req, func() error {
		was, err := decode(req.OldObject)
		if err != nil {
			return fmt.Errorf("reading the object: %w", err)
		}
		w = &write{was: was, author: &req.UserInfo, weight: bounded.Weight(req)}
		w.ref = tree.Policy{Kind: was.GetKind(), Namespace: was.GetNamespace(), Name: was.GetName()}
		w.id = manifest.Identity{GroupKind: was.GroupVersionKind().GroupKind(), Namespace: w.ref.Namespace, Name: w.ref.Name}
		return nil
	})
	switch {
	case err != nil:
		return []string{fmt.Sprintf("the effect on the fleet is not known: %v", err)}
	case w.cluster(), !manifest.Understands(w.was.GroupVersionKind()):
		return nil
	}
	return v.ask(ctx, w, &manifest.Set{}).warnings
}

// deleted reports whether the write is a deletion.
func (w *write) deleted() bool { return w.now == nil }

// adviseDeletion describes the effects of the deletion of a policy on the fleet.
func (v *validator) adviseDeletion(ctx context.Context, w *write, before, after *manifest.Set, _ []*manifest.Problem) (*answer, error) {
	users := 0
	for i := range before.Objects {
		if slices.Contains(namedBy(&before.Objects[i]), w.ref) {
			users++
		}
	}
	if users == 0 {
		return &answer{}, nil
	}
	if !w.overrides() {
		return &answer{warnings: []string{output.Count(users, "object names", "objects name") +
			" this policy: without it they stay on their clusters, and are not placed on others"}}, nil
	}
	radius, rollouts, _, err := blastRadius(w, before, after, within(ctx))
	if err != nil || radius == "" {
		return &answer{}, err
	}
	said := []string{"the overrides of this policy are reverted: this " + radius}
	return &answer{warnings: append(said, sayWaves(rollouts, v.visibility(ctx, w, before, after))...)}, nil
}

// approval describes how to approve the changed placements of a write; empty if no change waits.
func (w *write) approval(waits bool) string {
	const stay = "objects that wait for approval stay where they are"
	switch {
	case !waits:
		return ""
	case w.ref.Kind == corev1alpha1.KindPropagationPolicy:
		return fmt.Sprintf("%s; to approve: refract approve propagationpolicy/%s/%s", stay, w.ref.Namespace, w.ref.Name)
	case w.ref.Kind == corev1alpha1.KindClusterPropagationPolicy:
		return stay + "; to approve: refract approve clusterpropagationpolicy/" + w.ref.Name
	default:
		return stay + "; refract get shows them and how to approve them"
	}
}
