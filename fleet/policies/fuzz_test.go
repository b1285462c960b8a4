package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/txtar"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/tree"
)

// FuzzReview: every review of a policy or a cluster gets an answer within the limits of an API server. The answer
// reveals nothing about a Secret that the author may not read, and no policy adds a reference to it.
func FuzzReview(f *testing.F) {
	shared, err := txtar.ParseFile("testdata/fleet.txt")
	if err != nil {
		f.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no archives: %v", err)
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var was *unstructured.Unstructured
		if old := objects(f, file(archive, shared, "old.yaml"), true); len(old) > 0 {
			was = old[0]
		}
		for _, now := range objects(f, file(archive, shared, "new.yaml"), was != nil) {
			f.Add(review(f, was, now))
			f.Add(review(f, nil, now))
		}
	}
	for _, text := range []string{
		"", "{", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","operation":"UPDATE","object":{},"oldObject":null}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","operation":"DELETE","object":null}}`,
	} {
		f.Add([]byte(text))
	}
	h := guarded(f, shared)
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		w := fuzzed.Review(t, h, body, rescue.Count)
		if w.Code == http.StatusBadRequest {
			return
		}
		answer := &admissionv1.AdmissionReview{}
		if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil || w.Code != http.StatusOK || answer.Response == nil || answer.Response.UID == "" {
			t.Fatalf("the answer is %d, %v: %s", w.Code, err, w.Body)
		}
		got := answer.Response
		if len(got.Warnings) > mostWarnings+1 {
			t.Errorf("want at most %d warnings, got %q", mostWarnings, got.Warnings)
		}
		for _, text := range got.Warnings {
			if len(text) > longestWarning || strings.Contains(text, "\n") {
				t.Errorf("want a short warning on one line, got %q", text)
			}
		}
		if !got.Allowed && (got.Result == nil || got.Result.Message == "" || got.Result.Details != nil && len(got.Result.Details.Causes) > mostCauses+1) {
			t.Errorf("want at least one cause and at most %d, got %+v", mostCauses, got.Result)
		}
		// The value of a Secret in the fleet. The review may contain it by chance.
		if bytes.Contains(w.Body.Bytes(), []byte("hunter2")) && !bytes.Contains(body, []byte("hunter2")) {
			t.Errorf("the value of a Secret is in the answer: %s", w.Body)
		}
	})
}

// guarded returns the handler for a fleet with a Secret that authors may not read.
func guarded(tb testing.TB, shared *txtar.Archive) http.Handler {
	tb.Helper()
	fleet := objects(tb, slices.Concat(file(shared, shared, "fleet.yaml"), []byte("\n---\n"), file(shared, shared, "old.yaml")), true)
	v := newValidator(Options{
		Fleet: &hub{objects: fleet}, Client: fake.NewClientBuilder().Build(), Log: logr.Discard(), Patience: time.Minute,
		Allowed: func(_ context.Context, _ *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
			return what.Name != "db" && what.Resource != "secrets", nil
		},
	})
	v.marker = nil // The marker continues after the answer.
	return bounded.Handler(v.handle)
}

// TestHostileReviews sends the most expensive reviews, of one MiB each.
func TestHostileReviews(t *testing.T) {
	shared, err := txtar.ParseFile("testdata/fleet.txt")
	if err != nil {
		t.Fatal(err)
	}
	h := guarded(t, shared)
	review := func(kind string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","operation":"CREATE","namespace":"shop","name":"x",` +
			`"object":{"apiVersion":"` + corev1alpha1.GroupVersion.String() + `","kind":"` + kind + `","metadata":{"namespace":"shop","name":"x"`
	}
	const rules = `},"spec":{"overrideRules":[{`
	policy, cluster := review(corev1alpha1.KindOverridePolicy), review(corev1alpha1.KindFederatedCluster)
	placed := review(corev1alpha1.KindPropagationPolicy)
	for name, tc := range map[string]struct{ before, repeated, behind string }{
		"Clusters":    {policy + rules + `"targetClusters":{"clusters":[`, `"a",`, `]}}]}}}}`},
		"Rules":       {policy + `},"spec":{"overrideRules":[`, `{},`, `]}}}}`},
		"Overriders":  {policy + rules + `"overriders":{"jsonpatch":[`, `{},`, `]}}]}}}}`},
		"Values":      {policy + rules + `"overriders":{"jsonpatch":[{"path":"/spec","value":[`, `{},`, `]}]}}]}}}}`},
		"Annotations": {policy + rules + `"overriders":{"annotations":[`, `{"value":{"a":"b"}},`, `]}}]}}}}`},
		"Images":      {policy + rules + `"overriders":{"image":[`, `{"operations":[{}]},`, `]}}]}}}}`},
		"Owners":      {policy + `,"ownerReferences":[`, `{},`, `]}}}}`},
		"Managers":    {policy + `,"managedFields":[`, `{},`, `]}}}}`},
		"Elsewhere":   {policy + `},"data":[`, `{},`, `]}}}`},
		"Unknown":     {policy + rules + `"overriders":{"annotations":[`, `{"valve":{}},`, `]}}]}}}}`},
		"Taints":      {cluster + `},"spec":{"taints":[`, `{},`, `]}}}}`},
		"Of clusters": {cluster + `},"spec":{"apiEndpoint":[`, `{},`, `]}}}}`},
		"Conditions":  {cluster + `},"status":{"conditions":[`, `{},`, `]}}}}`},
		"Placements":  {placed + `},"spec":{"placement":{"clusters":[`, `{},`, `]}}}}}`},
		"Nulls":       {placed + `},"spec":{"placement":{"clusters":[`, `null,`, `]}}}}}`},
		"Nothing":     {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","userInfo":{"groups":[`, `"",`, `]}}}`},
		"Deep":        {policy + `},"spec":[`, `[[`, ``},
	} {
		for reason, values := range map[string]int{"Beyond the bound": fuzzed.MiB, "At the bound": bounded.MaxValues - 100} { // The rest of the review has values, too.
			t.Run(name+"/"+reason, func(t *testing.T) {
				fuzzed.Review(t, h, fuzzed.Filled(values/tree.Values([]byte(tc.repeated)), tc.before, tc.repeated, tc.behind), rescue.Count)
			})
		}
	}
}

