package injectionpolicies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"refract.dev/webhook/admission"
)

// verdict is what came of trying a pod out.
type verdict struct {
	// causes are what the API server has against what the policy says.
	causes []metav1.StatusCause
	// warnings are what speaks against such pods as the namespace is now.
	warnings []string
}

// try asks the API server, by a dry run, for a pod that has what the policy
// injects and nothing else. A policy is at fault only if such a pod is refused, and
// one without its items is not; all else, as a quota or a failure, says nothing about
// the policy.
func (v *validator) try(ctx context.Context, w *write, p *refractv1beta1.ServiceInjectionPolicy) verdict {
	with, without := probe(p), probe(&refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace}})
	create := func(pod *corev1.Pod) error { return v.Client.Create(ctx, pod.DeepCopy(), client.DryRunAll) }
	err := create(with)
	if err == nil {
		return verdict{}
	}
	tried := attributed(err, &w.now.Spec)
	at := len(tried.causes)+len(tried.warnings) > 0
	switch {
	case !at && !judged(err):
		v.Log.V(1).Info("Could not try out a policy", "namespace", p.Namespace, "policy", w.name(), "reason", err.Error())
		return verdict{}
	case at && !apierrors.IsInvalid(create(without)):
		return tried
	case at || create(without) != nil || !judged(create(with)):
		return verdict{} // Whoever else has a hand in pods refuses them, or did for a moment.
	case w.now.Spec.Mode == refractv1beta1.ModeAudit:
		return verdict{warnings: []string{"spec: were the mode Enforce, " + refusal(p.Namespace, err)}}
	default:
		return verdict{causes: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec", Message: refusal(p.Namespace, err)}}}
	}
}

// judged reports whether somebody has looked at a pod and refuses it: Pod Security, a
// ServiceAccount that may have certain Secrets alone, admission policies and webhooks.
// What depends on how much there is already, or on our own rights, is something else.
func judged(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch s := answer.Status(); s.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return !slices.ContainsFunc(ofTheMoment, func(text string) bool { return strings.Contains(s.Message, text) })
	default:
		return false
	}
}

// ofTheMoment is in what an API server says of a pod for reasons that pass: a quota
// that is used up or not known yet, its own ServiceAccount that is not there yet, a
// namespace that goes; and where we may not try.
var ofTheMoment = []string{
	"exceeded quota", "failed quota", "for quota", "error looking up service account", "is being terminated", `cannot create resource "pods"`,
}

// refusal says that pods are refused, and why.
func refusal(namespace string, err error) string {
	why := err.Error()
	if _, after, found := strings.Cut(why, " is forbidden: "); found {
		why = after // Without the name of a pod that nobody knows.
	}
	return admission.Brief(fmt.Sprintf("pods of namespace %s that get this would be refused: %s", namespace, why), longestWarning)
}

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
