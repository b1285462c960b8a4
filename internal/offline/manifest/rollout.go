package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/release"
)

// rollouts are the kinds of policies that say how a change goes out, and whether they are
// namespaced.
var rollouts = map[string]bool{
	refractv1alpha1.KindRolloutPolicy:        true,
	refractv1alpha1.KindClusterRolloutPolicy: false,
}

// isRollout reports whether a kind is that of such policies.
func isRollout(gk schema.GroupKind) bool {
	_, ok := rollouts[gk.Kind]
	return ok && gk.Group == refractv1alpha1.GroupVersion.Group
}

// decodeRollout checks a policy that says how a change goes out. It makes no difference to what
// clusters have in the end, so that it is in no list.
func (o *object) decodeRollout() {
	o.add = func(*Set) {}
	if rollouts[o.gvk.Kind] {
		checkRollout(o, release.Compile)
		return
	}
	checkRollout(o, release.CompileCluster)
}

func checkRollout[T any](o *object, compile func(*T) (*release.Policy, field.ErrorList)) {
	p := decodeStrictly[T](o, true)
	if p == nil {
		return
	}
	_, errs := compile(p)
	wrong := o.wrong
	o.reportAll(errs)
	if o.stored { // It has nothing released, and is no reason not to look at the rest.
		o.wrong = wrong
	}
}
