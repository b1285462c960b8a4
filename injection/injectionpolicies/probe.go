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
	"refract.dev/injection/inject"
	"refract.dev/kit/webhook/admission"
)

// verdict is the result of the dry run of a pod.
type verdict struct {
	// causes are the API server's errors about items of the policy.
	causes []metav1.StatusCause
	// warnings describe why such pods would be rejected.
	warnings []string
}

// try creates, as a dry run, a pod that has only the items of the policy. A rejection is the fault of the policy only
// if the same pod without the items is accepted. All other results are ignored, such as an exceeded quota or a failure.
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
		return verdict{} // The cause is another admission plugin, which rejects all pods or rejected one temporarily.
	case w.now.Spec.Mode == refractv1beta1.ModeAudit:
		return verdict{warnings: []string{"spec: with the mode Enforce, " + refusal(p.Namespace, err)}}
	default:
		return verdict{causes: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec", Message: refusal(p.Namespace, err)}}}
	}
}

// judged reports whether admission has examined and rejected a pod. It may have been rejected by Pod Security, by a
// ServiceAccount that may use only certain Secrets, by admission policies or by webhooks. Errors do not count if they
// depend on the current resource usage or on the permissions of Refract.
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

// ofTheMoment are substrings of an API server's messages about rejections that do not concern the items of the policy:
// an exceeded or unknown quota, a missing ServiceAccount, a terminating namespace, or the missing permission to create
// pods.
var ofTheMoment = []string{
	"exceeded quota", "failed quota", "for quota", "error looking up service account", "is being terminated", `cannot create resource "pods"`,
}

// refusal returns a message with the reason why pods with these items are rejected.
func refusal(namespace string, err error) string {
	why := err.Error()
	if _, after, found := strings.Cut(why, " is forbidden: "); found {
		why = after // Without the name of the probe pod, which means nothing to the user.
	}
	return admission.Brief(fmt.Sprintf("pods of namespace %s with these items would be refused: %s", namespace, why), longestWarning)
}

// probe returns a pod that has all items of the policy in one container. The rest of the pod meets the strictest Pod
// Security Standard, so every violation comes from the policy. An annotation excludes the pod from injection.
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
			AutomountServiceAccountToken: new(false), // The policy may mount the token itself.
			Containers:                   []corev1.Container{container},
			Volumes:                      append(slices.Clip(items.Volumes), podsOwn(items)...),
		},
	}
}

// podsOwn returns an emptyDir for each mounted volume that the policy does not have, because real pods have these
// volumes.
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

// inProbe matches the fields of a probe that contain items of the policy.
var inProbe = regexp.MustCompile(`^spec\.(?:containers\[0\]\.(env|envFrom|volumeMounts)|(volumes))\[(\d+)\](.*)$`)

// attributed returns the API server's errors about items in a probe. Items of the spec come first in each list: their
// errors become causes at the fields of the policy. Errors about items of the Service become warnings.
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
			out.warnings = append(out.warnings, fmt.Sprintf("no pod can have the items of Service %s: %s: %s", spec.Service, cause.Field, cause.Message))
		}
	}
	return out
}
