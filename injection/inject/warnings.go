package inject

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// warnings collects warnings.
type warnings []Warning

func (w *warnings) add(at *field.Path, message string) {
	*w = append(*w, Warning{Path: at.String(), Message: message})
}

// warnings returns the warnings about a valid policy.
func (c *compiler) warnings() []Warning {
	var w warnings
	if c.policy.selector.Empty() {
		w.add(c.path.Child("selector"), "selects every pod of the namespace")
	}
	c.warnOfEnv(&w)
	c.warnOfVolumes(&w)
	c.warnOfMounts(&w)
	return w
}

func (c *compiler) warnOfEnv(w *warnings) {
	for _, v := range c.merged.env {
		if len(validation.IsEnvVarName(v.value.Name)) > 0 {
			w.add(v.at.Child("name"), "API servers before Kubernetes 1.32 refuse pods with a variable of this name")
		}
		if v.value.ValueFrom != nil && v.value.ValueFrom.FileKeyRef != nil {
			w.add(v.at.Child("valueFrom", "fileKeyRef"), "API servers before Kubernetes 1.35 do not know this field, and refuse the pods")
		}
	}
}

func (c *compiler) warnOfVolumes(w *warnings) {
	used := make(map[string]bool, len(c.merged.mounts))
	for _, mount := range c.merged.mounts {
		used[mount.value.Name] = true
	}
	for _, v := range c.merged.env {
		if v.value.ValueFrom != nil && v.value.ValueFrom.FileKeyRef != nil {
			used[v.value.ValueFrom.FileKeyRef.VolumeName] = true
		}
	}
	for _, v := range c.merged.volumes {
		if !used[v.value.Name] {
			w.add(v.at.Child("name"), "no mount of the policy uses this volume: only containers with a mount of their own can use it")
		}
		if v.value.Image != nil {
			w.add(v.at.Child("image"), "API servers before Kubernetes 1.35 know this type of volume only if it is enabled, and otherwise refuse pods with it")
		}
		if v.value.EmptyDir != nil && v.value.EmptyDir.Mode != nil {
			w.add(v.at.Child("emptyDir", "mode"), "API servers without the feature gate EmptyDirVolumeMode drop this")
		}
		if name, levels := forbidding(v.value); levels != "" {
			w.add(v.at.Child(name), "a namespace that enforces the Pod Security level "+levels+" refuses pods with this type of volume")
		}
	}
}

// unprivileged are the types of volumes that the Pod Security level restricted allows:
// https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
var unprivileged = []string{
	"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}

// forbidding returns the type of a volume, and the names of the Pod Security levels that forbid this type; levels is
// empty without any.
func forbidding(v *corev1.Volume) (name, levels string) {
	i := slices.IndexFunc(volumeSources, func(s volumeSource) bool { return s.used(&v.VolumeSource) })
	switch name := volumeSources[i].name; {
	case name == "hostPath":
		return name, "baseline or restricted"
	case !slices.Contains(unprivileged, name):
		return name, "restricted"
	default:
		return name, ""
	}
}

// tokenPath is the mount path of the ServiceAccount token in most pods.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // It is a path.

func (c *compiler) warnOfMounts(w *warnings) {
	own := make(map[string]bool, len(c.merged.volumes))
	for _, v := range c.merged.volumes {
		own[v.value.Name] = true
	}
	for _, v := range c.merged.mounts {
		if !own[v.value.Name] {
			w.add(v.at.Child("name"), "the policy has no such volume: pods without a volume of this name are left out")
		}
		if len(v.value.BindMountOptions) > 0 {
			w.add(v.at.Child("bindMountOptions"), "API servers without the feature gate VolumeBindMountOptions drop this")
		}
		if MountID(v.value) == tokenPath {
			w.add(v.at.Child("mountPath"), "most pods have the token of their ServiceAccount there: they are left out")
		}
		if !path.IsAbs(v.value.MountPath) && !driveLetter.MatchString(v.value.MountPath) {
			w.add(v.at.Child("mountPath"), "has no leading /: it is relative to the root of a container")
		}
		if c.policy.scope.ephemeral && v.value.SubPath+v.value.SubPathExpr != "" {
			w.add(v.at, "ephemeral containers cannot have a subPath: they are left out")
		}
	}
}
