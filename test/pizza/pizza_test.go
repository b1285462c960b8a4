// Package pizza tests the restaurant of examples/pizza with a real API server: its
// manifests, its webhook, and what the book says about both. The tests A1 to A14 are
// the chapter's story; those called TestBook are mistakes of the book's own code. All of
// them are played twice, since A15 is that a ConversionPolicy converts as the webhook
// does: see each.
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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/examples/pizza/restaurant"
	"refract.dev/internal/playground"
	"refract.dev/webhook"
)

const (
	group = "restaurant.programming-kubernetes.info"
	alpha = group + "/v1alpha1"
	beta  = group + "/v1beta1"

	// pizzas is the definition of the pizzas, toppings that of the toppings.
	pizzas   = "pizzas." + group
	toppings = "toppings." + group

	// home is the namespace of the webhook, and secret where its certificate is.
	home   = "pizza-crd"
	secret = "serving-cert"

	root     = "../.."
	examples = root + "/examples/pizza"

	// patience is how long anything may take that has no limit of its own. A machine
	// that is busy with other things is slow.
	patience = 90 * time.Second
)

// byServer and byPolicy are the worlds of the tests.
var byServer, byPolicy *world

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // Clients of the tests have nothing to say.
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pizza:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "refract-pizza-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for into, by := range map[**world]converter{&byServer: book{}, &byPolicy: &policy{}} {
		if *into, err = newWorld(context.Background(), filepath.Join(dir, by.name()), by); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, (*into).playground.Stop()) }()
		if err = by.run(context.Background()); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, by.close()) }()
	}
	return m.Run(), nil
}

// world is an API server, and who converts beside it.
type world struct {
	by         converter
	dir        string
	playground *playground.Playground
	cfg        *rest.Config
	api        client.WithWatch
	kubectl    string
	kubeconfig string
	// address is where the webhook serves, in one test after the other.
	address string
	// kinds and admission are the manifests for that address.
	kinds, admission []*unstructured.Unstructured
}

func newWorld(ctx context.Context, dir string, by converter) (*world, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	assets, err := playground.Assets(root + "/bin/refract")
	if err != nil {
		return nil, err
	}
	assets, err = filepath.Abs(assets)
	if err != nil {
		return nil, err
	}
	w := &world{by: by, dir: dir, kubectl: filepath.Join(assets, "kubectl")}
	if w.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	for into, of := range map[*[]*unstructured.Unstructured]string{
		&w.kinds: by.manifests(), &w.admission: "playground/admission",
	} {
		if *into, err = w.manifests(of); err != nil {
			return nil, err
		}
	}
	if w.playground, err = by.open(ctx, dir, assets); err != nil {
		return nil, err
	}
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, w.playground.Stop())
	}
	return w, nil
}

func (w *world) connect() (err error) {
	w.kubeconfig = w.playground.Hub().Kubeconfig
	if w.cfg, err = clientcmd.BuildConfigFromFlags("", w.kubeconfig); err != nil {
		return err
	}
	w.cfg.QPS, w.cfg.UserAgent = -1, "test"
	w.cfg.WarningHandler = rest.NoWarnings{}
	w.api, err = w.client(w.cfg)
	return err
}

func (*world) client(cfg *rest.Config) (client.WithWatch, error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, refractv1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: kinds})
}

// manifests returns those of a folder for the playground, with our address.
func (w *world) manifests(folder string) ([]*unstructured.Unstructured, error) {
	cmd := exec.Command(w.kubectl, "kustomize", examples+"/manifests/"+folder)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return decode(strings.ReplaceAll(string(out), "127.0.0.1:8443", w.address))
}

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// decode returns the documents of a manifest.
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

// scene is one test: a namespace of its own, definitions without objects, and a
// webhook.
type scene struct {
	*testing.T
	*world

	ns  string
	log *journal
	// at is the webhook that serves; nil while none does, as when nobody needs it.
	at *service
}

// setting says how a scene differs from the usual: pizzas are converted by the
// webhook, and admitted without being asked.
type setting struct {
	// edit changes the definition of the pizzas before it is created.
	edit func(crd map[string]any)
	// alone has nobody convert.
	alone bool
	// admission has the API server ask about pizzas, too.
	admission bool
	// toppings are there from the beginning.
	toppings []string
}

func begin(t *testing.T, w *world, as setting) *scene {
	t.Helper()
	s := &scene{T: t, world: w, log: &journal{}, ns: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))}
	s.must(s.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}))
	t.Cleanup(s.end)
	s.clear()
	if as.alone {
		s.by.forget(s)
	}
	for _, crd := range s.kinds {
		crd = crd.DeepCopy()
		if crd.GetName() == pizzas && as.edit != nil {
			as.edit(crd.Object)
		}
		err := s.api.Create(t.Context(), crd)
		if crd.GetName() != toppings || !apierrors.IsAlreadyExists(err) {
			s.must(err)
		}
	}
	if !as.alone {
		s.by.defined(s)
	}
	s.untilServed()
	for _, name := range as.toppings {
		s.topping(name)
	}
	if !as.alone {
		s.by.begin(s)
	}
	if as.admission {
		s.admit()
	}
	return s
}

// with returns the scene for a subtest.
func (s *scene) with(t *testing.T) *scene {
	t.Helper()
	sub := *s
	sub.T = t
	return &sub
}

