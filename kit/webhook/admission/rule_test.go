package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const pizzas = "restaurant.programming-kubernetes.info/v1alpha1"

// post sends a body to a handler like an API server.
func post(tb testing.TB, h http.Handler, body string) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/?timeout=10s", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// question returns a review with these members in its request, which also has a uid.
func question(members string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"705ab4f5",` + members + `}}`
}

const (
	isPizza = `"kind":{"group":"restaurant.programming-kubernetes.info","version":"v1alpha1","kind":"Pizza"},"name":"margherita","namespace":"pizza-crd",`
	isScale = `"kind":{"group":"autoscaling","version":"v1","kind":"Scale"},"name":"margherita","subResource":"scale",`
)

// answered returns the response in the body of an answer. It fails the test unless the answer is HTTP 200.
func answered(tb testing.TB, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	tb.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || w.Code != http.StatusOK {
		tb.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	if r := review.Response; r == nil || r.UID != "705ab4f5" || (len(r.Patch) > 0) != (r.PatchType != nil) {
		tb.Fatalf("API servers do not take this answer: %s", w.Body)
	}
	return review.Response
}

func TestValidating(t *testing.T) {
	cases := map[string]struct {
		reason   string
		request  string
		err      error
		warnings []string       // Warnings of f.
		shown    []string       // Warnings of the handler.
		want     *metav1.Status // Status of the denial.
		called   string         // Arguments that f got.
		code     int            // HTTP status; 200 if zero.
	}{
		"Create": {
			reason:  "A creation has no old object.",
			request: isPizza + `"operation":"CREATE","object":{"spec":{"toppings":["tomato"]}},"oldObject":null`,
			called:  "CREATE [tomato]",
		},
		"Update": {
			reason:  "The new and the old object are decoded.",
			request: isPizza + `"operation":"UPDATE","dryRun":true,"object":{"spec":{"toppings":["a"]}},"oldObject":{"spec":{"toppings":["b"]}}`,
			called:  "UPDATE [a] was [b] dry run",
		},
		"UpdateOfStatus": {
			reason:  "The status has the kind of the object, and f can read the subresource from the request.",
			request: isPizza + `"operation":"UPDATE","subResource":"status","object":{"spec":{}},"oldObject":{"spec":{}}`,
			called:  "UPDATE/status [] was []",
		},
		"Delete": {
			reason:  "A deletion has no new object, and the old object is not decoded.",
			request: isPizza + `"operation":"DELETE","object":null,"oldObject":{"spec":7}`,
			shown:   []string{"DELETE of " + pizzas + " Pizza: the webhook is called and has no rule for it"},
		},
		"Connect": {
			reason:  "A CONNECT is allowed: its options are not an object that a rule could judge.",
			request: `"kind":{"group":"","version":"v1","kind":"PodExecOptions"},"operation":"CONNECT","object":{}`,
			shown:   []string{"CONNECT of v1 PodExecOptions: the webhook is called and has no rule for it"},
		},
		"NoOperation": {reason: "The operation is unknown.", request: isPizza + `"operation":"PATCH","object":{}`, want: denied(`unexpected operation "PATCH"`)},
		"Scale": {
			reason:  "A kind without a rule is denied, because the registration of the webhook has wrong rules.",
			request: isScale + `"operation":"UPDATE","object":{"spec":{"replicas":1}}`,
			want:    denied("unexpected type autoscaling/v1 Scale, want " + pizzas + " Pizza"),
		},
		"OtherVersion": {
			reason:  "A version without a rule is denied, like a kind without a rule.",
			request: `"kind":{"group":"restaurant.programming-kubernetes.info","version":"v1","kind":"Pizza"},"operation":"CREATE","object":{}`,
			want:    denied("unexpected type restaurant.programming-kubernetes.info/v1 Pizza, want " + pizzas + " Pizza"),
		},
		"WrongType": {
			reason:  "An object that cannot be decoded is denied, because f cannot judge it.",
			request: isPizza + `"operation":"CREATE","object":{"spec":{"toppings":"tomato"}}`,
			want:    denied("reading the object: spec.toppings: want an array, got a string"),
		},
		"WrongTypeBefore": {
			reason:  "An old object that cannot be decoded does not prevent its repair.",
			request: isPizza + `"operation":"UPDATE","object":{},"oldObject":{"spec":{"toppings":"tomato"}}`,
			called:  "UPDATE []",
		},
		"WrongTypeStill": {
			reason:  "An update that does not repair the object is denied.",
			request: isPizza + `"operation":"UPDATE","object":{"metadata":{"labels":{"a":"b"}},"spec":{"toppings":"tomato"}},"oldObject":{"spec":{"toppings":"tomato"}}`,
			want:    denied("reading the object: spec.toppings: want an array, got a string"),
		},
		"WrongTypeDeleted": {
			reason: "The last finalizer of a deleted object can be removed, even if the object is invalid.",
			request: isPizza + `"operation":"UPDATE","object":{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"toppings":"tomato"}},` +
				`"oldObject":{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a/b"]},"spec":{"toppings":"tomato"}}`,
			shown: []string{"reading the object: spec.toppings: want an array, got a string"},
		},
		"WrongTypeDeletedAndMore": {
			reason: "A deleted object that is invalid can change only in its metadata.",
			request: isPizza + `"operation":"UPDATE","object":{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"toppings":"basil"}},` +
				`"oldObject":{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a/b"]},"spec":{"toppings":"tomato"}}`,
			want: denied("reading the object: spec.toppings: want an array, got a string"),
		},
		"NoObject": {reason: "A creation without an object is denied.", request: isPizza + `"operation":"CREATE"`, want: denied("reading the object: it is missing")},
		"Array": {
			reason:  "An array is not an object.",
			request: isPizza + `"operation":"CREATE","object":[]`, want: denied("reading the object: it is no JSON object"),
		},
		"Denied": {
			reason: "A denial hides no warnings.", request: isPizza + `"operation":"CREATE","object":{}`, called: "CREATE []",
			err: errors.New(`topping "tomato" not known`), warnings: []string{"spec.toppings: none"},
			want: denied(`topping "tomato" not known`),
		},
		"DeniedWithStatus": {
			reason: "The denial has the code and the reason of the error.", request: isPizza + `"operation":"CREATE","object":{}`, called: "CREATE []",
			err:  fmt.Errorf("today: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pizzas"}, "margherita", errors.New("closed"))),
			want: &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden", Message: `today: pizzas "margherita" is forbidden: closed`, Details: &metav1.StatusDetails{Name: "margherita", Kind: "pizzas"}},
		},
		"DeniedBySuccess": {
			reason: "An error denies, even if its code is that of a success.", request: isPizza + `"operation":"CREATE","object":{}`, called: "CREATE []",
			err: &apierrors.StatusError{ErrStatus: metav1.Status{Status: "Success", Code: 200, Message: "no"}}, want: denied("no"),
		},
		"Unavailable": {
			reason: "An Unavailable error is HTTP 500, not a denial.", request: isPizza + `"operation":"CREATE","object":{}`, called: "CREATE []", code: 500,
			err: fmt.Errorf("looking up: %w", Unavailable(errors.New("informers not ready"))),
		},
		"NobodyWaits": {
			reason: "A canceled context is HTTP 500, not a denial.", request: isPizza + `"operation":"CREATE","object":{}`, called: "CREATE []", code: 500,
			err: fmt.Errorf("looking up: %w", context.Canceled),
		},
		"TimeIsUp": {
			reason: "An exceeded deadline is HTTP 500, not a denial.", request: isPizza + `"operation":"CREATE","object":{}`, called: "CREATE []", code: 500,
			err: fmt.Errorf("looking up: %w", context.DeadlineExceeded),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			called := ""
			h := Validating(Validate(pizzas, "Pizza", func(_ context.Context, r *Request, obj, old *pizza) ([]string, error) {
				called = r.Operation
				if r.SubResource != "" {
					called += "/" + r.SubResource
				}
				called += fmt.Sprint(" ", obj.Spec.Toppings)
				if old != nil {
					called += fmt.Sprint(" was ", old.Spec.Toppings)
				}
				if r.DryRun {
					called += " dry run"
				}
				return tc.warnings, tc.err
			}))
			w := post(t, h, question(tc.request))
			if diff := cmp.Diff(tc.called, called); diff != "" {
				t.Errorf("%s\ncalled: -want, +got:\n%s", tc.reason, diff)
			}
			if tc.code != 0 {
				wantFailure(t, w, tc.code, tc.err.Error())
				return
			}
			got := answered(t, w)
			if got.Allowed != (tc.want == nil) || got.Patch != nil {
				t.Errorf("%s\nallowed %t with patch %q", tc.reason, got.Allowed, got.Patch)
			}
			if diff := cmp.Diff(tc.want, got.Result); diff != "" {
				t.Errorf("%s\nresult: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(append(tc.shown, tc.warnings...), got.Warnings); diff != "" {
				t.Errorf("%s\nwarnings: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func denied(message string) *metav1.Status {
	return &metav1.Status{Status: "Failure", Code: 400, Message: message}
}

// wantFailure verifies an HTTP error. Its body must be a Status, which Kubernetes clients can read.
func wantFailure(tb testing.TB, w *httptest.ResponseRecorder, code int, message string) {
	tb.Helper()
	var got metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		tb.Fatalf("%s: %v", w.Body, err)
	}
	got.Reason = ""
	want := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Message: message,
	}
	if diff := cmp.Diff(want, got); diff != "" || w.Code != code {
		tb.Errorf("HTTP %d: -want, +got:\n%s", w.Code, diff)
	}
}

func TestMutating(t *testing.T) {
	h := Mutating(Default(pizzas, "Pizza", func(_ context.Context, r *Request, p *pizza) error {
		if r.Name == "" {
			return Unavailable(errors.New("the menu is not here"))
		}
		if p.Spec.Box.Size == "XXL" {
			return errors.New("no such box")
		}
		if len(p.Spec.Toppings) == 0 {
			p.Spec.Toppings = []string{"tomato"}
		}
		return nil
	}))
	cases := map[string]struct {
		reason  string
		request string
		want    string // The patch.
		denied  string
		failed  string
	}{
		"Empty": {
			reason: "The default is set.", request: isPizza + `"operation":"CREATE","object":{"spec":null}`,
			want: `[{"op":"replace","path":"/spec","value":{"toppings":["tomato"]}}]`,
		},
		"UpdateToEmpty": {
			reason:  "An update that removes all toppings gets the default.",
			request: isPizza + `"operation":"UPDATE","object":{"spec":{"toppings":[]}},"oldObject":{"spec":{"toppings":["salami"]}}`,
			want:    `[{"op":"replace","path":"/spec/toppings","value":["tomato"]}]`,
		},
		"Full":   {reason: "An object without missing defaults gets no patch.", request: isPizza + `"operation":"CREATE","object":{"spec":{"toppings":["a"]}}`},
		"Delete": {reason: "A deletion has no new object to change.", request: isPizza + `"operation":"DELETE","object":null,"oldObject":{}`},
		"Denied": {
			reason:  "An error of the function denies.",
			request: isPizza + `"operation":"CREATE","object":{"spec":{"box":{"size":"XXL"}}}`, denied: "no such box",
		},
		"WrongType": {
			reason:  "Mutation precedes the validation by the schema, so values can have wrong types.",
			request: isPizza + `"operation":"CREATE","object":{"spec":[]}`, denied: "reading the object: spec: want an object, got an array",
		},
		"Scale": {
			reason:  "A kind without a rule is denied.",
			request: isScale + `"operation":"UPDATE","object":{}`, denied: "unexpected type autoscaling/v1 Scale, want " + pizzas + " Pizza",
		},
		"Unavailable": {
			reason:  "An Unavailable error is HTTP 500, not a denial.",
			request: strings.Replace(isPizza, "margherita", "", 1) + `"operation":"CREATE","object":{}`, failed: "the menu is not here",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := post(t, h, question(tc.request))
			if tc.failed != "" {
				wantFailure(t, w, http.StatusInternalServerError, tc.failed)
				return
			}
			got := answered(t, w)
			message := ""
			if got.Result != nil {
				message = got.Result.Message
			}
			if diff := cmp.Diff([]any{tc.want, tc.denied, tc.denied == ""}, []any{string(got.Patch), message, got.Allowed}); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHandlerRefuses(t *testing.T) {
	h := Handler(func(context.Context, *Request) (*Response, error) {
		t.Error("The function was called for an invalid review.")
		return &Response{}, nil
	})
	cases := map[string]struct {
		reason string
		body   string
		code   int
		want   string
	}{
		"Nothing": {reason: "The body is empty.", want: "reading the review: invalid JSON at byte 0: want an object, got the end"},
		"NoJSON":  {reason: "The body is YAML.", body: "kind: AdmissionReview", want: "reading the review: invalid JSON at byte 0: want an object, got k"},
		"Cut": {
			reason: "The body is truncated.",
			body:   question(`"object":{}`)[:60], want: "reading the review: invalid JSON at byte 60: want a comma or }, got the end",
		},
		"MoreThanOne": {
			reason: "Text follows the review.",
			body:   question(`"object":{}`) + "{}", want: "reading the review: invalid JSON at byte 102: want nothing more",
		},
		"OtherKind": {
			reason: "The body is a ConversionReview.",
			body:   `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1"}}`, want: `unexpected type "apiextensions.k8s.io/v1" "ConversionReview", want AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1`,
		},
		"OtherVersion": {
			reason: "AdmissionReviews have no version v1alpha1.",
			body:   `{"apiVersion":"admission.k8s.io/v1alpha1","kind":"AdmissionReview","request":{"uid":"1"}}`, want: `unexpected type "admission.k8s.io/v1alpha1" "AdmissionReview", want AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1`,
		},
		"NoRequest": {
			reason: "The review has a response and no request.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1"}}`, want: "the review has no request",
		},
		"NullRequest": {
			reason: "A null request is a missing one.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, want: "the review has no request",
		},
		"NoUID": {
			reason: "The API server rejects an answer without the uid of its request.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"object":{}}}`, want: "the request has no uid",
		},
		"WrongUID": {
			reason: "A uid is a string.",
			body:   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}`, want: "reading the review: invalid JSON at byte 78: want a string, got a number",
		},
		"WrongKind": {
			reason: "A part of the request has a wrong type.",
			body:   question(`"kind":"Pizza"`), want: "reading the request: kind: want an object, got a string",
		},
		"Deep": {
			reason: "The depth of nested values is bounded.",
			body:   question(`"object":` + strings.Repeat("[", 100_000)), want: "reading the review: invalid JSON at byte 10096: too deep: more than 10000 levels",
		},
		"LongUser": {
			reason: "The size of userInfo is bounded: an API server reads the groups from the head of a request.",
			body:   question(`"userInfo":{"groups":["` + strings.Repeat(`","`, mostPart/3) + `"]}`), want: "reading the request: userInfo: want at most 262144 bytes, got 262158",
		},
		"Large": {
			reason: "A review larger than those of API servers is rejected.",
			body:   strings.Repeat(" ", mostBytes+1), code: 413, want: "want a review of at most 33554432 bytes",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.code == 0 {
				tc.code = http.StatusBadRequest
			}
			wantFailure(t, post(t, h, tc.body), tc.code, tc.want)
		})
	}
	t.Run("Method", func(t *testing.T) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		wantFailure(t, w, http.StatusMethodNotAllowed, "want POST, got GET")
	})
}

func TestHandler(t *testing.T) {
	var got *Request
	answer, failure := &Response{}, error(nil)
	h := Handler(func(_ context.Context, r *Request) (*Response, error) {
		got = r
		return answer, failure
	})
	t.Run("Request", func(t *testing.T) {
		answered(t, post(t, h, question(`"kind":{"group":"g","version":"v2","kind":"K"},"resource":{"group":"g","version":"v2","resource":"ks"},`+
			`"requestKind":{"group":"g","version":"v1","kind":"K"},"requestResource":{"group":"g","version":"v1","resource":"ks"},"subResource":"status",`+
			`"name":"n\u0061me","namespace":"ns","operation":"UPDATE","userInfo":{"username":"anna","groups":["cooks"]},`+
			`"object":{"a": 1},"oldObject":null,"dryRun":true,"options":{"kind":"UpdateOptions"},"later":{}`)))
		want := &Request{
			APIVersion: "admission.k8s.io/v1", UID: "705ab4f5", Operation: Update, Namespace: "ns", Name: "name", SubResource: "status",
			Kind: metav1.GroupVersionKind{Group: "g", Version: "v2", Kind: "K"}, Resource: metav1.GroupVersionResource{Group: "g", Version: "v2", Resource: "ks"},
			RequestKind:     &metav1.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"},
			RequestResource: &metav1.GroupVersionResource{Group: "g", Version: "v1", Resource: "ks"},
			DryRun:          true, Object: []byte(`{"a": 1}`), Options: []byte(`{"kind":"UpdateOptions"}`),
		}
		want.UserInfo.Username, want.UserInfo.Groups = "anna", []string{"cooks"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	})
	t.Run("NoPatchOfADenial", func(t *testing.T) {
		answer = &Response{Err: errors.New("no"), Patch: []byte("[]")}
		if got := answered(t, post(t, h, question(`"object":{}`))); got.Patch != nil || got.PatchType != nil {
			t.Errorf("got %v", got)
		}
	})
	t.Run("Error", func(t *testing.T) {
		answer, failure = nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pizzas"}, "x")
		wantFailure(t, post(t, h, question(`"object":{}`)), http.StatusInternalServerError, `pizzas "x" not found`)
	})
	t.Run("NoAnswer", func(t *testing.T) {
		answer, failure = nil, nil
		wantFailure(t, post(t, h, question(`"object":{}`)), http.StatusInternalServerError, "the webhook gave no answer")
	})
}

func TestValidateDelete(t *testing.T) {
	refuse := func(_ context.Context, r *Request, old *pizza) ([]string, error) {
		switch {
		case old == nil:
			return []string{"nobody knows what that was"}, nil
		case len(old.Spec.Toppings) > 0:
			return nil, fmt.Errorf("%s is not eaten yet", r.Name)
		default:
			return nil, nil
		}
	}
	validate := Validate(pizzas, "Pizza", func(context.Context, *Request, *pizza, *pizza) ([]string, error) { return nil, nil })
	both, alone := Validating(ValidateDelete(pizzas, "Pizza", refuse), validate), Validating(ValidateDelete(pizzas, "Pizza", refuse))
	cases := map[string]struct {
		reason   string
		h        http.Handler
		request  string
		denied   string
		warnings []string
	}{
		"Denied": {
			reason: "The error of f denies the deletion.",
			h:      both, request: `"operation":"DELETE","oldObject":{"spec":{"toppings":["a"]}}`, denied: "margherita is not eaten yet",
		},
		"Allowed": {reason: "f returns no error, so the deletion is allowed.", h: both, request: `"operation":"DELETE","object":null,"oldObject":{"spec":{}}`},
		"WrongType": {
			reason: "f decides about an old object that cannot be decoded.",
			h:      both, request: `"operation":"DELETE","oldObject":{"spec":7}`, warnings: []string{"nobody knows what that was"},
		},
		"NoObject": {
			reason: "f decides about a deletion without the old object.",
			h:      both, request: `"operation":"DELETE"`, warnings: []string{"nobody knows what that was"},
		},
		"Create": {reason: "The rule of Validate decides about a creation.", h: both, request: `"operation":"CREATE","object":{"spec":{"toppings":["a"]}}`},
		"Alone": {
			reason: "Without a rule of Validate a creation is denied, because the registration of the webhook is wrong.",
			h:      alone, request: `"operation":"CREATE","object":{}`,
			denied: "unexpected type " + pizzas + " Pizza, want nothing but DELETE",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, text := answered(t, post(t, tc.h, question(isPizza+tc.request))), ""
			if got.Result != nil {
				text = got.Result.Message
			}
			if diff := cmp.Diff([]any{tc.denied == "", tc.denied, tc.warnings}, []any{got.Allowed, text, got.Warnings}); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDefaultWarning(t *testing.T) {
	h := Mutating(DefaultWarning(pizzas, "Pizza", func(_ context.Context, _ *Request, p *pizza) ([]string, error) {
		if p.Spec.Box.Size == "XXL" {
			return []string{"boxes are small here"}, errors.New("no such box")
		}
		p.Spec.Box.Size = "L"
		return []string{"spec.box: it is large"}, nil
	}))
	got := answered(t, post(t, h, question(isPizza+`"operation":"CREATE","object":{}`)))
	if diff := cmp.Diff([]any{`[{"op":"add","path":"/spec","value":{"box":{"size":"L"}}}]`, []string{"spec.box: it is large"}}, []any{string(got.Patch), got.Warnings}); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	got = answered(t, post(t, h, question(isPizza+`"operation":"CREATE","object":{"spec":{"box":{"size":"XXL"}}}`)))
	if got.Allowed || got.Result.Message != "no such box" || !slices.Equal(got.Warnings, []string{"boxes are small here"}) {
		t.Errorf("got %+v", got)
	}
}

// TestLegible verifies the errors for users who write a value of the wrong type. The texts have no names of Go types.
func TestLegible(t *testing.T) {
	type all struct {
		Array   []string
		Bytes   []byte
		Object  map[string]string
		Struct  *struct{ Inner []struct{ Small int8 } }
		Text    string
		Bool    bool
		Float   float64
		Natural uint16
		Any     fmt.Stringer
	}
	cases := map[string]string{
		`{"Array":{}}`:                         "Array: want an array, got an object",
		`{"Bytes":7}`:                          "Bytes: want a string in base64, got a number",
		`{"Object":[]}`:                        "Object: want an object, got an array",
		`{"Struct":true}`:                      "Struct: want an object, got a boolean",
		`{"Struct":{"Inner":[{"Small":300}]}}`: "Struct.Inner.Small: want an integer of 8 bits, got 300",
		`{"Text":1.5}`:                         "Text: want a string, got a number",
		`{"Bool":"yes"}`:                       "Bool: want a boolean, got a string",
		`{"Float":"1"}`:                        "Float: want a number, got a string",
		`{"Natural":-1}`:                       "Natural: want a non-negative integer of 16 bits, got -1",
		`{"Any":"x"}`:                          "Any: want another value, got a string",
	}
	for object, want := range cases {
		_, err := decode[all]([]byte(object))
		if diff := cmp.Diff(want, said(err)); diff != "" {
			t.Errorf("%s\n-want, +got:\n%s", object, diff)
		}
	}
	if got := said(legible(&json.UnmarshalTypeError{Value: "string", Type: reflect.TypeFor[int]()})); got != "want an integer of 64 bits, got a string" {
		t.Errorf("The error of a whole value must not name a field: got %s", got)
	}
}

func TestRulesOfNoUse(t *testing.T) {
	validate := Validate("v1", "Pizza", func(context.Context, *Request, *pizza, *pizza) ([]string, error) { return nil, nil })
	mutate := Default("v1", "Pizza", func(context.Context, *Request, *pizza) error { return nil })
	cases := map[string]struct {
		make func()
		want string
	}{
		"Empty": {make: func() { Mutating(Rule{}) }, want: "admission: a rule is one that Default or Validate returned"},
		"Twice": {make: func() { Validating(validate, validate) }, want: "admission: two rules for v1 Pizza"},
		"TwiceDelete": {
			make: func() {
				remove := ValidateDelete("v1", "Pizza", func(context.Context, *Request, *pizza) ([]string, error) { return nil, nil })
				Validating(validate, remove, remove)
			},
			want: "admission: two rules for v1 Pizza",
		},
		"Mutating":   {make: func() { Mutating(validate) }, want: "admission: a rule of a mutating webhook is made by Default, for v1 Pizza"},
		"Validating": {make: func() { Validating(mutate) }, want: "admission: a validating webhook cannot change v1 Pizza"},
		"Version": {
			make: func() { Default("a/b/c", "Pizza", func(context.Context, *Request, *pizza) error { return nil }) },
			want: `admission: "a/b/c" is no apiVersion or "Pizza" no kind`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if diff := cmp.Diff(any(tc.want), recover()); diff != "" {
					t.Errorf("-want, +got:\n%s", diff)
				}
			}()
			tc.make()
		})
	}
}

func TestWarnings(t *testing.T) {
	long := strings.Repeat("ä", 300)
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprint(i, long)
	}
	got := fitting(many)
	if len(got) != mostWarnings || got[15] != "and 5 more" || len(got[0]) > longestWarning || !strings.HasSuffix(got[0], "ä…") {
		t.Errorf("got %d: %q", len(got), got)
	}
	if diff := cmp.Diff([]string{"a b", long, "?"}, fitting([]string{"a\nb", "", long, "a\nb", "\xff"})); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if Unavailable(nil) != nil {
		t.Error("Unavailable(nil) must be nil.")
	}
}

// FuzzHandler verifies that every request gets an answer.
func FuzzHandler(f *testing.F) {
	f.Add([]byte(question(isPizza + `"operation":"CREATE","object":{"spec":{"layers":[{"name":"a","x":1}]}}`)))
	f.Add([]byte(question(isPizza + `"operation":"UPDATE","object":{"spec":null},"oldObject":{}`)))
	f.Add([]byte(question(isPizza + `"operation":"DELETE","object":null`)))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"\ud800"}}`))
	mutating := Mutating(Default(pizzas, "Pizza", func(_ context.Context, _ *Request, p *pizza) error {
		p.Spec.Toppings = append(p.Spec.Toppings, "x")
		p.Spec.Layers = append(p.Spec.Layers, layer{Name: "a"})
		for i := range p.Spec.Layers {
			p.Spec.Layers[i].Quantity++
		}
		return nil
	}))
	validating := Validating(Validate(pizzas, "Pizza", func(_ context.Context, _ *Request, obj, _ *pizza) ([]string, error) {
		return obj.Spec.Toppings, nil
	}))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, h := range []http.Handler{mutating, validating} {
			w := post(t, h, string(body))
			if !json.Valid(w.Body.Bytes()) || w.Code == http.StatusInternalServerError {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
		}
	})
}
