package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// rootCA is a ConfigMap that exists in every namespace and is mounted in every pod.
const rootCA = "kube-root-ca.crt"

// HandsOut returns the Secrets and ConfigMaps that the author of a change must be allowed to read. These are the
// objects that the policy gives to pods for the first time, or in a new way: to other pods or containers, under another
// name, or expanded into another value. was is nil for a new policy.
//
// HandsOut considers only the policy's own items; for items of the Service see [TakesOver]. now must be valid, because
// an invalid policy injects nothing. HandsOut modifies neither policy.
func HandsOut(was, now *refractv1beta1.ServiceInjectionPolicy) []Reference {
	fresh := Stated(now)
	if was != nil {
		fresh.Spec = *freshIn(&was.Spec, &now.Spec)
	}
	if s := &fresh.Spec; len(s.Env)+len(s.EnvFrom)+len(s.Volumes) == 0 {
		return nil // Mounts alone do not name an object.
	}
	policy, errs := Compile(fresh)
	if len(errs) > 0 { // A part of a valid policy should be valid. If it is not, the whole policy counts.
		policy, _ = Compile(Stated(now))
	}
	return guarded(policy.References())
}

// TakesOver reports whether a change of a policy makes a new use of the annotations of its Service. The author of the
// change must then be allowed to read the objects that the Service names at that time, see [Named]. The author of a
// later change of the Service needs the same permission. was is nil for a new policy. TakesOver modifies neither
// policy.
func TakesOver(was, now *refractv1beta1.ServiceInjectionPolicy) bool {
	return now.Spec.Implicit && (was == nil || !was.Spec.Implicit || goesElsewhere(&was.Spec, &now.Spec) || mountsOthers(&was.Spec, &now.Spec))
}

// Named returns the Secrets and ConfigMaps that the items of a Service name and that the policy would inject. An object
// may occur several times. The Path of the references has no meaning. Named modifies no argument.
func Named(p *refractv1beta1.ServiceInjectionPolicy, items *refractv1beta1.InjectedItems) []Reference {
	alone := Stated(p)
	alone.Spec.Env, alone.Spec.EnvFrom, alone.Spec.Volumes, alone.Spec.VolumeMounts = nil, nil, nil, nil
	name := func(some refractv1beta1.InjectedItems) ([]Reference, bool) {
		with := *alone
		with.Status.FromService = &some
		policy, errs := Compile(&with)
		if len(errs) > 0 {
			return nil, false // No policy injects an invalid item either.
		}
		return guarded(policy.References()), true
	}
	// Each list is compiled separately: the object of a volume counts even if no mount uses the volume.
	return slices.Concat(
		namedIn(items.Env, func(of []refractv1beta1.EnvVar) ([]Reference, bool) {
			return name(refractv1beta1.InjectedItems{Env: of})
		}),
		namedIn(items.EnvFrom, func(of []corev1.EnvFromSource) ([]Reference, bool) {
			return name(refractv1beta1.InjectedItems{EnvFrom: of})
		}),
		namedIn(items.Volumes, func(of []corev1.Volume) ([]Reference, bool) {
			return name(refractv1beta1.InjectedItems{Volumes: of})
		}),
	)
}

// namedIn returns the references of all items. If the list is invalid, namedIn splits it in two and tries each half,
// because a list that exceeds a limit may have parts within the limit. An item that is invalid by itself has no
// references.
func namedIn[T any](items []T, name func([]T) ([]Reference, bool)) []Reference {
	if len(items) == 0 {
		return nil
	}
	refs, ok := name(items)
	if ok || len(items) == 1 {
		for i := range refs {
			refs[i] = Reference{Kind: refs[i].Kind, Name: refs[i].Name, Optional: true}
		}
		return refs
	}
	half := len(items) / 2
	return slices.Concat(namedIn(items[:half], name), namedIn(items[half:], name))
}

