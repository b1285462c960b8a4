// Package injection tests the injection of pods as its users see it: `refract run
// --injection` as processes beside the real control plane of a member, with
// controllers, a scheduler, and Nodes on which pods run.
package injection

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/fleet"
)

const (
	// member is the cluster of most tests, with two replicas that inject; other is one
	// whose pods nobody injects, but for the test that says otherwise.
	member, other = "member-1", "member-2"

	// patience is how long anything may take that has no limit of its own. A machine
	// that is busy with other things is slow.
	patience = 90 * time.Second

	// trusted is a user whose policies are taken whatever they may read.
	trusted = "gitops"
)

var (
	// shared is the fleet of all tests.
	shared *fleet.Fleet
	// injectors are the replicas that inject into the pods of member.
	injectors *replicas
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // Clients of the tests have nothing to say.
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "injection:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "refract-injection-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if shared, err = fleet.StartControlled(ctx, fleet.Options{Dir: dir, Root: "../..", Members: 2, Whole: true}); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	if injectors, err = startReplicas(ctx); err != nil {
		return 0, err
	}
	defer injectors.close()
	return m.Run(), nil
}

// warnings are those of an API server.
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

// take returns what has come since it was asked last.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Join(w.all, "\n")
	w.all = nil
	return text
}

// config returns a user's way into a cluster; an empty user is an administrator.
func config(cluster, user string, to rest.WarningHandler) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig(cluster))
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.UserAgent, cfg.WarningHandler = -1, "test", to
	cfg.Impersonate.UserName = user
	return cfg, nil
}

// connect returns a client that reads what is there now.
func connect(cluster, user string, to rest.WarningHandler) (client.WithWatch, error) {
	cfg, err := config(cluster, user, to)
	if err != nil {
		return nil, err
	}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, corev1alpha1.AddToScheme, refractv1beta1.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: kinds})
}

// scene is one test: a namespace of a cluster, and an administrator's client.
type scene struct {
	*testing.T

	cluster  string
	ns       string
	api      client.WithWatch
	warnings *warnings
}

// begin makes a namespace on member for the test.
func begin(t *testing.T) *scene {
	t.Helper()
	return beginOn(t, member, strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())))
}

// beginOn makes a namespace, whose pods have no token unless they ask for one: so
// that a pod is as its manifest says.
func beginOn(t *testing.T, cluster, ns string) *scene {
	t.Helper()
	s := &scene{T: t, cluster: cluster, ns: ns, warnings: &warnings{}}
	var err error
	s.api, err = connect(cluster, "", s.warnings)
	s.must(err)
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

// with returns the scene for a subtest.
func (s *scene) with(t *testing.T) *scene {
	t.Helper()
	sub := *s
	sub.T = t
	return &sub
}

// end explains what has failed, and takes away what the test has made. Policies go
// at once, that no other test finds them.
func (s *scene) end(began time.Time) {
	s.Logf("the test took %s", time.Since(began).Round(100*time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s.Failed() {
		s.explain(ctx)
	}
	in := client.InNamespace(s.ns)
	if err := s.api.DeleteAllOf(ctx, &refractv1beta1.ServiceInjectionPolicy{}, in); err != nil && !meta.IsNoMatchError(err) {
		s.Error(err)
	}
	if err := s.api.DeleteAllOf(ctx, &corev1.Pod{}, in, client.GracePeriodSeconds(0)); err != nil {
		s.Error(err)
	}
	if err := s.api.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}); err != nil {
		s.Error(err)
	}
}

// explain says how things stand.
func (s *scene) explain(ctx context.Context) {
	for _, kind := range []string{"serviceinjectionpolicies.refract.dev", "deployments,statefulsets,daemonsets,replicasets,pods"} {
		if out, err := shared.Kubectl(s.cluster, "", "get", kind, "-n", s.ns, "-o", "wide", "--ignore-not-found"); err == nil {
			s.Logf("%s are:\n%s", kind, out[:min(len(out), 6000)])
		}
	}
	list := &refractv1beta1.ServiceInjectionPolicyList{}
	if err := s.api.List(ctx, list, client.InNamespace(s.ns), client.Limit(20)); err == nil {
		for i := range list.Items {
			s.Logf("the status of %s is %s", list.Items[i].Name, inJSON(list.Items[i].Status))
		}
	}
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(shared.Binary()), "*.log"))
	s.must(err)
	for _, log := range logs {
		s.Logf("%s ends:\n%s", filepath.Base(log), fleet.LogTail(log))
	}
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until waits until there is no error, and says how long that took.
func (s *scene) until(what string, try func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience) // It may be asked for by a cleanup.
	defer cancel()
	if err := wait(ctx, try); err != nil {
		s.Fatalf("%s: not within %s: %v", what, patience, err)
	}
}

// wait calls try until there is no error, and returns the last one if ctx ends
// before.
func wait(ctx context.Context, try func(context.Context) error) error {
	var last error
	for every := 20 * time.Millisecond; ; every = min(2*every, 300*time.Millisecond) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // Or else the try has failed because its time was over.
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(every):
		}
	}
}

// stays fails the test if there is an error within the time.
func (s *scene) stays(what string, during time.Duration, is func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), during)
	defer cancel()
	for {
		if err := is(s.Context()); err != nil {
			s.Fatalf("%s: not any more: %v", what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// read returns the documents of a manifest as objects, in the scene's namespace
// unless they say otherwise or have none.
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

// apply applies manifests by server-side apply.
func (s *scene) apply(manifests ...string) {
	s.Helper()
	for _, u := range s.read(strings.Join(manifests, "\n---\n")) {
		s.must(fleet.Apply(s.Context(), s.api, u.Object))
	}
}

// create creates the objects of a manifest and returns them as they are stored.
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

// policy returns a policy as it is stored.
func (s *scene) policy(ctx context.Context, name string) (*refractv1beta1.ServiceInjectionPolicy, error) {
	p := &refractv1beta1.ServiceInjectionPolicy{}
	err := s.api.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, p)
	return p, err
}

// untilPolicy waits until a policy is as it should be, and returns it.
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

// condition returns an error unless the policy has the condition with the status
// and, if there is one given, the reason.
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

// inEffect waits until the policies are, and a pod with these labels comes back
// injected from a dry run: the API server hears of the webhook a moment after the
// first policy.
func (s *scene) inEffect(labels string, names ...string) {
	s.Helper()
	s.accepted(names...)
	s.until("pods are injected", func(ctx context.Context) error {
		pod := s.read(podOf("probe", labels, "{containers: [{name: probe, image: i}]}"))[0]
		if err := s.api.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if pod.GetAnnotations()[refractv1beta1.InjectionAnnotation] == "" {
			return fmt.Errorf("it is not: %v", pod.GetAnnotations())
		}
		return nil
	})
}

// podOf returns the manifest of a pod that no scheduler cares for.
func podOf(name, labels, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {%s}}, spec: %s}", name, labels,
		strings.Replace(spec, "{", "{schedulerName: nobody, ", 1))
}

// sip returns the manifest of a policy.
func sip(name, spec string) string {
	return fmt.Sprintf("{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: %s}, spec: %s}", name, spec)
}

// pods returns the pods of the namespace that have the labels and have not ended.
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

// absent is nil if the error says that the object is not there.
func absent(err error) error {
	if err == nil {
		return errors.New("it is there")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
