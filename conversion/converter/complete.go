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

// complete returns the spec to serve while the spec of a policy is not good and the definition has changed: the last
// good spec, with entries that keep the new fields of a single version in the annotation. So nothing is lost until the
// policy covers these fields. It returns nil if that spec is already served, or is not good itself. The judgement is
// always bad, or waiting if other policies are being verified.
//
// The spec to serve goes into the status, so that all replicas convert by it, also after a restart.
func (k *reconciler) complete(ctx context.Context, p *refractv1alpha1.ConversionPolicy, now map[string]any) (*refractv1alpha1.ServedConversion, judgement) {
	last := lastGood(p, now)
	if last == nil {
		return nil, bad
	}
	c := k.compiler.complete(last, now)
	if c.err != nil || len(c.kept) == 0 && last.Generation == p.Generation {
		return nil, bad // This is the spec of the policy, which was judged before.
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
		return nil, bad // The definition is too large to be served.
	}
	return &refractv1alpha1.ServedConversion{Generation: last.Generation, Spec: *c.spec.DeepCopy(), Kept: c.kept, Definition: packed}, bad
}

// lastGood returns a policy with the last good spec of p. It returns nil if no spec was good yet, or if that spec is
// served for the current definition already. The returned policy has its own UID, so that the compiler and the verifier
// remember its results beside those of p.
func lastGood(p *refractv1alpha1.ConversionPolicy, now map[string]any) *refractv1alpha1.ConversionPolicy {
	served := p.Status.Served
	if served == nil {
		return nil
	}
	spec := policy.Without(&served.Spec, served.Kept)
	same := samePacked(served.Definition, now)
	if served.Generation == p.Generation { // An edited status is no proof that a spec was good.
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

// completed returns a spec that fits a definition, and the fields that it keeps in addition to the given spec. A panic
// is returned as an error.
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

// stranded returns warnings about values that are in the annotation of stored objects and do not come back under the
// new policy. Only an entry with added or removed restores such values. A move does not, and neither does a field
// without an entry.
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

// oneSided reports whether a spec also has an entry with added or removed for the place of a kept field.
func oneSided(spec *refractv1alpha1.ConversionPolicySpec, kept refractv1alpha1.KeptField) bool {
	return slices.ContainsFunc(spec.Spokes, func(s refractv1alpha1.ConversionSpoke) bool {
		return s.Version == kept.Version && slices.ContainsFunc(s.Fields, func(f refractv1alpha1.FieldConversion) bool {
			return (f.Added != nil || f.Removed != nil) && f.Hub == kept.Hub && f.Spoke == kept.Spoke
		})
	})
}

const (
	// mostKept is the maximum number of places in a message, mostKeptText the maximum size of their names in bytes. The
	// message continues with the error of the policy, which must fit in as well.
	mostKept     = 5
	mostKeptText = 300
)

// keptAway returns a sentence about the places that are kept in the annotation, with a space before it; "" without such
// places.
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
