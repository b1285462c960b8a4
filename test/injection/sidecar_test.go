package injection

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// addContainer is a webhook that adds a container to pods that lack it.
func addContainer(w http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	pod := &corev1.Pod{}
	err := json.NewDecoder(r.Body).Decode(review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, pod)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if pod.Spec.Containers[len(pod.Spec.Containers)-1].Name != "c3" {
		kind := admissionv1.PatchTypeJSONPatch
		env := "[]"
		if pod.Labels["wants"] == "conflict" {
			env = `[{"name":"DB_PORT","value":"7000"}]`
		}
		review.Response.PatchType = &kind
		review.Response.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/spec/containers/-","value":{"name":"c3","image":"i","env":%s}}]`, env)
	}
	review.Request = nil
	if err := json.NewEncoder(w).Encode(review); err != nil {
		panic(http.ErrAbortHandler) // The client has disconnected.
	}
}

// sidecar registers a webhook of the test for the pods of the scene. The API server calls webhooks in alphabetical
// order, so the name decides whether the webhook is called before Refract's.
func (s *scene) sidecar(name string, again admissionregistrationv1.ReinvocationPolicyType) {
	s.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(addContainer))
	s.Cleanup(server.Close)
	sideEffects, url := admissionregistrationv1.SideEffectClassNone, server.URL
	hook := admissionregistrationv1.MutatingWebhook{
		Name: "sidecar.example.com", SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again,
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + s.ns}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook},
	}
	s.must(s.api.Create(s.Context(), configuration))
	s.Cleanup(func() { s.must(s.api.Delete(context.WithoutCancel(s.Context()), configuration)) })
	s.until("pods get the sidecar", func(ctx context.Context) error {
		pod := s.read(podOf("probe", "a: b", `{containers: [{name: c1, image: i}]}`))[0]
		if err := s.api.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if text := inJSON(pod.Object["spec"]); !strings.Contains(text, `"c3"`) {
			return fmt.Errorf("the pod lacks the sidecar: %s", text)
		}
		return nil
	})
}

// TestSidecar is case 23: another webhook adds a container before or after Refract's call. If it adds the container
// after, the API server calls Refract again.
func TestSidecar(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		configuration string
		again         admissionregistrationv1.ReinvocationPolicyType
	}{
		"Before":      {"aa-sidecar", admissionregistrationv1.NeverReinvocationPolicy},
		"BeforeAgain": {"aa-sidecar", admissionregistrationv1.IfNeededReinvocationPolicy},
		"After":       {"zz-sidecar", admissionregistrationv1.NeverReinvocationPolicy},
		"AfterAgain":  {"zz-sidecar", admissionregistrationv1.IfNeededReinvocationPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			s.apply(
				sip("p", `{service: db, selector: {}, `+port+`, envFrom: [{configMapRef: {name: conf}}], `+cache+`}`),
				sip("q", `{selector: {}, envPosition: Prepend, env: [{name: Q, value: q}]}`),
			)
			s.inEffect("a: b", "p", "q")
			s.sidecar(tc.configuration, tc.again)
			p, err := typed(s.create(podOf("web", "a: b", `{containers: [{name: c1, image: i, env: [{name: OWN, value: own}]}]}`))[0])
			s.must(err)
			got, err := sketch(p)
			s.must(err)
			want := lines(`
				db: p
				no_service: q
				volume cache-volume: emptyDir
				c1: env Q=q OWN=own DB_PORT=6379; from :configmap/conf; mount /cache=cache-volume
				c3: env Q=q DB_PORT=6379; from :configmap/conf; mount /cache=cache-volume`)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("The pod: -want, +got:\n%s\nIts record is %s", diff, p.Annotations[refractv1beta1.InjectionAnnotation])
			}
			r, err := recordOf(p)
			s.must(err)
			if len(r.Applied) != 2 || !cmp.Equal(r.Applied[0].Env, []string{"DB_PORT"}) || !cmp.Equal(r.Applied[0].Volumes, []string{"cache-volume"}) {
				t.Errorf("want all items of both calls in the record, got %s", inJSON(r))
			}
			s.untilPolicy("p", "counts the pod", func(p *refractv1beta1.ServiceInjectionPolicy) error {
				if p.Status.Injected != 1 || p.Status.Stale != 0 {
					return errors.New("want one pod injected")
				}
				return nil
			})
		})
	}
}

// TestSidecarThatConflicts: another webhook adds a container that conflicts with a policy. If the webhook is called
// before Refract's, the policy is skipped. If it is called after, the injected items stay.
func TestSidecarThatConflicts(t *testing.T) {
	t.Parallel()
	for configuration, want := range map[string]string{
		"aa-sidecar": "no_service: q\nc1: env Q=q\nc3: env DB_PORT=7000 Q=q\nskipped p: EnvConflict",
		"zz-sidecar": "db: p\nno_service: q\nc1: env DB_PORT=6379 Q=q\nc3: env DB_PORT=7000 Q=q",
	} {
		t.Run(configuration, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			s.apply(sip("p", `{service: db, selector: {}, `+port+`}`), sip("q", `{selector: {}, env: [{name: Q, value: q}]}`))
			s.inEffect("a: b", "p", "q")
			s.sidecar(configuration, admissionregistrationv1.NeverReinvocationPolicy)
			p, err := typed(s.create(podOf("web", "wants: conflict", `{containers: [{name: c1, image: i}]}`))[0])
			s.must(err)
			got, err := sketch(p)
			s.must(err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("The pod: -want, +got:\n%s", diff)
			}
		})
	}
}
