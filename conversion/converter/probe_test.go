package converter

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/kit/webhook/pki"
)

// TestProbe probes correct servers, and servers with answers that an API server would reject.
func TestProbe(t *testing.T) {
	tab := newRegistry(logr.Discard())
	if err := tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*serving(t, policyFrom(t, mapped, "widgets", 1))}); err != nil {
		t.Fatal(err)
	}
	program := tab.entries["widgets.example.com"].program
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	cases := map[string]struct {
		reason  string
		handler http.Handler
		change  func(*admissionregistrationv1.WebhookClientConfig)
		err     string
	}{
		"Good": {"All pairs of versions are converted.", tab, nil, ""},
		"Untrusted": {
			"The API server would not trust the certificate.", tab,
			func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = another(t) }, "certificate",
		},
		"AuthorityOfOthers": {
			"Without a CA bundle, the trusted authorities are unknown, so the certificate is not checked.", tab, func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = nil }, "",
		},
		"NoAuthority": {
			"A CA bundle without a certificate is an error.", tab, func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = []byte("x") }, "has no certificate",
		},
		"OtherPath": {
			"The policy of another definition answers at this path.", tab,
			func(c *admissionregistrationv1.WebhookClientConfig) {
				*c.URL = strings.Replace(*c.URL, "widgets", "gadgets", 1)
			},
			"from v2 to v1",
		},
		"NotFound":   {"The server does not have the path.", http.NotFoundHandler(), nil, "404"},
		"NoReview":   {"The answer is not a review.", says("hello"), nil, "reading the answer"},
		"NoResponse": {"The answer has no response.", says("{}"), nil, "no response"},
		"OtherUID":   {"The answer has the uid of another request.", says(`{"response":{"uid":"7","result":{"status":"Success"}}}`), nil, "uid"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tab.patience = 1
			s := httptest.NewTLSServer(tc.handler)
			defer s.Close()
			where := s.URL + Path + "widgets.example.com"
			config := &admissionregistrationv1.WebhookClientConfig{
				URL: &where, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
			}
			if tc.change != nil {
				tc.change(config)
			}
			p, err := newProber(config, "")
			if err == nil {
				err = p.all(t.Context(), program)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s\nall(): got %v, want %q", tc.reason, err, tc.err)
			}
		})
	}
}

// TestProbeOfService checks that the probe of a Service connects to this process, and expects a certificate for the
// name of the Service.
func TestProbeOfService(t *testing.T) {
	asked := ""
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.TLS.ServerName + " " + r.URL.Path
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	defer s.Close()
	listens, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProber(behind("converter"), listens.Host)
	if err == nil {
		t.Fatalf("%s is no authority, and is taken for one: %v", "authority", p)
	}
	config := behind("converter")
	config.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if p, err = newProber(config, listens.Host); err != nil {
		t.Fatal(err)
	}
	if err := p.all(t.Context(), mustCompile(t)); err == nil || !strings.Contains(err.Error(), "converter.shop.svc") {
		t.Errorf("The certificate is for another name: %v", err)
	}
	p.client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	if err := p.all(t.Context(), mustCompile(t)); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("The answer is %v", err)
	}
	if asked != "converter.shop.svc /convert/widgets.example.com" {
		t.Errorf("It was asked as %q", asked)
	}
}

// another returns the certificate of an authority that did not sign any certificate of the tests.
func another(t *testing.T) []byte {
	t.Helper()
	issuer := pki.Issuer{Names: []string{"elsewhere"}, Now: time.Now}
	b, _, err := issuer.Renew(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b.Trusted()
}

func mustCompile(t *testing.T) *program {
	t.Helper()
	p, _, err := compile(&policyFrom(t, mapped, "widgets", 1).Spec, reduced(read(t, widgets)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
