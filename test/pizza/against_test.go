package pizza

import (
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refract.dev/conversion/convert"
	"refract.dev/examples/pizza/restaurant"
	"refract.dev/examples/pizza/v1beta1"
	"refract.dev/kit/webhook/conversion"
)

// TestA15Against: refract crd verify --against compares the policy with the webhook for 10,000 pizzas and finds no
// difference. With a faulty webhook, it finds a difference.
func TestA15Against(t *testing.T) {
	t.Parallel()
	right := restaurant.Resource()
	out, err := against(t, right, "10000")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var verification struct {
		Result struct {
			Objects  int  `json:"objects"`
			Complete bool `json:"complete"`
			Laws     []struct {
				Law    string `json:"law"`
				Checks int    `json:"checks"`
			} `json:"laws"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(out), &verification); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	report := verification.Result
	agreement := 0
	for _, l := range report.Laws {
		if l.Law == "Agreement" {
			agreement = l.Checks
		}
	}
	if !report.Complete || report.Objects < 10_000 || agreement < 10_000 {
		t.Errorf("not all pizzas were checked: %s", out)
	}

	wrong := restaurant.Resource()
	wrong.Spokes[0].Conversions = []convert.Conversion{convert.Field("spec.toppings", "spec.toppings",
		func(names []string) ([]v1beta1.PizzaTopping, error) { // Wrong: each topping once.
			var out []v1beta1.PizzaTopping
			for _, name := range names {
				out = append(out, v1beta1.PizzaTopping{Name: name, Quantity: 1})
			}
			return out, nil
		},
		func(toppings []v1beta1.PizzaTopping) ([]string, error) {
			var out []string
			for i := range toppings {
				out = append(out, toppings[i].Name)
			}
			return out, nil
		})}
	if out, err := against(t, wrong, "1000"); err == nil || !strings.Contains(out, "spec.toppings") {
		t.Errorf("the mistake was not found: %v\n%s", err, out)
	}
}

// against compares the policy with a webhook that converts by the resource r.
func against(t *testing.T, r convert.Resource, count string) (string, error) {
	t.Helper()
	engine, err := convert.New(r)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(conversion.Handler(engine, conversion.Options{}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return byPolicy.env.Refract("crd", "verify", "--crd", examples+"/manifests/crds/pizza-crd.yaml", "--policy", examples+"/policy.yaml",
		"--against", server.URL, "--ca", ca, "--count", count, "--timeout", "10m", "-o", "json")
}
