package inject

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// The kinds of objects that items name.
const (
	secretKind    = "Secret"
	configMapKind = "ConfigMap"
	claimKind     = "PersistentVolumeClaim"
)

// Effective returns the items that the policy injects: first the items of its spec and then, if spec.implicit is true,
// those of status.fromService. An item of the spec replaces an item of the Service with the same identity: the name of
// a variable or volume, the path of a mount, or the prefix and object of an envFrom source. A volume of the Service is
// omitted if the spec replaces all its mounts.
//
// Effective validates nothing. Its result shares no memory with p.
func Effective(p *refractv1beta1.ServiceInjectionPolicy) *refractv1beta1.InjectedItems {
	merged := merge(p)
	return &refractv1beta1.InjectedItems{
		Env:          copies(merged.env, (*refractv1beta1.EnvVar).DeepCopyInto),
		EnvFrom:      copies(merged.envFrom, (*corev1.EnvFromSource).DeepCopyInto),
		Volumes:      copies(merged.volumes, (*corev1.Volume).DeepCopyInto),
		VolumeMounts: copies(merged.mounts, (*corev1.VolumeMount).DeepCopyInto),
	}
}

func copies[T any](list []placed[T], copyInto func(from, to *T)) []T {
	if len(list) == 0 {
		return nil
	}
	out := make([]T, len(list))
	for i, from := range list {
		copyInto(from.value, &out[i])
	}
	return out
}

// placed is a value of a policy with its field path.
type placed[T any] struct {
	value *T
	at    *field.Path
}

// contents are the items of a policy, those of the spec before those of the Service. They point into the policy.
type contents struct {
	env     []placed[refractv1beta1.EnvVar]
	envFrom []placed[corev1.EnvFromSource]
	volumes []placed[corev1.Volume]
	mounts  []placed[corev1.VolumeMount]
}

func (c *contents) empty() bool {
	return len(c.env)+len(c.envFrom)+len(c.volumes)+len(c.mounts) == 0
}

// merge returns the items that the policy injects.
func merge(p *refractv1beta1.ServiceInjectionPolicy) contents {
	spec := field.NewPath("spec")
	out := contents{
		env:     place(p.Spec.Env, spec.Child("env")),
		envFrom: place(p.Spec.EnvFrom, spec.Child("envFrom")),
		volumes: place(p.Spec.Volumes, spec.Child("volumes")),
		mounts:  place(p.Spec.VolumeMounts, spec.Child("volumeMounts")),
	}
	from := p.Status.FromService
	if !p.Spec.Implicit || from == nil {
		return out
	}
	at := field.NewPath("status", "fromService")
	out.env = complete(out.env, place(from.Env, at.Child("env")), func(v *refractv1beta1.EnvVar) string { return v.Name })
	out.envFrom = complete(out.envFrom, place(from.EnvFrom, at.Child("envFrom")), envFromID)
	out.mounts = complete(out.mounts, place(from.VolumeMounts, at.Child("volumeMounts")), MountID)

	// Remove the volumes whose mounts were all replaced.
	wanted := make(map[string]bool, len(out.mounts))
	for _, mount := range out.mounts {
		wanted[mount.value.Name] = true
	}
	gaveWay := make(map[string]bool, len(from.VolumeMounts))
	for i := range from.VolumeMounts {
		name := from.VolumeMounts[i].Name
		gaveWay[name] = !wanted[name]
	}
	var volumes []placed[corev1.Volume]
	for _, volume := range place(from.Volumes, at.Child("volumes")) {
		if !gaveWay[volume.value.Name] {
			volumes = append(volumes, volume)
		}
	}
	out.volumes = complete(out.volumes, volumes, func(v *corev1.Volume) string { return v.Name })
	return out
}

func place[T any](list []T, at *field.Path) []placed[T] {
	out := make([]placed[T], len(list))
	for i := range list {
		out[i] = placed[T]{value: &list[i], at: at.Index(i)}
	}
	return out
}

// complete appends to explicit the items of implicit whose identities are not in explicit yet.
func complete[T any](explicit, implicit []placed[T], id func(*T) string) []placed[T] {
	taken := make(map[string]bool, len(explicit))
	for _, e := range explicit {
		taken[id(e.value)] = true
	}
	for _, i := range implicit {
		if !taken[id(i.value)] {
			explicit = append(explicit, i)
		}
	}
	return explicit
}
