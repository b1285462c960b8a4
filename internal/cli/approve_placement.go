package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/status"
	"refract.dev/internal/output"
)

// Errors of an approval of a placement.
var (
	errNothingWaits = errors.New("no change of a placement waits for approval")
	errNotAskedYet  = errors.New("the controllers have not requested approval of the change yet")
	errAskedAnew    = errors.New("another change waits for approval now, and nothing was approved")
)

// heldPlacements are placement changes that one approval covers.
type heldPlacements struct {
	name    string        // The name of the policy or object.
	asks    client.Object // The policy or Propagation that requests the approval, and gets the annotation.
	objects []*status.Object
	later   int // The number of objects whose change needs another approval after this one.
}

// runPlacement approves a placement change: for all objects of a policy, or for one object.
func (o *approveOptions) runPlacement(ctx context.Context, s *streams, text string) error {
	r, err := parseReference(text)
	if err != nil {
		return err
	}
	c, err := hubClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	held, err := findHeld(ctx, c, &r)
	switch {
	case errors.Is(err, errNotAskedYet):
		return withHint(fmt.Errorf("%s: %w", text, err), "try again in a few seconds")
	case errors.Is(err, errNothingWaits):
		return withHint(fmt.Errorf("%s: %w", text, err), "refract get shows the status")
	case err != nil:
		return err
	}
	token, objects := askedBy(held.asks)
	if held.asks.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation] == token {
		fmt.Fprintf(s.err, "the change of %s is approved already\n", held.name)
		return nil
	}
	fmt.Fprintf(s.out, "%s for the approval of %s:\n", output.Count(objects, "object waits", "objects wait"), held.name)
	held.write(s.out)
	if unsaid := objects - len(held.objects); unsaid > 0 {
		fmt.Fprintf(s.out, "and %s without an up-to-date report\n", output.Count(unsaid, "object", "objects"))
	}
	if !o.yes {
		switch yes, err := confirm(s, "Approve the change?"); {
		case err != nil:
			return err
		case !yes:
			fmt.Fprintln(s.err, "nothing was approved")
			return nil
		}
	}
	if err := held.approve(ctx, c, token); err != nil {
		if errors.Is(err, errAskedAnew) {
			err = withHint(err, "run again: refract approve "+text)
		}
		return err
	}
	fmt.Fprintln(s.err, "approved; refract get shows the progress")
	if held.later > 0 {
		fmt.Fprintf(s.err, "%s later: approve again when this change is done\n", output.Count(held.later, "object was held", "objects were held"))
	}
	return nil
}

// approve sets the annotation on the policy or Propagation, if it still requests an approval with this token.
func (h *heldPlacements) approve(ctx context.Context, c client.Client, token string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(h.asks), h.asks); err != nil {
			return fmt.Errorf("reading %s: %w", h.name, err)
		}
		if now, _ := askedBy(h.asks); now != token {
			return fmt.Errorf("%s: %w", h.name, errAskedAnew)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": h.asks.GetResourceVersion(), "annotations": map[string]any{refractv1alpha1.ApprovePlacementAnnotation: token},
		}})
		if err != nil {
			return err
		}
		if err := c.Patch(ctx, h.asks, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("annotating %s: %w", h.name, err)
		}
		return nil
	})
}

// askedBy returns the token for an approval, and the number of objects that the approval covers. obj is a policy or the
// Propagation of an object. If it requests no approval, the result is empty.
func askedBy(obj client.Object) (token string, objects int) {
	var held *corev1alpha1.PlacementHeld
	switch policy := obj.(type) {
	case *corev1alpha1.PropagationPolicy:
		held = policy.Status.PlacementHeld
	case *corev1alpha1.ClusterPropagationPolicy:
		held = policy.Status.PlacementHeld
	default:
		if object, ok := status.ObjectOf(obj); ok && object.Status.Held != nil {
			return object.Status.Held.Token, 1
		}
	}
	if held == nil {
		return "", 0
	}
	return held.Token, int(held.Objects)
}

