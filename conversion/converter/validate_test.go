package converter

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
)

// here is the address of this server.
type here struct{}

func (here) ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig {
	return at("https://here" + path)
}

const wired = `{strategy: Webhook, webhook: {clientConfig: {url: "https://here/convert/widgets.example.com"}, conversionReviewVersions: [v1]}}`

func TestValidate(t *testing.T) {
	served := serving(t, policyFrom(t, mapped, "widgets", 9))
	asShadow := served.DeepCopy()
	asShadow.Spec.Mode = refractv1alpha1.ConversionShadow
	wrong := policyFrom(t, strings.Replace(mapped, "spec.capacity", "spec.capacitor", 1), "widgets", 1)
	unknown := policyFrom(t, strings.Replace(mapped, "crd: widgets", "crd: gadgets", 1), "gadgets", 1)
	labelled := wrong.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	crd := asking(t, wired)
	kept := served.DeepCopy()
	kept.Spec.Spokes[0].Fields = nil
	kept.Status.Served.Kept = []refractv1alpha1.KeptField{{Version: "v1", Hub: "spec.capacity"}}
	cases := map[string]struct {
		reason   string
		there    []client.Object
		was, now *refractv1alpha1.ConversionPolicy
		status   metav1.StatusReason // Reason of the rejection; empty for none.
		text     []string            // Parts of the rejection or of the warnings.
	}{
		"Good": {"The policy fits its definition.", []client.Object{crd}, nil, policyFrom(t, mapped, "widgets", 0), "", nil},
		"Findings": {
			"Each error is reported at its place.",
			[]client.Object{crd}, nil, wrong, metav1.StatusReasonInvalid, []string{`"widgets" is invalid`, "spec.spokes[0]", "capacitor"},
		},
		"NoDefinition": {
			"The definition may be created later, for example if both are applied together.", []client.Object{crd}, nil, unknown, "",
			[]string{"there is no CustomResourceDefinition gadgets.example.com yet"},
		},
		"Second": {
			"Only one policy may serve a definition.",
			[]client.Object{crd, served}, nil, policyFrom(t, mapped, "late", 0), metav1.StatusReasonConflict, []string{"ConversionPolicy widgets converts"},
		},
		"SecondAsShadow":  {"A definition may have any number of shadows.", []client.Object{crd, served}, nil, policyFrom(t, other, "late", 0), "", nil},
		"SecondOfAnother": {"The definition has no other policy.", []client.Object{crd, served}, nil, unknown, "", nil},
		"Change": {
			"The spec of a served policy may change.", []client.Object{crd, served}, policyFrom(t, strings.Replace(other, "Shadow", "Serve", 1), "widgets", 9),
			policyFrom(t, mapped, "widgets", 9), "", nil,
		},
		"Stranded": {
			"Stored objects have values that exist only in the annotation.", []client.Object{crd, served},
			kept, policyFrom(t, mapped, "widgets", 9), "",
			[]string{"spec.capacity of v2 is in the annotation", "store v2", "refract crd migrate widgets.example.com"},
		},
		"Metadata": {"A change of labels is allowed, even if the definition has changed meanwhile.", []client.Object{crd}, wrong, labelled, "", nil},
		"BecomesShadow": {
			"As a shadow, the needed policy would no longer convert.",
			[]client.Object{crd, served}, served, asShadow, metav1.StatusReasonConflict, []string{"is needed by"},
		},
		"Deletion": {
			"A needed policy cannot be deleted.",
			[]client.Object{crd, served}, served, nil, metav1.StatusReasonConflict, []string{"is needed by", "v1, v2", "refract crd migrate"},
		},
		"DeletionOfShadow": {
			"A shadow can be deleted.", []client.Object{crd, served, policyFrom(t, other, "late", 0)}, policyFrom(t, other, "late", 0), nil, "", nil,
		},
		"DeletionOfSecond": {
			"A second policy, which bypassed validation, can be deleted.", []client.Object{crd, served, policyFrom(t, mapped, "late", 0)}, policyFrom(t, mapped, "late", 0), nil, "", nil,
		},
		"DeletionWithoutDefinition": {"A policy whose definition was deleted can be deleted.", []client.Object{served}, served, nil, "", nil},
	}
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var there []client.Object
			for _, o := range tc.there {
				there = append(there, o.DeepCopyObject().(client.Object))
			}
			v := &validator{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build(), server: here{}, reading: bounded.NewReader(mostRead)}
			r := &admission.Request{Operation: admission.Create}
			switch {
			case tc.now == nil:
				r.Operation = admission.Delete
			case tc.was != nil:
				r.Operation = admission.Update
			}
			r.OldObject, r.Object = textOf(t, tc.was), textOf(t, tc.now)
			got, err := v.handle(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(got.Warnings, "\n")
			if got.Err != nil {
				said = got.Err.Error()
			}
			if reason := apierrors.ReasonForError(got.Err); (got.Err != nil) != (tc.status != "") || reason != tc.status && tc.status != "" {
				t.Errorf("%s\ngot %q, %v, want %q", tc.reason, reason, got.Err, tc.status)
			}
			for _, text := range tc.text {
				if !strings.Contains(said, text) {
					t.Errorf("%s\n%q is not in %q", tc.reason, text, said)
				}
			}
		})
	}
}

