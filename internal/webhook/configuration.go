package webhook

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/owner"
)

// Kind is the kind of a webhook configuration.
type Kind string

// Kinds of configurations.
const (
	// Validating webhooks decide whether the API server may store an object.
	Validating Kind = "ValidatingWebhookConfiguration"
	// Mutating webhooks change an object before the API server stores it.
	Mutating Kind = "MutatingWebhookConfiguration"
)

func (k Kind) versioned() schema.GroupVersionKind {
	return admissionregistrationv1.SchemeGroupVersion.WithKind(string(k))
}

// Configuration is a webhook configuration, with which the API server calls webhooks of a server.
type Configuration struct {
	Kind Kind
	// Name is the name of the object. Two programs must not keep configurations of the same kind and name.
	Name string
	// Role is the ClusterRole of the manifests that owns the configuration, so that the garbage collector deletes both
	// together. If the ClusterRole does not exist, the configuration has no owner. Empty means no owner.
	Role string
	// Webhooks returns all webhooks that the configuration may have, in their present state. A webhook without rules is
	// removed from the configuration. If no webhook has rules, the configuration is deleted. Several goroutines may
	// call Webhooks at the same time.
	Webhooks func() []Webhook
	// Known is a channel that is closed as soon as Webhooks returns the right result. Until then, the configuration is
	// not changed. Nil means that the result is always right.
	Known <-chan struct{}
	// Changed receives a value when the result of Webhooks may have changed. Nil means that it never changes.
	Changed <-chan struct{}
}

// Webhook selects requests that the API server sends to a path of the server.
type Webhook struct {
	// Name has at least three parts, like a domain.
	Name string
	// Path is the path of a handler of the server.
	Path string
	// Rules select the requests.
	Rules []admissionregistrationv1.RuleWithOperations
	// FailurePolicy determines whether a write is allowed if the webhook does not respond.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Writes is true if the webhook has side effects. It must have none in dry runs.
	Writes bool
	// Reinvocation determines whether the API server calls a mutating webhook again after a later webhook has changed
	// the object; empty means Never.
	Reinvocation admissionregistrationv1.ReinvocationPolicyType
	// TimeoutSeconds is how long the API server waits for a response.
	TimeoutSeconds int32
	// Namespaces selects the namespaces; nil selects all.
	Namespaces *metav1.LabelSelector
	// Conditions are the match conditions, which must all be true for a call. Match conditions of other writers are
	// removed.
	Conditions []admissionregistrationv1.MatchCondition
}

const (
	// ConfigurationName is the name of the ValidatingWebhookConfiguration for policies and clusters.
	ConfigurationName = "refract-policies"
	// PoliciesPath is the path of its webhooks.
	PoliciesPath = "/validate/policies"

	policiesWebhook  = "policies.refract.dev"
	deletionsWebhook = "deletions.policies.refract.dev"
	// timeout is the API server's timeout for writes, and deletionTimeout that for deletions, in seconds. The response
	// to a deletion only has warnings.
	timeout         = 10
	deletionTimeout = 5
)

// newSpec is a match condition. All other writes would be allowed anyway. Without a call, finalizers and other metadata
// can be written even if no webhook responds. Objects in deletion are not excluded, because they have effect while a
// finalizer keeps them. The API server increments the generation before it evaluates this condition.
const newSpec = "request.operation == 'CREATE' || object.metadata.generation != oldObject.metadata.generation || " +
	"(request.kind.kind in ['ClusterOverridePolicy', 'OverridePolicy'] && object" + approval + " != '' && " +
	"object" + approval + " != oldObject" + approval + ") || " +
	"(request.kind.kind == 'FederatedCluster' && " +
	"(has(object.metadata.labels) ? object.metadata.labels : {}) != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}))"

const approval = ".metadata.?annotations[?'" + refractv1alpha1.ApproveReferencesAnnotation + "'].orValue('')"

// byPeople is a match condition that excludes deletions by controllers of the hub. For example, such a controller
// deletes all objects of a deleted namespace. Nobody would read the warnings.
const byPeople = "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && !request.userInfo.username.startsWith('system:kube-')"

// policiesConfiguration returns the configuration of a hub. It remains when the program ends. So policies cannot be
// stored without a check in the meantime.
func policiesConfiguration() Configuration {
	all := admissionregistrationv1.AllScopes
	webhooks := []Webhook{{
		Name: policiesWebhook,
		Path: PoliciesPath,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{corev1alpha1.GroupVersion.Group},
				APIVersions: []string{corev1alpha1.GroupVersion.Version},
				Resources:   []string{"clusteroverridepolicies", "clusterpropagationpolicies", "federatedclusters", "overridepolicies", "propagationpolicies"},
				Scope:       &all,
			},
		}},
		FailurePolicy:  admissionregistrationv1.Fail,
		Writes:         true,
		TimeoutSeconds: timeout,
		Conditions:     []admissionregistrationv1.MatchCondition{{Name: "says-something-new", Expression: newSpec}},
	}, {
		// The response only has warnings, so a deletion must succeed even if the webhook does not respond.
		Name: deletionsWebhook,
		Path: PoliciesPath,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{corev1alpha1.GroupVersion.Group},
				APIVersions: []string{corev1alpha1.GroupVersion.Version},
				Resources:   []string{"clusteroverridepolicies", "clusterpropagationpolicies", "overridepolicies", "propagationpolicies"},
				Scope:       &all,
			},
		}},
		FailurePolicy:  admissionregistrationv1.Ignore,
		TimeoutSeconds: deletionTimeout,
		Conditions:     []admissionregistrationv1.MatchCondition{{Name: "by-people", Expression: byPeople}},
	}}
	return Configuration{Kind: Validating, Name: ConfigurationName, Role: owner.HubRole, Webhooks: func() []Webhook { return webhooks }}
}

// entry returns the webhook as it is in a configuration. It uses the type MutatingWebhook, which has all fields of a
// ValidatingWebhook.
func (w *Webhook) entry(config *admissionregistrationv1.WebhookClientConfig) (map[string]any, error) {
	equivalent, effects := admissionregistrationv1.Equivalent, admissionregistrationv1.SideEffectClassNone
	if w.Writes {
		effects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	hook := &admissionregistrationv1.MutatingWebhook{
		Name:                    w.Name,
		ClientConfig:            *config,
		Rules:                   w.Rules,
		FailurePolicy:           &w.FailurePolicy,
		MatchPolicy:             &equivalent,
		SideEffects:             &effects,
		TimeoutSeconds:          &w.TimeoutSeconds,
		AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector:       w.Namespaces,
		ObjectSelector:          &metav1.LabelSelector{},
		MatchConditions:         w.Conditions,
	}
	if w.Namespaces == nil {
		hook.NamespaceSelector = &metav1.LabelSelector{}
	}
	if w.Reinvocation != "" {
		hook.ReinvocationPolicy = &w.Reinvocation
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(hook)
}

// entriesOf returns the webhooks that have rules, as they are in a configuration.
func entriesOf(webhooks []Webhook, at func(path string) *admissionregistrationv1.WebhookClientConfig) ([]any, error) {
	var entries []any
	for _, w := range webhooks {
		if len(w.Rules) == 0 {
			continue
		}
		e, err := w.entry(at(w.Path))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// object returns the configuration with these webhooks.
func (c *Configuration) object(entries []any) *unstructured.Unstructured {
	u := c.reference()
	u.Object["webhooks"] = entries
	return u
}

// reference returns an object that has only the kind and name of the configuration.
func (c *Configuration) reference() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(c.Kind.versioned())
	u.SetName(c.Name)
	return u
}
