package injection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// TestDisruptionBudget: a PodDisruptionBudget permits no eviction of a ReplicaSet's pods. All pods stay until the
// budget permits one, and the status names the reason.
func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(workload("ReplicaSet", "web", "replicas: 2, ", app),
		"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}")
	s.settled(map[string]int{"web": 2})
	follow := s.readiness()
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.untilPolicy("db", "names the reason for the wait", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Stale != 2 || !strings.Contains(inJSON(p.Status), "disruption budget") {
			return errors.New("want two stale pods, and the budget as the reason")
		}
		return nil
	})
	s.stays("no pod is evicted", aWhile, func(context.Context) error {
		if n := follow.least("web"); n < 2 {
			return fmt.Errorf("%d were ready at a time", n)
		}
		return nil
	})
	s.patch(&policyv1.PodDisruptionBudget{}, "web", `{"spec":{"minAvailable":1}}`)
	s.untilPolicy("db", "is rolled out", rolledOut(2))
	if n := follow.least("web"); n != 1 {
		t.Errorf("%d pods were ready at a time, want 1", n)
	}
}

// TestUnknownController: the owner of the pods has a kind whose pod template Refract does not know. Refract evicts the
// pods one after the other, and the owner replaces them.
func TestUnknownController(t *testing.T) {
	t.Parallel()
	s := begin(t)
	owner := s.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}")[0]
	pod := func(i int32) *corev1.Pod {
		p, err := typed(s.read(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web-%d, labels: {app: web, role: web}}, spec: %s}", i, app))[0])
		s.must(err)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
		return p
	}
	var made atomic.Int32
	for range 3 {
		s.must(s.api.Create(t.Context(), pod(made.Add(1))))
	}
	s.settled(map[string]int{"web": 3})
	stop := s.follow(&corev1.PodList{}, func(_ client.Object, gone bool) {
		if !gone {
			return
		}
		if err := s.api.Create(context.WithoutCancel(t.Context()), pod(made.Add(1))); err != nil {
			t.Errorf("Replacing a pod: %v", err)
		}
	})
	follow := s.readiness()
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.untilPolicy("db", "is rolled out", rolledOut(3))
	stop()
	if n := follow.least("web"); n < 2 || made.Load() != 6 {
		t.Errorf("%d pods were ready at a time, want 2; %d were created, want 6", n, made.Load())
	}
}
