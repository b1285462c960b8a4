package converter

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
	"refract.dev/tree"
)

const crdName = "widgets.example.com"

// asJSON returns YAML as JSON, the format of an API server.
func asJSON(tb testing.TB, text string) []byte {
	tb.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// FuzzServed writes arbitrary content into status.served. Every review must get an answer, and the last verified spec
// must stay in use until a new one compiles.
func FuzzServed(f *testing.F) {
	definition := asJSON(f, widgets)
	for _, spec := range []string{mapped, other, "spec: {crd: widgets.example.com, hub: v2, spokes: [{version: v1}, {version: v1}, {version: v2}]}"} {
		served := strings.ReplaceAll(strings.TrimPrefix(string(asJSON(f, spec)), `{"spec":`), "\n", "")
		served = strings.TrimSuffix(served, "}")
		for _, status := range []string{
			`{"served":{"generation":1,"spec":` + served + `,"kept":[{"version":"v1","hub":"spec.capacity"},{"version":"v1","spoke":"spec.size"},{"version":"","hub":""}]}}`,
			`{"observedGeneration":-1,"conditions":[{"type":"Ready"},{"type":"Ready","status":"False","message":"x"}],"served":{"generation":-1,"spec":` + served + `},` +
				`"verification":{"seed":-1},"shadow":{"generation":1,"compared":-1}}`,
		} {
			f.Add([]byte(`{"spec":`+served+`,"status":`+status+`}`), definition, true)
		}
	}
	f.Add([]byte(`{"status":{"served":null}}`), []byte{}, false)
	f.Add([]byte(`{"spec":{"mode":"Shadow"},"status":{"served":{}}}`), []byte("\x1f\x8b\x08"), false)
	f.Add([]byte(`{"status":{"served":{"spec":{"hub":"v1"}}}}`), []byte(`{"spec":{"versions":[null,{"schema":7}]}}`), true)
	f.Fuzz(func(t *testing.T, text, definition []byte, pack bool) {
		p := &refractv1alpha1.ConversionPolicy{}
		if len(text)+len(definition) > fuzzed.MiB || json.Unmarshal(text, p) != nil {
			t.Skip("no policy")
		}
		p.Name, p.UID, p.Spec.CRD, p.DeletionTimestamp = "widgets", "uid", crdName, nil
		if p.Status.Served != nil {
			p.Status.Served.Definition = definition
			if pack {
				p.Status.Served.Definition = gzipped(t, string(definition))
			}
		}
		good := serving(t, policyFrom(t, mapped, "widgets", 1))
		good.UID = p.UID
		crd := read(t, widgets)
		fuzzed.Run(t, func() int {
			tab := newRegistry(logr.Discard())
			tab.patience = time.Millisecond
			tab.sync()
			_ = tab.update(crdName, []refractv1alpha1.ConversionPolicy{*p.DeepCopy()})
			answerIn(t, post(t, tab, crdName, review))

			// A user writes this status after a verified spec was in use.
			if err := tab.update(crdName, []refractv1alpha1.ConversionPolicy{*good}); err != nil {
				t.Fatalf("put(): %v", err)
			}
			err := tab.update(crdName, []refractv1alpha1.ConversionPolicy{*p.DeepCopy()})
			if r := answerIn(t, post(t, tab, crdName, review)); (err != nil || p.Status.Served == nil) && r.Result.Status != "Success" {
				t.Errorf("what was good is not served any more: %+v", r)
			}

			// The functions that report on the policy must not fail either.
			want := at("https://here" + Path + crdName)
			if said := readiness(p, false, no(reasonProbe, "x"), crd, want).message; len(said) > 1<<20 {
				t.Errorf("a message of %d bytes", len(said))
			}
			stranded(p, good, crd)
			lastGood(p, reduced(crd))
			rolesOf([]refractv1alpha1.ConversionPolicy{*p, *good})
			return 4 * (len(text) + len(definition)) // The policy is compiled and compared several times.
		}, rescue.Count)
	})
}

// FuzzReview checks that every admission request for a ConversionPolicy gets a valid answer.
func FuzzReview(f *testing.F) {
	scheme, err := hub.Scheme()
	if err != nil {
		f.Fatal(err)
	}
	ask := func(operation, now, was string) []byte {
		parts := []byte(`"uid":"1","operation":"` + operation + `","name":"widgets"`)
		for key, text := range map[string]string{"object": now, "oldObject": was} {
			if text != "" {
				parts = append(parts, `,"`+key+`":`+string(asJSON(f, text))...)
			}
		}
		return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{` + string(parts) + `}}`)
	}
	for _, body := range [][]byte{
		ask("CREATE", mapped, ""), ask("UPDATE", mapped, other), ask("DELETE", "", mapped), ask("UPDATE", "{spec: 7}", "{spec: []}"),
		ask("CREATE", strings.Replace(mapped, "spec.size", "'spec[?(@)]'", 1), ""), ask("CREATE", "{spec: {crd: widgets.example.com, spokes: [{}, {}]}}", ""), {},
	} {
		f.Add(body)
	}
	h := validate(fake.NewClientBuilder().WithScheme(scheme).WithObjects(read(f, widgets)).Build(), here{})
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		w := fuzzed.Review(t, h, body, rescue.Count)
		answer := &admissionv1.AdmissionReview{}
		switch err := json.Unmarshal(w.Body.Bytes(), answer); {
		case w.Code == http.StatusBadRequest:
		case err != nil || w.Code != http.StatusOK || answer.Response == nil || answer.Response.UID == types.UID(""):
			t.Errorf("the answer is %d, %v: %s", w.Code, err, w.Body)
		}
	})
}

// TestHostileReviews checks the memory and the time for the most expensive requests of one MiB.
func TestHostileReviews(t *testing.T) {
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	h := validate(fake.NewClientBuilder().WithScheme(scheme).WithObjects(read(t, widgets)).Build(), here{})
	const (
		policy = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","operation":"CREATE","name":"widgets",` +
			`"object":{"apiVersion":"refract.dev/v1alpha1","kind":"ConversionPolicy","metadata":{"name":"widgets"`
		spec  = `},"spec":{"crd":"widgets.example.com","hub":"v2","spokes":[`
		spoke = spec + `{"version":"v1","fields":[`
	)
	for name, tc := range map[string]struct{ before, repeated, behind string }{
		"Spokes":    {policy + spec, `{},`, `]}}}}`},
		"Fields":    {policy + spoke, `{},`, `]}]}}}}`},
		"Casts":     {policy + spoke, `{"cast":{},"keyed":{},"wrap":{},"added":{},"scale":{}},`, `]}]}}}}`},
		"Texts":     {policy + spoke, `{"toHub":"a","toSpoke":"b"},`, `]}]}}}}`},
		"Pairs":     {policy + spoke + `{"map":[`, `{},`, `]}]}]}}}}`},
		"Kept":      {policy + `},"status":{"served":{"kept":[`, `{},`, `]}}}}}`},
		"Unknown":   {policy + spoke, `{"a":{}},`, `]}]}}}}`},
		"Owners":    {policy + `,"ownerReferences":[`, `{},`, `]}}}}`},
		"Elsewhere": {policy + `},"data":[`, `{},`, `]}}}`},
	} {
		for reason, values := range map[string]int{"Beyond the bound": fuzzed.MiB, "At the bound": mostRead - 100} { // The request has other values as well.
			t.Run(name+"/"+reason, func(t *testing.T) {
				fuzzed.Review(t, h, fuzzed.Filled(values/tree.Values([]byte(tc.repeated)), tc.before, tc.repeated, tc.behind), rescue.Count)
			})
		}
	}
}
