package inject

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// rootCA is a ConfigMap that is in every namespace, and that every pod has.
const rootCA = "kube-root-ca.crt"

// HandsOut returns the Secrets and ConfigMaps that a policy hands out newly, or
// otherwise than it did before: to other pods or containers, under another name, or
// expanded into something else. Who makes the one of the other must be allowed to read
// them. was is nil for a policy that was not there.
//
// It is about what the policy says itself; about what it takes over see [TakesOver].
// now must be valid: what is wrong hands out nothing. Neither is modified.
func HandsOut(was, now *refractv1beta1.ServiceInjectionPolicy) []Reference {
	fresh := Stated(now)
	if was != nil {
		fresh.Spec = *freshIn(&was.Spec, &now.Spec)
	}
	if s := &fresh.Spec; len(s.Env)+len(s.EnvFrom)+len(s.Volumes) == 0 {
		return nil // Mounts alone name nothing.
	}
	policy, errs := Compile(fresh)
	if len(errs) > 0 { // A part of a valid policy is valid; if not, all of it is asked for.
		policy, _ = Compile(Stated(now))
	}
	return guarded(policy.References())
}

// TakesOver reports whether a policy makes something else than before of what its
// Service says, as by beginning to take it over: who makes it do so must be allowed to
// read what the Service names then, see [Named]. Who changes the Service later is
// asked himself. was is nil for a policy that was not there. Neither is modified.
func TakesOver(was, now *refractv1beta1.ServiceInjectionPolicy) bool {
	return now.Spec.Implicit && (was == nil || !was.Spec.Implicit || goesElsewhere(&was.Spec, &now.Spec) || mountsOthers(&was.Spec, &now.Spec))
}

// Named returns the Secrets and ConfigMaps that items of a Service name, of which a
// policy takes them over: an object once for each item. Their path is of no meaning.
// Nothing is modified.
func Named(p *refractv1beta1.ServiceInjectionPolicy, items *refractv1beta1.InjectedItems) []Reference {
	var out []Reference
	bare := *p // There may be as many items as there are in the lists, which need no copies.
	bare.Status = refractv1beta1.ServiceInjectionPolicyStatus{}
	bare.Spec.Env, bare.Spec.EnvFrom, bare.Spec.Volumes, bare.Spec.VolumeMounts = nil, nil, nil, nil
	name := func(one refractv1beta1.InjectedItems) {
		alone := bare
		alone.Status.FromService = &one
		policy, errs := Compile(&alone)
		if len(errs) > 0 {
			return // Nor does any policy inject this.
		}
		for _, r := range guarded(policy.References()) {
			out = append(out, Reference{Kind: r.Kind, Name: r.Name, Optional: true})
		}
	}
	// One by one: what is too much all together may fit after a part was taken away.
	for i := range items.Env {
		name(refractv1beta1.InjectedItems{Env: items.Env[i : i+1]})
	}
	for i := range items.EnvFrom {
		name(refractv1beta1.InjectedItems{EnvFrom: items.EnvFrom[i : i+1]})
	}
	for i := range items.Volumes {
		name(refractv1beta1.InjectedItems{Volumes: items.Volumes[i : i+1]})
	}
	return out
}

// Stated returns a copy of what the author of a policy says himself, without what the
// Service adds.
func Stated(p *refractv1beta1.ServiceInjectionPolicy) *refractv1beta1.ServiceInjectionPolicy {
	out := p.DeepCopy()
	out.Status = refractv1beta1.ServiceInjectionPolicyStatus{}
	return out
}

// guarded returns the references to what not everybody may read.
func guarded(refs []Reference) []Reference {
	return slices.DeleteFunc(refs, func(r Reference) bool {
		return r.Kind != secretKind && r.Kind != configMapKind || r.Kind == configMapKind && r.Name == rootCA
	})
}

// freshIn returns the part of a spec that hands out something otherwise than the
// spec before, so that nobody can put to another use what only others may read. If
// it is all the same, to which containers it goes and what else the pod makes of
// it, that is the items that were not there; else it is the whole spec.
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

// goesElsewhere reports whether all that a policy hands out goes to other pods or
// containers than before, or something else may be made of all of it there.
func goesElsewhere(was, now *refractv1beta1.ServiceInjectionPolicySpec) bool {
	sameItems := equality.Semantic.DeepEqual(was.Env, now.Env) && equality.Semantic.DeepEqual(was.VolumeMounts, now.VolumeMounts)
	return !equality.Semantic.DeepEqual(frame(was), frame(now)) || !sameItems && expandsVariables(now)
}

// mountsOthers reports whether there are new mounts of volumes that the policy does
// not have itself: they may be those of the Service.
func mountsOthers(was, now *refractv1beta1.ServiceInjectionPolicySpec) bool {
	return slices.ContainsFunc(now.VolumeMounts, func(m corev1.VolumeMount) bool {
		own := slices.ContainsFunc(now.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		return !own && !isIn(was.VolumeMounts, m)
	})
}

// frame returns the spec without its items, and without what does not change where
// they go.
func frame(s *refractv1beta1.ServiceInjectionPolicySpec) *refractv1beta1.ServiceInjectionPolicySpec {
	out := *s
	out.Env, out.EnvFrom, out.Volumes, out.VolumeMounts = nil, nil, nil, nil
	out.OnConflict, out.Rollout, out.Implicit = "", nil, false
	return &out
}

// expandsVariables reports whether something in the spec may take up the value of
// a variable, as $(NAME).
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
