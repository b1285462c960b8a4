package injection

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/playground"
	"refract.dev/kit/webhook/pki"
)

const (
	// configuration is the name of both webhook configurations, and podsWebhook is the name of the webhook for pods.
	configuration = "refract-injection"
	podsWebhook   = "pods.injection.refract.dev"
)

// errUnregistered means that no webhook for pods is registered.
var errUnregistered = errors.New("no webhook for pods is registered")

// podsHook returns the registered webhook for pods.
func (s *scene) podsHook(ctx context.Context) (*admissionregistrationv1.MutatingWebhook, error) {
	is := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := s.api.Get(ctx, client.ObjectKey{Name: configuration}, is); err != nil {
		return nil, err
	}
	for i := range is.Webhooks {
		if is.Webhooks[i].Name == podsWebhook {
			return &is.Webhooks[i], nil
		}
	}
	return nil, errUnregistered
}

// failedOpen returns the number of pods that the API server has admitted although the webhook did not answer.
func (s *scene) failedOpen() int {
	s.Helper()
	cfg, err := shared.Config(s.cluster)
	s.must(err)
	c, err := kubernetes.NewForConfig(cfg)
	s.must(err)
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(s.Context())
	s.must(err)
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_admission_webhook_fail_open_count{") || !strings.Contains(line, podsWebhook) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		s.must(err)
		n += int(value)
	}
	return n
}

// everywhere waits until both replicas know all policies, for tests that are [alone]. The API server sends requests to
// one replica only, so the other one may lack policies unnoticed: after an outage of the API server, a watch may pause
// for up to half a minute.
func (s *scene) everywhere() {
	s.Helper()
	s.until("both replicas know the policies", func(ctx context.Context) error {
		policies := &refractv1beta1.ServiceInjectionPolicyList{}
		if err := s.api.List(ctx, policies); err != nil {
			return err
		}
		for _, slot := range s.injectors.slots {
			text, err := slot.now.Metrics(ctx)
			if err != nil {
				return err
			}
			known := 0
			for line := range strings.Lines(text) {
				if value, ok := strings.CutPrefix(line, `refract_injection_policies{state="`); ok {
					_, count, _ := strings.Cut(value, " ")
					n, err := strconv.Atoi(strings.TrimSpace(count))
					if err != nil {
						return err
					}
					known += n
				}
			}
			if known != len(policies.Items) {
				return fmt.Errorf("replica %s knows %d policies of %d", slot.name, known, len(policies.Items))
			}
		}
		return nil
	})
}

// TestRegisteredOnlyWhileNeeded: without a policy, no webhook for pods is registered. The test needs a cluster without
// policies of other tests.
func TestRegisteredOnlyWhileNeeded(t *testing.T) {
	t.Parallel()
	s := alone(t)
	registered := func(ctx context.Context) error {
		_, err := s.podsHook(ctx)
		return err
	}
	unregistered := func(ctx context.Context) error {
		if err := registered(ctx); !errors.Is(err, errUnregistered) {
			return fmt.Errorf("want it unregistered, got error %w", cmp.Or(err, errors.New("none")))
		}
		return nil
	}
	s.until("no webhook is registered", unregistered)
	s.apply(sip("db", `{selector: {}, `+port+`}`))
	s.until("the webhook is registered", registered)
	hook, err := s.podsHook(t.Context())
	s.must(err)
	switch {
	case *hook.FailurePolicy != admissionregistrationv1.Ignore, *hook.TimeoutSeconds != 2,
		*hook.SideEffects != admissionregistrationv1.SideEffectClassNone, *hook.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy:
		t.Errorf("The webhook is %s", inJSON(hook))
	}
	s.inEffect("a: b", "db")
	s.apply(sip("mq", `{selector: {}, env: [{name: MQ, value: mq}]}`))
	s.must(s.api.Delete(t.Context(), &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"}}))
	s.stays("the webhook stays registered for one policy", time.Second, registered)
	s.must(s.api.Delete(t.Context(), &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "mq"}}))
	s.until("no webhook is registered", unregistered)

	// Changes of the registration by others are reverted.
	s.apply(sip("db", `{selector: {}, `+port+`}`))
	s.until("the webhook is registered", registered)
	s.must(s.api.Delete(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}}))
	s.until("it is registered again", registered)
}

