package injection

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

func inJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// typed converts an object to a pod.
func typed(u *unstructured.Unstructured) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p)
	return p, err
}

// recordOf returns the record in the injection annotation of a pod.
func recordOf(p *corev1.Pod) (*inject.Record, error) {
	r := &inject.Record{}
	text, ok := p.Annotations[refractv1beta1.InjectionAnnotation]
	if !ok {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("the annotation %s: %w", refractv1beta1.InjectionAnnotation, err)
	}
	return r, nil
}

// sketch returns the parts of a pod that injection can change, one per line:
//
//	SERVICE: POLICY,POLICY
//	volume NAME: SOURCE
//	CONTAINER: env NAME=VALUE NAME<SOURCE; from PREFIX:SOURCE; mount PATH=VOLUME
//	skipped POLICY: REASON
//
// Init containers come before the others. Containers without injected parts are omitted.
func sketch(p *corev1.Pod) (string, error) {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if service, ok := strings.CutPrefix(key, refractv1beta1.ServicePrefix); ok {
			lines = append(lines, service+": "+p.Annotations[key])
		}
	}
	for i := range p.Spec.Volumes {
		lines = append(lines, fmt.Sprintf("volume %s: %s", p.Spec.Volumes[i].Name, sourceOf(&p.Spec.Volumes[i])))
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if parts := partsOf(c.Env, c.EnvFrom, c.VolumeMounts); parts != "" {
			lines = append(lines, c.Name+": "+parts)
		}
	}
	r, err := recordOf(p)
	if err != nil {
		return "", err
	}
	for _, s := range r.Skipped {
		lines = append(lines, fmt.Sprintf("skipped %s: %s", s.Policy, s.Reason))
	}
	return tokenVolume.ReplaceAllString(strings.Join(lines, "\n"), "kube-api-access"), nil
}

// tokenVolume matches the name that API servers give to the volume with a pod's token.
var tokenVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// partsOf sketches a container.
func partsOf(env []corev1.EnvVar, from []corev1.EnvFromSource, mounts []corev1.VolumeMount) string {
	var envs, froms, paths []string
	for _, e := range env {
		switch v := e.ValueFrom; {
		case v == nil:
			envs = append(envs, e.Name+"="+e.Value)
		case v.FieldRef != nil:
			envs = append(envs, e.Name+"<"+v.FieldRef.FieldPath)
		case v.SecretKeyRef != nil:
			envs = append(envs, e.Name+"<"+v.SecretKeyRef.Name+"."+v.SecretKeyRef.Key)
		default:
			envs = append(envs, e.Name+"<"+inJSON(v))
		}
	}
	for _, f := range from {
		text := f.Prefix + ":"
		switch {
		case f.SecretRef != nil:
			text += "secret/" + f.SecretRef.Name + optional(f.SecretRef.Optional)
		case f.ConfigMapRef != nil:
			text += "configmap/" + f.ConfigMapRef.Name + optional(f.ConfigMapRef.Optional)
		}
		froms = append(froms, text)
	}
	for _, m := range mounts {
		text := m.MountPath + "=" + m.Name
		if m.SubPath != "" {
			text += "/" + m.SubPath
		}
		if m.ReadOnly {
			text += ":ro"
		}
		paths = append(paths, text)
	}
	var parts []string
	for _, part := range []struct {
		name string
		all  []string
	}{{"env", envs}, {"from", froms}, {"mount", paths}} {
		if len(part.all) > 0 {
			parts = append(parts, part.name+" "+strings.Join(part.all, " "))
		}
	}
	return strings.Join(parts, "; ")
}

func optional(is *bool) string {
	if is != nil && *is {
		return "?"
	}
	return ""
}

// sourceOf describes the source of a volume.
func sourceOf(v *corev1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.Secret != nil:
		return fmt.Sprintf("secret/%s %o", v.Secret.SecretName, *v.Secret.DefaultMode)
	case v.ConfigMap != nil:
		return fmt.Sprintf("configmap/%s %o", v.ConfigMap.Name, *v.ConfigMap.DefaultMode)
	case v.PersistentVolumeClaim != nil:
		return "claim/" + v.PersistentVolumeClaim.ClaimName
	case v.Projected != nil:
		return "projected"
	default:
		return inJSON(v.VolumeSource)
	}
}

// lines trims the lines of a raw string, and drops empty ones.
func lines(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}
