package conversion

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
	"refract.dev/convert"
	"refract.dev/convert/policy"
	"refract.dev/internal/rescue"
	"refract.dev/structural"
)

// complete returns what is to be served while the spec of a policy is not good, and the
// definition has changed: the last good spec with entries that keep what one version got
// alone, for the definition of now, so that nothing is lost until the policy says more. It
// returns nil if that is served already, or does not do. The spec is bad in any case; it
// waits if others are being judged.
//
// What is served says in the status what it is, so that all replicas convert by it, and the
// next ones do.
func (k *reconciler) complete(ctx context.Context, p *refractv1alpha1.ConversionPolicy, now map[string]any) (*refractv1alpha1.ServedConversion, judgement) {
	last := lastGood(p, now)
	if last == nil {
		return nil, bad
	}
	c := k.compiler.complete(last, now)
	if c.err != nil || len(c.kept) == 0 && last.Generation == p.Generation {
		return nil, bad // It is the spec itself, and that was judged.
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
		return nil, bad // Of this definition nothing can be served.
	}
	return &refractv1alpha1.ServedConversion{Generation: last.Generation, Spec: *c.spec.DeepCopy(), Kept: c.kept, Definition: packed}, bad
}

// lastGood returns a policy with the last good spec of another one; nil if nothing was
// good, or that is served for this definition. What came of it is remembered beside what
// came of the policy itself.
func lastGood(p *refractv1alpha1.ConversionPolicy, now map[string]any) *refractv1alpha1.ConversionPolicy {
	served := p.Status.Served
	if served == nil {
		return nil
	}
	spec := policy.Without(&served.Spec, served.Kept)
	same := samePacked(served.Definition, now)
	if served.Generation == p.Generation { // A status that somebody has changed by hand does not say what was good.
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

// completed returns a spec that fits a definition, and what it keeps that the other one
// does not name. A panic is an error.
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

// stranded warns of values that are in the annotation of stored objects, and do not come
// back by the policy that is to follow: an entry that takes a value from the other version,
// or a field that passes, is not believed that there was one where the other has none.
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
			warnings = append(warnings, fmt.Sprintf("%s of %s is in the annotation of objects that are stored in another version, "+
				"and does not come back by this policy: before, store %s, and run refract crd migrate %s", at, has, has, now.Spec.CRD))
		}
	}
	return warnings
}

// oneSided reports whether a spec says as well that one version has a place alone.
func oneSided(spec *refractv1alpha1.ConversionPolicySpec, kept refractv1alpha1.KeptField) bool {
	return slices.ContainsFunc(spec.Spokes, func(s refractv1alpha1.ConversionSpoke) bool {
		return s.Version == kept.Version && slices.ContainsFunc(s.Fields, func(f refractv1alpha1.FieldConversion) bool {
			return (f.Added != nil || f.Removed != nil) && f.Hub == kept.Hub && f.Spoke == kept.Spoke
		})
	})
}

const (
	// mostKept is how many places a message names, and mostKeptText how many bytes of them:
	// what is wrong with the policy is behind that.
	mostKept     = 5
	mostKeptText = 300
)

// keptAway says which places are kept in the annotation, in a sentence that begins with a
// space; "" if none is.
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