// TestBrokenPolicy is case 17: an invalid policy is stored while the validating webhook is missing. Its status reports
// the error, and it affects no pod.
func TestBrokenPolicy(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.apply(sip("good", `{service: db, selector: {}, `+port+`}`))
	s.inEffect("a: b", "good")
	broken := s.read(sip("broken", `{selector: {matchExpressions: [{key: a, operator: Foo, values: [b]}]}, env: [{name: B, value: b}]}`))[0]
	s.until("the broken policy is stored", func(ctx context.Context) error {
		nobody := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}}
		if err := s.api.Delete(ctx, nobody); client.IgnoreNotFound(err) != nil {
			return err
		}
		return s.api.Create(ctx, broken.DeepCopy())
	})
	s.untilPolicy("broken", "is reported", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		return condition(p, refractv1beta1.ConditionAccepted, metav1.ConditionFalse, "InvalidPolicy")
	})
	for _, labels := range []string{"a: b", "other: label"} {
		p, err := typed(s.create(podOf("pod-"+labels[:1], labels+", "+playground.SidecarLabel+`: "false"`, `{containers: [{name: c1, image: i}]}`))[0])
		s.must(err)
		if got, err := sketch(p); err != nil || got != "db: good\nc1: env DB_PORT=6379" {
			t.Errorf("The pod with %s: %v\n%s", labels, err, got)
		}
	}
	s.until("broken policies are refused again", func(ctx context.Context) error {
		again := broken.DeepCopy()
		again.SetName("broken-too")
		if err := s.api.Create(ctx, again, client.DryRunAll); err == nil {
			return errors.New("it is accepted")
		}
		return nil
	})
}

// TestWebhookKilled: no replica runs. The API server creates pods nevertheless. The replicas later find and recreate
// the pods without their items.
func TestWebhookKilled(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.inEffect("role: web", "db")
	s.deployments("", app, "early")
	for _, slot := range s.injectors.slots {
		s.must(s.injectors.kill(slot))
	}
	s.deployments("", app, "late")
	s.apply(workload("StatefulSet", "late-set", "serviceName: late, replicas: 1, ", app))
	s.create(podOf("lone", "role: web, app: lone", `{containers: [{name: c1, image: i}]}`))
	s.settled(map[string]int{"late": 2, "late-set": 1, "lone": 1})
	for app, want := range map[string]bool{"early": true, "late": false, "late-set": false, "lone": false} {
		for _, p := range s.appPods(app) {
			if _, got := p.Annotations[refractv1beta1.InjectionAnnotation]; got != want {
				t.Errorf("Pod %s: injected %t, want %t", p.Name, got, want)
			}
		}
	}
	if err := s.api.Create(t.Context(), s.read(sip("unchecked", `{selector: {}, `+port+`}`))[0]); err == nil {
		t.Error("A policy was accepted without validation")
	}
	s.must(s.injectors.bury(t.Context()))
	s.must(s.injectors.restore(t.Context()))
	s.untilPolicy("db", "is injected into all pods that can be recreated", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Injected != 5 || p.Status.Stale != 1 || p.Status.Manual != 1 {
			return errors.New("want 5 pods injected, and one for a manual restart")
		}
		return nil
	})
	s.must(s.generationsStay(1, 2)(t.Context())) // The Deployment early was not restarted.
}

// TestWebhookFrozen: the replicas hang without closing their connections. The API server creates pods after its
// timeout, and the replicas recreate them later.
func TestWebhookFrozen(t *testing.T) {
	t.Parallel()
	s := alone(t)
	thaw := sync.OnceFunc(func() {
		for _, slot := range s.injectors.slots {
			s.must(slot.now.Signal(syscall.SIGCONT))
		}
		s.must(s.injectors.restore(context.WithoutCancel(t.Context()))) // A frozen replica that has lost its Lease ends when it continues.
	})
	t.Cleanup(thaw)
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.inEffect("role: web", "db")
	for _, slot := range s.injectors.slots {
		s.must(slot.now.Signal(syscall.SIGSTOP))
	}
	began := time.Now()
	s.deployments("", app, "web")
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("It took %s until two pods existed", took)
	}
	if got := s.uninjected("web"); len(got) != 2 {
		t.Errorf("want two pods without injection, got %v", got)
	}
	thaw()
	s.untilPolicy("db", "is rolled out", rolledOut(2))
}

