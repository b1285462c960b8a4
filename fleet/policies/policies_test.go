package policies

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kyaml "sigs.k8s.io/yaml"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/internal/golden"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
	"refract.dev/tree"
)

// hub is a fleet with the objects of a test.
type hub struct {
	objects []*unstructured.Unstructured
	err     error
	do      func(context.Context)
}

func (h *hub) Objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if h.do != nil {
		h.do(ctx)
	}
	return h.objects, h.err
}

// objects parses the documents of a text. All objects have UIDs. If the argument there is true, the clusters are
// connected and ready.
func objects(tb testing.TB, text []byte, there bool) []*unstructured.Unstructured {
	tb.Helper()
	var all []*unstructured.Unstructured
	for d := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := d.Read()
		if err != nil {
			return all
		}
		data, err := kyaml.YAMLToJSON(doc)
		if err != nil {
			tb.Fatal(err)
		}
		if string(data) == "null" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			tb.Fatal(err)
		}
		u.SetUID(types.UID(u.GetKind() + u.GetNamespace() + u.GetName()))
		if there && u.GetKind() == "FederatedCluster" {
			u.Object["status"] = map[string]any{"clusterUID": "of " + u.GetName(), "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
		}
		all = append(all, u)
	}
}

// review returns the API server's review of a write by the user bob. For a new object, was is nil. For a deletion, now
// is nil.
func review(tb testing.TB, was, now *unstructured.Unstructured) []byte {
	tb.Helper()
	of := now
	if of == nil {
		of = was
	}
	req := &admissionv1.AdmissionRequest{
		UID: "42", Kind: metav1.GroupVersionKind(of.GroupVersionKind()), Name: of.GetName(), Namespace: of.GetNamespace(),
		Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{
			Username: "bob", Groups: []string{"staff"}, UID: "7", Extra: map[string]authenticationv1.ExtraValue{"tenant": {"shop"}},
		},
	}
	if now != nil {
		req.Object = runtime.RawExtension{Raw: encoded(tb, now)}
	}
	if was != nil {
		req.Operation = admissionv1.Update
		if now == nil {
			req.Operation = admissionv1.Delete
		}
		req.OldObject = runtime.RawExtension{Raw: encoded(tb, was)}
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// dryRun returns the review with dryRun set.
func dryRun(t *testing.T, body []byte) []byte {
	t.Helper()
	var of admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &of); err != nil {
		t.Fatal(err)
	}
	of.Request.DryRun = new(true)
	body, err := json.Marshal(&of)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func encoded(tb testing.TB, u *unstructured.Unstructured) []byte {
	tb.Helper()
	raw, err := u.MarshalJSON()
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// everything allows all actions.
func everything(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// post sends a review to a new handler, and returns the answer.
func post(t *testing.T, o Options, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	if o.Allowed == nil {
		o.Allowed = everything
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return ask(t, h, body)
}

// ask sends a review to a handler, and returns the answer.
func ask(t *testing.T, h http.Handler, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil {
		t.Fatalf("The answer is %q: %v", w.Body, err)
	}
	return got.Response
}

// shown formats an answer as text.
func shown(r *admissionv1.AdmissionResponse) string {
	var out strings.Builder
	switch {
	case r.Allowed:
		fmt.Fprintln(&out, "allowed")
	case r.Result.Details == nil:
		fmt.Fprintf(&out, "refused: %d %s\n  %s\n", r.Result.Code, r.Result.Reason, r.Result.Message)
	default:
		fmt.Fprintf(&out, "refused: %d %s of %s %s\n", r.Result.Code, r.Result.Reason, r.Result.Details.Kind, r.Result.Details.Name)
		for _, c := range r.Result.Details.Causes {
			fmt.Fprintf(&out, "  %s: %s\n", c.Field, c.Message)
		}
		if len(r.Result.Details.Causes) == 0 {
			fmt.Fprintf(&out, "  %s\n", r.Result.Message)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", w)
	}
	return out.String()
}

// file returns a file of the archive, or else of the shared archive.
func file(archive, shared *txtar.Archive, name string) []byte {
	for _, a := range []*txtar.Archive{archive, shared} {
		for _, f := range a.Files {
			if f.Name == name {
				return f.Data
			}
		}
	}
	return nil
}

// TestHandle answers a review for each archive: the write of new.yaml in place of old.yaml, or the deletion of old.yaml
// if there is no new.yaml. The hub has fleet.yaml, and remembered.yaml or else old.yaml. denied.txt has the objects
// that bob may not read, and list:RESOURCE for resources that bob may not list. service.yaml has further objects of the
// hub.
func TestHandle(t *testing.T) {
	shared, err := txtar.ParseFile("testdata/fleet.txt")
	if err != nil {
		t.Fatal(err)
	}
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		remembered := file(archive, shared, "remembered.yaml")
		if remembered == nil {
			remembered = file(archive, shared, "old.yaml")
		}
		fleet := objects(t, slices.Concat(file(archive, shared, "fleet.yaml"), []byte("\n---\n"), remembered), true)
		before := make([]*unstructured.Unstructured, len(fleet))
		for i := range fleet {
			before[i] = fleet[i].DeepCopy()
		}
		var was *unstructured.Unstructured
		if old := objects(t, file(archive, shared, "old.yaml"), true); len(old) > 0 {
			was = old[0]
		}
		var now *unstructured.Unstructured
		if written := objects(t, file(archive, shared, "new.yaml"), was != nil); len(written) > 0 {
			now = written[0]
		}
		var mu sync.Mutex
		secrets := strings.Fields(string(file(archive, shared, "denied.txt")))
		allowed := func(_ context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if user.Username != "bob" || what.Verb != "get" && what.Verb != "list" {
				return false, fmt.Errorf("%s is asked for %v", user.Username, what)
			}
			if what.Verb == "list" {
				return !slices.Contains(secrets, "list:"+what.Resource), nil
			}
			return !slices.Contains(secrets, what.Resource+"/"+what.Namespace+"/"+what.Name), nil
		}
		o := Options{
			Fleet: &hub{objects: fleet}, Allowed: allowed, Log: logr.Discard(), Patience: time.Minute,
			Lenient: file(archive, shared, "lenient") != nil,
		}
		services := fake.NewClientBuilder()
		for _, s := range objects(t, file(archive, shared, "service.yaml"), true) {
			services.WithObjects(s)
		}
		o.Client = services.Build()
		response := post(t, o, review(t, was, now))
		got := shown(response)
		if diff := cmp.Diff(before, fleet); diff != "" {
			t.Errorf("the objects of the hub were modified: -before, +after:\n%s", diff)
		}
		for _, w := range response.Warnings {
			if len(w) > longestWarning {
				t.Errorf("a warning has %d bytes: %s", len(w), w)
			}
		}
		if strings.Contains(got, "aHVudGVyMg") || strings.Contains(got, "hunter2") {
			t.Errorf("the answer contains the value of a Secret:\n%s", got)
		}
		return []txtar.File{{Name: "want.txt", Data: []byte(got)}}
	})
}

// fleetOf returns the shared fleet, and its policy before and after a change.
func fleetOf(t *testing.T) (fleet []*unstructured.Unstructured, was, now *unstructured.Unstructured) {
	t.Helper()
	shared, err := txtar.ParseFile("testdata/fleet.txt")
	if err != nil {
		t.Fatal(err)
	}
	fleet = objects(t, slices.Concat(file(shared, shared, "fleet.yaml"), []byte("\n---\n"), file(shared, shared, "old.yaml")), true)
	was = objects(t, file(shared, shared, "old.yaml"), true)[0]
	now = was.DeepCopy()
	rules, _, _ := unstructured.NestedSlice(now.Object, "spec", "overrideRules")
	if err := unstructured.SetNestedSlice(now.Object, append(rules, map[string]any{
		"overriders": map[string]any{"jsonpatch": []any{map[string]any{"path": "/spec/minReadySeconds", "operator": "add", "value": int64(3)}}},
	}), "spec", "overrideRules"); err != nil {
		t.Fatal(err)
	}
	return fleet, was, now
}

// answers are the answers to a change of an override policy, and to a new propagation policy, which has no required
// check.
type answers struct{ override, propagation string }

func TestHandleWithoutAnswerOfTheFleet(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	const refused = "refused: 503 ServiceUnavailable of OverridePolicy web\n" +
		"  the references to Secrets and ConfigMaps from the policy could not be checked: "
	const mistake = "evaluating a policy on the fleet: Refract stumbled over what it was given; that is a mistake in Refract, which its log tells of"
	const warned = "allowed\nwarning: the effect on the fleet is not known: "
	cases := map[string]struct {
		reason   string
		fleet    Fleet
		patience time.Duration
		want     answers
		logs     string
	}{
		"Unknown": {
			reason: "Without a Fleet, only the object is checked.",
			want:   answers{"allowed\n", "allowed\n"},
		},
		"Error": {
			reason: "An unknown fleet blocks only policies with a required check.",
			fleet:  &hub{err: errors.New("the caches are empty")}, patience: time.Minute,
			want: answers{
				refused + "the hub's objects are not known: the caches are empty: try again\n",
				warned + "the hub's objects are not known: the caches are empty\n",
			},
			logs: "without the fleet",
		},
		"Panic": {
			reason: "An internal error blocks only policies with a required check.",
			fleet:  &hub{do: func(context.Context) { panic("a mistake") }}, patience: time.Minute,
			want: answers{
				refused + mistake + ": try again\n",
				warned + mistake + "\n",
			},
			logs: "a mistake",
		},
		"TooBig": {
			reason: "A slow fleet blocks only policies with a required check.",
			fleet:  &hub{do: func(context.Context) { <-stop }}, patience: 50 * time.Millisecond,
			want: answers{refused + "it takes too long: try again\n", warned + "it takes too long\n"},
			logs: "without the fleet",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, was, now := fleetOf(t)
			var mu sync.Mutex
			var log strings.Builder
			o := Options{Fleet: tc.fleet, Patience: tc.patience, Log: funcr.New(func(_, args string) {
				mu.Lock()
				defer mu.Unlock()
				log.WriteString(args)
			}, funcr.Options{})}
			got := answers{shown(post(t, o, review(t, was, now))), shown(post(t, o, review(t, nil, placingPolicy("shop"))))}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(answers{})); diff != "" {
				t.Errorf("%s\nHandle(): -want, +got:\n%s", tc.reason, diff)
			}
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(log.String(), tc.logs) {
				t.Errorf("%s\nwant %q in the log:\n%s", tc.reason, tc.logs, &log)
			}
			if err := unstructured.SetNestedField(now.Object, "no-list", "spec", "overrideRules"); err != nil {
				t.Fatal(err)
			}
			if got := post(t, o, review(t, was, now)); got.Allowed || got.Result.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s\nwant an invalid policy rejected nevertheless", tc.reason)
			}
		})
	}
}

// placingPolicy returns a propagation policy of a namespace.
func placingPolicy(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "PropagationPolicy",
		"metadata": map[string]any{"name": "placing", "namespace": namespace}, "spec": map[string]any{"schedulingMode": "Duplicate"},
	}}
}