// end explains what has failed and ends the webhook.
func (s *scene) end() {
	if s.at != nil {
		s.at.stop()
	}
	if s.Failed() {
		s.Logf("the webhook says:\n%s\nthe converter says:\n%s", s.log.String(), s.by.log())
	}
	s.must(s.api.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}))
}

// clear takes away what an earlier test has left: the pizzas with their definition,
// and the toppings.
func (s *scene) clear() {
	s.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: pizzas}}
	s.by.leave(s)
	s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), crd)))
	for _, kind := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		kind.SetName(group)
		s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), kind)))
	}
	s.until("the definition of the pizzas is gone", func(ctx context.Context) error {
		err := s.api.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		if err == nil {
			return fmt.Errorf("it is there, with %v", crd.Status.Conditions)
		}
		return client.IgnoreNotFound(err)
	})
	err := s.api.DeleteAllOf(s.Context(), object(alpha, "Topping", "", ""))
	if !notServed(err) {
		s.must(err)
	}
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
				// Not by a list, for which an API server has who asks wait a second.
				if err := s.api.Get(ctx, client.ObjectKeyFromObject(nobody), nobody); !missing(err, "nobody") {
					return fmt.Errorf("%s of %s: %w", nobody.GetKind(), v.Name, err)
				}
			}
		}
		// The instance that answers may still be that of an earlier definition.
		probe := s.read(pizza(alpha, "probe", `[a]`))
		return s.api.Create(ctx, probe, client.DryRunAll)
	})
}

// missing reports whether the API server knows the kind, and has no object of that name.
func missing(err error, name string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == name
}

// notServed reports whether the API server does not know the kind, or not yet.
func notServed(err error) bool {
	return err != nil && (apierrors.IsNotFound(err) || meta.IsNoMatchError(err))
}

// definition returns a definition as it is.
func (s *scene) definition(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, s.api.Get(ctx, client.ObjectKey{Name: name}, crd)
}

// update changes the definition of the pizzas.
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

// admit has the API server ask about the pizzas of the namespace, and waits until
// it does.
func (s *scene) admit() {
	s.Helper()
	if s.at == nil {
		s.serve(serving{})
	}
	for _, u := range s.admission {
		s.must(client.IgnoreAlreadyExists(s.api.Create(s.Context(), s.asked(u))))
	}
	s.until("the API server asks about pizzas", func(ctx context.Context) error {
		empty := s.read(pizza(alpha, "probe", `[]`))
		if err := s.api.Create(ctx, empty, client.DryRunAll); err == nil && len(names(empty)) == 0 {
			return errors.New("a pizza has no toppings")
		} else if err != nil && !strings.Contains(err.Error(), "not known") {
			return err
		}
		if err := s.api.Create(ctx, s.read(pizza(alpha, "probe", `[nobody-has-this]`)), client.DryRunAll); err == nil {
			return errors.New("any topping will do")
		}
		return nil
	})
}

// asked returns a configuration for the pizzas of the namespace alone, so that no
// other test hears of it, which trusts the webhook.
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

// until waits until there is no error.
func (s *scene) until(what string, try func(context.Context) error) {
	s.Helper()
	if err := await(context.WithoutCancel(s.Context()), try); err != nil { // It may be asked for by a cleanup.
		s.Fatalf("%s: %v", what, err)
	}
}

// await tries until there is no error, and returns the last one after a while.
func await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for every := 10 * time.Millisecond; ; every = min(2*every, 200*time.Millisecond) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // Or else the try has failed because its time was over.
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", patience, last)
		case <-time.After(every):
		}
	}
}

// wantError fails the test unless there is an error of an API server with the code,
// and with all of the texts.
func (s *scene) wantError(reason string, err error, code int32, texts ...string) {
	s.Helper()
	if err == nil {
		s.Errorf("%s\nwant an error with %q", reason, texts)
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != code {
		s.Errorf("%s\nwant the code %d: %v", reason, code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			s.Errorf("%s\n%q is not in the error:\n%v", reason, text, err)
		}
	}
}

// serving says how a webhook differs from the usual.
type serving struct {
	// deaf has it never hear of any topping.
	deaf bool
}

// service is a webhook that serves.
type service struct {
	server       *webhook.Server
	certificates webhook.Certificates
	stop         func()
}

// serve starts the webhook in this process, and waits until the API server trusts
// it, or, if it is deaf, until it answers.
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
	for _, part := range parts {
		running.Go(func() {
			if err := part.Start(ctx); err != nil {
				s.Errorf("%T has ended: %v", part, err)
			}
		})
	}
	s.at = &service{server: server, certificates: certificates, stop: sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})}
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

// journal keeps what is logged.
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

// read returns a manifest of a pizza in the test's namespace, or of a topping.
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

// create creates an object and returns it as the API server answers.
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

// stored returns the pizzas of the namespace as they lie in etcd, by name.
func (s *scene) stored() map[string]map[string]any {
	s.Helper()
	prefix := "/registry/" + group + "/pizzas/" + s.ns + "/"
	all, err := s.playground.Stored(s.Context(), "hub", prefix)
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

// run runs kubectl in the test's namespace and returns all that it prints.
func (s *scene) run(args ...string) (string, error) {
	return s.kubectlIn(append([]string{"-n", s.ns}, args...)...)
}

// kubectlIn runs kubectl in the folder of the repository.
func (w *world) kubectlIn(args ...string) (string, error) {
	cmd := exec.Command(w.kubectl, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "HOME="+w.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