// TestAPIServerRestarts stops the API server during the rollout of a policy.
func TestAPIServerRestarts(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.deployments("minReadySeconds: 2, ", app, "a", "b", "c")
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.begun(1)
	s.must(shared.Playground.Halt(other, playground.APIServer))
	s.stays("the API server is stopped", aWhile, func(ctx context.Context) error {
		if _, err := s.policy(ctx, "db"); err == nil {
			return errors.New("it answers")
		}
		return nil
	})
	s.until("the leader cannot renew its Lease, and ends", func(context.Context) error {
		for _, slot := range s.injectors.slots {
			if slot.now.Ended() {
				return nil
			}
		}
		return errors.New("both replicas run")
	})
	s.must(shared.Playground.Revive(t.Context(), other, playground.APIServer))
	s.must(s.injectors.restore(t.Context()))
	s.until("the policy is rolled out", func(ctx context.Context) error {
		p, err := s.policy(ctx, "db")
		if err != nil {
			return err
		}
		return rolledOut(6)(p)
	})
	s.must(s.generationsStay(2, 2, 2)(t.Context()))
}

// load creates objects at a rate.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	created int
	errs    []error
}

// atOnce limits the concurrent calls of a load. Without the limit, the calls would pile up on a slow machine until they
// time out.
const atOnce = 20

// start calls the function create at this rate per second, or more slowly on a slow machine. The argument most limits
// the number of calls.
func start(rate, most int, create func(ctx context.Context, i int) error) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stop: cancel}
	l.done.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		places := make(chan struct{}, atOnce)
		for i := range most {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			places <- struct{}{} // No select on ctx is necessary: a place becomes free when a call ends.
			l.done.Go(func() {
				defer func() { <-places }()
				err := create(context.WithoutCancel(ctx), i)
				l.mu.Lock()
				defer l.mu.Unlock()
				l.created++
				if err != nil {
					l.created--
					l.errs = append(l.errs, err)
				}
			})
		}
	})
	return l
}

// so returns the number of objects created so far.
func (l *load) so() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.created
}

// more waits until n more objects are created.
func (s *scene) more(l *load, n int) {
	s.Helper()
	from := l.so()
	s.until(fmt.Sprintf("%d more objects are created", n), func(context.Context) error {
		if got := l.so() - from; got < n {
			return fmt.Errorf("%d objects were created", got)
		}
		return nil
	})
}

// endLoad stops the load, fails the test if a creation has failed, and returns the number of created objects.
func (s *scene) endLoad(l *load) int {
	s.Helper()
	l.stop()
	l.done.Wait()
	if len(l.errs) > 0 {
		s.Errorf("%d of %d could not be created: %v", len(l.errs), l.created+len(l.errs), l.errs[0])
	}
	return l.created
}

// lonePod creates a pod without an owner that the scene's policy selects.
func (s *scene) lonePod(ctx context.Context, i int) error {
	return s.api.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprint("lone-", i), Labels: map[string]string{"role": "web", "app": "lone"}},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c1", Image: "i"}}},
	})
}

