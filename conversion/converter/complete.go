package converter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/internal/rescue"
)

// complete returns the spec for status.served if the definition has changed and the present spec of the policy does not
// compile or is not verified. It is the last verified spec with additional entries: they keep new fields of single
// versions in the annotation. So no value gets lost until the policy covers these fields. The result is nil if
// status.served already has that spec, or if that spec is not verified either. The judgement is bad, or waiting if
// other policies are being verified.
//
// The spec is stored in the status so that all replicas convert with it, also after a restart.
func (k *reconciler) complete(ctx context.Context, p *refractv1alpha1.ConversionPolicy, now map[string]any) (*refractv1alpha1.ServedConversion, judgement) {
	last := lastGood(p, now)
	if last == nil {
		return nil, bad
	}
	c := k.compiler.complete(last, now)
	if c.err != nil || len(c.kept) == 0 && last.Generation == p.Generation {
		return nil, bad // The completed spec is the spec of the policy, which judge has already rejected.
	}
	last.Spec = *c.spec
	v := k.verifier.verify(ctx, last, c)
	switch {
	case v.waits:
		return nil, waiting
	case !v.good():
		return nil, bad
	}
	packed, err := pack(now)
	if err != nil {
		return nil, bad // The definition is too large for a status.
	}
	return &refractv1alpha1.ServedConversion{Generation: last.Generation, Spec: *c.spec.DeepCopy(), Kept: c.kept, Definition: packed}, bad
}

// lastGood returns a policy with the last verified spec of p. It returns nil if no spec was verified yet, or if
// status.served already has that spec for the current definition. The returned policy has a UID of its own, so that the
// compiler and the verifier remember its results in addition to those of p.
func lastGood(p *refractv1alpha1.ConversionPolicy, now map[string]any) *refractv1alpha1.ConversionPolicy {
	served := p.Status.Served
	if served == nil {
		return nil
	}
	spec := policy.Without(&served.Spec, served.Kept)
	same := samePacked(served.Definition, now)
	if served.Generation == p.Generation { // A user may have edited the spec in the status.
		same = same && len(served.Kept) > 0 && equality.Semantic.DeepEqual(*spec, p.Spec)
		spec = p.Spec.DeepCopy()
	}
	if same {
		return nil
	}
	out := &refractv1alpha1.ConversionPolicy{Spec: *spec}
	out.Name, out.UID, out.Generation = p.Name, p.UID+types.UID("/completed"), served.Generation
	return out
}

// completed adds entries to a spec, so that the spec fits a definition. kept are the fields that these entries keep. It
// returns a panic as an error.
func completed(spec *refractv1alpha1.ConversionPolicySpec, crd map[string]any) (
	out *refractv1alpha1.ConversionPolicySpec, kept []refractv1alpha1.KeptField, err error,
) {
	defer rescue.To(&err, ctrl.Log.WithName("conversion"), "completing a conversion policy")
	definition, err := structural.New(crd)
	if err != nil {
		return nil, nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", spec.CRD, err)
	}
	out, kept, ok := policy.Complete(spec, definition)
	if !ok {
		return nil, nil, errFindings
	}
	return out, kept, nil
}

// stranded returns warnings about kept values in the annotations of stored objects that the new policy does not
// restore. Only an entry with added or removed restores such a value; a move does not.
func stranded(was, now *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured) []string {
	if was == nil || was.Status.Served == nil {
		return nil
	}
	stored, _ := storedVersions(crd)
	var warnings []string
	for _, f := range was.Status.Served.Kept {
		has, at := was.Status.Served.Spec.Hub, f.Hub
		if f.Spoke != "" {
			has, at = f.Version, f.Spoke
		}
		elsewhere := slices.ContainsFunc(stored, func(version any) bool {
			return version != has && (f.Spoke != "" || version == f.Version)
		})
		if elsewhere && !oneSided(&now.Spec, f) {
			warnings = append(warnings, fmt.Sprintf("%s of %s is in the annotation of objects that are stored in another version, and this policy does not "+
				"restore it: first store %s, and run refract crd migrate %s", at, has, has, now.Spec.CRD))
		}
	}
	return warnings
}

// oneSided reports whether a spec has an entry with added or removed for the place of a kept field.
func oneSided(spec *refractv1alpha1.ConversionPolicySpec, kept refractv1alpha1.KeptField) bool {
	return slices.ContainsFunc(spec.Spokes, func(s refractv1alpha1.ConversionSpoke) bool {
		return s.Version == kept.Version && slices.ContainsFunc(s.Fields, func(f refractv1alpha1.FieldConversion) bool {
			return (f.Added != nil || f.Removed != nil) && f.Hub == kept.Hub && f.Spoke == kept.Spoke
		})
	})
}

const (
	// mostKept is the maximum number of places in a message, and mostKeptText the maximum size of their names in bytes.
	// The error of the policy follows in the same message and needs space.
	mostKept     = 5
	mostKeptText = 300
)

// keptAway returns a sentence about the places that are kept in the annotation, after a space; "" without such places.
func keptAway(kept []refractv1alpha1.KeptField) string {
	if len(kept) == 0 {
		return ""
	}
	var names []string
	size := 0
	for _, f := range kept {
		name := fmt.Sprintf("%s, which %s does not have", f.Hub, f.Version)
		if f.Hub == "" {
			name = fmt.Sprintf("%s of %s", f.Spoke, f.Version)
		}
		if size += len(name); len(names) == mostKept || size > mostKeptText {
			break
		}
		names = append(names, name)
	}
	if more := len(kept) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return " New places are kept in the annotation " + convert.Annotation + " until the policy names them: " + strings.Join(names, "; ") + "."
}
