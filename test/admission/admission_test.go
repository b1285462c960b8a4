// Package admission tests the answers of refract.dev/kit/webhook/admission with a real API server.
package admission

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/kit/webhook/admission"
	"refract.dev/test/harness"
)

// shared is the API server of all tests, with its clients.
var shared struct {
	env    *harness.Env
	config *rest.Config
	client client.Client
}

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{}, func(ctx context.Context, e *harness.Env) (func() error, error) {
		shared.env = e
		var err error
		if shared.config, err = e.Config("hub"); err != nil {
			return nil, err
		}
		if shared.client, err = harness.ClientFor(shared.config); err != nil {
			return nil, err
		}
		server := httptest.NewTLSServer(handler())
		stop := func() error {
			server.Close()
			return nil
		}
		return stop, register(ctx, server)
	})
}

// register creates mutating and validating webhooks for ConfigMaps. The value of the label "review" selects the
// webhook: "v1" and "v1beta1" name the version of the AdmissionReview; the API server ignores failures of the webhook
// "ignored".
func register(ctx context.Context, server *httptest.Server) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "admission"}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "admission"}}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			URL: new(server.URL + path), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}
	}
	for label, version := range map[string]string{"v1": "v1", "v1beta1": "v1beta1", "ignored": "v1"} {
		policy := admissionregistrationv1.Fail
		if label == "ignored" {
			policy = admissionregistrationv1.Ignore
		}
		name, selector := label+".admission.example", &metav1.LabelSelector{MatchLabels: map[string]string{"review": label}}
		rules := []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: name, ClientConfig: at("/mutate"), Rules: rules, ObjectSelector: selector, FailurePolicy: &policy,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{version},
		})
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: name, ClientConfig: at("/validate"), Rules: rules, ObjectSelector: selector, FailurePolicy: &policy,
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{version},
		})
	}
	if err := errors.Join(shared.client.Create(ctx, mutating), shared.client.Create(ctx, validating)); err != nil {
		return err
	}
	// The API server starts to call a new webhook only after a moment.
	return harness.Await(ctx, func(ctx context.Context) error {
		for _, label := range []string{"v1", "v1beta1", "ignored"} {
			probe := configMap("probe", label, map[string]string{"deny": "not yet"})
			if err := shared.client.Create(ctx, probe, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "not yet") {
				return fmt.Errorf("the webhook for %s is not called: got %w", label, err)
			}
			probe = configMap("probe", label, nil)
			if err := shared.client.Create(ctx, probe, client.DryRunAll); err != nil || probe.Data["greeting"] != "hello" {
				return fmt.Errorf("the webhook for %s sets no default: got %v: %w", label, probe.Data, err)
			}
		}
		return nil
	})
}

func configMap(name, review string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"review": review}}, Data: data}
}

