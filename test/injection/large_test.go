package injection

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// TestLargeRecord: many policies with long names apply to a pod. Their record does not fit into the annotations of the
// pod, which are limited to 256 KiB together.
func TestLargeRecord(t *testing.T) {
	t.Parallel()
	const policies = 600
	s := begin(t)
	s.many(policies, 8, func(ctx context.Context, i int) error {
		return s.api.Create(ctx, &refractv1beta1.ServiceInjectionPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("%s%03d", strings.Repeat("a", 240), i)},
			Spec: refractv1beta1.ServiceInjectionPolicySpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Env: []refractv1beta1.EnvVar{{Name: fmt.Sprintf("VAR_%03d", i), Value: "1"}},
			},
		})
	})
	s.until("all variables are injected", func(ctx context.Context) error {
		pod := s.read(podOf("web", "a: b", `{containers: [{name: c1, image: i}]}`))[0]
		pod.SetGenerateName("web-")
		pod.SetName("")
		if err := s.api.Create(ctx, pod); err != nil {
			return err
		}
		p, err := typed(pod)
		if err != nil {
			return err
		}
		r, err := recordOf(p)
		if err != nil {
			return err
		}
		if got := len(p.Spec.Containers[0].Env); got != policies || r.Hash != "" && !r.Trimmed {
			return fmt.Errorf("%d variables are injected; record: %d bytes, trimmed %t", got, len(p.Annotations[refractv1beta1.InjectionAnnotation]), r.Trimmed)
		}
		return nil
	})
}