func textOf(t *testing.T, p *refractv1alpha1.ConversionPolicy) []byte {
	t.Helper()
	if p == nil {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestValidateOthers checks that the handler allows requests for other kinds, and rejects unreadable objects.
func TestValidateOthers(t *testing.T) {
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	v := &validator{client: fake.NewClientBuilder().WithScheme(scheme).Build(), server: here{}, reading: bounded.NewReader(mostRead)}
	cases := map[string]struct {
		reason  string
		request *admission.Request
		denied  bool
	}{
		"Status": {
			"Writes of the status are not checked.",
			&admission.Request{Operation: admission.Update, SubResource: "status", Object: []byte("x")}, false,
		},
		"Connect":    {"A connect request writes nothing.", &admission.Request{Operation: admission.Connect}, false},
		"Unreadable": {"An unreadable policy is rejected.", &admission.Request{Operation: admission.Create, Object: []byte("x")}, true},
		"Newer": {
			"A field that this replica does not know would be ignored, so the policy is rejected.",
			&admission.Request{Operation: admission.Create, Object: []byte(`{"spec":{"crd":"widgets.example.com","hub":"v2","rename":true}}`)}, true,
		},
		"Metadata": {
			"A newer API server may send unknown metadata.",
			&admission.Request{Operation: admission.Create, Object: []byte(`{"metadata":{"name":"a","more":1},"spec":{"crd":"widgets.example.com","hub":"v2"}}`)}, false,
		},
		"Itself": {
			"The policy of the definition of policies would be needed to read itself.",
			&admission.Request{Operation: admission.Create, Object: []byte(`{"spec":{"crd":"conversionpolicies.refract.dev","hub":"v1alpha1"}}`)}, true,
		},
		"Forced": {"An unreadable policy does not serve, so it can be deleted.", &admission.Request{Operation: admission.Delete, OldObject: []byte("x")}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := v.handle(t.Context(), tc.request)
			if err != nil || (r.Err != nil) != tc.denied {
				t.Errorf("%s\nhandle(): got %+v, %v", tc.reason, r, err)
			}
		})
	}
}

// TestInvalid checks that the answer for a policy with many errors is short.
func TestInvalid(t *testing.T) {
	p := policyFrom(t, mapped, "widgets", 1)
	for i := range mostCauses + 2 {
		f := p.Spec.Spokes[0].Fields[0]
		f.Hub = "spec.nothing" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		p.Spec.Spokes[0].Fields = append(p.Spec.Spokes[0].Fields, f)
	}
	_, findings, err := compile(&p.Spec, reduced(read(t, widgets)))
	if err == nil {
		t.Fatal("It compiles.")
	}
	var status apierrors.APIStatus
	if !errors.As(invalid("widgets", findings), &status) || status.Status().Code != http.StatusUnprocessableEntity || len(status.Status().Details.Causes) != mostCauses {
		t.Fatalf("It is %+v", status)
	}
	if !strings.Contains(status.Status().Message, " more]") {
		t.Errorf("It does not say that there are more: %s", status.Status().Message)
	}
	if c := status.Status().Details.Causes[0]; c.Field == "" || c.Message == "" {
		t.Errorf("The cause is %+v", c)
	}
}