// asking evaluates the fleet for a new policy of a namespace.
func asking(t *testing.T, v *validator, namespace string) *answer {
	t.Helper()
	w, err := writeOf(&admission.Request{Operation: admission.Create, Object: encoded(t, placingPolicy(namespace))})
	if err != nil {
		t.Fatal(err)
	}
	alone, _ := manifest.FromObjects(place, []*unstructured.Unstructured{w.now}, nil)
	return v.ask(t.Context(), w, alone)
}

// TestTurns: slow reviews of one namespace do not delay reviews of other namespaces. A slow review ends, and releases
// its turn, when the API server no longer waits.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, _, _ := fleetOf(t)
		var heavy atomic.Bool
		var asked atomic.Int32
		v := newValidator(Options{Allowed: everything, Patience: time.Second, Log: logr.Discard(), Fleet: &hub{objects: fleet, do: func(ctx context.Context) {
			asked.Add(1)
			if heavy.Load() {
				<-ctx.Done()
			}
		}}})
		heavy.Store(true)
		ended := make(chan *answer, 3)
		for range cap(ended) {
			go func() { ended <- asking(t, v, "bank") }()
		}
		synctest.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("got %d simultaneous evaluations for one namespace, want one", n)
		}
		heavy.Store(false)
		begun := time.Now()
		if got := asking(t, v, "shop"); slices.ContainsFunc(got.warnings, func(w string) bool { return strings.Contains(w, "is not known") }) {
			t.Errorf("want an evaluation for another namespace, got %q", got.warnings)
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("want no wait for another namespace, got %s", waited)
		}
		heavy.Store(true) // If a review gets the turn just at the time limit, it has no result either.
		for range cap(ended) {
			if got := <-ended; len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "it takes too long") {
				t.Errorf("ask(): got %q", got.warnings)
			}
		}
		heavy.Store(false)
		synctest.Wait()
		if got := asking(t, v, "bank"); slices.ContainsFunc(got.warnings, func(w string) bool { return strings.Contains(w, "is not known") }) {
			t.Errorf("want all turns released, got %q", got.warnings)
		}
	})
}