// handler serves the mutating and the validating webhook. The data of an object determine the response of the
// validating webhook.
func handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mutate", admission.Mutating(admission.Default("v1", "ConfigMap", func(_ context.Context, _ *admission.Request, c *corev1.ConfigMap) error {
		if c.Data["greeting"] == "" {
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data["greeting"] = "hello"
		}
		return nil
	})))
	mux.Handle("/validate", admission.Validating(admission.Validate("v1", "ConfigMap",
		func(_ context.Context, r *admission.Request, c, old *corev1.ConfigMap) (warnings []string, err error) {
			switch {
			case c.Data["deny"] != "":
				return nil, errors.New(c.Data["deny"])
			case c.Data["forbid"] != "":
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, c.Name, errors.New(c.Data["forbid"]))
			case c.Data["unavailable"] != "":
				return nil, admission.Unavailable(errors.New(c.Data["unavailable"]))
			case old != nil && old.Data["fixed"] != c.Data["fixed"]:
				return nil, fmt.Errorf("data.fixed: want %q as it was", old.Data["fixed"])
			case r.DryRun:
				return []string{"this was a rehearsal"}, nil
			case c.Data["warn"] != "":
				return []string{c.Data["warn"], strings.Repeat("ä", 4000), strings.Repeat("ö", 4000)}, nil
			default:
				return nil, nil
			}
		})))
	return mux
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const because = `topping "tomato" not known: <b>50%</b> of "ä"`
	forbidden := metav1.StatusReasonForbidden
	cases := map[string]struct {
		reason string
		data   map[string]string
		want   string // The error's text, with the webhook's name for %s.
		why    metav1.StatusReason
		code   int32
	}{
		"Allowed": {reason: "The default is set.", data: map[string]string{"x": "1"}},
		"Empty":   {reason: "An object without the map gets no default.", data: nil},
		"Denied": {
			reason: "The user gets exactly the text of the error.",
			data:   map[string]string{"deny": because}, want: `admission webhook "%s" denied the request: ` + because, code: 400,
		},
		"Forbidden": {
			reason: "The denial has the code and the reason of the error.",
			data:   map[string]string{"forbid": "no"}, want: `admission webhook "%s" denied the request: configmaps "answer" is forbidden: no`, why: forbidden, code: 403,
		},
		"Unavailable": {
			reason: "The failurePolicy decides.", data: map[string]string{"unavailable": "informers not ready"}, why: metav1.StatusReasonInternalError, code: 500,
			want: `Internal error occurred: failed calling webhook "%s": failed to call webhook: informers not ready`,
		},
	}
	for _, review := range []string{"v1", "v1beta1"} {
		for name, tc := range cases {
			t.Run(review+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := configMap("answer", review, tc.data)
				err := shared.client.Create(t.Context(), c, client.DryRunAll)
				if tc.want == "" {
					if err != nil || c.Data["greeting"] != "hello" {
						t.Errorf("%s\ngot %v: %v", tc.reason, c.Data, err)
					}
					return
				}
				var status apierrors.APIStatus
				if !errors.As(err, &status) {
					t.Fatalf("%s\ngot %v", tc.reason, err)
				}
				got := status.Status()
				want := fmt.Sprintf(strings.ReplaceAll(tc.want, "50%", "50%%"), review+".admission.example")
				if diff := cmp.Diff([]any{want, tc.code, tc.why}, []any{got.Message, got.Code, got.Reason}); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
	t.Run("Ignored", func(t *testing.T) {
		t.Parallel()
		c := configMap("answer", "ignored", map[string]string{"unavailable": "informers not ready"})
		if err := shared.client.Create(t.Context(), c, client.DryRunAll); err != nil {
			t.Errorf("An HTTP error must be ignored with failurePolicy Ignore: got %v", err)
		}
	})
}

// TestKubectl checks the output that users see.
func TestKubectl(t *testing.T) {
	t.Parallel()
	const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: told, labels: {review: v1}}\ndata: {%s}\n"
	cases := map[string]struct{ data, want string }{
		"Denied":    {"deny: topping not known", `Error from server: error when creating "STDIN": admission webhook "v1.admission.example" denied the request: topping not known` + "\n"},
		"Rehearsal": {"x: z", "Warning: this was a rehearsal\nconfigmap/told created (server dry run)\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, _ := shared.env.KubectlSays("hub", fmt.Sprintf(manifest, tc.data), "create", "--dry-run=server", "-f", "-") // The output includes the error.
			if diff := cmp.Diff(tc.want, out); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestLife creates, changes and deletes an object.
func TestLife(t *testing.T) {
	t.Parallel()
	for _, review := range []string{"v1", "v1beta1"} {
		t.Run(review, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c := configMap(harness.NameOf(t), review, map[string]string{"fixed": "1", "greeting": "hi", "warn": "mind the gap"})
			if err := shared.client.Create(ctx, c); err != nil {
				t.Fatal(err)
			}
			c.Data = nil
			want := fmt.Sprintf(`admission webhook "%s.admission.example" denied the request: data.fixed: want "1" as it was`, review)
			if err := shared.client.Update(ctx, c); err == nil || err.Error() != want {
				t.Errorf("want %s, got %v", want, err)
			}
			c.Data = map[string]string{"fixed": "1"}
			if err := shared.client.Update(ctx, c); err != nil || c.Data["greeting"] != "hello" {
				t.Errorf("got %v: %v", c.Data, err)
			}
			if err := shared.client.Delete(ctx, c); err != nil {
				t.Errorf("A deletion without a new object must be allowed: got %v", err)
			}
		})
	}
}