// uninjected returns the names of the app's pods without injection.
func (s *scene) uninjected(app string) []string {
	s.Helper()
	var names []string
	for _, p := range s.appPods(app) {
		if p.Annotations[refractv1beta1.ServicePrefix+"db"] == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// TestReplicaKilledUnderLoad kills the replica to which the API server sends requests, under a load of 100 pods a
// second: pods without an owner, and pods of ReplicaSets.
func TestReplicaKilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {maxConcurrent: 10}}`))
	s.inEffect("role: web", "db")
	s.everywhere()
	before := s.failedOpen()
	const size, most = 10, 40 // A limit, because the load runs longer on a slow machine.
	lone := start(50, math.MaxInt, s.lonePod)
	sets := start(5, most, func(ctx context.Context, i int) error {
		set := s.read(workload("ReplicaSet", fmt.Sprint("set-", i), fmt.Sprintf("replicas: %d, ", size), app))[0]
		return s.api.Create(ctx, set)
	})
	s.more(lone, 100)
	killed := s.injectors.busy()
	s.must(s.injectors.kill(killed))
	s.must(s.injectors.bury(t.Context())) // The killed replica may have led, but this test is about the webhook.
	s.more(lone, 150)
	n, owned := s.endLoad(lone), s.endLoad(sets)*size
	s.until("the ReplicaSets have all their pods", func(ctx context.Context) error {
		pods, err := s.pods(ctx, client.MatchingLabels{"role": "web"})
		if err == nil && len(pods) != n+owned {
			err = fmt.Errorf("%d pods, want %d", len(pods), n+owned)
		}
		return err
	})
	missed := s.uninjected("lone")
	t.Logf("%d pods without an owner and %d others were created; replica %s was killed; %d requests got no answer; %d pods without an owner are not injected",
		n, owned, killed.name, s.failedOpen()-before, len(missed))
	s.must(s.injectors.restore(t.Context())) // Like a kubelet. On a slow machine, the other replica may have lost its Lease and ended, too.
	p := s.untilPolicy("db", "is injected into all pods that can be recreated", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if int(p.Status.Matched) != n+owned || p.Status.Stale != p.Status.Manual || int(p.Status.Stale) != len(missed) {
			return fmt.Errorf("want %d pods matched, and %d for a manual restart", n+owned, len(missed))
		}
		return nil
	})
	if int(p.Status.Injected) != n+owned-len(missed) {
		t.Errorf("%d pods are injected, want %d", p.Status.Injected, n+owned-len(missed))
	}
	// Only requests in progress at the time of the kill may remain unanswered.
	if len(missed) > 20 {
		t.Errorf("%d pods without an owner are not injected, want at most 20", len(missed))
	}
	events := &corev1.EventList{}
	s.must(s.api.List(t.Context(), events, client.InNamespace(s.ns), client.MatchingFields{"reason": "FailedCreate"}))
	for i := range events.Items {
		t.Errorf("A pod could not be created: %s", events.Items[i].Message)
	}
	s.must(s.api.DeleteAllOf(t.Context(), &appsv1.ReplicaSet{}, client.InNamespace(s.ns), client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// TestCertificateRotation renews the certificate authority and then the certificate, under a load of 100 pods a second.
// The webhook must answer for every pod.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.inEffect("role: web", "db")
	before := s.failedOpen()
	pods := start(100, math.MaxInt, s.lonePod)
	s.more(pods, 50)

	var next map[string][]byte
	s.until("a new authority is issued", func(ctx context.Context) error {
		return webhookSecret(ctx, s.api, func(secret *corev1.Secret) (err error) {
			next, err = issue(secret.Data)
			secret.Data = next
			return err
		})
	})
	s.until("the new authority is trusted", func(ctx context.Context) error {
		hook, err := s.podsHook(ctx)
		if err == nil && !bytes.Equal(hook.ClientConfig.CABundle, next[pki.Authorities]) {
			err = fmt.Errorf("the CA bundle is not\n%s", next[pki.Authorities])
		}
		return err
	})
	s.more(pods, 100)
	s.until("the certificate is removed", func(ctx context.Context) error {
		return webhookSecret(ctx, s.api, func(secret *corev1.Secret) error {
			secret.Data[pki.ServingCertificate], secret.Data[pki.ServingKey] = []byte{}, []byte{} // The type of the Secret requires both keys.
			return nil
		})
	})
	var now []byte
	s.until("a new certificate is issued", func(ctx context.Context) error {
		return webhookSecret(ctx, s.api, func(secret *corev1.Secret) error {
			if now = secret.Data[pki.ServingCertificate]; len(now) == 0 || bytes.Equal(now, next[pki.ServingCertificate]) {
				return errors.New("there is no new certificate")
			}
			return nil
		})
	})
	for _, slot := range s.injectors.slots {
		s.until("replica "+slot.name+" presents the new certificate", func(context.Context) error { return presents(slot.address, now) })
	}
	s.more(pods, 100)
	// Existing connections use the old certificate. When a replica stops gracefully, the API server opens a new
	// connection to the other replica, and gets the new certificate.
	s.must(s.injectors.busy().now.Stop(syscall.SIGTERM))
	s.more(pods, 100)
	n := s.endLoad(pods)
	if missed, failed := s.uninjected("lone"), s.failedOpen()-before; len(missed) > 0 || failed > 0 {
		t.Errorf("Of %d pods, %d are not injected; the API server got no answer %d times: %v", n, len(missed), failed, missed[:min(len(missed), 5)])
	}
}

// presents returns an error unless the server at the address presents the certificate.
func presents(address string, want []byte) error {
	c, err := tls.Dial("tcp4", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer c.Close()
	block, _ := pem.Decode(want)
	if block == nil || !bytes.Equal(c.ConnectionState().PeerCertificates[0].Raw, block.Bytes) {
		return errors.New("it presents another certificate")
	}
	return nil
}
