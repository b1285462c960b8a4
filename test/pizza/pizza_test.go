// Package pizza tests the restaurant of examples/pizza with a real API server: its manifests, its webhook, and the
// statements of the book about both. The tests A1 to A14 follow the chapter of the book. Tests whose names begin with
// TestBook show mistakes of the book's code. A15 requires that a ConversionPolicy converts like the webhook, so all
// tests run with both converters: see each.
package pizza

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/examples/pizza/restaurant"
	"refract.dev/kit/webhook"
	"refract.dev/test/harness"
)

const (
	group = "restaurant.programming-kubernetes.info"
	alpha = group + "/v1alpha1"
	beta  = group + "/v1beta1"

	// pizzas and toppings are the names of the two definitions.
	pizzas   = "pizzas." + group
	toppings = "toppings." + group

	// stored is the prefix of the pizzas in etcd.
	stored = "/registry/" + group + "/pizzas/"

	// home is the namespace of the webhook, and secret is the name of the Secret with its certificate.
	home   = "pizza-crd"
	secret = "serving-cert"

	root     = "../.."
	examples = root + "/examples/pizza"
)

// byServer and byPolicy are the worlds of the tests.
var byServer, byPolicy *world

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{}, func(ctx context.Context, e *harness.Env) (func() error, error) {
		other, err := harness.Open(ctx, harness.Topology{CRDs: true})
		if err != nil {
			return nil, err
		}
		if byServer, err = newWorld(ctx, e, book{}); err == nil {
			byPolicy, err = newWorld(ctx, other, &policy{})
		}
		return func() error {
			var both sync.WaitGroup
			both.Go(byServer.close)
			both.Go(byPolicy.close)
			both.Wait()
			return other.Close()
		}, err
	})
}

// world is an API server with a converter.
type world struct {
	by  converter
	env *harness.Env
	cfg *rest.Config
	api client.WithWatch
	// address is the address of the webhook. Only one test uses it at a time.
	address string
	// kinds and admission are the manifests with that address.
	kinds, admission []*unstructured.Unstructured
	// at is the running webhook; nil if none runs. log is its log, cleared for each test.
	at  *service
	log journal

	// turn is locked by the test that uses this world: all tests use the same definition of the pizzas.
	turn sync.Mutex
	// made is the definition of the pizzas that an earlier test created; nil if the next test must create a new one.
	made *definition
}

// definition is the definition of the pizzas: its manifest, and the object that the API server returned.
type definition struct {
	from *unstructured.Unstructured
	is   *apiextensionsv1.CustomResourceDefinition
}

func newWorld(ctx context.Context, e *harness.Env, by converter) (w *world, err error) {
	w = &world{by: by, env: e}
	at, err := harness.FreePorts(1)
	if err != nil {
		return nil, err
	}
	w.address = at[0]
	if w.cfg, err = e.Config("hub"); err != nil {
		return nil, err
	}
	if w.api, err = e.Client("hub"); err != nil {
		return nil, err
	}
	for into, of := range map[*[]*unstructured.Unstructured]string{
		&w.kinds: by.manifests(), &w.admission: "playground/admission",
	} {
		if *into, err = w.manifests(of); err != nil {
			return nil, err
		}
	}
	return w, by.run(ctx, e)
}

// close stops the webhook.
func (w *world) close() {
	if w != nil && w.at != nil {
		w.at.stop()
	}
}

// manifests returns the manifests of a folder for the playground, with the world's address.
func (w *world) manifests(folder string) ([]*unstructured.Unstructured, error) {
	out, err := w.env.Kubectl("hub", "", "kustomize", examples+"/manifests/"+folder)
	if err != nil {
		return nil, err
	}
	return decode(strings.ReplaceAll(out, "127.0.0.1:8443", w.address))
}

// decode returns the objects of a manifest.
func decode(manifest string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		var raw runtime.RawExtension
		err := docs.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		u := &unstructured.Unstructured{}
		if err == nil {
			err = u.UnmarshalJSON(raw.Raw)
		}
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, manifest)
		}
		all = append(all, u)
	}
}

// scene is one test, with its own namespace, definitions without objects, and a webhook.
type scene struct {
	*testing.T
	*world

	ns string
	// end cleans up the scene. It is called at the end of the test, or earlier by the test.
	end func()
}

// setting has the differences of a scene from the default, which has a converter for pizzas and no admission webhook.
type setting struct {
	// edit changes the definition of the pizzas before it is created.
	edit func(crd map[string]any)
	// alone is for tests without a converter. No other test uses the definition.
	alone bool
	// whoever is for tests that read pizzas in one version only: they work with and without a converter.
	whoever bool
	// admission also registers the admission webhook.
	admission bool
	// toppings are created at the beginning.
	toppings []string
}

