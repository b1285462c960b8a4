package converter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
	"refract.dev/internal/owner"
	"refract.dev/internal/webhook"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
)

const (
	// ValidatePath is the path of the validating webhook for ConversionPolicies.
	ValidatePath = "/validate/conversion-policies"
	// ConfigurationName is the name of the ValidatingWebhookConfiguration for this webhook.
	ConfigurationName = "refract-conversion"

	policiesWebhook = "policies.conversion.refract.dev"
	// ownDefinition is the name of the definition of ConversionPolicies.
	ownDefinition = "conversionpolicies.refract.dev"
	// timeout is the timeout of the webhook, in seconds.
	timeout = 10
)

// newSpec is the match condition of the webhook: the spec has changed. So metadata, such as finalizers, can be changed
// while no replica runs. The API server increases the generation before it evaluates the condition.
const newSpec = "request.operation != 'UPDATE' || object.metadata.generation != oldObject.metadata.generation"

// configuration returns the webhook configuration. It stays in the cluster after the program has ended, so that no user
// can delete a needed policy in the meantime.
func configuration() webhook.Configuration {
	cluster := admissionregistrationv1.ClusterScope
	webhooks := []webhook.Webhook{{
		Name: policiesWebhook,
		Path: ValidatePath,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
			},
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{refractv1alpha1.GroupVersion.Group},
				APIVersions: []string{refractv1alpha1.GroupVersion.Version},
				Resources:   []string{"conversionpolicies"},
				Scope:       &cluster,
			},
		}},
		FailurePolicy:  admissionregistrationv1.Fail,
		TimeoutSeconds: timeout,
		Conditions:     []admissionregistrationv1.MatchCondition{{Name: "says-something-new", Expression: newSpec}},
	}}
	return webhook.Configuration{
		Kind: webhook.Validating, Name: ConfigurationName, Role: owner.ConversionRole, Webhooks: func() []webhook.Webhook { return webhooks },
	}
}

// addressed returns the client configuration for a path of the server.
type addressed interface {
	ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig
}

// mostRead is the maximum number of JSON values in the old and the new version of a policy together: six for each field
// of a policy with the maximum number of spokes and fields. In memory, a value may be a hundred times as large as its
// JSON text.
const mostRead = 32 * 256 * 6

// readFor is the maximum time for which a request waits until its policy is read.
const readFor = 3 * time.Second

// validate returns the handler that decides whether a policy may be written or deleted. c must read from the API
// server, not from a cache.
func validate(c client.Reader, server addressed) http.Handler {
	return bounded.Handler((&validator{client: c, server: server, reading: bounded.NewReader(mostRead)}).handle)
}

type validator struct {
	client  client.Reader
	server  addressed
	reading *bounded.Reader
}

