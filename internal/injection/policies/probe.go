package policies

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
)

// verdict is what came of trying a pod out.
type verdict struct {
	// causes are what the API server has against what the policy says.
	causes []metav1.StatusCause
	// warnings are what speaks against such pods as the namespace is now.
	warnings []string
}

// try asks the API server, by a dry run, for a pod that has what the policy
// injects and nothing else. A policy is at fault only if the API server names its
// items, and takes the pod without them; all else, as a quota or somebody else's
// webhook, says nothing about the policy.
func (v *validator) try(ctx context.Context, w *write, p *refractv1beta1.ServiceInjectionPolicy) verdict {
	err := v.Client.Create(ctx, probe(p), client.DryRunAll)
	switch {
	case err == nil:
		return verdict{}
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), podSecurity):
		_, violations, _ := strings.Cut(err.Error(), podSecurity)
		return verdict{warnings: []string{fmt.Sprintf("namespace %s refuses pods with this: it %s%s", p.Namespace, podSecurity, violations)}}
	case !apierrors.IsInvalid(err):
		v.Log.V(1).Info("Could not try out a policy", "namespace", p.Namespace, "policy", w.name(), "reason", err.Error())
		return verdict{}
	}
	tried := attributed(err, &w.now.Spec)
	if len(tried.causes)+len(tried.warnings) == 0 || apierrors.IsInvalid(v.Client.Create(ctx, probe(&refractv1beta1.ServiceInjectionPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace},
	}), client.DryRunAll)) {
		return verdict{} // Whoever else has a hand in pods makes them invalid.
	}
	return tried
}

// podSecurity begins what the API server's own admission of Pod Security says.
const podSecurity = "violates PodSecurity"

// probe returns a pod with all that the policy injects into one container. It meets
// the strictest of the Pod Security Standards, so that what violates one is the
// policy's. Refract itself leaves it alone.
func probe(p *refractv1beta1.ServiceInjectionPolicy) *corev1.Pod {
	items := inject.Effective(p)
	if items == nil {
		items = &refractv1beta1.InjectedItems{}
	}
	container := corev1.Container{
		Name: "probe", Image: "registry.k8s.io/pause:3.10",
		EnvFrom: items.EnvFrom, VolumeMounts: items.VolumeMounts,
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	for _, e := range items.Env {
		container.Env = append(container.Env, corev1.EnvVar{Name: e.Name, Value: string(e.Value), ValueFrom: e.ValueFrom})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: "refract-probe-",
			Annotations: map[string]string{refractv1beta1.InjectAnnotation: "false"},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), // It may be what the policy mounts.
			Containers:                   []corev1.Container{container},
			Volumes:                      append(slices.Clip(items.Volumes), podsOwn(items)...),
		},
	}
}

// podsOwn returns volumes for the mounts that mean one of the pod.
func podsOwn(items *refractv1beta1.InjectedItems) []corev1.Volume {
	there := map[string]bool{}
	for i := range items.Volumes {
		there[items.Volumes[i].Name] = true
	}
	var out []corev1.Volume
	for _, m := range items.VolumeMounts {
		if !there[m.Name] {
			there[m.Name] = true
			out = append(out, corev1.Volume{Name: m.Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
	}
	return out
}

// inProbe is where in a probe the items of a policy are.
var inProbe = regexp.MustCompile(`^spec\.(?:containers\[0\]\.(env|envFrom|volumeMounts)|(volumes))\[(\d+)\](.*)$`)

// attributed returns what the API server has against a probe as far as it is about
// items: of what stands in the spec, which come first, with the fields of the
// policy; of what the Service adds, as warnings.
func attributed(err error, spec *refractv1beta1.ServiceInjectionPolicySpec) verdict {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil {
		return verdict{}
	}
	own := map[string]int{
		"env": len(spec.Env), "envFrom": len(spec.EnvFrom), "volumes": len(spec.Volumes), "volumeMounts": len(spec.VolumeMounts),
	}
	var out verdict
	for _, cause := range answer.Status().Details.Causes {
		match := inProbe.FindStringSubmatch(cause.Field)
		if match == nil {
			continue
		}
		list := match[1] + match[2]
		i, err := strconv.Atoi(match[3])
		switch {
		case err != nil:
		case i < own[list]:
			cause.Field = fmt.Sprintf("spec.%s[%d]%s", list, i, match[4])
			out.causes = append(out.causes, cause)
		case spec.Implicit:
			out.warnings = append(out.warnings, fmt.Sprintf("no pod can have what Service %s says: %s: %s", spec.Service, cause.Field, cause.Message))
		}
	}
	return out
}