// TestMuchAdvice: the policies of a namespace that has used much time are only checked, without advice. Other
// namespaces still get advice.
func TestMuchAdvice(t *testing.T) {
	fleet, _, _ := fleetOf(t)
	v := newValidator(Options{Allowed: everything, Patience: time.Minute, Log: logr.Discard(), Fleet: &hub{objects: fleet}})
	v.advice.Add("bank", mostAdvice, time.Now())
	if got := asking(t, v, "bank"); slices.ContainsFunc(got.warnings, func(w string) bool { return strings.Contains(w, "is not known") }) {
		t.Errorf("within the budget: want advice, got %q", got.warnings)
	}
	v.advice.Add("bank", 2*mostAdvice, time.Now())
	got := asking(t, v, "bank")
	if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], errMuchAdvice.Error()) || got.unchecked != nil {
		t.Errorf("beyond the budget: want a warning with the reason, and the required check; got %q, %v", got.warnings, got.unchecked)
	}
	if got := asking(t, v, "shop"); slices.ContainsFunc(got.warnings, func(w string) bool { return strings.Contains(w, "is not known") }) {
		t.Errorf("another namespace: want advice, got %q", got.warnings)
	}
}

// TestReadInTurns: decoding takes turns as well. A review without a turn in time is rejected with the advice to try
// again.
func TestReadInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newValidator(Options{Allowed: everything, Patience: time.Second, Log: logr.Discard()})
		var free []chan struct{}
		for range bounded.Turns().Places {
			held := make(chan struct{})
			free = append(free, held)
			go func() {
				_ = v.reading.Read(t.Context(), &admission.Request{Namespace: "bank"}, func() error { <-held; return nil })
			}()
		}
		synctest.Wait()
		write := func() *admission.Response {
			got, err := v.handle(t.Context(), &admission.Request{Operation: admission.Create, Namespace: "shop", Object: encoded(t, placingPolicy("shop"))})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := write(); got.Err == nil || !strings.Contains(got.Err.Error(), "it takes too long: try again") {
			t.Errorf("without a turn in time: got %v", got.Err)
		}
		close(free[0])
		synctest.Wait()
		if got := write(); got.Err != nil {
			t.Errorf("with a turn: got %v", got.Err)
		}
		close(free[1])
	})
}