// findHeld finds the changes that wait for the approval of a policy or of one object.
func findHeld(ctx context.Context, c client.Client, r *reference) (*heldPlacements, error) {
	source := status.Propagations(r.namespace)
	policy := policyMeant(r)
	switch {
	case policy == corev1alpha1.KindPropagationPolicy && r.namespace == "":
		return nil, withHint(errors.New("a PropagationPolicy has a namespace"), "name it as propagationpolicy/NAMESPACE/NAME")
	case policy == corev1alpha1.KindClusterPropagationPolicy && r.namespace != "":
		return nil, withHint(errors.New("a ClusterPropagationPolicy has no namespace"), "name it as clusterpropagationpolicy/NAME")
	}
	sources := []status.Source{source}
	if r.namespace == "" {
		sources = append(sources, status.ClusterPropagations()) // It also has the objects without a namespace.
	}
	if policy == "" && r.namespace == "" {
		sources = sources[1:]
	}
	records, err := status.List(ctx, c, sources...)
	if err != nil {
		return nil, explainHub(err)
	}
	held := &heldPlacements{}
	if policy != "" {
		if held, err = policyAsking(ctx, c, policy, r); err != nil {
			return nil, err
		}
	}
	asks, waiting := "", 0
	if held.asks != nil {
		asks, _ = askedBy(held.asks)
	}
	for _, record := range records {
		object, ok := status.ObjectOf(record)
		if !ok || object.Status.Held == nil {
			continue
		}
		by := object.Status.PropagationPolicy
		switch {
		case policy == "" && r.means(object):
			waiting++
			held.name, held.asks = object.String(), record
			held.objects = append(held.objects, object)
		case policy == "" || by == nil || by.Kind != policy || by.Namespace != r.namespace || by.Name != r.name:
		case asks != "" && object.Status.Held.PolicyToken == asks:
			waiting++
			held.objects = append(held.objects, object)
		default:
			waiting++
			held.later++
		}
	}
	answered := ""
	if held.asks != nil {
		asks, _ = askedBy(held.asks)
		answered = held.asks.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation]
	}
	switch {
	case waiting > 0 && (asks == "" || asks == answered && len(held.objects) == 0): // The next approval is not requested yet.
		return nil, errNotAskedYet
	case waiting == 0:
		return nil, errNothingWaits
	}
	held.objects = status.NewObjects(held.objects).Objects
	return held, nil
}

// policyAsking reads a policy.
func policyAsking(ctx context.Context, c client.Client, kind string, r *reference) (*heldPlacements, error) {
	held := &heldPlacements{asks: &corev1alpha1.ClusterPropagationPolicy{}, name: strings.ToLower(kind) + "/" + r.name}
	if kind == corev1alpha1.KindPropagationPolicy {
		held.asks, held.name = &corev1alpha1.PropagationPolicy{}, strings.ToLower(kind)+"/"+r.namespace+"/"+r.name
	}
	if err := c.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: r.name}, held.asks); err != nil {
		return nil, fmt.Errorf("reading %s: %w", held.name, err)
	}
	return held, nil
}

// policyMeant returns the kind of the policy that r refers to; empty if r refers to another object.
func policyMeant(r *reference) string {
	for _, kind := range []string{corev1alpha1.KindPropagationPolicy, corev1alpha1.KindClusterPropagationPolicy} {
		if r.matchesKind(strings.ToLower(kind)) && (r.anyGroup || r.group == corev1alpha1.GroupVersion.Group) {
			return kind
		}
	}
	return ""
}

// write lists the waiting changes. Objects with the same change are listed together.
func (h *heldPlacements) write(w io.Writer) {
	changes := map[string][]*status.Object{}
	for _, o := range h.objects {
		of := max(int(o.Status.Placed), len(o.Status.Held.Leaves))
		change := (&placement.Hold{Of: of, Leaves: o.Status.Held.Leaves, Joins: o.Status.Held.Joins}).String()
		changes[change] = append(changes[change], o)
	}
	for _, change := range slices.Sorted(maps.Keys(changes)) {
		fmt.Fprintf(w, "%s\n", change)
		writeGrouped(w, changes[change])
	}
}
