package adversary

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

// The size of the attack, and the rate of the other pods.
const (
	heavyPolicies, heavyVariables, heavyContainers = 200, 100, 200
	attackers                                      = 16
	heavyFor                                       = 20 * time.Second
	othersPerSecond                                = 100
)

// injectionPolicy injects variables into all pods of a namespace.
func injectionPolicy(ns, name string, variables int) *refractv1beta1.ServiceInjectionPolicy {
	p := &refractv1beta1.ServiceInjectionPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       refractv1beta1.ServiceInjectionPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
	}
	for i := range variables {
		p.Spec.Env = append(p.Spec.Env, refractv1beta1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: "a"})
	}
	return p
}

// tryPod creates a pod with this number of containers as a dry run, and returns the admitted pod.
func tryPod(ctx context.Context, api client.Client, ns string, containers int) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "web-", Labels: map[string]string{"a": "b"}}}
	for i := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "example.com/web"})
	}
	return pod, api.Create(ctx, pod, client.DryRunAll)
}

// TestInjectionIsFair: while one team creates pods that cost the webhook as much as possible, as fast as possible,
// every pod of another team is injected.
func TestInjectionIsFair(t *testing.T) {
	env := harness.New(t, harness.Topology{Members: 1, Nodes: true, Own: true, CRDs: true})
	const member, heavy, light = "member-1", "heavy", "light"
	cfg, err := env.Config(member)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	api, err := harness.ClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	injector, err := env.ReplicaFor(member, "injector", "--injection", "--no-rollout", "--webhook-bind-address", ports[0], "--webhook-url", "https://"+ports[0])
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the injector is ready", injector.Ready)
	for _, ns := range []string{heavy, light} {
		if err := api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			t.Fatal(err)
		}
	}
	insist(t, api, injectionPolicy(light, "policy", 1))
	for i := range heavyPolicies {
		insist(t, api, injectionPolicy(heavy, fmt.Sprintf("policy-%03d", i), heavyVariables))
	}
	for ns, variables := range map[string]int{light: 1, heavy: heavyVariables} {
		harness.Eventually(t, "pods of "+ns+" are injected", func(ctx context.Context) error {
			pod, err := tryPod(ctx, api, ns, 1)
			if err != nil {
				return err
			}
			if got := len(pod.Spec.Containers[0].Env); got != variables {
				return fmt.Errorf("a pod has %d variables, want %d", got, variables)
			}
			return nil
		})
	}

	ctx, cancel := context.WithTimeout(t.Context(), heavyFor)
	defer cancel()
	var group sync.WaitGroup
	var attacked, created, uninjected atomic.Int64
	for range attackers {
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := tryPod(ctx, api, heavy, heavyContainers); err == nil {
					attacked.Add(1)
				}
			}
		})
	}
	pace := flowcontrol.NewTokenBucketRateLimiter(othersPerSecond, 1)
	for pace.Wait(ctx) == nil {
		group.Go(func() {
			pod, err := tryPod(t.Context(), api, light, 1)
			created.Add(1)
			switch {
			case err != nil:
				t.Errorf("A pod of another namespace: %v", err)
			case len(pod.Spec.Containers[0].Env) != 1:
				uninjected.Add(1)
			}
		})
	}
	group.Wait()
	t.Logf("beside %d heavy pods %d of another namespace were created", attacked.Load(), created.Load())
	if attacked.Load() == 0 || created.Load() == 0 {
		t.Error("There was no attack, or no other pod beside it.")
	}
	if uninjected.Load() > 0 {
		t.Errorf("%d of %d pods of another namespace were created without the variable of their policy", uninjected.Load(), created.Load())
	}
}

// insist creates an object, and retries while a busy machine makes the API server refuse it.
func insist(t *testing.T, api client.Client, object client.Object) {
	t.Helper()
	harness.Eventually(t, "there is "+object.GetName(), func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(api.Create(ctx, object.DeepCopyObject().(client.Object)))
	})
}
