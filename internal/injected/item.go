package injected

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"refract.dev/inject"
)

// Item is something in a pod that a policy put there.
type Item struct {
	// Kind is env, envFrom, volume or volumeMount.
	Kind string `json:"kind"`
	// Name is that of a variable or volume, PREFIX:KIND/NAME of a source of variables,
	// or the path of a mount.
	Name string `json:"name"`
	// Says is what it is in the pod now: the value of a variable, or where that comes
	// from. It never holds a value of a Secret.
	Says string `json:"says,omitempty"`
	// Containers have it; none for a volume.
	Containers []string `json:"containers,omitempty"`
}

// Kinds of items.
const (
	kindEnv     = "env"
	kindEnvFrom = "envFrom"
	kindVolume  = "volume"
	kindMount   = "volumeMount"
)

// items returns what a policy added, as it is in the pod now.
func items(pod *corev1.Pod, a *inject.RecordApplied) []Item {
	if a == nil {
		return nil
	}
	var found []Item
	for _, name := range a.Env {
		found = append(found, inContainers(pod, Item{Kind: kindEnv, Name: name}, func(c *corev1.Container) (string, bool) {
			at := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
			if at < 0 {
				return "", false
			}
			return sayEnv(&c.Env[at]), true
		}))
	}
	for _, id := range a.EnvFrom {
		found = append(found, inContainers(pod, Item{Kind: kindEnvFrom, Name: id}, func(c *corev1.Container) (string, bool) {
			at := slices.IndexFunc(c.EnvFrom, func(s corev1.EnvFromSource) bool { return sourceID(&s) == id })
			return "", at >= 0
		}))
	}
	for _, name := range a.Volumes {
		item := Item{Kind: kindVolume, Name: name}
		if at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }); at >= 0 {
			item.Says = sayVolume(&pod.Spec.Volumes[at])
		}
		found = append(found, item)
	}
	for _, at := range a.Mounts {
		found = append(found, inContainers(pod, Item{Kind: kindMount, Name: at}, func(c *corev1.Container) (string, bool) {
			i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return inject.MountID(&m) == at })
			if i < 0 {
				return "", false
			}
			return "volume " + c.VolumeMounts[i].Name, true
		}))
	}
	return found
}

// inContainers completes an item with the containers that have it.
func inContainers(pod *corev1.Pod, item Item, has func(*corev1.Container) (says string, ok bool)) Item {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if says, ok := has(&containers[i]); ok {
				item.Says = says
				item.Containers = append(item.Containers, containers[i].Name)
			}
		}
	}
	return item
}

// sayEnv says what a variable is: its value, or where that comes from.
func sayEnv(v *corev1.EnvVar) string {
	from := v.ValueFrom
	switch {
	case from == nil:
		return strconv.Quote(v.Value)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("key %s of Secret %s", from.SecretKeyRef.Key, from.SecretKeyRef.Name)
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("key %s of ConfigMap %s", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
	case from.FieldRef != nil:
		return "field " + from.FieldRef.FieldPath
	case from.ResourceFieldRef != nil:
		return "resource " + from.ResourceFieldRef.Resource
	default:
		return "from elsewhere"
	}
}

// sayVolume says what is in a volume.
func sayVolume(v *corev1.Volume) string {
	switch {
	case v.Secret != nil:
		return "Secret " + v.Secret.SecretName
	case v.ConfigMap != nil:
		return "ConfigMap " + v.ConfigMap.Name
	case v.PersistentVolumeClaim != nil:
		return "PersistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
	}
	source, err := json.Marshal(v.VolumeSource)
	fields := map[string]json.RawMessage{}
	if err != nil || json.Unmarshal(source, &fields) != nil {
		return ""
	}
	for name := range fields { // There is one.
		return name
	}
	return ""
}

// sourceID names a source of variables as the record does.
func sourceID(s *corev1.EnvFromSource) string {
	switch {
	case s.SecretRef != nil:
		return s.Prefix + ":Secret/" + s.SecretRef.Name
	case s.ConfigMapRef != nil:
		return s.Prefix + ":ConfigMap/" + s.ConfigMapRef.Name
	default:
		return ""
	}
}
