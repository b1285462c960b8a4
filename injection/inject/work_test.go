package inject

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// heavySet returns n policies that select every pod, each with this many variables. If same is true, all policies have
// the same variables, so that all apply.
func heavySet(tb testing.TB, n, variables int, same bool) *Set {
	tb.Helper()
	policies := make([]*Policy, n)
	for i := range policies {
		spec := refractv1beta1.ServiceInjectionPolicySpec{Selector: &metav1.LabelSelector{}}
		for j := range variables {
			name := fmt.Sprintf("V%d_%d", i, j)
			if same {
				name = fmt.Sprintf("V%d", j)
			}
			spec.Env = append(spec.Env, refractv1beta1.EnvVar{Name: name, Value: "a"})
		}
		policy, errs := Compile(&refractv1beta1.ServiceInjectionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%03d", i), Namespace: "shop", Generation: 1}, Spec: spec,
		})
		if len(errs) > 0 {
			tb.Fatal(errs.ToAggregate())
		}
		policies[i] = policy
	}
	return NewSet(policies...)
}

// heavyPod returns a pod that has only this many containers.
func heavyPod(tb testing.TB, containers int) []byte {
	tb.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "heavy", Namespace: "shop"}}
	for i := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "a"})
	}
	data, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// BenchmarkInjectHeavy injects the policies of one team into the largest possible pods.
func BenchmarkInjectHeavy(b *testing.B) {
	for _, c := range []struct {
		name                            string
		policies, variables, containers int
		same                            bool
	}{
		{"200x100x200-same", 200, 100, 200, true},
		{"200x100x200-different", 200, 100, 200, false},
		{"200x10x200-same", 200, 10, 200, true},
		{"20x10x20-same", 20, 10, 20, true},
		{"1x100x200", 1, 100, 200, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			set, pod := heavySet(b, c.policies, c.variables, c.same), heavyPod(b, c.containers)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := set.Inject(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestTooManyElements: a pod with too many containers and items gets no policies, and the elements beyond the limit are
// not read.
func TestTooManyElements(t *testing.T) {
	const most = maxElements - elementsOfContainer
	for n, want := range map[int]bool{most: false, most + 1: true} {
		items := strings.Repeat(`{"name":"A"},`, n-1) + `{"name":"A"}`
		b, err := readBody([]byte(`{"spec":{"containers":[{"name":"a","env":[`+items+`]}],"volumes":[]}}`), containersPart)
		if err != nil {
			t.Fatal(err)
		}
		if b.spent() != want || len(b.containers[0].env.entries) != most {
			t.Errorf("%d items: want too much work %t, got %t and %d items", n, want, b.spent(), len(b.containers[0].env.entries))
		}
	}
}