// Stated returns a copy of the policy with only its own items, without those of the Service.
func Stated(p *refractv1beta1.ServiceInjectionPolicy) *refractv1beta1.ServiceInjectionPolicy {
	alone := *p
	alone.Status = refractv1beta1.ServiceInjectionPolicyStatus{} // The status may be large.
	return alone.DeepCopy()
}

// guarded returns the references to Secrets and ConfigMaps, except for rootCA, which every user may read.
func guarded(refs []Reference) []Reference {
	return slices.DeleteFunc(refs, func(r Reference) bool {
		return r.Kind != secretKind && r.Kind != configMapKind || r.Kind == configMapKind && r.Name == rootCA
	})
}

// freshIn returns the part of a spec that uses objects in a new way. This is the whole spec if all its items may go to
// other pods or containers, or expand into other values there. Otherwise it is the new items. So an author cannot find
// a new use for an object that only other users may read.
func freshIn(was, now *refractv1beta1.ServiceInjectionPolicySpec) *refractv1beta1.ServiceInjectionPolicySpec {
	if goesElsewhere(was, now) {
		return now
	}
	out := now.DeepCopy()
	out.Env = slices.DeleteFunc(out.Env, func(e refractv1beta1.EnvVar) bool { return isIn(was.Env, e) })
	out.EnvFrom = slices.DeleteFunc(out.EnvFrom, func(e corev1.EnvFromSource) bool { return isIn(was.EnvFrom, e) })
	out.Volumes = slices.DeleteFunc(out.Volumes, func(v corev1.Volume) bool {
		return isIn(was.Volumes, v) && equality.Semantic.DeepEqual(mountsOf(was, v.Name), mountsOf(now, v.Name))
	})
	return out
}

// goesElsewhere reports whether all items of a policy may go to other pods or containers than before, or may expand
// into other values there.
func goesElsewhere(was, now *refractv1beta1.ServiceInjectionPolicySpec) bool {
	sameItems := equality.Semantic.DeepEqual(was.Env, now.Env) && equality.Semantic.DeepEqual(was.VolumeMounts, now.VolumeMounts)
	return !equality.Semantic.DeepEqual(frame(was), frame(now)) || !sameItems && expandsVariables(now)
}

// mountsOthers reports whether there are new mounts of volumes that the policy itself does not have. These volumes may
// come from the Service.
func mountsOthers(was, now *refractv1beta1.ServiceInjectionPolicySpec) bool {
	return slices.ContainsFunc(now.VolumeMounts, func(m corev1.VolumeMount) bool {
		own := slices.ContainsFunc(now.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		return !own && !isIn(was.VolumeMounts, m)
	})
}

// frame returns the spec without its items and without the fields that do not affect the destination of the items.
func frame(s *refractv1beta1.ServiceInjectionPolicySpec) *refractv1beta1.ServiceInjectionPolicySpec {
	out := *s
	out.Env, out.EnvFrom, out.Volumes, out.VolumeMounts = nil, nil, nil, nil
	out.OnConflict, out.Rollout, out.Implicit = "", nil, false
	return &out
}

// expandsVariables reports whether an item of the spec may contain the value of another variable, as $(NAME).
func expandsVariables(s *refractv1beta1.ServiceInjectionPolicySpec) bool {
	const reference = "$("
	return slices.ContainsFunc(s.Env, func(e refractv1beta1.EnvVar) bool { return strings.Contains(string(e.Value), reference) }) ||
		slices.ContainsFunc(s.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.Contains(m.SubPathExpr, reference) })
}

func mountsOf(s *refractv1beta1.ServiceInjectionPolicySpec, volume string) []corev1.VolumeMount {
	return slices.DeleteFunc(slices.Clone(s.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name != volume })
}

func isIn[T any](list []T, item T) bool {
	return slices.ContainsFunc(list, func(e T) bool { return equality.Semantic.DeepEqual(e, item) })
}
