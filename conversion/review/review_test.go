package review

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
)

const ovens = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ovens.example.com}
spec:
  group: example.com
  names: {kind: Oven, listKind: OvenList, plural: ovens, singular: oven}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const oven = `{"apiVersion":"example.com/v1","kind":"Oven",
	"metadata":{"name":"old","namespace":"shop","labels":{"a":"b"},"finalizers":["keep"]},"spec":{"big":9007199254740993}}`

func compiled(t *testing.T) *structural.Definition {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(ovens))
	if err != nil {
		t.Fatal(err)
	}
	d, err := structural.New(parse(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// serve starts a webhook. It answers with the result of answer, in which the text UID stands for the uid of the
// request.
func serve(t *testing.T, answer func(request map[string]any) (int, string)) Webhook {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var review struct {
			Request map[string]any `json:"request"`
		}
		if err := utiljson.Unmarshal(body, &review); err != nil {
			t.Error(err)
		}
		status, text := answer(review.Request)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(text, "UID", fmt.Sprint(review.Request["uid"])))
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return Webhook{URL: server.URL + "/hook", Authority: authority}
}

func always(status int, text string) func(map[string]any) (int, string) {
	return func(map[string]any) (int, string) { return status, text }
}

// converted returns a ConversionReview with this response.
func converted(response string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":` + response + `}`
}

func TestConvert(t *testing.T) {
	success := func(objects string) string {
		return converted(`{"uid":"UID","result":{"status":"Success"},"convertedObjects":[` + objects + `]}`)
	}
	prefix := "conversion webhook for example.com/v1, Kind=Oven "
	cases := map[string]struct {
		reason   string
		versions []string
		status   int
		answer   string
		want     string // The wanted object.
		refusal  string
	}{
		"Converted": {
			reason: "A webhook can change labels and annotations. All other metadata is restored.",
			answer: success(`{"apiVersion":"example.com/v2","kind":"Oven",
				"metadata":{"name":"old","namespace":"shop","labels":{"c":"d"}},"spec":{"large":9007199254740993}}`),
			want: `{"apiVersion":"example.com/v2","kind":"Oven",
				"metadata":{"name":"old","namespace":"shop","labels":{"c":"d"},"finalizers":["keep"]},"spec":{"large":9007199254740993}}`,
		},
		"V1beta1": {
			reason: "In v1beta1, the uid of the answer is not checked.", versions: []string{"v2", "v1beta1"},
			answer: `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview",
				"response":{"uid":"other","result":{"status":"Success"},
					"convertedObjects":[{"apiVersion":"example.com/v2","kind":"Oven","metadata":{"name":"old","namespace":"shop"}}]}}`,
			want: `{"apiVersion":"example.com/v2","kind":"Oven","metadata":{"name":"old","namespace":"shop","finalizers":["keep"]}}`,
		},
		"Failure": {
			reason: "The client gets the message of the webhook.", answer: converted(`{"uid":"UID","result":{"status":"Failure","message":"too hot"}}`),
			refusal: prefix + "failed: too hot",
		},
		"WrongUID": {
			reason: "The answer must have the uid of the request.", answer: converted(`{"uid":"other","result":{"status":"Success"}}`),
			refusal: `got "other"`,
		},
		"NoObject": {
			reason: "The answer must have as many objects as the request.", answer: success(""),
			refusal: prefix + "returned 0 objects, expected 1",
		},
		"WrongVersion": {
			reason: "The objects of the answer must have the requested version.", answer: success(oven),
			refusal: prefix + "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
		},
		"WrongName": {
			reason: "A webhook cannot change the name of an object.", answer: success(`{"apiVersion":"example.com/v2","kind":"Oven","metadata":{"name":"new","namespace":"shop"}}`),
			refusal: prefix + "returned invalid object: must have the same name: old != new",
		},
		"WrongLabel": {
			reason:  "Labels must be strings.",
			answer:  success(`{"apiVersion":"example.com/v2","kind":"Oven","metadata":{"name":"old","namespace":"shop","labels":{"c":1}}}`),
			refusal: "must be a string",
		},
		"NoReview": {reason: "An answer must be a review.", answer: `{"kind":"Status","apiVersion":"v1"}`, refusal: prefix + "failed: "},
		"TooLong": {
			reason: "An answer without an end is cut off.", answer: `{"x":"` + strings.Repeat("x", maxAnswer) + `"}`, refusal: errTooLong.Error(),
		},
		"Status500": {reason: "Only the status 200 is an answer.", status: http.StatusInternalServerError, answer: "informers not ready"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			webhook := serve(t, always(max(tc.status, http.StatusOK), tc.answer))
			converter, err := NewConverter(compiled(t), tc.versions, webhook)
			if err != nil {
				t.Fatal(err)
			}
			object := parse(t, oven)
			got, err := converter.Convert(t.Context(), object, "example.com/v2")
			judge(t, tc.reason, got, err, tc.want, tc.refusal)
			if diff := cmp.Diff(parse(t, oven), object); diff != "" {
				t.Errorf("Convert() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// judge compares the result with the wanted object or the wanted rejection. If both are empty, the webhook must have
// given no answer.
func judge(t *testing.T, reason string, got map[string]any, err error, want, refusal string) {
	t.Helper()
	var refused *pipeline.RefusedError
	switch {
	case want != "":
		if err != nil {
			t.Fatalf("%s\n%v", reason, err)
		}
		if diff := cmp.Diff(parse(t, want), got); diff != "" {
			t.Errorf("%s\n-want, +got:\n%s", reason, diff)
		}
	case refusal != "":
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, refusal) {
			t.Errorf("%s\nerror %v, want a refusal: %s", reason, err, refusal)
		}
	default:
		if err == nil || errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "asking https://") {
			t.Errorf("%s\nerror %v, want one of a webhook that does not answer", reason, err)
		}
	}
}

// admitted returns an AdmissionReview with this response.
func admitted(response string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":` + response + `}`
}

func TestMutate(t *testing.T) {
	patched := func(patch string) string {
		text, err := json.Marshal([]byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		return admitted(`{"uid":"UID","allowed":true,"warnings":["hot"],"patchType":"JSONPatch","patch":` + string(text) + `}`)
	}
	cases := map[string]struct {
		reason  string
		status  int
		answer  string
		want    string
		refusal string
	}{
		"Patched": {
			reason: "The patch is applied, and integers keep their value.", answer: patched(`[{"op":"add","path":"/spec/fuel","value":"wood"}]`),
			want: strings.Replace(oven, `"spec":{`, `"spec":{"fuel":"wood",`, 1),
		},
		"Unchanged": {reason: "Without a patch, the object is unchanged.", answer: admitted(`{"uid":"UID","allowed":true}`), want: oven},
		"Denied": {
			reason: "A mutating webhook may deny the object, too.", answer: admitted(`{"uid":"UID","allowed":false,"status":{"message":"too hot"}}`),
			refusal: "denied the request: too hot",
		},
		"NoPatch": {
			reason: "An answer with a patch type needs a patch.", answer: admitted(`{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`),
			refusal: "received invalid webhook response: webhook returned response.patchType but not response.patch",
		},
		"WrongPatch": {
			reason: "A patch that cannot be applied is an internal error.", answer: patched(`[{"op":"remove","path":"/nothing"}]`), refusal: "Internal error occurred: ",
		},
		"Undecodable": {reason: "A patch must be JSON.", answer: patched(`{`), refusal: "received undecodable patch in webhook response"},
		"WrongUID": {
			reason: "The answer must have the uid of the request.", answer: admitted(`{"uid":"other","allowed":true}`), refusal: `got "other"`,
		},
		"Status500": {reason: "Only the status 200 is an answer.", status: http.StatusInternalServerError, answer: "informers not ready"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			webhook, err := NewAdmission(compiled(t), serve(t, always(max(tc.status, http.StatusOK), tc.answer)))
			if err != nil {
				t.Fatal(err)
			}
			object := parse(t, oven)
			got, err := webhook.Mutate(t.Context(), object)
			judge(t, tc.reason, got, err, tc.want, tc.refusal)
			if diff := cmp.Diff(parse(t, oven), object); diff != "" {
				t.Errorf("Mutate() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	var sent map[string]any
	answer := admitted(`{"uid":"UID","allowed":true,"warnings":["hot"]}`)
	webhook, err := NewAdmission(compiled(t), serve(t, func(request map[string]any) (int, string) {
		sent = runtime.DeepCopyJSON(request)
		return http.StatusOK, answer
	}))
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	webhook.Warn = func(text string) { warnings = append(warnings, text) }
	if err := webhook.Validate(t.Context(), parse(t, oven)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"hot"}, warnings); diff != "" {
		t.Errorf("warnings: -want, +got:\n%s", diff)
	}
	delete(sent, "uid")
	want := parse(t, `{"dryRun":true,"kind":{"group":"example.com","kind":"Oven","version":"v1"},"name":"old","namespace":"shop","oldObject":null,
		"operation":"CREATE","options":{"apiVersion":"meta.k8s.io/v1","dryRun":["All"],"kind":"CreateOptions"},
		"requestKind":{"group":"example.com","kind":"Oven","version":"v1"},"requestResource":{"group":"example.com","resource":"ovens","version":"v1"},
		"resource":{"group":"example.com","resource":"ovens","version":"v1"},"userInfo":{"groups":["system:authenticated"],"username":"refract"},
		"object":`+oven+`}`)
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("request: -want, +got:\n%s", diff)
	}
	answer = admitted(`{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"W10="}`)
	judge(t, "A validating webhook changes nothing.", nil, webhook.Validate(t.Context(), parse(t, oven)), "", "validating webhook may not return response.patch")
}

// TestUnreachable checks the errors for invalid webhooks, and for webhooks that give no answer.
func TestUnreachable(t *testing.T) {
	webhook := serve(t, always(http.StatusOK, "{}"))
	cases := map[string]struct {
		reason string
		Webhook

		want string
	}{
		"HTTP":      {reason: "Reviews are sent only over TLS.", Webhook: Webhook{URL: "http://localhost/hook"}, want: "want https://HOST"},
		"NoURL":     {reason: "The URL must be valid.", Webhook: Webhook{URL: "https://[::"}, want: "reading the URL"},
		"Untrusted": {reason: "The certificate must be signed by a trusted authority.", Webhook: Webhook{URL: webhook.URL}, want: "certificate"},
		"OtherName": {
			reason:  "The certificate must have the expected name.",
			Webhook: Webhook{URL: webhook.URL, Authority: webhook.Authority, ServerName: "webhook.shop.svc"}, want: "not webhook.shop.svc",
		},
		"Refused": {reason: "The connection must be accepted.", Webhook: Webhook{URL: "https://127.0.0.1:1/hook"}, want: "connection refused"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			converter, err := NewConverter(compiled(t), nil, tc.Webhook)
			if err == nil {
				_, err = converter.Convert(t.Context(), parse(t, oven), "example.com/v2")
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nconverting: %v, want %s", tc.reason, err, tc.want)
			}
			admission, err := NewAdmission(compiled(t), tc.Webhook)
			if err == nil {
				err = admission.Validate(t.Context(), parse(t, oven))
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nvalidating: %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}

// TestServerName has a webhook behind a tunnel. Its certificate has the name of the Service.
func TestServerName(t *testing.T) {
	hook := serve(t, always(http.StatusOK, admitted(`{"uid":"UID","allowed":true}`)))
	hook.ServerName = "example.com" // The certificate of httptest has this name.
	webhook, err := NewAdmission(compiled(t), hook)
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.Validate(t.Context(), parse(t, oven)); err != nil {
		t.Error(err)
	}
}

// TestInterrupted checks that an interrupted command does not wait for the answer of a webhook.
func TestInterrupted(t *testing.T) {
	asked, done := make(chan struct{}), make(chan struct{})
	webhook := serve(t, func(map[string]any) (int, string) {
		close(asked)
		<-done
		return http.StatusOK, "{}"
	})
	t.Cleanup(func() { close(done) })
	converter, err := NewConverter(compiled(t), nil, webhook)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := converter.Convert(ctx, parse(t, oven), "example.com/v2"); !errors.Is(err, context.Canceled) {
		t.Errorf("Convert() = %v, want %v", err, context.Canceled)
	}
}
