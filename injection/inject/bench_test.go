package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// benchPod returns the JSON of a pod of about 10 KB with these labels, as an API server sends it to a webhook.
func benchPod(b *testing.B, podLabels map[string]string, containers int) []byte {
	b.Helper()
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-5d4f8c7b9-", Namespace: "shop", Labels: map[string]string{}, Annotations: map[string]string{}},
	}
	maps.Copy(pod.Labels, podLabels)
	for i := range 8 {
		pod.Labels[fmt.Sprintf("app.kubernetes.io/label-%d", i)] = fmt.Sprintf("value-%d", i)
		pod.Annotations[fmt.Sprintf("example.com/annotation-%d", i)] = strings.Repeat("x", 60)
	}
	for i := range 6 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name:         fmt.Sprintf("volume-%d", i),
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("config-%d", i)}}},
		})
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz"}}, PeriodSeconds: 10}
	for i := range containers {
		c := corev1.Container{
			Name: fmt.Sprintf("container-%d", i), Image: "registry.example.com/shop/web:v1.2.3",
			Args:          []string{"--listen=:8080", "--log-level=info", "--config=/etc/web/config.yaml"},
			LivenessProbe: probe, ReadinessProbe: probe, TerminationMessagePath: "/dev/termination-log",
		}
		for j := range 20 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SOME_VARIABLE_%d", j), Value: fmt.Sprintf("the value of variable %d of the container", j)})
		}
		for j := range 6 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", j), MountPath: fmt.Sprintf("/etc/config/%d", j), ReadOnly: true})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	data, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// benchSet returns a set of n policies. Those with an index below matching select pods with the label consumes: yes.
func benchSet(b *testing.B, n, matching int) *Set {
	b.Helper()
	policies := make([]*Policy, n)
	for i := range policies {
		chosen := map[string]string{"role": fmt.Sprintf("role-%d", i)}
		if i < matching {
			chosen = map[string]string{"consumes": "yes"}
		}
		volume := fmt.Sprintf("injected-%d", i)
		policy, errs := Compile(&refractv1beta1.ServiceInjectionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%d", i), Namespace: "shop", Generation: 1},
			Spec: refractv1beta1.ServiceInjectionPolicySpec{
				Service:  fmt.Sprintf("service-%d", i),
				Selector: &metav1.LabelSelector{MatchLabels: chosen},
				Env: []refractv1beta1.EnvVar{
					{Name: fmt.Sprintf("SERVICE_%d_HOST", i), Value: "db.shop.svc"},
					{Name: fmt.Sprintf("SERVICE_%d_PORT", i), Value: "6379"},
					{Name: fmt.Sprintf("SERVICE_%d_POD", i), ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				},
				EnvFrom:      []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("credentials-%d", i)}}}},
				Volumes:      []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: fmt.Sprintf("/injected/%d", i)}},
			},
		})
		if len(errs) > 0 {
			b.Fatal(errs.ToAggregate())
		}
		policies[i] = policy
	}
	return NewSet(policies...)
}

// BenchmarkInject injects into pods of several sizes. Few or none of many policies match.
func BenchmarkInject(b *testing.B) {
	consumer := map[string]string{"consumes": "yes"}
	cases := []struct {
		name                           string
		labels                         map[string]string
		containers, policies, matching int
	}{
		{"3of100", consumer, 3, 100, 3},
		{"0of100", map[string]string{"consumes": "no"}, 3, 100, 3},
		{"3of1000", consumer, 3, 1000, 3},
		{"1000of1000", consumer, 3, 1000, 1000},
		{"3of100-200containers", consumer, 200, 100, 3},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			set, pod := benchSet(b, c.policies, c.matching), benchPod(b, c.labels, c.containers)
			b.SetBytes(int64(len(pod)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := set.Inject(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkInjectTwice injects into a pod that already has all items. An API server sends such a pod when it calls the
// webhook again after another webhook has changed the pod.
func BenchmarkInjectTwice(b *testing.B) {
	set, pod := benchSet(b, 100, 3), benchPod(b, map[string]string{"consumes": "yes"}, 3)
	pod = patched(b, set, pod)
	b.ReportAllocs()
	for b.Loop() {
		result, err := set.Inject(pod)
		if err != nil || result.Patch != nil {
			b.Fatal(err, string(result.Patch))
		}
	}
}

// BenchmarkExamine examines an injected pod.
func BenchmarkExamine(b *testing.B) {
	set, pod := benchSet(b, 100, 3), benchPod(b, map[string]string{"consumes": "yes"}, 3)
	pod = patched(b, set, pod)
	b.ReportAllocs()
	for b.Loop() {
		if x, err := set.Examine(pod); err != nil || x.Stale() {
			b.Fatal(err, x)
		}
	}
}