// begin prepares a scene. It uses the definition of an earlier test if it is unchanged and has no pizzas, because a new
// definition takes seconds.
func begin(t *testing.T, w *world, as setting) *scene {
	t.Helper()
	s := empty(t, w)
	from := s.kinds
	for i, crd := range from {
		if crd.GetName() == pizzas && as.edit != nil {
			from = slices.Clone(from)
			from[i] = crd.DeepCopy()
			as.edit(from[i].Object)
		}
	}
	if as.alone {
		s.silence()
	}
	if as.alone || !s.still(from) {
		s.clear()
		s.define(from)
	}
	if !as.alone && !as.whoever {
		s.by.defined(s)
	}
	s.untilServed()
	for _, name := range as.toppings {
		s.topping(name)
	}
	if !as.alone && !as.whoever {
		s.by.begin(s)
	}
	if as.admission {
		s.admit()
	}
	return s
}

// empty prepares a scene in its own namespace, without a change of the definitions.
func empty(t *testing.T, w *world) *scene {
	t.Helper()
	s := &scene{T: t, world: w, ns: w.env.Namespace(t)}
	s.end = sync.OnceFunc(s.leave)
	t.Cleanup(s.end)
	s.log.clear()
	s.unasked()
	return s
}

// define creates the definitions. The definition of the toppings may exist already.
func (s *scene) define(from []*unstructured.Unstructured) {
	s.Helper()
	for _, u := range from {
		err := s.api.Create(s.Context(), u.DeepCopy())
		if u.GetName() != toppings || !apierrors.IsAlreadyExists(err) {
			s.must(err)
		}
		s.must(harness.Establish(s.Context(), s.api, u.GetName()))
		if u.GetName() == pizzas {
			is, err := s.definition(s.Context(), pizzas)
			s.must(err)
			s.made = &definition{from: u, is: is}
		}
	}
}

// still reports whether a scene can use the definition of an earlier test: it comes from one of these manifests, is
// unchanged apart from its conversion, and has no pizzas.
func (s *scene) still(from []*unstructured.Unstructured) bool {
	s.Helper()
	made := s.made
	if made == nil || !slices.ContainsFunc(from, func(u *unstructured.Unstructured) bool { return equality.Semantic.DeepEqual(u, made.from) }) {
		return false
	}
	is, err := s.definition(s.Context(), pizzas)
	if apierrors.IsNotFound(err) {
		return false
	}
	s.must(err)
	is.Spec.Conversion = made.is.Spec.Conversion
	if is.UID != made.is.UID || is.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(is.Spec, made.is.Spec) ||
		!slices.Equal(is.Status.StoredVersions, []string{"v1alpha1"}) {
		return false
	}
	left, err := s.env.View.Stored(s.Context(), "hub", stored)
	s.must(err)
	return len(left) == 0
}

// leave logs details of a failure, and deletes the pizzas.
func (s *scene) leave() {
	if s.at != nil {
		s.working()
	}
	if s.Failed() || s.at != nil && s.at.deaf {
		s.silence()
	}
	if s.Failed() {
		s.Logf("the log of the webhook:\n%s\nthe log of the converter:\n%s", s.log.String(), s.by.log())
	}
	// v1alpha1 is usually the storage version, so this works without a converter.
	err := s.api.DeleteAllOf(context.WithoutCancel(s.Context()), object(alpha, "Pizza", "", ""), client.InNamespace(s.ns))
	if err != nil {
		s.made = nil
	}
}

// unasked removes the admission webhooks, and deletes the toppings.
func (s *scene) unasked() {
	s.Helper()
	for _, kind := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		kind.SetName(group)
		s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), kind)))
	}
	err := s.api.DeleteAllOf(s.Context(), object(alpha, "Topping", "", ""))
	if !notServed(err) {
		s.must(err)
	}
}

// clear deletes the definition of the pizzas with all pizzas, and then ends the conversion.
func (s *scene) clear() {
	s.Helper()
	s.made = nil
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: pizzas}}
	s.by.leave(s)
	s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), crd)))
	s.until("the definition of the pizzas is gone", func(ctx context.Context) error {
		err := s.api.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		if err == nil {
			return fmt.Errorf("it still exists, with %v", crd.Status.Conditions)
		}
		return client.IgnoreNotFound(err)
	})
	s.by.forget(s)
}

