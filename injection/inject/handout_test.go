package inject

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/fuzzed"
)

// fromSecret returns a variable with a value from a Secret.
func fromSecret(name, secret string) refractv1beta1.EnvVar {
	return refractv1beta1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "a"},
	}}
}

// TestNamed: Named returns the objects that a Service names even if some items are invalid or all items together exceed
// a limit. It does not copy the whole list for each item.
func TestNamed(t *testing.T) {
	p := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	p.Spec.Service, p.Spec.Implicit, p.Spec.Selector = "db", true, &metav1.LabelSelector{}
	items := &refractv1beta1.InjectedItems{}
	for i := range 2000 {
		items.Env = append(items.Env, refractv1beta1.EnvVar{Name: fmt.Sprintf("A%d", i), Value: "1"})
	}
	items.Env[7] = fromSecret("FIRST", "first")
	items.Env[8].Name = "1=" // An invalid name.
	items.Env[1990] = fromSecret("LAST", "last")
	items.Env[1991] = fromSecret("1=", "wrong")
	items.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "files"}}}, {},
	}
	items.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "all"}}}}
	p.Status.FromService = items
	var got []string
	fuzzed.Run(t, func() int {
		for _, r := range Named(p, items) {
			got = append(got, r.Name)
		}
		return 64 << 10 // The size of the items as JSON.
	})
	slices.Sort(got)
	if diff := cmp.Diff([]string{"all", "files", "first", "last"}, slices.Compact(got)); diff != "" {
		t.Errorf("Named(): -want, +got:\n%s", diff)
	}
	if len(p.Status.FromService.Env) != 2000 {
		t.Error("Named() has changed the policy.")
	}
}

// TestTooManyItems: if a policy has more items than can be injected, they are not examined one by one.
func TestTooManyItems(t *testing.T) {
	p := &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	p.Spec.Service, p.Spec.Implicit, p.Spec.Selector = "db", true, &metav1.LabelSelector{}
	p.Status.FromService = &refractv1beta1.InjectedItems{VolumeMounts: make([]corev1.VolumeMount, maxItems+1)}
	if _, errs := Compile(p); len(errs) != 1 || errs[0].Error() != "spec: Too many: 21846: must have at most 21845 items" {
		t.Errorf("Compile(): got %d errors, the first is %v", len(errs), errs[0])
	}
	p.Spec.Implicit = false // The items of the Service no longer count.
	p.Spec.Env = []refractv1beta1.EnvVar{{Name: "A", Value: "1"}}
	if _, errs := Compile(p); len(errs) > 0 {
		t.Errorf("Compile(): %v", errs)
	}
}
