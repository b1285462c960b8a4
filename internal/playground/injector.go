package playground

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// TeamLabel is the label that the webhook of a cluster adds to Pods, Services and workloads without this label.
	TeamLabel = "playground.refract.dev/team"
	// SidecarLabel is a label of Pods. If its value is "false", the webhook does not add a sidecar.
	SidecarLabel = "playground.refract.dev/sidecar"
	// Sidecar is the name of the container that the webhook adds to Pods.
	Sidecar = "playground-sidecar"

	webhookName = "playground.refract.dev"
	reviewLimit = 8 << 20 // The maximum size in bytes, which is more than an API server sends.
)

// startWebhook starts and registers a mutating webhook for a cluster. The webhook ends with the playground. The API
// server ignores failures of the webhook, so the cluster works even if the supervisor is busy or has ended.
func (s *starter) startWebhook(ctx context.Context, c *cluster) error {
	served, err := c.ca.issue(subject{name: "webhook", hosts: []string{"127.0.0.1"}})
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(served.cert, served.key)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	file, err := os.Create(c.path(logsDir + "/webhook.log"))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(serveReview),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(file, "", log.LstdFlags),
	}
	s.background.Go(func() {
		defer func() { _ = file.Close() }()
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			server.ErrorLog.Print(err)
		}
	})
	context.AfterFunc(s.life, func() { _ = server.Close() }) //nolint:contextcheck // As life says.
	client, err := c.client()
	if err != nil {
		return err
	}
	configuration := webhookConfiguration("https://"+listener.Addr().String(), c.ca.cert)
	_, err = client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{})
	return err
}

// webhookConfiguration returns the configuration for a webhook with this URL.
func webhookConfiguration(url string, authority []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
	ignore, none, seconds := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone, int32(5)
	rule := func(group, version string, resources ...string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
		}
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "mutate." + webhookName,
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			AdmissionReviewVersions: []string{"v1"},
			FailurePolicy:           &ignore,
			SideEffects:             &none,
			TimeoutSeconds:          &seconds,
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "kube-public", "kube-node-lease"}},
			}},
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule("", "v1", "pods", "services"),
				rule("apps", "v1", "deployments", "statefulsets", "daemonsets"),
			},
		}},
	}
}

// serveReview responds to an AdmissionReview.
func serveReview(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, reviewLimit))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("want an AdmissionReview with a request: %v", err), http.StatusBadRequest)
		return
	}
	review.Response = mutate(review.Request)
	review.Request = nil
	answer, err := json.Marshal(review)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // It returns an error if the API server has closed the connection.
}

// patchOperation is an operation of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// mutate adds the label to an object and the sidecar to a new Pod.
func mutate(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	out := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
	object := &corev1.Pod{} // If the object is not a Pod, only the metadata is used.
	if err := json.Unmarshal(r.Object.Raw, object); r.Kind.Kind == "Pod" && err != nil {
		out.Warnings = []string{"playground: the Pod stays unchanged: " + err.Error()}
		return out
	}
	var patch []patchOperation
	switch _, labelled := object.Labels[TeamLabel]; {
	case labelled:
	case len(object.Labels) == 0:
		patch = append(patch, patchOperation{"add", "/metadata/labels", map[string]string{TeamLabel: "blue"}})
	default:
		patch = append(patch, patchOperation{"add", "/metadata/labels/playground.refract.dev~1team", "blue"})
	}
	if r.Kind.Kind == "Pod" && r.Operation == admissionv1.Create && object.Labels[SidecarLabel] != "false" && len(object.Spec.Containers) > 0 {
		container := map[string]string{"name": Sidecar, "image": "playground-sidecar:1"}
		patch = append(patch, patchOperation{"add", "/spec/containers/-", container})
	}
	if len(patch) == 0 {
		return out
	}
	encoded, err := json.Marshal(patch)
	if err != nil {
		out.Warnings = []string{"playground: encoding the patch: " + err.Error()}
		return out
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.Patch, out.PatchType = encoded, &kind
	return out
}
