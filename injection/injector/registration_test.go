package injector

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/poll"
	"refract.dev/internal/webhook"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

const system = "kube-admiral-system"

// runnables replaces a manager.
type runnables struct {
	manager.Manager
	all []manager.Runnable
}

func (r *runnables) Add(one manager.Runnable) error {
	r.all = append(r.all, one)
	return nil
}

// register keeps configurations registered until the test ends, as the program does.
func register(t *testing.T, c client.WithWatch, o Options, configurations ...webhook.Configuration) {
	t.Helper()
	server, err := webhook.New(webhook.Options{
		Client: c, Namespace: system, BindAddress: "127.0.0.1:0", Log: logr.Discard(),
		Service: types.NamespacedName{Namespace: system, Name: "injection"},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Server = server
	mgr := &runnables{all: []manager.Runnable{server}}
	if err := o.register(mgr, configurations...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, r := range mgr.all {
		running.Go(func() {
			if err := r.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// golden compares a configuration with a file.
func golden(t *testing.T, c client.Client, file, name string, is client.Object, webhooks func() [][]byte) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, is); err != nil {
		t.Fatal(err)
	}
	is.SetManagedFields(nil)
	is.SetResourceVersion("")
	text, err := yaml.Marshal(is)
	if err != nil {
		t.Fatal(err)
	}
	for _, bundle := range webhooks() {
		encoded, err := yaml.Marshal(bundle)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, bytes.TrimSpace(encoded), []byte("CERTIFICATES"))
	}
	if *update {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("%s: -want, +got:\n%s", file, diff)
	}
}

func mutatingGolden(t *testing.T, c client.Client, file, name string) {
	t.Helper()
	is := &admissionregistrationv1.MutatingWebhookConfiguration{}
	golden(t, c, file, name, is, func() (out [][]byte) {
		for i := range is.Webhooks {
			out = append(out, is.Webhooks[i].ClientConfig.CABundle)
		}
		return out
	})
}

func validatingGolden(t *testing.T, c client.Client, file, name string) {
	t.Helper()
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	golden(t, c, file, name, is, func() (out [][]byte) {
		for i := range is.Webhooks {
			out = append(out, is.Webhooks[i].ClientConfig.CABundle)
		}
		return out
	})
}

// rules returns the resources in the rules of each webhook.
func rules(t *testing.T, c client.Client) string {
	t.Helper()
	is := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, is); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	var out []string
	for _, w := range is.Webhooks {
		for _, r := range w.Rules {
			out = append(out, w.Name+" "+r.Resources[0])
		}
	}
	return strings.Join(out, ", ")
}

// TestRegistration adds and removes policies.
func TestRegistration(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	known := newCache(logr.Discard())
	register(t, c, Options{Namespace: system}, configurations(known, system)...)
	const (
		policiesOnly = PoliciesWebhook + " serviceinjectionpolicies"
		pods         = policiesOnly + ", " + PodsWebhook + " pods"
		debug        = pods + ", " + PodsWebhook + " pods/ephemeralcontainers"
	)
	asks := func(what, want string) {
		t.Helper()
		poll.Eventually(t, what, func(context.Context) error {
			if got := rules(t, c); got != want {
				return errors.New("it asks about " + got)
			}
			return nil
		})
	}
	poll.Eventually(t, "policies are checked", func(context.Context) error {
		return c.Get(t.Context(), client.ObjectKey{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	})
	if got := rules(t, c); got != "" {
		t.Errorf("Nothing is said about pods until policies are known: %s", got)
	}
	close(known.synced)
	asks("it asks about policies alone", policiesOnly)
	known.update(policy(t, database))
	asks("it asks about pods", pods)
	mutatingGolden(t, c, "testdata/mutating.yaml", ConfigurationName)
	validatingGolden(t, c, "testdata/validating.yaml", ConfigurationName)
	other := policy(t, changed(database, "allow-database", "debug", "spec:", "spec:\n  containers: {ephemeralContainers: true}"))
	known.update(other)
	asks("it asks about ephemeral containers", debug)
	known.remove(other)
	asks("it no more does", pods)
	known.remove(policy(t, database))
	asks("it asks about policies alone, again", policiesOnly)
}

// TestRegistrationOfAHub: policies are reviewed, and no pods are injected.
func TestRegistrationOfAHub(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	leads := make(chan struct{})
	o := Options{Namespace: system, Leads: func() bool {
		select {
		case <-leads:
			return true
		default:
			return false
		}
	}}
	register(t, c, o, policyConfigurations()...)
	there := func(context.Context) error {
		return errors.Join(
			c.Get(t.Context(), client.ObjectKey{Name: PoliciesConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{}),
			c.Get(t.Context(), client.ObjectKey{Name: PoliciesConfigurationName}, &admissionregistrationv1.MutatingWebhookConfiguration{}),
		)
	}
	if there(t.Context()) == nil {
		t.Error("It does not lead yet.")
	}
	close(leads)
	poll.Eventually(t, "both are there", there)
	mutatingGolden(t, c, "testdata/hub-mutating.yaml", PoliciesConfigurationName)
	validatingGolden(t, c, "testdata/hub-validating.yaml", PoliciesConfigurationName)
}