// untilServed waits until the API server serves both definitions, in all versions.
func (s *scene) untilServed() {
	s.Helper()
	s.until("both kinds are served", func(ctx context.Context) error {
		for _, name := range []string{pizzas, toppings} {
			crd, err := s.definition(ctx, name)
			if err != nil {
				return err
			}
			for _, v := range crd.Spec.Versions {
				nobody := object(group+"/"+v.Name, crd.Spec.Names.Kind, "", "nobody")
				if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
					nobody.SetNamespace(s.ns)
				}
				// A list is not sufficient: the API server delays it by a second after the creation of the definition.
				if err := s.api.Get(ctx, client.ObjectKeyFromObject(nobody), nobody); !missing(err, "nobody") {
					return fmt.Errorf("%s of %s: %w", nobody.GetKind(), v.Name, err)
				}
			}
		}
		// Other parts of the API server may still use an earlier definition.
		probe := s.read(pizza(alpha, "probe", `[a]`))
		return s.api.Create(ctx, probe, client.DryRunAll)
	})
}

// missing reports whether err means that the API server knows the type but has no object with this name.
func missing(err error, name string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == name
}

// notServed reports whether the API server does not know the type (yet).
func notServed(err error) bool {
	return err != nil && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err))
}

// definition reads the current definition.
func (s *scene) definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, s.api.Get(ctx, client.ObjectKey{Name: name}, crd)
}

// update changes the definition of the pizzas, and retries on conflicts.
func (s *scene) update(edit func(*apiextensionsv1.CustomResourceDefinition)) error {
	for {
		crd, err := s.definition(s.Context(), pizzas)
		if err != nil {
			return err
		}
		edit(crd)
		if err := s.api.Update(s.Context(), crd); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// admit registers the admission webhook for the pizzas of the namespace, and waits until the API server calls it.
func (s *scene) admit() {
	s.Helper()
	if s.at == nil {
		s.serve(serving{})
	}
	for _, u := range s.admission {
		s.must(client.IgnoreAlreadyExists(s.api.Create(s.Context(), s.asked(u))))
	}
	s.until("the API server calls the admission webhook", func(ctx context.Context) error {
		empty := s.read(pizza(alpha, "probe", `[]`))
		if err := s.api.Create(ctx, empty, client.DryRunAll); err == nil && len(names(empty)) == 0 {
			return errors.New("a pizza has no toppings")
		} else if err != nil && !strings.Contains(err.Error(), "not known") {
			return err
		}
		for _, name := range []string{"nobody-has-this", "tomato", "mozzarella", "salami", "ham"} { // An earlier test may have created them.
			topping := object(alpha, "Topping", "", name)
			if err := s.api.Get(ctx, client.ObjectKeyFromObject(topping), topping); !apierrors.IsNotFound(err) {
				continue
			}
			if err := s.api.Create(ctx, s.read(pizza(alpha, "probe", "["+name+"]")), client.DryRunAll); err == nil {
				return fmt.Errorf("topping %s is accepted", name)
			}
		}
		return nil
	})
}

// asked restricts a webhook configuration to the pizzas of the namespace, so that it does not affect other tests.
func (s *scene) asked(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	webhooks := u.Object["webhooks"].([]any)
	webhooks[0].(map[string]any)["namespaceSelector"] = map[string]any{
		"matchLabels": map[string]any{"kubernetes.io/metadata.name": s.ns},
	}
	return u
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until waits until try returns no error.
func (s *scene) until(what string, try func(context.Context) error) {
	s.Helper()
	harness.Eventually(s.T, what, try)
}

// serving has the differences of a webhook from the default.
type serving struct {
	// deaf is true if the webhook does not watch the toppings.
	deaf bool
}

// service is a running webhook.
type service struct {
	serving

	stop  func() // Takes a second: HTTP/2 informs the clients first.
	ended chan error
}

// serve starts the webhook in this process, and waits until the webhook is ready and the API server trusts it. A deaf
// webhook never becomes ready, so serve only waits until it responds. The webhook continues to run for later tests,
// until silence stops it.
func (s *scene) serve(as serving) {
	s.Helper()
	log := s.log.logger()
	host, _, err := net.SplitHostPort(s.address)
	s.must(err)
	certificates := webhook.Issued(s.api, types.NamespacedName{Namespace: home, Name: secret}, []string{host},
		webhook.IssuedOptions{CreateNamespace: true, Log: log})
	server, err := webhook.New(webhook.Options{BindAddress: s.address, Certificates: certificates, Log: log})
	s.must(err)
	opened, err := restaurant.New(restaurant.Options{Config: s.cfg, Server: server, Log: log})
	s.must(err)
	targets := webhook.Targets{Mutating: []string{group}, Validating: []string{group}}
	if s.by.name() == (book{}).name() {
		targets.CRDs = []string{pizzas}
	}
	trust := webhook.Trust(s.api, certificates, targets, log)
	parts := []interface{ Start(context.Context) error }{server, trust}
	if !as.deaf {
		parts = append(parts, opened)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	ended := make(chan error, len(parts))
	for _, part := range parts {
		running.Go(func() {
			if err := part.Start(ctx); err != nil {
				ended <- fmt.Errorf("%T has ended: %w", part, err)
			}
		})
	}
	s.at = &service{serving: as, ended: ended, stop: func() {
		cancel()
		running.Wait()
	}}
	s.until("the webhook is ready", func(context.Context) error {
		err := server.Ready()
		if as.deaf && err != nil && strings.HasPrefix(err.Error(), "toppings:") {
			return nil
		}
		return err
	})
	if len(targets.CRDs) > 0 {
		s.untilTrusted()
	}
}

// silence stops the webhook, if it runs.
func (s *scene) silence() {
	s.Helper()
	if s.at == nil {
		return
	}
	s.at.stop()
	s.working()
	s.at = nil
}

// working fails the test if a part of the webhook has ended with an error.
func (s *scene) working() {
	s.Helper()
	select {
	case err := <-s.at.ended:
		s.Error(err)
	default:
	}
}

// journal collects log lines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		fmt.Fprintln(&j.text, prefix, args)
	}, funcr.Options{})
}

func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// pizza returns the manifest of a pizza.
func pizza(version, name, toppings string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: Pizza, metadata: {name: %s}, spec: {toppings: %s}}", version, name, toppings)
}

