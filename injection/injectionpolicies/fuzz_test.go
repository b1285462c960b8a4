package injectionpolicies

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/tree"
)

// FuzzReview: both handlers respond to every review of a ServiceInjectionPolicy, within the limits of an API server.
func FuzzReview(f *testing.F) {
	ask := func(operation, now, was string) []byte {
		parts := []byte(`"uid":"1","operation":"` + operation + `","namespace":"shop","name":"allow-database"`)
		for key, text := range map[string]string{"object": now, "oldObject": was} {
			if text == "" {
				continue
			}
			object, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				f.Fatal(err)
			}
			parts = append(parts, `,"`+key+`":`+string(object)...)
		}
		return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{` + string(parts) + `}}`)
	}
	with := func(spec string) string {
		return "{metadata: {namespace: shop, name: allow-database}, spec: {service: db, selector: {matchLabels: {role: frontend}}, " + spec + "}}"
	}
	const forged = `, status: {fromService: {env: [{name: A, value: 1}, {name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}], volumes: [{}, {name: v, secret: {secretName: db}}]}}}`
	for _, body := range [][]byte{
		ask("CREATE", with(plain), ""), ask("CREATE", with(fromSecret), ""), ask("UPDATE", with("implicit: true"), with(plain)),
		ask("UPDATE", with("implicit: true"), strings.TrimSuffix(with(plain), "}")+forged), ask("UPDATE", with(plain), "{spec: 7}"),
		ask("CREATE", with("env: [{name: A, value: 7}, {name: B, value: 7.0}, {name: C, value: 1e99}, {name: D, value: [7]}]"), ""),
		ask("CREATE", with("volumes: [{name: v, configMap: {name: c}}], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)}]"), ""),
		ask("DELETE", "", with(plain)), ask("UPDATE", "{spec: {env: {}}}", "{status: {fromService: []}}"), {},
	} {
		f.Add(body)
	}
	handlers := handlers()
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		for name, h := range handlers {
			w := fuzzed.Review(t, h, body, rescue.Count)
			if w.Code == http.StatusBadRequest {
				continue
			}
			answer := &admissionv1.AdmissionReview{}
			if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil || w.Code != http.StatusOK || answer.Response == nil || answer.Response.UID == "" {
				t.Fatalf("%s: the answer is %d, %v: %s", name, w.Code, err, w.Body)
			}
			for _, text := range answer.Response.Warnings {
				if len(text) > longestWarning || strings.Contains(text, "\n") {
					t.Errorf("%s: want a short warning on one line, got %q", name, text)
				}
			}
		}
	})
}

// handlers returns both handlers, on a cluster with a Secret that authors may not read.
func handlers() map[string]http.Handler {
	reading := bounded.NewReader(bounded.MaxValues)
	o := Options{
		Reading: reading,
		Client:  cluster(interceptor.Funcs{}, secret("password"), annotated("refract.dev/env-from", "secret/db, configmap/c")), Log: logr.Discard(),
		Allowed: func(_ context.Context, _ *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
			return what.Name != "db", nil
		},
	}
	return map[string]http.Handler{"Validate": Validate(o), "Mutate": Mutate(reading, logr.Discard())}
}

// TestHostileReviews sends the most expensive reviews, of one MiB each.
func TestHostileReviews(t *testing.T) {
	const (
		policy = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","operation":"CREATE","namespace":"shop","name":"x",` +
			`"object":{"apiVersion":"refract.dev/v1beta1","kind":"ServiceInjectionPolicy","metadata":{"namespace":"shop","name":"x"`
		spec = `},"spec":{"service":"db","selector":{"matchLabels":{"role":"frontend"}},`
		end  = `]}}}`
	)
	for name, tc := range map[string]struct{ before, repeated, behind string }{
		"Env":         {policy + spec + `"env":[`, `{},`, end},
		"Names":       {policy + spec + `"env":[`, `{"name":"A"},`, end},
		"Sources":     {policy + spec + `"env":[`, `{"valueFrom":{"fieldRef":{}}},`, end},
		"Volumes":     {policy + spec + `"volumes":[`, `{"secret":{}},`, end},
		"Projected":   {policy + spec + `"volumes":[{"projected":{"sources":[`, `{"serviceAccountToken":{}},`, `]}}` + end},
		"Mounts":      {policy + spec + `"volumeMounts":[`, `{},`, end},
		"Expressions": {policy + `},"spec":{"selector":{"matchExpressions":[`, `{},`, `]}}}}}`},
		"Elsewhere":   {policy + `},"data":[`, `{},`, `]}}}`},
		"Owners":      {policy + `,"ownerReferences":[`, `{},`, end},
	} {
		for reason, values := range map[string]int{"Beyond the bound": fuzzed.MiB, "At the bound": bounded.MaxValues - 100} { // The rest of the review has values, too.
			for handler, h := range handlers() {
				t.Run(name+"/"+reason+"/"+handler, func(t *testing.T) {
					fuzzed.Review(t, h, fuzzed.Filled(values/tree.Values([]byte(tc.repeated)), tc.before, tc.repeated, tc.behind), rescue.Count)
				})
			}
		}
	}
}
