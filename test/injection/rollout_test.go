package injection

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// aWhile is how long a test waits before it concludes that an event does not happen.
const aWhile = 4 * time.Second

// deployments creates Deployments of two pods each, and waits until the pods are ready.
func (s *scene) deployments(more, pod string, names ...string) {
	s.Helper()
	apps := map[string]int{}
	for _, name := range names {
		s.apply(workload("Deployment", name, "replicas: 2, "+more, pod))
		apps[name] = 2
	}
	s.settled(apps)
}

// generations returns the generations of the namespace's Deployments in the order of their names.
func (s *scene) generations(ctx context.Context) ([]int64, error) {
	list := &appsv1.DeploymentList{}
	err := s.api.List(ctx, list, client.InNamespace(s.ns))
	slices.SortFunc(list.Items, func(a, b appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	var all []int64
	for i := range list.Items {
		all = append(all, list.Items[i].Generation)
	}
	return all, err
}

// generationsStay returns a function that returns an error unless the Deployments have these generations.
func (s *scene) generationsStay(want ...int64) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := s.generations(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("generations are %v, want %v", got, want)
		}
		return err
	}
}

// phase returns a function that returns an error unless the policy's rollout has this phase.
func phase(want refractv1beta1.RolloutPhase) func(*refractv1beta1.ServiceInjectionPolicy) error {
	return func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if r := p.Status.Rollout; r == nil || r.Phase != want || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("want the phase %s", want)
		}
		return nil
	}
}

// rolledOut returns a function that returns an error unless n pods are injected and the rollout is complete.
func rolledOut(n int32) func(*refractv1beta1.ServiceInjectionPolicy) error {
	return func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Injected != n || p.Status.Stale != 0 {
			return fmt.Errorf("want %d injected and none stale", n)
		}
		return errors.Join(phase(refractv1beta1.PhaseComplete)(p), condition(p, refractv1beta1.ConditionRolledOut, metav1.ConditionTrue, ""))
	}
}

// rollout runs `refract rollout`, which must end with this exit code, and returns its output.
func (s *scene) rollout(code int, args ...string) string {
	s.Helper()
	out, err := shared.Refract(append([]string{"rollout", args[0], "--kubeconfig", shared.Kubeconfig(s.cluster), "-n", s.ns}, args[1:]...)...)
	got := 0
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		got = ended.ExitCode()
	}
	if got != code {
		s.Fatalf("refract rollout %s: exit code %d, want %d: %v\n%s", strings.Join(args, " "), got, code, err, out)
	}
	return out
}