// TestWithin: an evaluation ends when its context ends, and when it grows too large.
func TestWithin(t *testing.T) {
	fleet, was, now := fleetOf(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(bounded.ErrTooLong)
	v := newValidator(Options{Allowed: everything, Log: logr.Discard(), Patience: time.Minute, Fleet: &hub{objects: fleet}})
	w, err := writeOf(&admission.Request{Operation: admission.Update, Object: encoded(t, now), OldObject: encoded(t, was)})
	if err != nil {
		t.Fatal(err)
	}
	alone, _ := manifest.FromObjects(place, []*unstructured.Unstructured{w.now}, nil)
	base, problems, err := v.known.parse(t.Context(), fleet, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, after, problems := w.sides(base, problems, alone, nil)
	if _, err := broughtIn(ctx, w, after); !errors.Is(err, bounded.ErrTooLong) {
		t.Errorf("broughtIn(): got %v", err)
	}
	if _, err := v.advise(ctx, w, before, after, problems); !errors.Is(err, bounded.ErrTooLong) {
		t.Errorf("advise(): got %v", err)
	}
	each := within(t.Context())
	of := func(elements int) *render.Outcome { // The object and its list are values as well.
		return &render.Outcome{Variants: []override.Variant{{Object: &unstructured.Unstructured{Object: map[string]any{"list": make([]any, elements)}}}}}
	}
	quarter := of(mostValues/4 - 2)
	for i := range 4 {
		if err := each(quarter); err != nil {
			t.Errorf("after %d values, within the limit: %v", (i+1)*mostValues/4, err)
		}
	}
	err = each(&render.Outcome{Variants: []override.Variant{{Changes: make([]tree.Change, 1)}}})
	if !errors.Is(err, errTooMuch) || !strings.Contains(err.Error(), "more than 4000000 values") {
		t.Errorf("after one more: want an error with the limit, got %v", err)
	}
}

// TestMostBytes: the handler accepts reviews up to the limit that it returns to the server. The server rejects larger
// ones.
func TestMostBytes(t *testing.T) {
	h, err := New(Options{Allowed: everything})
	if err != nil {
		t.Fatal(err)
	}
	if limited, ok := h.(interface{ MaxBytes() int64 }); !ok || limited.MaxBytes() != bounded.MaxBytes {
		t.Errorf("MaxBytes(): want %d, got %v", bounded.MaxBytes, limited)
	}
	body := review(t, nil, placingPolicy("shop"))
	body = append(body, bytes.Repeat([]byte(" "), bounded.MaxBytes-len(body))...)
	if got := ask(t, h, body); !got.Allowed {
		t.Errorf("want a review of the maximum size answered, got %s", shown(got))
	}
}

func TestHandleRequests(t *testing.T) {
	fleet, was, now := fleetOf(t)
	cases := map[string]struct {
		reason string
		body   func() []byte
		want   string
	}{
		"OtherKind": {
			reason: "A review of another kind is an error: the webhook configuration names five kinds.",
			body: func() []byte {
				return review(t, nil, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
				}})
			},
			want: "refused: 400 ",
		},
		"Finalizer": {
			reason: "A client that adds a finalizer changes only metadata, which must stay possible.",
			body: func() []byte {
				held := was.DeepCopy()
				held.SetFinalizers([]string{"example.com/held"})
				return review(t, was, held)
			},
			want: "allowed\n",
		},
		"DeletedAndBroken": {
			reason: "A policy that is being deleted is in effect as long as a finalizer keeps it.",
			body: func() []byte {
				going := now.DeepCopy()
				at := metav1.Now()
				going.SetDeletionTimestamp(&at)
				going.Object["spec"] = map[string]any{"overrideRules": "no list"}
				return review(t, was, going)
			},
			want: "refused: 422 Invalid of OverridePolicy web\n  spec.overrideRules: is \"no list\" (a string), want an array\n",
		},
		"Released": {
			reason: "The finalizer of an invalid policy can be removed.",
			body: func() []byte {
				held := was.DeepCopy()
				at := metav1.Now()
				held.SetDeletionTimestamp(&at)
				held.Object["spec"] = map[string]any{"overrideRules": "no list"}
				held.SetFinalizers([]string{"example.com/held"})
				released := held.DeepCopy()
				released.SetFinalizers(nil)
				return review(t, held, released)
			},
			want: "allowed\n",
		},
		"BrokenBefore": {
			reason: "A stored invalid policy can get an annotation.",
			body: func() []byte {
				broken := was.DeepCopy()
				broken.Object["spec"] = map[string]any{"overrideRules": "no list"}
				noted := broken.DeepCopy()
				noted.SetAnnotations(map[string]string{"a": "b"})
				return review(t, broken, noted)
			},
			want: "allowed\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := shown(post(t, Options{Fleet: &hub{objects: fleet}}, tc.body())); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestNoReview sends another object, and gets an error.
func TestNoReview(t *testing.T) {
	h, err := New(Options{Allowed: func(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
		return true, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"apiVersion":"v1","kind":"Pod"}`)))
	if w.Code != http.StatusBadRequest {
		t.Errorf("want 400, got %d: %s", w.Code, w.Body)
	}
}

func TestHandleWhenNobodyDecides(t *testing.T) {
	fleet, was, now := fleetOf(t)
	now.Object["spec"] = map[string]any{"overrideRules": []any{map[string]any{"overriders": map[string]any{"envs": []any{map[string]any{
		"containerName": "web", "operator": "addIfAbsent", "value": []any{map[string]any{
			"name": "PASSWORD", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "db", "key": "password"}},
		}},
	}}}}}}
	got := post(t, Options{
		Fleet: &hub{objects: fleet},
		Allowed: func(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
			return false, errors.New("the authorizer is down")
		},
	}, review(t, was, now))
	if got.Allowed || got.Result.Code != http.StatusInternalServerError || !strings.Contains(got.Result.Message, "the authorizer is down") {
		t.Errorf("want the write rejected, because the right to the Secret is unknown: got %s", shown(got))
	}
}

// TestManyReferences: the calls of the authorizer for one write are bounded.
func TestManyReferences(t *testing.T) {
	cases := map[string]struct {
		reason    string
		n, asked  int
		all, each bool // Whether bob may read all Secrets of the namespace, or each Secret of the policy.
		want      string
	}{
		"Some":          {"A few references are checked by name.", fewNamed, fewNamed, false, true, "allowed"},
		"Many":          {"For many references, the right to all objects is checked.", mostReferences, 1, true, true, "allowed"},
		"ManyByName":    {"Without the right to all objects, many references are checked by name.", mostNamed, mostNamed + 1, false, true, "allowed"},
		"TooManyByName": {"The number of references checked by name is bounded.", mostNamed + 1, 1, false, true, "refused: 403 Forbidden of OverridePolicy web"},
		"TooManyForAll": {"The number of references is bounded.", mostReferences + 1, 0, true, true, "refused: 422 Invalid of OverridePolicy web"},
		"NoneOfSeveral": {
			"The user has neither the right to all objects nor to each reference.",
			fewNamed + 1, fewNamed + 2, false, false, "refused: 403 Forbidden of OverridePolicy web",
		},
		"NoneOfVeryMany": {"The user has no right to very many references.", mostReferences, 1, false, false, "refused: 403 Forbidden of OverridePolicy web"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, was, now := fleetOf(t)
			var variables []any
			for i := range tc.n {
				variables = append(variables, map[string]any{
					"name": fmt.Sprintf("V%d", i), "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": fmt.Sprintf("s%d", i), "key": "a"}},
				})
			}
			var rules []any
			for some := range slices.Chunk(variables, 500) {
				rules = append(rules, map[string]any{"overriders": map[string]any{"envs": []any{map[string]any{
					"containerName": "web", "operator": "addIfAbsent", "value": some,
				}}}})
			}
			now.Object["spec"] = map[string]any{"overrideRules": rules}
			var mu sync.Mutex
			asked := 0
			o := Options{Allowed: func(_ context.Context, _ *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return tc.all && what.Name == "" || tc.each && what.Name != "", nil
			}}
			got, why, _ := strings.Cut(shown(post(t, o, review(t, was, now))), "\n")
			if tc.n > mostReferences && !strings.Contains(why, "bring in 1001 Secrets and ConfigMaps, want at most 1000 in one policy: make several policies of it") {
				t.Errorf("%s\nHandle(): want the limit in the error, got %s", tc.reason, why)
			}
			if got != tc.want || asked != tc.asked {
				t.Errorf("%s\nHandle(): want %q after %d calls of the authorizer, got %q after %d", tc.reason, tc.want, tc.asked, got, asked)
			}
		})
	}
}

func TestWarningsAreShort(t *testing.T) {
	warnings := []string{"line\nbreak", strings.Repeat("é", 200)}
	for i := range 20 {
		warnings = append(warnings, fmt.Sprint(i))
	}
	got := short(warnings)
	if want := "and 12 more; refract lint shows all"; len(got) != mostWarnings+1 || got[mostWarnings] != want {
		t.Errorf("short(): got %q, want %d and %q", got, mostWarnings, want)
	}
	if got[0] != "line break" || len(got[1]) > longestWarning || !strings.HasSuffix(got[1], "é…") {
		t.Errorf("short(): got %q", got[:2])
	}
}
