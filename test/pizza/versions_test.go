package pizza

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/test/harness"
)

// TestA11: the converter accepts all versions of ConversionReviews.
func TestA11(t *testing.T) { each(t, a11) }

func a11(t *testing.T, w *world) {
	for name, versions := range w.by.reviews() {
		// A new definition delays the first creations by two seconds. So each subtest uses one definition for all
		// checks.
		t.Run(name, func(t *testing.T) {
			s := begin(t, w, setting{toppings: []string{"tomato", "mozzarella", "salami"}, edit: func(crd map[string]any) {
				webhook, ok, err := unstructured.NestedMap(crd, "spec", "conversion", "webhook")
				if err == nil && ok { // Without a webhook, the converter writes spec.conversion itself.
					s := []any{}
					for _, v := range versions {
						s = append(s, v)
					}
					webhook["conversionReviewVersions"] = s
					err = unstructured.SetNestedMap(crd, webhook, "spec", "conversion", "webhook")
				}
				if err != nil {
					t.Fatal(err)
				}
			}})
			s.create(pizza(beta, "extra", `[{name: mozzarella, quantity: 2}, {name: tomato}]`))
			if diff := cmp.Diff([]string{"mozzarella", "mozzarella", "tomato"}, names(s.get(alpha, "extra"))); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"2 mozzarella", "1 tomato"}, names(s.get(beta, "extra"))); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			for _, version := range versions {
				if version == "v2" {
					continue
				}
				r := s.review(version, beta, spec(alpha, "p", `{"toppings":["a","b","a"]}`))
				if got := fmt.Sprint(names(objects(r)[0])); got != "[2 a 1 b]" {
					t.Errorf("the answer to a review of version %s has %s", version, got)
				}
			}
			if name == "OneFromTheFuture" {
				harness.WantStatus(s.T, "No API server knows v2.", s.update(func(crd *apiextensionsv1.CustomResourceDefinition) {
					crd.Spec.Conversion.Webhook.ConversionReviewVersions = []string{"v2"}
				}), 422, "must include at least one of v1, v1beta1")
				return
			}

			for _, u := range s.admission {
				u = s.asked(u)
				entry := u.Object["webhooks"].([]any)[0].(map[string]any)
				s.must(unstructured.SetNestedStringSlice(entry, versions, "admissionReviewVersions"))
				s.must(s.api.Create(t.Context(), u))
			}
			s.admit()
			s.must(s.api.Create(t.Context(), s.file("empty-pizza.yaml")))
			if diff := cmp.Diff([]string{"1 tomato", "1 mozzarella", "1 salami"}, names(s.get(beta, "salami"))); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			harness.WantStatus(s.T, "It is rejected with the same message.", s.api.Create(t.Context(), s.read(pizza(beta, "refused", `[{name: pineapple}]`))), 400,
				`admission webhook "restaurant.programming-kubernetes.info" denied the request: topping "pineapple" not known`)
		})
	}
}

// TestA12: while no converter runs, objects can be read in their stored version. After a restart of the converter or a
// new certificate, conversions work without a restart of the API server.
func TestA12(t *testing.T) { each(t, a12) }

func a12(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml")))
	s.by.stop(s)
	_, err := s.tryGet(t.Context(), beta, "margherita")
	harness.WantStatus(s.T, "No converter runs.", err, 500, fmt.Sprintf(`conversion webhook for %s, Kind=Pizza failed: Post "%s?timeout=30s"`, alpha, s.asks()))
	if diff := cmp.Diff([]string{"mozzarella", "tomato"}, names(s.get(alpha, "margherita"))); diff != "" {
		t.Errorf("v1alpha1, the stored version: -want, +got:\n%s", diff)
	}
	s.by.start(s)
	s.converts()

	at, err := url.Parse(s.asks())
	s.must(err)
	before := s.presented(at.Host)
	certificate, err := s.certificate(t.Context())
	s.must(err)
	s.must(s.api.Delete(t.Context(), certificate))
	s.until("the certificate is renewed", func(context.Context) error {
		s.converts() // Conversions must not fail meanwhile.
		if bytes.Equal(before.Raw, s.presented(at.Host).Raw) {
			return errSame
		}
		return nil
	})
	s.untilTrusted()
	s.converts()
}

var errSame = errors.New("the certificate is the same")

// converts fails the test unless the margherita can be read in v1beta1.
func (s *scene) converts() {
	s.Helper()
	if diff := cmp.Diff([]string{"1 mozzarella", "1 tomato"}, names(s.get(beta, "margherita"))); diff != "" {
		s.Fatalf("v1beta1: -want, +got:\n%s", diff)
	}
}

// presented returns the certificate that the server at an address presents now.
func (s *scene) presented(address string) *x509.Certificate {
	s.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	s.must(err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// storeAsBeta makes v1beta1 the storage version, and waits until the API server uses it.
func (s *scene) storeAsBeta() {
	s.Helper()
	s.must(s.update(func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == "v1beta1"
		}
	}))
	n := 0
	s.until("pizzas are stored as v1beta1", func(ctx context.Context) error {
		n++
		probe := s.read(pizza(beta, fmt.Sprintf("probe-%d", n), `[]`))
		if err := s.api.Create(ctx, probe); err != nil {
			return err
		}
		is := s.stored()[probe.GetName()]["apiVersion"]
		if err := s.api.Delete(ctx, probe); err != nil {
			return err
		}
		if is != beta {
			return fmt.Errorf("one is stored as %v", is)
		}
		return nil
	})
}