// TestMissingSecret: a policy refers to missing objects. Pods are recreated only after the objects are created.
func TestMissingSecret(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, envFrom: [{configMapRef: {name: maybe, optional: true}}],
		env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db-cred, key: password}}}], volumes: [{name: conf, configMap: {name: db-conf}}]}`))
	blocked := func(want string) {
		t.Helper()
		s.untilPolicy("db", "is blocked for "+want, func(p *refractv1beta1.ServiceInjectionPolicy) error {
			if err := condition(p, refractv1beta1.ConditionReferencesResolved, metav1.ConditionFalse, ""); err != nil {
				return err
			}
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == refractv1beta1.ConditionReferencesResolved && !strings.Contains(c.Message, want) {
					return fmt.Errorf("want %s in its message", want)
				}
			}
			if p.Status.Stale != 2 {
				return errors.New("want 2 stale")
			}
			return phase(refractv1beta1.PhaseBlocked)(p)
		})
		s.stays("no pod is recreated", aWhile/2, s.generationsStay(1))
	}
	blocked("db-cred")
	s.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: db-conf}, data: {a: b}}", "{apiVersion: v1, kind: Secret, metadata: {name: db-cred}, stringData: {user: me}}")
	blocked("password")
	s.apply("{apiVersion: v1, kind: Secret, metadata: {name: db-cred}, stringData: {user: me, password: secret}}")
	p := s.untilPolicy("db", "is rolled out", rolledOut(2))
	if err := condition(p, refractv1beta1.ConditionReferencesResolved, metav1.ConditionTrue, ""); err != nil {
		t.Error(err)
	}
	s.must(s.generationsStay(2)(t.Context()))
}

// TestHaltsAfterCanary: new pods of the Deployments can no longer be scheduled. The first Deployment whose pods are
// recreated does not become available, and the others stay unchanged.
func TestHaltsAfterCanary(t *testing.T) {
	t.Parallel()
	s := begin(t)
	label := func(value string) {
		t.Helper()
		s.must(s.api.Patch(context.WithoutCancel(t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+s.ns+`":`+value+`}}}`))))
	}
	label(`"yes"`)
	t.Cleanup(func() { label("null") })
	s.deployments("progressDeadlineSeconds: 15, ", strings.Replace(app, "{", "{nodeSelector: {"+s.ns+`: "yes"}, `, 1), "a", "b", "c")
	label("null")
	follow := s.readiness()
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	halted := func(p *refractv1beta1.ServiceInjectionPolicy) error {
		return errors.Join(phase(refractv1beta1.PhaseHalted)(p), condition(p, refractv1beta1.ConditionRolledOut, metav1.ConditionFalse, "RolloutHalted"))
	}
	s.untilPolicy("db", "is halted", halted)
	sum := func(ctx context.Context) error {
		all, err := s.generations(ctx)
		if err != nil {
			return err
		}
		slices.Sort(all)
		if !slices.Equal(all, []int64{1, 1, 2}) {
			return fmt.Errorf("generations are %v", all)
		}
		return nil
	}
	s.stays("the others are unchanged", aWhile, sum)
	for _, app := range []string{"a", "b", "c"} {
		if got := follow.least(app); got < 2 {
			t.Errorf("%s: %d pods were ready at a time, want 2", app, got)
		}
	}
	if out := s.rollout(1, "status", "db"); !strings.Contains(out, "Halted") {
		t.Errorf("refract rollout status: want Halted, got\n%s", out)
	}
	label(`"yes"`)
	s.untilPolicy("db", "stays halted until it is resumed", halted)
	s.must(sum(t.Context()))
	s.rollout(0, "resume", "db")
	s.untilPolicy("db", "is rolled out", rolledOut(6))
	s.must(s.generationsStay(2, 2, 2)(t.Context()))
}

// TestManual: with strategy Manual, a rollout waits for an approval; with None, it never begins.
func TestManual(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	s.apply(sip("never", `{selector: {matchLabels: {role: web}}, env: [{name: NEVER, value: "1"}], rollout: {strategy: None}}`))
	s.untilPolicy("never", "counts the stale pods", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Stale != 2 {
			return errors.New("want 2 stale")
		}
		return nil
	})
	s.stays("no pod is recreated", aWhile/2, s.generationsStay(1))
	s.must(s.api.Delete(t.Context(), &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "never"}}))

	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {strategy: Manual}}`))
	s.untilPolicy("db", "awaits approval", phase(refractv1beta1.PhaseAwaitingApproval))
	s.stays("no pod is recreated", aWhile/2, s.generationsStay(1))
	s.rollout(0, "approve", "db")
	s.untilPolicy("db", "is rolled out", rolledOut(2))

	// An approval does not cover later changes.
	s.patch(&refractv1beta1.ServiceInjectionPolicy{}, "db", `{"spec":{"env":[{"name":"DB_PORT","value":"7000"}]}}`)
	s.untilPolicy("db", "awaits approval again", phase(refractv1beta1.PhaseAwaitingApproval))
	s.stays("no pod is recreated", aWhile/2, s.generationsStay(2))
}

// TestPause pauses a rollout that has begun, and resumes it.
func TestPause(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("minReadySeconds: 2, ", app, "a", "b", "c")
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {maxConcurrent: 1}}`))
	s.begun(1)
	s.rollout(0, "pause", "db")
	s.untilPolicy("db", "is paused", phase(refractv1beta1.PhasePaused))
	s.until("the Deployment that had begun is complete", func(ctx context.Context) error {
		p, err := s.policy(ctx, "db")
		if err == nil && p.Status.Injected != 2 {
			err = fmt.Errorf("%d pods are injected", p.Status.Injected)
		}
		return err
	})
	s.stays("no further Deployment is changed", aWhile, func(ctx context.Context) error {
		all, err := s.generations(ctx)
		if err == nil && all[0]+all[1]+all[2] != 4 {
			err = fmt.Errorf("generations are %v", all)
		}
		return err
	})
	s.rollout(0, "resume", "db")
	s.untilPolicy("db", "is rolled out", rolledOut(6))
	s.must(s.generationsStay(2, 2, 2)(t.Context()))
}

