package converter

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/rescue"
)

// TestOthers checks the readiness of a replica that cannot compile the spec in status.served. While another replica can
// convert with the policy, this replica stays unready. Without such a replica, it becomes ready and answers for all
// other definitions.
func TestOthers(t *testing.T) {
	knows := newRegistry(logr.Discard())
	if err := knows.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*serving(t, policyFrom(t, mapped, "widgets", 1))}); err != nil {
		t.Fatal(err)
	}
	// A newer version of Refract may reject a spec that an older version has accepted.
	strange := serving(t, policyFrom(t, mapped, "widgets", 1))
	strange.Status.Served.Spec.Spokes[0].Fields[0].Hub = "spec.newer"
	damaged := serving(t, policyFrom(t, mapped, "widgets", 1))
	damaged.Status.Served.Definition = []byte("damaged")
	cases := map[string]struct {
		reason string
		policy *refractv1alpha1.ConversionPolicy
		others http.Handler // Nil without another replica.
		ready  bool
	}{
		"Others":         {"Another replica converts by the policy.", strange, knows, false},
		"OthersWouldNot": {"The other replica cannot convert by the policy either.", strange, newRegistry(logr.Discard()), true},
		"Nobody":         {"There is no other replica.", strange, nil, true},
		"Damaged":        {"No replica can convert by a damaged policy.", damaged, knows, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if none, ok := tc.others.(*registry); ok && none != knows {
				none.patience = time.Millisecond
			}
			s := httptest.NewTLSServer(tc.others)
			defer s.Close()
			if tc.others == nil {
				s.Close()
			}
			at := func(path string) *admissionregistrationv1.WebhookClientConfig {
				where := s.URL + path
				return &admissionregistrationv1.WebhookClientConfig{
					URL: &where, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
				}
			}
			tab := newRegistry(logr.Discard())
			tab.sync()
			if tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*tc.policy}) == nil {
				t.Fatal("It compiles.")
			}
			if tab.ready() == nil {
				t.Error("It is ready, and has asked nobody yet.")
			}
			tab.lookForOthers(t.Context(), at)
			if err := tab.ready(); (err == nil) != tc.ready {
				t.Errorf("%s\nready(): got %v, want ready: %t", tc.reason, err, tc.ready)
			}
			tab.patience = time.Millisecond
			fails(t, tab, "widgets.example.com", "this replica cannot compile it")
			if len(tab.unclear()) != 0 == tc.ready {
				t.Errorf("%s\nIt looks on for %v", tc.reason, tab.unclear())
			}
		})
	}
}

// TestPanic checks that a panic during a compilation becomes an error for one policy.
func TestPanic(t *testing.T) {
	if _, _, err := compile(nil, reduced(read(t, widgets))); !rescue.Is(err) {
		t.Errorf("compile(): got %v", err)
	}
}