// FuzzMark: a stored policy gets a mark only if it is the admitted one, whatever its content.
func FuzzMark(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"uid":"1","generation":1}}`, `{"metadata":{"uid":"1","generation":1},"status":7}`, `{"metadata":{"uid":"1","generation":1},"status":{"references":[]}}`,
		`{"metadata":{"uid":"2","generation":-1},"spec":null,"status":null}`, `{"metadata":7,"spec":[]}`, `{}`,
	} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	admittedPolicy := brings("db", 1, "1")
	w := &write{
		ref: tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "web"}, now: admittedPolicy,
	}
	refs := writtenIn(w)
	f.Fuzz(func(t *testing.T, text []byte, same bool) {
		is := &unstructured.Unstructured{}
		if len(text) > fuzzed.MiB || utiljson.Unmarshal(text, &is.Object) != nil || is.Object == nil {
			t.Skip("no object")
		}
		if _, ok := is.Object["metadata"].(map[string]any); !ok { // The API server ensures this.
			is.Object["metadata"] = map[string]any{}
		}
		if same {
			is.Object["spec"] = admittedPolicy.DeepCopy().Object["spec"]
		}
		is.SetGroupVersionKind(admittedPolicy.GroupVersionKind())
		is.SetNamespace("shop")
		is.SetName("web")
		patched := false
		hub := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
				switch o := into.(type) {
				case *metav1.PartialObjectMetadata:
					o.SetUID(is.GetUID())
					o.SetGeneration(is.GetGeneration())
				case *unstructured.Unstructured:
					o.Object = is.DeepCopy().Object
				}
				return nil
			},
			SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
				patched = true
				_, err := patch.Data(o)
				return err
			},
		}).Build()
		c, err := claimOf(w, refs)
		if err != nil {
			t.Fatal(err)
		}
		fuzzed.Run(t, func() int {
			_, _ = newMarker(&Options{Client: hub, Log: logr.Discard()}).try(t.Context(), c)
			return 2 * len(text) // The text is read twice.
		}, rescue.Count)
		spec, _ := digest(is)
		if patched && (is.GetUID() != "1" || is.GetGeneration() != 1 || spec != c.of.spec) {
			t.Errorf("the policy has a mark that belongs to another content: %s", text)
		}
	})
}
