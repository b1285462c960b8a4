package injection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

// TestEphemeralContainers adds ephemeral containers to running pods.
func TestEphemeralContainers(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(
		sip("asked", `{service: db, selector: {}, containers: {ephemeralContainers: true}, `+port+`, `+cache+`}`),
		sip("unasked", `{selector: {}, env: [{name: U, value: u}]}`),
		sip("with-path", `{selector: {matchLabels: {path: part}}, containers: {ephemeralContainers: true}, env: [{name: W, value: w}], volumes: [{name: w, emptyDir: {}}], volumeMounts: [{name: w, mountPath: /w, subPath: w}]}`),
	)
	s.inEffect("path: part", "asked", "unasked", "with-path")
	for name, tc := range map[string]struct{ labels, want string }{
		"whole": {"path: whole", "env OWN=own DB_PORT=6379; mount /cache=cache-volume"},
		"part":  {"path: part", "env OWN=own DB_PORT=6379; mount /cache=cache-volume"}, // An ephemeral container cannot mount a subPath.
	} {
		before, err := typed(s.create(podOf(name, tc.labels, `{containers: [{name: c1, image: i}]}`))[0])
		s.must(err)
		var after *corev1.Pod
		for _, debugger := range []string{"first", "second"} {
			s.until("container "+debugger+" is added", func(ctx context.Context) error {
				after = &corev1.Pod{}
				if err := s.api.Get(ctx, client.ObjectKeyFromObject(before), after); err != nil {
					return err
				}
				after.Spec.EphemeralContainers = append(after.Spec.EphemeralContainers, corev1.EphemeralContainer{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{
						Name: debugger, Image: "i", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
						Env: []corev1.EnvVar{{Name: "OWN", Value: "own"}},
					},
				})
				return s.api.SubResource("ephemeralcontainers").Update(ctx, after)
			})
		}
		if len(after.Spec.EphemeralContainers) != 2 {
			t.Fatalf("Pod %s has %d ephemeral containers", name, len(after.Spec.EphemeralContainers))
		}
		for i := range after.Spec.EphemeralContainers {
			c := &after.Spec.EphemeralContainers[i]
			if diff := cmp.Diff(tc.want, partsOf(c.Env, c.EnvFrom, c.VolumeMounts)); diff != "" {
				t.Errorf("Container %s of pod %s: -want, +got:\n%s", c.Name, name, diff)
			}
		}
		if diff := cmp.Diff(before.Annotations, after.Annotations); diff != "" {
			t.Errorf("Annotations of pod %s: -before, +after:\n%s", name, diff)
		}
		if diff := cmp.Diff(before.Spec.Containers, after.Spec.Containers); diff != "" {
			t.Errorf("Containers of pod %s: -before, +after:\n%s", name, diff)
		}
	}
}

// TestOtherNamespaces: a policy only applies to pods of its own namespace, and never in the system namespaces of a
// cluster.
func TestOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := begin(t)
	elsewhere := beginOn(t, member, s.ns+"-elsewhere")
	s.apply(sip("everybody", `{selector: {}, `+port+`}`))
	s.inEffect("a: b", "everybody")
	for _, ns := range []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, corev1alpha1.SystemNamespace, elsewhere.ns} {
		in := *s
		in.ns = ns
		policy := in.read(sip("everybody", `{selector: {}, `+port+`}`))[0]
		if ns != elsewhere.ns {
			s.must(s.api.Create(t.Context(), policy))
			t.Cleanup(func() { s.must(s.api.Delete(context.WithoutCancel(t.Context()), policy)) })
		}
		pod := in.read(podOf(s.ns, "a: b", `{automountServiceAccountToken: false, containers: [{name: c1, image: i}]}`))[0]
		s.until("a pod can be created in "+ns, func(ctx context.Context) error { return s.api.Create(ctx, pod) }) // A new namespace has no ServiceAccount yet.
		t.Cleanup(func() {
			s.must(s.api.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0)))
		})
		p, err := typed(pod)
		s.must(err)
		if got, err := sketch(p); err != nil || got != "" || len(p.Annotations) > 0 {
			t.Errorf("The pod of %s: %v\n%s\n%v", ns, err, got, p.Annotations)
		}
	}
}