// TestOwnerReverts: another program owns a Deployment, and removes annotations that it did not write from the template.
func TestOwnerReverts(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	var reverted atomic.Int32
	var last int64
	s.follow(&appsv1.DeploymentList{}, func(o client.Object, gone bool) {
		d := o.(*appsv1.Deployment)
		// A write of the status is an event with the same template. Only a new generation means that the template was
		// written again.
		if _, there := d.Spec.Template.Annotations[refractv1beta1.HashAnnotation]; gone || !there || d.Generation <= last {
			return
		}
		last = d.Generation
		reverted.Add(1)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":null}}}}`))
		if err := s.api.Patch(context.WithoutCancel(t.Context()), d, patch); client.IgnoreNotFound(err) != nil {
			t.Errorf("Reverting: %v", err)
		}
	})
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.untilPolicy("db", "reports that the owner reverts", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if !strings.Contains(inJSON(p.Status), "OwnerReverts") {
			return errors.New("want OwnerReverts")
		}
		return nil
	})
	before := reverted.Load()
	s.stays("the restarts end", aWhile, func(context.Context) error {
		if n := reverted.Load(); n > before+1 {
			return fmt.Errorf("the hash was written %d times, %d of them after the report", n, n-before)
		}
		return nil
	})
}

// TestNoSecondRollout is the second half of case 24: simultaneous changes are rolled out together, and changes without
// an effect on pods are not rolled out.
func TestNoSecondRollout(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	// The rollout begins only after both policies are known, because the annotation prevents it. A change of a
	// Deployment's annotations also increments its generation.
	const before = 3
	s.patch(&appsv1.Deployment{}, "web", `{"metadata":{"annotations":{"refract.dev/rollout":"false"}}}`)
	s.apply(
		sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`),
		sip("mq", `{service: mq, selector: {matchLabels: {app: web}}, env: [{name: MQ, value: mq}]}`),
	)
	for _, name := range []string{"db", "mq"} {
		s.untilPolicy(name, "waits for the owner", func(p *refractv1beta1.ServiceInjectionPolicy) error {
			if p.Status.Stale != 2 {
				return errors.New("want 2 stale")
			}
			return nil
		})
	}
	s.patch(&appsv1.Deployment{}, "web", `{"metadata":{"annotations":{"refract.dev/rollout":null}}}`)
	s.untilPolicy("db", "is rolled out", rolledOut(2))
	s.untilPolicy("mq", "is rolled out", rolledOut(2))
	s.must(s.generationsStay(before + 1)(t.Context()))

	for what, patch := range map[string]string{
		"a label":             `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`,
		"a number for a text": `{"spec":{"env":[{"name":"DB_PORT","value":6379}]}}`,
		"the rollout":         `{"spec":{"rollout":{"maxConcurrent":7}}}`,
	} {
		s.patch(&refractv1beta1.ServiceInjectionPolicy{}, "db", patch)
		s.untilPolicy("db", "is observed after a change of "+what, rolledOut(2))
	}
	s.stays("there is no further rollout", aWhile, s.generationsStay(before+1))

	s.patch(&refractv1beta1.ServiceInjectionPolicy{}, "db", `{"spec":{"env":[{"name":"DB_PORT","value":7000}]}}`)
	s.has("web", "db: db\nmq: mq\napp: env DB_PORT=7000 MQ=mq")
	s.untilPolicy("db", "is rolled out", rolledOut(2))
	s.must(s.generationsStay(before + 2)(t.Context()))

	// The deletion of a policy leaves pods unchanged.
	s.must(s.api.Delete(t.Context(), &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "mq"}}))
	s.stays("there is no further rollout", aWhile/2, s.generationsStay(before+2))
}
