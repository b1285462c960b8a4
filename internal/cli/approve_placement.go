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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
	"refract.dev/internal/status"
	"refract.dev/placement"
)

// errNothingWaits is that no placement waits for approval.
var errNothingWaits = errors.New("no change of a placement waits for approval")

// heldPlacements are changes of placements that are approved together.
type heldPlacements struct {
	name     string        // What is approved.
	annotate client.Object // What says so.
	objects  []*status.Object
}

// runPlacement approves the change of a placement: of all objects of a policy, or of one object.
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
	if err != nil {
		return err
	}
	number, err := held.number()
	if err != nil {
		return withHint(fmt.Errorf("%s: %w", text, err), "refract get says how it stands")
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(held.annotate), held.annotate); err != nil {
		return fmt.Errorf("reading %s: %w", held.name, err)
	}
	if held.annotate.GetAnnotations()[refractv1alpha1.ApprovePlacementAnnotation] == number {
		fmt.Fprintf(s.err, "the change of %s is approved already\n", held.name)
		return nil
	}
	fmt.Fprintf(s.out, "%s for the approval of %s, number %s:\n", output.Count(len(held.objects), "object waits", "objects wait"), held.name, number)
	held.write(s.out)
	if !o.yes {
		switch yes, err := confirm(s, "Go on with the change?"); {
		case err != nil:
			return err
		case !yes:
			fmt.Fprintln(s.err, "nothing was approved")
			return nil
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{refractv1alpha1.ApprovePlacementAnnotation: number}}})
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, held.annotate, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotating %s: %w", held.name, err)
	}
	fmt.Fprintln(s.err, "approved; refract get says how it goes")
	return nil
}

// findHeld finds what waits: by a policy, or by the object itself.
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
		sources = append(sources, status.ClusterPropagations()) // Objects without a namespace, and with any.
	}
	if policy == "" && r.namespace == "" {
		sources = sources[1:]
	}
	records, err := status.List(ctx, c, sources...)
	if err != nil {
		return nil, explainHub(err)
	}
	held := &heldPlacements{name: strings.ToLower(policy) + "/" + r.name}
	if policy != "" {
		named := &metav1.PartialObjectMetadata{}
		named.SetGroupVersionKind(corev1alpha1.GroupVersion.WithKind(policy))
		named.SetNamespace(r.namespace)
		named.SetName(r.name)
		held.annotate = named
		if r.namespace != "" {
			held.name = strings.ToLower(policy) + "/" + r.namespace + "/" + r.name
		}
	}
	for _, record := range records {
		object, ok := status.ObjectOf(record)
		if !ok || object.Status.Held == nil {
			continue
		}
		by := object.Status.PropagationPolicy
		switch {
		case policy == "" && r.means(object):
			held.name, held.annotate = object.String(), record
			held.objects = append(held.objects, object)
		case policy != "" && by != nil && by.Kind == policy && by.Namespace == r.namespace && by.Name == r.name:
			held.objects = append(held.objects, object)
		}
	}
	held.objects = status.NewObjects(held.objects).Objects
	return held, nil
}

// policyMeant returns the kind of policy that is meant; empty if it is an object.
func policyMeant(r *reference) string {
	for _, kind := range []string{corev1alpha1.KindPropagationPolicy, corev1alpha1.KindClusterPropagationPolicy} {
		if r.matchesKind(strings.ToLower(kind)) && (r.anyGroup || r.group == corev1alpha1.GroupVersion.Group) {
			return kind
		}
	}
	return ""
}

// number returns the number of the change that all objects wait for.
func (h *heldPlacements) number() (string, error) {
	numbers := map[string]bool{}
	for _, o := range h.objects {
		numbers[o.Status.Held.Number] = true
	}
	switch len(numbers) {
	case 0:
		return "", errNothingWaits
	case 1:
		return h.objects[0].Status.Held.Number, nil
	default:
		return "", errors.New("the objects wait for different changes, as the controllers are at work on a later one: try again in some seconds")
	}
}

// write lists what waits: what is the same for several objects together.
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
