package review

import (
	"context"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
)

// Rules of findings about admission webhooks: the webhook rejects the object, or its answer is invalid.
const (
	RuleDenied          = "AdmissionDenied"
	RuleAdmissionFailed = "AdmissionFailed"
)

// Admission sends AdmissionReviews for the creation of objects to an admission webhook. They are dry runs, so the
// webhook must have no side effects. An Admission is not safe for concurrent use.
type Admission struct {
	// Warn receives the warnings of the webhook; nil ignores them.
	Warn func(text string)

	definition *structural.Definition
	webhook    Webhook
	witness    *witness
	client     *rest.RESTClient
}

// NewAdmission returns an Admission for a webhook and the objects of a kind.
func NewAdmission(d *structural.Definition, w Webhook) (*Admission, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	a := &Admission{definition: d, webhook: w, witness: &witness{timeout: admissionTimeout, serverName: w.ServerName, insecure: w.Insecure}}
	clients, err := webhook.NewClientManager(
		[]schema.GroupVersion{admissionv1beta1.SchemeGroupVersion, admissionv1.SchemeGroupVersion},
		admissionv1beta1.AddToScheme, admissionv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("preparing to review: %w", err)
	}
	clients.SetAuthenticationInfoResolver(a.witness.resolver(nil))
	clients.SetServiceResolver(webhook.NewDefaultServiceResolver())
	a.client, err = clients.HookClient(webhook.ClientConfig{Name: w.URL, URL: w.URL, CABundle: w.Authority})
	if err != nil {
		return nil, fmt.Errorf("preparing to ask %s: %w", w.URL, err)
	}
	return a, nil
}

// Mutate returns the object after the patch of a mutating webhook. Its argument is not modified.
func (a *Admission) Mutate(ctx context.Context, object map[string]any) (map[string]any, error) {
	response, err := a.ask(ctx, object, true)
	if err != nil || len(response.Patch) == 0 {
		return object, err
	}
	if response.PatchType != admissionv1.PatchTypeJSONPatch {
		return nil, a.failed(fmt.Errorf("unsupported patch type %q", response.PatchType))
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return nil, a.failed(fmt.Errorf("received undecodable patch in webhook response: %w", err))
	}
	before, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	text, err := patch.Apply(before)
	if err != nil { // The API server shows only this error to the client, as an internal error.
		return nil, &pipeline.RefusedError{Rule: RuleAdmissionFailed, Message: "Internal error occurred: " + err.Error()}
	}
	var after map[string]any
	if err := json.Unmarshal(text, &after); err != nil {
		return nil, &pipeline.RefusedError{Rule: RuleAdmissionFailed, Message: "Internal error occurred: " + err.Error()}
	}
	return after, nil
}

// Validate returns an error if the validating webhook rejects the object.
func (a *Admission) Validate(ctx context.Context, object map[string]any) error {
	_, err := a.ask(ctx, object, false)
	return err
}

// ask sends a review, and checks the answer.
func (a *Admission) ask(ctx context.Context, object map[string]any, mutating bool) (*webhookrequest.AdmissionResponse, error) {
	review, err := a.review(object)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	answer := &admissionv1.AdmissionReview{}
	err = a.client.Post().Body(review).Timeout(admissionTimeout).Do(ctx).Into(answer)
	if silent := a.witness.unreachable(); silent != nil {
		return nil, a.webhook.unreachable(silent)
	}
	if err != nil {
		return nil, a.failed(fmt.Errorf("failed to call webhook: %w", err))
	}
	response, err := webhookrequest.VerifyAdmissionResponse(review.Request.UID, mutating, answer)
	if err != nil {
		return nil, a.failed(fmt.Errorf("received invalid webhook response: %w", err))
	}
	for _, text := range response.Warnings {
		if a.Warn != nil {
			a.Warn(text)
		}
	}
	if !response.Allowed {
		denied := webhookerrors.ToStatusErr(a.webhook.URL, response.Result)
		return nil, &pipeline.RefusedError{Rule: RuleDenied, Message: denied.Error()}
	}
	return response, nil
}

// failed returns the error for an answer that an API server does not accept.
func (a *Admission) failed(err error) error {
	failure := &webhook.ErrCallingWebhook{WebhookName: a.webhook.URL, Reason: err}
	return &pipeline.RefusedError{Rule: RuleAdmissionFailed, Message: "Internal error occurred: " + failure.Error()}
}

// review returns the review that an API server sends for the creation of the object.
func (a *Admission) review(object map[string]any) (*admissionv1.AdmissionReview, error) {
	version, err := a.definition.VersionOf(object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: object}
	kind := metav1.GroupVersionKind{Group: a.definition.Group(), Version: version.Name(), Kind: a.definition.Kind()}
	resource := metav1.GroupVersionResource{Group: a.definition.Group(), Version: version.Name(), Resource: a.definition.Plural()}
	dryRun := true
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	options, err := json.Marshal(metav1.CreateOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the options: %w", err)
	}
	return &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID:             uuid.NewUUID(),
		Kind:            kind,
		Resource:        resource,
		RequestKind:     &kind,
		RequestResource: &resource,
		Name:            u.GetName(),
		Namespace:       u.GetNamespace(),
		Operation:       admissionv1.Create,
		UserInfo:        authenticationv1.UserInfo{Username: "refract", Groups: []string{"system:authenticated"}},
		Object:          runtime.RawExtension{Raw: text},
		DryRun:          &dryRun,
		Options:         runtime.RawExtension{Raw: options},
	}}, nil
}
