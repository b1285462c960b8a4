package injected

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"refract.dev/injection/inject"
)

// Item is an item in a pod that a policy added.
type Item struct {
	// Kind is env, envFrom, volume or volumeMount.
	Kind string `json:"kind"`
	// Name is the name of a variable or volume, PREFIX:KIND/NAME of a source of variables, or the path of a mount.
	Name string `json:"name"`
	// Says describes the current content of the item in the pod: the value of a variable, or its source. It never
	// contains a value of a Secret.
	Says string `json:"says,omitempty"`
	// Containers are the names of the containers with the item; empty for a volume.
	Containers []string `json:"containers,omitempty"`
}

// Kinds of items.
const (
	kindEnv     = "env"
	kindEnvFrom = "envFrom"
	kindVolume  = "volume"
	kindMount   = "volumeMount"
)

// items returns the policy's additions that a record lists, with their current content in the pod.
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

// inContainers returns the item with the containers that have it.
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

// sayEnv describes a variable: its value, or the source of the value.
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

// sayVolume describes the content of a volume.
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
	for name := range fields { // A volume has exactly one type.
		return name
	}
	return ""
}

// sourceID returns the name of a source of variables, as in the record.
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
