package policies

import (
	"context"
	"fmt"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/output"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/tree"
	"refract.dev/webhook/admission"
)

// deletion returns what the deletion of a policy does. To delete a policy is the way to roll it back, so nothing
// keeps anybody from that, be it that nothing can be said.
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
		return []string{fmt.Sprintf("what this does to the fleet is not known: %v", err)}
	case w.cluster(), !manifest.Understands(w.was.GroupVersionKind()):
		return nil
	}
	return v.ask(ctx, w, &manifest.Set{}).warnings
}

// deleted reports whether the object is deleted.
func (w *write) deleted() bool { return w.now == nil }

// adviseDeletion says what the deletion of a policy does to the fleet.
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
			" this policy: without it they stay on the clusters that have them, and come to no other"}}, nil
	}
	radius, rollouts, _, err := blastRadius(w, before, after, within(ctx))
	if err != nil || radius == "" {
		return &answer{}, err
	}
	said := []string{"what this policy overrides is taken back: that " + radius}
	return &answer{warnings: append(said, sayWaves(rollouts, v.visibility(ctx, w, before, after))...)}, nil
}

// approval says how the changes of placements are approved that a write brings about; empty if none waits.
func (w *write) approval(waits bool) string {
	const stay = "objects that wait for approval stay where they are"
	switch {
	case !waits:
		return ""
	case w.ref.Kind == corev1alpha1.KindPropagationPolicy:
		return fmt.Sprintf("%s until somebody runs: refract approve propagationpolicy/%s/%s", stay, w.ref.Namespace, w.ref.Name)
	case w.ref.Kind == corev1alpha1.KindClusterPropagationPolicy:
		return stay + " until somebody runs: refract approve clusterpropagationpolicy/" + w.ref.Name
	default:
		return stay + "; refract get names them, and what approves them"
	}
}