// object returns an empty object of a kind.
func object(version, kind, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// read returns the object of a manifest. A pizza gets the namespace of the test.
func (s *scene) read(manifest string) *unstructured.Unstructured {
	s.Helper()
	all, err := decode(manifest)
	s.must(err)
	if len(all) != 1 {
		s.Fatalf("want one object in\n%s", manifest)
	}
	if all[0].GetKind() == "Pizza" {
		all[0].SetNamespace(s.ns)
	}
	return all[0]
}

// file returns an object of the example.
func (s *scene) file(name string) *unstructured.Unstructured {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "objects", name))
	s.must(err)
	return s.read(string(text))
}

// create creates an object, and returns the API server's answer.
func (s *scene) create(manifest string) *unstructured.Unstructured {
	s.Helper()
	u := s.read(manifest)
	s.must(s.api.Create(s.Context(), u))
	return u
}

// topping creates a topping.
func (s *scene) topping(name string) {
	s.Helper()
	s.create(fmt.Sprintf("{apiVersion: %s, kind: Topping, metadata: {name: %s}, spec: {cost: 0.5}}", alpha, name))
}

// get returns a pizza in a version.
func (s *scene) get(version, name string) *unstructured.Unstructured {
	s.Helper()
	u, err := s.tryGet(s.Context(), version, name)
	s.must(err)
	return u
}

func (s *scene) tryGet(ctx context.Context, version, name string) (*unstructured.Unstructured, error) {
	u := object(version, "Pizza", s.ns, name)
	return u, s.api.Get(ctx, client.ObjectKeyFromObject(u), u)
}

// stored returns the pizzas of the namespace as stored in etcd, by name.
func (s *scene) stored() map[string]map[string]any {
	s.Helper()
	prefix := stored + s.ns + "/"
	all, err := s.env.View.Stored(s.Context(), "hub", prefix)
	s.must(err)
	out := map[string]map[string]any{}
	for key, value := range all {
		var o map[string]any
		s.must(json.Unmarshal(value, &o))
		out[strings.TrimPrefix(key, prefix)] = o
	}
	return out
}

// names returns the toppings of a pizza: "a" in v1alpha1, "2 a" in v1beta1.
func names(o *unstructured.Unstructured) []string { return namesOf(o.Object) }

func namesOf(o map[string]any) []string {
	list, _, _ := unstructured.NestedSlice(o, "spec", "toppings")
	var out []string
	for _, t := range list {
		switch t := t.(type) {
		case string:
			out = append(out, t)
		case map[string]any:
			quantity, ok := t["quantity"]
			if !ok {
				quantity = "no quantity of"
			}
			out = append(out, fmt.Sprintf("%v %v", quantity, t["name"]))
		}
	}
	return out
}

// run runs kubectl in the test's namespace, and returns its whole output.
func (s *scene) run(args ...string) (string, error) {
	return s.kubectlIn(append([]string{"-n", s.ns}, args...)...)
}

// kubectlIn runs kubectl in the root folder of the repository, and returns its whole output, including warnings.
func (w *world) kubectlIn(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(w.env.Assets(), "kubectl"), args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.env.Kubeconfig("hub"), "HOME="+w.env.Dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
