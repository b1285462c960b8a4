// Package injection tests the injection into pods as users see it: `refract run --injection` runs as processes beside
// real control planes of members, with controllers, a scheduler, and simulated Nodes that run pods.
package injection

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

const (
	// member is the cluster of most tests, which share its two replicas. other is the cluster of tests that stop
	// replicas or need a cluster without other policies: see [alone].
	member, other = "member-1", "member-2"

	// trusted is a user whose policies may refer to all objects.
	trusted = "gitops"

	// parallel is the number of parallel tests. It is high, because tests that wait for the cluster other also count.
	parallel = "14"
)

var (
	// shared has the hub and the members of all tests.
	shared *harness.Env
	// injectors are the replicas that inject on member.
	injectors *replicas
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallel); err != nil { // The flag -parallel overrides it.
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	harness.Main(m, harness.Topology{Members: 2, Nodes: true, Own: true, CRDs: true}, func(ctx context.Context, e *harness.Env) (_ func() error, err error) {
		shared = e
		injectors, err = startReplicas(ctx, member, []string{"one", "two"})
		return nil, err
	})
}

// warnings collects the warnings of an API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader keeps a warning.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.all, "\n")
	w.all = nil
	return text
}

// connect returns a client of a cluster for a user, without a cache. An empty user means an administrator. The handler
// receives the warnings of the API server.
func connect(cluster, user string, to rest.WarningHandler) (client.WithWatch, error) {
	cfg, err := shared.Config(cluster)
	if err != nil {
		return nil, err
	}
	cfg.Impersonate.UserName, cfg.WarningHandler = user, to
	return harness.ClientFor(cfg)
}

// scene is one test: a namespace of a cluster, and an administrator's client.
type scene struct {
	*testing.T

	cluster   string
	ns        string
	api       client.WithWatch
	warnings  *warnings
	injectors *replicas // The replicas of the cluster; nil unless the test is [alone].
}

// begin creates a namespace on member for the test.
func begin(t *testing.T) *scene {
	t.Helper()
	return beginOn(t, member, harness.NameOf(t))
}

// beginOn creates a namespace whose pods get no token by default, so that they only have the volumes of their
// manifests. The objects stay after the test, until the clusters stop, because their deletion would cost as much as
// their creation.
func beginOn(t *testing.T, cluster, ns string) *scene {
	t.Helper()
	s := on(t, cluster, ns)
	s.must(s.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	began := time.Now()
	t.Cleanup(func() { s.end(began) })
	s.until("the namespace has a service account", func(ctx context.Context) error {
		account := &corev1.ServiceAccount{}
		if err := s.api.Get(ctx, client.ObjectKey{Namespace: ns, Name: "default"}, account); err != nil {
			return err
		}
		account.AutomountServiceAccountToken = new(bool)
		return s.api.Update(ctx, account)
	})
	return s
}

// on returns the scene of a namespace that another part of the test creates.
func on(t *testing.T, cluster, ns string) *scene {
	t.Helper()
	s := &scene{T: t, cluster: cluster, ns: ns, warnings: &warnings{}}
	var err error
	s.api, err = connect(cluster, "", s.warnings)
	s.must(err)
	return s
}

// with returns the scene for a subtest.
func (s *scene) with(t *testing.T) *scene {
	t.Helper()
	sub := *s
	sub.T = t
	return &sub
}

// end logs the duration of the test, and details of a failure.
func (s *scene) end(began time.Time) {
	s.Logf("the test took %s", time.Since(began).Round(100*time.Millisecond))
	if !s.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	s.explain(ctx)
}

// clear deletes the policies, so that they do not affect other tests.
func (s *scene) clear() {
	ctx := context.WithoutCancel(s.Context())
	if err := s.api.DeleteAllOf(ctx, &refractv1beta1.ServiceInjectionPolicy{}, client.InNamespace(s.ns)); err != nil {
		s.Error(err)
	}
}

// explain logs the state of the objects and the ends of the logs.
func (s *scene) explain(ctx context.Context) {
	for _, kind := range []string{"serviceinjectionpolicies.refract.dev", "deployments,statefulsets,daemonsets,replicasets,pods"} {
		if out, err := shared.Kubectl(s.cluster, "", "get", kind, "-n", s.ns, "-o", "wide", "--ignore-not-found"); err == nil {
			s.Logf("%s:\n%s", kind, out[:min(len(out), 6000)])
		}
	}
	list := &refractv1beta1.ServiceInjectionPolicyList{}
	if err := s.api.List(ctx, list, client.InNamespace(s.ns), client.Limit(20)); err == nil {
		for i := range list.Items {
			s.Logf("the status of %s is %s", list.Items[i].Name, inJSON(list.Items[i].Status))
		}
	}
	logs, err := filepath.Glob(filepath.Join(shared.Dir, "*.log"))
	s.must(err)
	for _, log := range logs {
		s.Logf("the end of %s:\n%s", filepath.Base(log), harness.LogTail(log))
	}
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until is [harness.Eventually] for the test.
func (s *scene) until(what string, try func(context.Context) error) {
	s.Helper()
	harness.Eventually(s.T, what, try)
}

// stays is [harness.Consistently] for the test.
func (s *scene) stays(what string, during time.Duration, is func(context.Context) error) {
	s.Helper()
	harness.Consistently(s.T, what, during, is)
}

// read returns the objects of a manifest. Namespaced objects without a namespace get that of the scene.
func (s *scene) read(manifest string) []*unstructured.Unstructured {
	s.Helper()
	var all []*unstructured.Unstructured
	docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		var raw runtime.RawExtension
		err := docs.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all
		}
		u := &unstructured.Unstructured{}
		if err == nil {
			err = u.UnmarshalJSON(raw.Raw)
		}
		if err != nil {
			s.Fatalf("%v in\n%s", err, manifest)
		}
		namespaced, err := s.api.IsObjectNamespaced(u)
		s.must(err)
		if namespaced && u.GetNamespace() == "" {
			u.SetNamespace(s.ns)
		}
		all = append(all, u)
	}
}

