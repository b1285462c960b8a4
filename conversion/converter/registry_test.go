package converter

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

func answerIn(t *testing.T, w *httptest.ResponseRecorder) *apiextensionsv1.ConversionResponse {
	t.Helper()
	answer := &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil || w.Code != http.StatusOK || answer.Kind != "ConversionReview" {
		t.Fatalf("The answer is %d %s: %v", w.Code, w.Body, err)
	}
	return answer.Response
}

// fails posts a review, and checks that the answer is a failure with this text.
func fails(t *testing.T, h http.Handler, crd, text string) {
	t.Helper()
	r := answerIn(t, post(t, h, crd, review))
	if r.UID != "7" || r.Result.Status != metav1.StatusFailure || !strings.Contains(r.Result.Message, text) {
		t.Errorf("The answer is %+v, want a failure with %q", r, text)
	}
}

// TestRegistry adds a policy to the registry, changes it, damages its status and removes it.
func TestRegistry(t *testing.T) {
	tab := newRegistry(logr.Discard())
	tab.patience = time.Millisecond
	if tab.ready() == nil {
		t.Error("It is ready, and knows no policy.")
	}
	fails(t, tab, "gadgets.example.com", "has just started")
	tab.sync()
	if err := tab.ready(); err != nil {
		t.Errorf("There is no policy, and that is known: %v", err)
	}
	fails(t, tab, "gadgets.example.com", "Refract has no usable ConversionPolicy for gadgets.example.com")

	p := policyFrom(t, mapped, "widgets", 1)
	put := func(p *refractv1alpha1.ConversionPolicy) error {
		return tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*p})
	}
	if err := put(p); err != nil {
		t.Fatal(err)
	}
	fails(t, tab, "widgets.example.com", "no usable ConversionPolicy")

	serving(t, p)
	if err := put(p); err != nil {
		t.Fatal(err)
	}
	if r := answerIn(t, post(t, tab, "widgets.example.com", review)); r.Result.Status != metav1.StatusSuccess ||
		!strings.Contains(string(r.ConvertedObjects[0].Raw), `"capacity":5`) {
		t.Errorf("The answer is %+v", r)
	}
	engine := tab.entries["widgets.example.com"].program
	p.Status.ObservedGeneration, p.Generation = 5, 5
	if err := put(p); err != nil {
		t.Fatal(err)
	}
	if tab.entries["widgets.example.com"].program != engine {
		t.Error("What is served has not changed, and was compiled again.")
	}

	// Another version of Refract has verified this spec.
	p.Status.Served.Spec.Spokes[0].Fields[0].Hub = "spec.newer"
	p.Status.Served.Generation++
	if put(p) == nil {
		t.Error("It compiles.")
	}
	if tab.ready() == nil {
		t.Error("It is ready, and cannot convert what others may.")
	}
	if r := answerIn(t, post(t, tab, "widgets.example.com", review)); r.Result.Status != metav1.StatusSuccess {
		t.Errorf("What was good is no longer served: %+v", r)
	}
	p.UID = "another" // This replica has never compiled a spec of this policy.
	if put(p) == nil {
		t.Error("It compiles.")
	}
	fails(t, tab, "widgets.example.com", "ConversionPolicy widgets, generation 2, which all replicas serve: this replica cannot compile it")

	if err := tab.update("widgets.example.com", nil); err != nil {
		t.Fatal(err)
	}
	if err := tab.ready(); err != nil {
		t.Errorf("The policy has gone: %v", err)
	}
	fails(t, tab, "widgets.example.com", "no usable ConversionPolicy")
}

// TestEmptiedStatus empties the status of a policy. The last program must stay in use until the policy is deleted.
func TestEmptiedStatus(t *testing.T) {
	tab := newRegistry(logr.Discard())
	tab.patience = time.Millisecond
	tab.sync()
	p := serving(t, policyFrom(t, mapped, "widgets", 1))
	put := func(policies ...refractv1alpha1.ConversionPolicy) {
		t.Helper()
		if err := tab.update("widgets.example.com", policies); err != nil {
			t.Fatal(err)
		}
	}
	put(*p)
	p.Status = refractv1alpha1.ConversionPolicyStatus{}
	put(*p)
	if r := answerIn(t, post(t, tab, "widgets.example.com", review)); r.Result.Status != metav1.StatusSuccess {
		t.Errorf("What was good is no longer served: %+v", r)
	}
	if err := tab.ready(); err != nil {
		t.Errorf("It converts, and is not ready: %v", err)
	}
	put(*policyFrom(t, mapped, "another", 1))
	fails(t, tab, "widgets.example.com", "no usable ConversionPolicy")
}

// TestWaiting checks that a review waits for a policy whose status.served another replica has just written.
func TestWaiting(t *testing.T) {
	tab := newRegistry(logr.Discard())
	var waiting sync.WaitGroup
	var got *httptest.ResponseRecorder
	waiting.Go(func() { got = post(t, tab, "widgets.example.com", review) })
	if err := tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*serving(t, policyFrom(t, mapped, "widgets", 1))}); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	if r := answerIn(t, got); r.Result.Status != metav1.StatusSuccess {
		t.Errorf("The answer is %+v", r)
	}
}

// TestNoReview checks that a body that is no review gets an HTTP error, even if the definition has no policy.
func TestNoReview(t *testing.T) {
	tab := newRegistry(logr.Discard())
	tab.patience = time.Millisecond
	for _, body := range []string{"", "{}", "no"} {
		if got := post(t, tab, "widgets.example.com", body); got.Code != http.StatusBadRequest {
			t.Errorf("The answer to %q is %d", body, got.Code)
		}
	}
}

// TestBeginning checks that a review during startup waits until all policies are loaded, but no longer.
func TestBeginning(t *testing.T) {
	tab := newRegistry(logr.Discard())
	tab.patience = 10 * time.Second
	begun := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		close(begun)
		tab.await(t.Context(), "widgets.example.com")
	})
	<-begun
	if err := tab.update("gadgets.example.com", nil); err != nil { // The review is for another definition.
		t.Fatal(err)
	}
	began := time.Now()
	tab.sync()
	waiting.Wait()
	if time.Since(began) >= tab.patience || !tab.known() {
		t.Error("It waits on although it is known what there is.")
	}
}
