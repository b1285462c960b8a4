package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","labels":{"team":"blue"}},` +
	`"spec":{"replicas":-5,"mode":"hunter2","pin":48151623,"motto":"must be not more than one","issuerRef":{"kind":"forbidden"},"on":true,` +
	`"ports":[{"port":80,"protocol":"TCP"}],"size":{"maxItems":3}}}`

// TestWording: a masked answer about a custom resource names the field and the kind of the fault, and has no value of
// the object.
func TestWording(t *testing.T) {
	cause := func(kind metav1.CauseType, field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: kind, Field: field, Message: message}
	}
	cases := map[string]struct {
		reason  string
		message string
		causes  []metav1.StatusCause
		want    string
	}{
		"Minimum": {
			"The bound comes from the schema.", `Widget.example.com "w" is invalid: spec.replicas: Invalid value: -5: spec.replicas in body should be greater than or equal to 0`,
			[]metav1.StatusCause{cause("FieldValueInvalid", "spec.replicas", "Invalid value: -5: spec.replicas in body should be greater than or equal to 0")},
			"widgets.example.com is invalid: spec.replicas: Invalid value: …: spec.replicas in body should be greater than or equal to 0",
		},
		"Enum": {
			"The supported values come from the schema.", `Widget.example.com "w" is invalid: spec.mode: Unsupported value: "hunter2": supported values: "a", "b"`,
			[]metav1.StatusCause{cause("FieldValueNotSupported", "spec.mode", `Unsupported value: "hunter2": supported values: "a", "b"`)},
			`widgets.example.com is invalid: spec.mode: Unsupported value: …: supported values: "a", "b"`,
		},
		"Required": {
			"A missing field is named.", `Widget.example.com "w" is invalid: spec.secretName: Required value`,
			[]metav1.StatusCause{cause("FieldValueRequired", "spec.secretName", "Required value")}, "widgets.example.com is invalid: spec.secretName: Required value",
		},
		"Rule": {
			"A validation rule names fields.", `Widget.example.com "w" is invalid: spec: Invalid value: "object": failed rule: self.replicas <= self.size.maxItems`,
			[]metav1.StatusCause{cause("FieldValueInvalid", "spec", `Invalid value: "object": failed rule: self.replicas <= self.size.maxItems`)},
			"widgets.example.com is invalid: spec: Invalid value: …: failed rule: self.replicas <= self.size.maxItems",
		},
		"Expression": {
			"The message of a validation rule may contain values.", `Widget.example.com "w" is invalid: spec: Invalid value: "object": pin 48151623 must not be hunter2`,
			[]metav1.StatusCause{cause("FieldValueInvalid", "spec", `Invalid value: "object": pin 48151623 must not be hunter2, nor more than 48151623`)},
			"widgets.example.com is invalid: spec: Invalid value: …: pin … must not be …, nor more than …",
		},
		"Keys": {
			"The key of a list is a value.", "", []metav1.StatusCause{cause("FieldValueDuplicate", "spec.ports[hunter2].protocol", `Duplicate value: "TCP"`)}, "",
		},
		"Webhook": {
			"A webhook may repeat all values, without quotes.",
			`admission webhook "validate.widgets.example.com" denied the request: spec.mode hunter2 is forbidden, want issuerRef.kind: forbidden; aHVudGVyMg== given`, nil,
			`admission webhook "validate.widgets.example.com" denied the request: spec.mode … is …, want issuerRef.kind: …; given`,
		},
		"Policy": {
			"An admission policy may repeat values.", `widgets.example.com "w" is forbidden: ValidatingAdmissionPolicy 'no-pins' with binding 'all' denied request: pin 48151623 is not allowed`, nil,
			"widgets.example.com is forbidden: ValidatingAdmissionPolicy 'no-pins' with binding 'all' denied request: pin … is not allowed",
		},
		"Sentence": {
			"A value that consists of common words is masked, too.", `the motto must be not more than one is refused`, nil, "the motto … is refused",
		},
		"Broken": {"A quote may lack its end.", `error: "spec.mode hunter2 is invalid`, nil, "error: …"},
		"Failing": {
			"The name of a webhook is kept, because it is the gate of its copies.", `Internal error occurred: failed calling webhook "a.b": failed to call webhook: Post "https://x": context deadline exceeded`, nil,
			`Internal error occurred: failed calling webhook "a.b": failed to call webhook: … …: context deadline exceeded`,
		},
		"Untyped": {
			"The path of a value of the wrong type is kept.", "failed to create typed patch object (shop/w; example.com/v1, Kind=Widget): .spec.replicas: expected numeric (int or float), got string", nil,
			"failed to create typed patch object (…; example.com/v1, …): spec.replicas: expected numeric (int or float), got string",
		},
		"Escalation": {
			"The rules of a Role are values.", "roles is forbidden: user \"u\" (groups=[\"g\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"x\"], Verbs:[\"get\"]}", nil,
			"roles is …: user … (…) is attempting to grant RBAC permissions not currently held: {…, …, …}",
		},
		"Conflict": {"A conflict with a field manager keeps its field.", "Apply failed with 1 conflict", []metav1.StatusCause{cause("FieldManagerConflict", ".spec.mode", `conflict with "kubectl-edit" using example.com/v1`)}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := masked(widgets, []byte(widget), &apierrors.StatusError{ErrStatus: metav1.Status{
				Code: 422, Reason: metav1.StatusReasonInvalid, Message: tc.message, Details: &metav1.StatusDetails{Causes: tc.causes},
			}})
			if tc.want != "" && err.Error() != tc.want {
				t.Errorf("%s\nmasked(): -want, +got:\n%s", tc.reason, cmp.Diff(tc.want, err.Error()))
			}
			var said apierrors.APIStatus
			if !errors.As(err, &said) || !apierrors.IsInvalid(err) {
				t.Fatalf("want the code and the reason, got %v", err)
			}
			text, failed := json.Marshal(said.Status())
			for _, value := range []string{"hunter2", "48151623", "aHVudGVyMg", "more than one"} {
				if failed != nil || strings.Contains(string(text), value) {
					t.Errorf("%s\nthe masked answer contains a value: %s, %v", tc.reason, text, failed)
				}
			}
		})
	}
}

// TestWordingOfReadiness: conditions of a custom resource may repeat its values.
func TestWordingOfReadiness(t *testing.T) {
	r := object(t, `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"namespace":"shop","name":"w","generation":1},`+
		`"status":{"observedGeneration":1,"conditions":[{"type":"Stalled","status":"True","reason":"No","message":"waiting for password hunter2 of endpoint \"x\""}]}}`)
	e := decoder{account: roomy}.copyEventOf(r, widgets)
	if want := "waiting for … of endpoint …"; e == nil || e.Readiness != refractv1alpha1.ReadinessFailed || e.ReadinessMessage != want {
		t.Errorf("want %q, got %+v", want, e)
	}
}

// TestSealedTypes: the same types have masked answers and sealed revisions.
func TestSealedTypes(t *testing.T) {
	for text, want := range map[string]bool{"secrets": true, "widgets.example.com": true, "roles.rbac.authorization.k8s.io": true, "configmaps": false, "deployments.apps": false} {
		of := schema.ParseGroupResource(text)
		shown := strings.Contains(fmt.Sprint(masked(of, nil, errors.New("hunter2"))), "hunter2")
		if Sealed(of) != want || shown == want {
			t.Errorf("%s: want sealed and masked %t, got %t and %t", text, want, Sealed(of), !shown)
		}
	}
}