// apply applies manifests with server-side apply.
func (s *scene) apply(manifests ...string) {
	s.Helper()
	for _, u := range s.read(strings.Join(manifests, "\n---\n")) {
		s.must(harness.Apply(s.Context(), s.api, u.Object))
	}
}

// create creates the objects of a manifest, and returns them as stored.
func (s *scene) create(manifest string, o ...client.CreateOption) []*unstructured.Unstructured {
	s.Helper()
	all := s.read(manifest)
	for _, u := range all {
		s.must(s.api.Create(s.Context(), u, o...))
	}
	return all
}

// patch merges a patch into an object.
func (s *scene) patch(o client.Object, name, patch string) {
	s.Helper()
	o.SetNamespace(s.ns)
	o.SetName(name)
	s.must(s.api.Patch(s.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// policy returns a stored policy.
func (s *scene) policy(ctx context.Context, name string) (*refractv1beta1.ServiceInjectionPolicy, error) {
	p := &refractv1beta1.ServiceInjectionPolicy{}
	err := s.api.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, p)
	return p, err
}

// untilPolicy waits until the function is returns no error for the policy, and returns the policy.
func (s *scene) untilPolicy(name, what string, is func(*refractv1beta1.ServiceInjectionPolicy) error) *refractv1beta1.ServiceInjectionPolicy {
	s.Helper()
	var p *refractv1beta1.ServiceInjectionPolicy
	s.until("policy "+name+": "+what, func(ctx context.Context) (err error) {
		if p, err = s.policy(ctx, name); err != nil {
			return err
		}
		if err := is(p); err != nil {
			return fmt.Errorf("%w; its status is %s", err, inJSON(p.Status))
		}
		return nil
	})
	return p
}

// condition returns an error unless the policy has the condition with this status and, if reason is not empty, with
// this reason.
func condition(p *refractv1beta1.ServiceInjectionPolicy, kind string, want metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(p.Status.Conditions, kind)
	if c == nil || c.Status != want || (reason != "" && c.Reason != reason) || c.ObservedGeneration != p.Generation {
		return fmt.Errorf("want %s=%s %s, got %s", kind, want, reason, inJSON(c))
	}
	return nil
}

// accepted waits until the policies are in effect.
func (s *scene) accepted(names ...string) {
	s.Helper()
	for _, name := range names {
		s.untilPolicy(name, "is in effect", func(p *refractv1beta1.ServiceInjectionPolicy) error {
			return condition(p, refractv1beta1.ConditionAccepted, metav1.ConditionTrue, "")
		})
	}
}

// inEffect waits until the policies are in effect, and until a dry run of a pod with these labels shows an injection:
// the API server uses a new webhook configuration only after a moment.
func (s *scene) inEffect(labels string, names ...string) {
	s.Helper()
	s.accepted(names...)
	s.until("pods are injected", func(ctx context.Context) error {
		pod := s.read(podOf("probe", labels, "{containers: [{name: probe, image: i}]}"))[0]
		if err := s.api.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if pod.GetAnnotations()[refractv1beta1.InjectionAnnotation] == "" {
			return fmt.Errorf("the pod is not injected: %v", pod.GetAnnotations())
		}
		return nil
	})
}

// podOf returns the manifest of a pod that the scheduler ignores.
func podOf(name, labels, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {%s}}, spec: %s}", name, labels,
		strings.Replace(spec, "{", "{schedulerName: nobody, ", 1))
}

// sip returns the manifest of a ServiceInjectionPolicy.
func sip(name, spec string) string {
	return fmt.Sprintf("{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: %s}, spec: %s}", name, spec)
}

// pods returns the pods of the namespace that have the labels, except completed pods and those that are being deleted.
func (s *scene) pods(ctx context.Context, labels client.MatchingLabels) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := s.api.List(ctx, list, client.InNamespace(s.ns), labels); err != nil {
		return nil, err
	}
	var all []corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			all = append(all, *p)
		}
	}
	return all, nil
}

// absent returns nil if err reports that the object does not exist.
func absent(err error) error {
	if err == nil {
		return errors.New("the object exists")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