// handle answers one request. The request may wait for others, because the memory for concurrent requests is limited.
func (v *validator) handle(ctx context.Context, req *admission.Request) (answer *admission.Response, err error) {
	if req.SubResource != "" {
		return &admission.Response{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readFor, bounded.ErrTooLong)
	defer cancel()
	refused := v.reading.Read(ctx, req, func() error {
		answer, err = v.judge(ctx, req)
		return nil
	})
	if refused != nil {
		return admission.Denied(refused), nil
	}
	return answer, err
}

// judge reads the policies in a request and decides.
func (v *validator) judge(ctx context.Context, req *admission.Request) (*admission.Response, error) {
	was, err := policyIn(req.OldObject)
	if err != nil && req.Operation == admission.Delete {
		return &admission.Response{}, nil // A policy with this error was stored without validation and does not convert objects.
	}
	now, err := policyIn(req.Object)
	switch {
	case err != nil:
		return admission.Denied(err), nil
	case req.Operation == admission.Delete:
		return v.deletion(ctx, was)
	case req.Operation == admission.Create, req.Operation == admission.Update:
		if err := understood(req.Object); err != nil {
			return admission.Denied(err), nil
		}
		return v.write(ctx, was, now)
	default:
		return &admission.Response{}, nil
	}
}

// understood returns an error for a policy with fields that this replica does not know, for example during a rollout of
// another version of Refract. The replica would ignore such fields without notice. Fields that the definition of
// ConversionPolicies does not have are not found here: the API server has already pruned them.
func understood(text []byte) error {
	var p struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(text, &p); err != nil || len(p.Spec) == 0 {
		return err
	}
	known := json.NewDecoder(bytes.NewReader(p.Spec))
	known.DisallowUnknownFields()
	if err := known.Decode(&refractv1alpha1.ConversionPolicySpec{}); err != nil {
		return fmt.Errorf("spec: %w, to this version of Refract: try again when all replicas are of the same version", err)
	}
	return nil
}

// policyIn decodes a policy. It returns nil for an empty text.
func policyIn(text []byte) (*refractv1alpha1.ConversionPolicy, error) {
	if len(text) == 0 {
		return nil, nil //nolint:nilnil // An absent policy is no error.
	}
	p := &refractv1alpha1.ConversionPolicy{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	return p, nil
}

// deletion rejects the deletion of a policy that its definition needs.
func (v *validator) deletion(ctx context.Context, p *refractv1alpha1.ConversionPolicy) (*admission.Response, error) {
	why, err := v.needed(ctx, p)
	if err != nil || why == "" {
		return &admission.Response{}, err
	}
	return admission.Denied(conflict(p.Name, why)), nil
}

// needed returns the reason why a policy must continue to convert objects; empty if there is none.
func (v *validator) needed(ctx context.Context, p *refractv1alpha1.ConversionPolicy) (string, error) {
	if p == nil {
		return "", nil
	}
	policies, err := policiesOf(ctx, v.client, p.Spec.CRD)
	if err != nil {
		return "", err
	}
	r := rolesOf(policies)
	if holds := cmp.Or(r.serving, r.chosen); holds == nil || holds.UID != p.UID {
		return "", nil
	}
	crd, err := definition(ctx, v.client, p.Spec.CRD)
	if err != nil {
		return "", err
	}
	return neededBy(p, crd, v.server.ClientConfig(Path+p.Spec.CRD)), nil
}

// write rejects a policy that does not fit its definition, a second policy for a definition, and a change to mode
// Shadow while the definition needs the policy.
func (v *validator) write(ctx context.Context, was, now *refractv1alpha1.ConversionPolicy) (*admission.Response, error) {
	if was != nil && equality.Semantic.DeepEqual(was.Spec, now.Spec) {
		return &admission.Response{}, nil
	}
	if now.Spec.CRD == ownDefinition {
		const why = "spec.crd: a ConversionPolicy cannot convert ConversionPolicies: reading one would require one"
		return &admission.Response{Err: conflict(now.Name, why)}, nil
	}
	if now.Spec.Mode == refractv1alpha1.ConversionShadow {
		if why, err := v.needed(ctx, was); err != nil || why != "" {
			return &admission.Response{Err: conflict(now.Name, why)}, err
		}
	} else if err := v.alone(ctx, was, now); err != nil {
		return &admission.Response{Err: err}, nil //nolint:nilerr // It is the answer.
	}
	crd, err := definition(ctx, v.client, now.Spec.CRD)
	if err != nil {
		return nil, err
	}
	if crd == nil {
		return &admission.Response{Warnings: []string{
			fmt.Sprintf("there is no CustomResourceDefinition %s yet: the policy takes effect when it is created", now.Spec.CRD),
		}}, nil
	}
	_, findings, err := compile(&now.Spec, reduced(crd))
	warnings := stranded(was, now, crd)
	for _, f := range findings {
		if f.Severity == structural.Warning {
			warnings = append(warnings, f.String())
		}
	}
	if errors.Is(err, errFindings) {
		return &admission.Response{Err: invalid(now.Name, findings), Warnings: warnings}, nil
	}
	return &admission.Response{Err: err, Warnings: warnings}, nil
}

// alone returns an error if another policy converts the objects of the same definition. A policy that was not a shadow
// before passes without this check: of two such policies, the reconciler uses the older one.
func (v *validator) alone(ctx context.Context, was, now *refractv1alpha1.ConversionPolicy) error {
	if was != nil && was.Spec.Mode != refractv1alpha1.ConversionShadow {
		return nil
	}
	policies, err := policiesOf(ctx, v.client, now.Spec.CRD)
	if err != nil {
		return admission.Unavailable(err)
	}
	for i := range policies {
		if p := &policies[i]; p.Name != now.Name && p.Spec.Mode != refractv1alpha1.ConversionShadow {
			return conflict(now.Name, fmt.Sprintf("spec.crd: ConversionPolicy %s converts the objects of %s already: "+
				"change that one, or set spec.mode: Shadow in this one to compare them", p.Name, now.Spec.CRD))
		}
	}
	return nil
}

// conflict returns a Conflict error like that of an API server; nil without a reason.
func conflict(name, why string) error {
	if why == "" {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: why,
		Details: &metav1.StatusDetails{Group: refractv1alpha1.GroupVersion.Group, Kind: refractv1alpha1.KindConversionPolicy, Name: name},
	}}
}

// mostCauses is the maximum number of errors in one answer.
const mostCauses = 25

// invalid returns the errors of a policy as an Invalid error like that of an API server.
func invalid(name string, findings []structural.Finding) error {
	var causes []metav1.StatusCause
	texts, more := "", 0
	for _, f := range findings {
		if f.Severity != structural.Error {
			continue
		}
		if len(causes) == mostCauses {
			more++
			continue
		}
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(f.Rule), Field: f.Path, Message: f.Message})
		if texts != "" {
			texts += ", "
		}
		texts += f.String()
	}
	if more > 0 {
		texts += fmt.Sprintf(", and %d more", more)
	}
	if len(causes) > 1 {
		texts = "[" + texts + "]"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s.%s %q is invalid: %s", refractv1alpha1.KindConversionPolicy, refractv1alpha1.GroupVersion.Group, name, texts),
		Details: &metav1.StatusDetails{
			Group: refractv1alpha1.GroupVersion.Group, Kind: refractv1alpha1.KindConversionPolicy, Name: name, Causes: causes,
		},
	}}
}