// TestThousandPolicies has 1,000 policies and 600 pods in one namespace. The namespace is on the hub, where no
// controllers, scheduler and kubelets delay the pods. There is one replica, because an API server sends its requests to
// one replica only.
func TestThousandPolicies(t *testing.T) {
	const (
		policies, forAll = 1000, 10
		groups           = (policies - forAll) / 2
		pods             = 600 // More than a page of a list.
		workers          = 16
	)
	t.Parallel()
	turn(t, "hub")
	injectors, err := startReplicas(t.Context(), "hub", []string{"alone"})
	if err != nil {
		t.Fatal(err)
	}
	s := beginOn(t, "hub", harness.NameOf(t))
	t.Cleanup(func() { s.leave(injectors) })
	began := time.Now()
	lap := func(what string) {
		t.Helper()
		t.Logf("%s after %s", what, time.Since(began).Round(10*time.Millisecond))
	}
	s.many(policies, workers, func(ctx context.Context, i int) error {
		selector := map[string]string{"group": fmt.Sprint(i % groups)}
		if i < forAll {
			selector = nil
		}
		return s.api.Create(ctx, &refractv1beta1.ServiceInjectionPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("policy-%03d", i)},
			Spec: refractv1beta1.ServiceInjectionPolicySpec{
				Service: "db", Selector: &metav1.LabelSelector{MatchLabels: selector},
				Env: []refractv1beta1.EnvVar{{Name: fmt.Sprintf("VAR_%03d", i), Value: "1"}},
			},
		})
	})
	lap("1,000 policies are created")
	s.accepted(fmt.Sprintf("policy-%03d", policies-1)) // It costs less to wait for the last policy first than to list all policies repeatedly.
	list := &refractv1beta1.ServiceInjectionPolicyList{}
	s.until("all policies are in effect", func(ctx context.Context) error {
		if err := s.api.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if err := condition(&list.Items[i], refractv1beta1.ConditionAccepted, metav1.ConditionTrue, ""); err != nil {
				return err
			}
		}
		return nil
	})
	s.inEffect("group: '0'", "policy-000")
	lap("all policies are in effect")

	var missed atomic.Int64
	before, err := shared.Unanswered(s.cluster, "pods", s.ns) // Dry runs that the webhook did not answer in time.
	s.must(err)
	s.many(pods, workers, func(ctx context.Context, i int) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprint("pod-", i), Labels: map[string]string{"group": fmt.Sprint(i % groups)}},
			Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c1", Image: "i"}}},
		}
		return s.admitted(ctx, pod, forAll+groupSize(policies, forAll, groups, i%groups), &missed)
	})
	unanswered, err := shared.Unanswered(s.cluster, "pods", s.ns)
	s.must(err)
	if n := int(missed.Load()); n > unanswered-before || n > pods/10 {
		t.Errorf("%d pods were created without their variables, %d of them because the webhook did not answer in time", n, unanswered-before)
	} else if n > 0 {
		t.Logf("%d pods were created without variables, because the webhook did not answer in time, and were created anew", n)
	}
	lap(fmt.Sprint(pods, " pods are created, each with all its variables"))

	s.untilPolicy("policy-000", "counts all pods", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Injected != pods {
			return fmt.Errorf("want %d injected", pods)
		}
		return nil
	})
	s.until("all pods are counted", func(ctx context.Context) error {
		if err := s.api.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			return err
		}
		var all, one int32
		for i := range list.Items {
			p := &list.Items[i].Status
			if p.Injected != p.Matched || p.Stale != 0 {
				return fmt.Errorf("policy %s: its status is %s", list.Items[i].Name, inJSON(p))
			}
			if i < forAll {
				all += p.Injected
			} else {
				one += p.Injected
			}
		}
		if all != forAll*pods || one != 2*pods {
			return fmt.Errorf("the policies count %d and %d pods, want %d and %d", all, one, forAll*pods, 2*pods)
		}
		return nil
	})
	lap("all pods are counted")

	s.patch(&refractv1beta1.ServiceInjectionPolicy{}, "policy-000", `{"spec":{"env":[{"name":"VAR_000","value":"2"}]}}`)
	s.untilPolicy("policy-000", "reports that no pod has the new value", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Stale != pods || p.Status.Manual != pods || len(p.Status.Workloads) > 20 {
			return errors.New("want all pods stale, and to be restarted by hand")
		}
		return nil
	})
	lap("the change is reported")
	writes, err := shared.Writes(s.cluster)
	s.must(err)
	writes = slices.DeleteFunc(writes, func(w harness.Write) bool { return w.Namespace != s.ns })
	t.Logf("%d writes of status", len(writes))
}

// leave stops replicas, and removes their webhook configurations.
func (s *scene) leave(r *replicas) {
	for _, slot := range r.slots {
		s.must(slot.now.Stop(syscall.SIGTERM))
	}
	for _, o := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		o.SetName(configuration)
		s.must(client.IgnoreNotFound(s.api.Delete(context.WithoutCancel(s.Context()), o)))
	}
}

// groupSize returns the number of policies for a group.
func groupSize(policies, forAll, groups, group int) int {
	n := 0
	for i := forAll; i < policies; i++ {
		if i%groups == group {
			n++
		}
	}
	return n
}

// admitted creates a pod that must get this number of variables. If the pod gets none because the webhook did not
// answer in time, admitted counts it in missed and creates the pod again.
func (s *scene) admitted(ctx context.Context, pod *corev1.Pod, want int, missed *atomic.Int64) error {
	const tries = 5
	for try := 1; ; try++ {
		is := pod.DeepCopy()
		if err := s.api.Create(ctx, is); err != nil {
			return err
		}
		got := len(is.Spec.Containers[0].Env)
		if got == want {
			return nil
		}
		if got > 0 || try == tries {
			return fmt.Errorf("pod %s has %d variables, want %d", pod.Name, got, want)
		}
		missed.Add(1)
		if err := s.api.Delete(ctx, is, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	}
}

// many calls the function do n times with several workers, and fails the test with the first error.
func (s *scene) many(n, workers int, do func(ctx context.Context, i int) error) {
	s.Helper()
	group, ctx := errgroup.WithContext(s.Context())
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	s.must(group.Wait())
}
