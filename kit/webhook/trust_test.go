package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"refract.dev/internal/poll"
)

const pizzas = "pizzas.restaurant.example"

// restaurant returns an API server with objects that name a webhook, and with one object that names none.
func restaurant(t *testing.T) client.WithWatch {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	url := "https://127.0.0.1:8443/"
	config := admissionregistrationv1.WebhookClientConfig{URL: &url}
	return fake.NewClientBuilder().WithScheme(kinds).WithObjects(
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: pizzas},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "restaurant.example", Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url}, ConversionReviewVersions: []string{"v1"},
				},
			}},
		},
		&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "unasked.restaurant.example"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "restaurant"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "a.restaurant.example", ClientConfig: config}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "restaurant"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: "a.restaurant.example", ClientConfig: config}, {Name: "b.restaurant.example", ClientConfig: config},
			},
		},
	).Build()
}

// bundles returns the caBundles of the restaurant's objects.
func bundles(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := errors.Join(
		c.Get(t.Context(), client.ObjectKey{Name: pizzas}, crd),
		c.Get(t.Context(), client.ObjectKey{Name: "restaurant"}, mutating),
		c.Get(t.Context(), client.ObjectKey{Name: "restaurant"}, validating),
	)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"crd": string(crd.Spec.Conversion.Webhook.ClientConfig.CABundle)}
	for _, w := range mutating.Webhooks {
		all["mutating/"+w.Name] = string(w.ClientConfig.CABundle)
	}
	for _, w := range validating.Webhooks {
		all["validating/"+w.Name] = string(w.ClientConfig.CABundle)
	}
	return all
}

// TestTrust: all kinds of objects keep the right caBundle while the authority changes, and after another writer has
// overwritten it.
func TestTrust(t *testing.T) {
	c, now := restaurant(t), &clock{now: begin}
	var log record
	certificates := issuedHere(c, now.read)
	ctx, cancel := context.WithCancel(t.Context())
	truster := Trust(c, certificates, Targets{
		CRDs: []string{pizzas, "unasked.restaurant.example", "missing.restaurant.example"}, Mutating: []string{"restaurant"}, Validating: []string{"restaurant"},
	}, log.logger())
	if !truster.NeedLeaderElection() {
		t.Error("Only the leader may write, because two versions of the program would undo each other's changes.")
	}
	ended := make(chan error, 1)
	go func() { ended <- truster.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	trusted := func(what string) {
		t.Helper()
		poll.Eventually(t, what, func(context.Context) error {
			ca := string(certificates.Trusted())
			want := map[string]string{"crd": ca, "mutating/a.restaurant.example": ca, "validating/a.restaurant.example": ca, "validating/b.restaurant.example": ca}
			if diff := cmp.Diff(want, bundles(t, c)); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	}
	synced(t, certificates)
	trusted("all trust the first authority")

	now.add(20 * 30 * 24 * time.Hour)
	synced(t, certificates)
	if n := strings.Count(string(certificates.Trusted()), "BEGIN"); n != 2 {
		t.Fatalf("want an old and a new authority, got %d", n)
	}
	trusted("all trust the old authority and the new one")

	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "restaurant"}, validating); err != nil {
		t.Fatal(err)
	}
	validating.Webhooks[1].ClientConfig.CABundle = []byte("another")
	if err := c.Update(t.Context(), validating, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	trusted("the other writer's caBundle is replaced")

	poll.Eventually(t, "each error is logged once", func(context.Context) error {
		for _, want := range []string{"unasked.restaurant.example: spec.conversion.webhook.clientConfig: missing", `missing.restaurant.example\" not found`} {
			if strings.Count(log.String(), want) != 1 {
				return errors.New(log.String())
			}
		}
		return nil
	})
	err := c.Get(t.Context(), client.ObjectKey{Name: "missing.restaurant.example"}, &apiextensionsv1.CustomResourceDefinition{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("A missing object must not be created: got %v", err)
	}
	unasked := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "unasked.restaurant.example"}, unasked); err != nil || unasked.Spec.Conversion != nil {
		t.Errorf("An object without a webhook must not get one: got %+v, %v", unasked.Spec.Conversion, err)
	}
}

// TestTrustAppliesItsFieldAlone verifies that the requests to the API server have no fields but caBundle and the names
// of entries.
func TestTrustAppliesItsFieldAlone(t *testing.T) {
	var sent []string
	c := interceptor.NewClient(restaurant(t), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, what runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			text, err := json.Marshal(what)
			if err != nil {
				return err
			}
			sent = append(sent, string(text))
			return c.Apply(ctx, what, o...)
		},
	})
	certificates := issuedHere(c, (&clock{now: begin}).read)
	truster := Trust(c, certificates, Targets{CRDs: []string{pizzas}, Validating: []string{"restaurant"}}, logr.Discard())
	apply := func() {
		t.Helper()
		for i := range truster.targets {
			if err := truster.apply(t.Context(), &truster.targets[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	apply()
	if len(sent) > 0 {
		t.Errorf("While the authorities are unknown, there must be no write: got %q", sent)
	}
	synced(t, certificates)
	apply()
	apply()
	ca := base64.StdEncoding.EncodeToString(certificates.Trusted())
	want := []string{
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
			`"metadata":{"name":"pizzas.restaurant.example","resourceVersion":"999"},` +
			`"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"` + ca + `"}}}}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",` +
			`"metadata":{"name":"restaurant","resourceVersion":"999"},` +
			`"webhooks":[{"clientConfig":{"caBundle":"` + ca + `"},"name":"a.restaurant.example"},` +
			`{"clientConfig":{"caBundle":"` + ca + `"},"name":"b.restaurant.example"}]}`,
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("one write for each target: -want, +got:\n%s", diff)
	}
}
