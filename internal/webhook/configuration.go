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

// Kind is the kind of a configuration, as in a manifest.
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

// Configuration makes the API server call webhooks of a server.
type Configuration struct {
	Kind Kind
	// Name of the object. Two programs must not keep configurations of the same kind and name.
	Name string
	// Role is the ClusterRole in the manifests that owns the configuration, so that it is garbage-collected with the
	// ClusterRole. A program that runs without the manifests keeps the configuration all the same. Empty for no owner.
	Role string
	// Webhooks returns all webhooks that the configuration may have, in their present state. A webhook without rules is
	// removed from the configuration, and the configuration is deleted if none has rules. Several goroutines call
	// Webhooks at the same time.
	Webhooks func() []Webhook
	// Known is closed once Webhooks returns the right result. Until then the configuration is not changed. Nil if
	// Webhooks is right from the beginning.
	Known <-chan struct{}
	// Changed receives a value when the result of Webhooks may have changed. Nil if it never changes.
	Changed <-chan struct{}
}

// Webhook selects requests of the API server, and sends them to a path.
type Webhook struct {
	// Name has at least three parts, like a domain.
	Name string
	// Path is a path that the server handles.
	Path string
	// Rules select the requests.
	Rules []admissionregistrationv1.RuleWithOperations
	// FailurePolicy decides about a write if the webhook does not answer.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Writes is whether the webhook has side effects, except for dry runs.
	Writes bool
	// Reinvocation is whether the API server calls a mutating webhook again if later webhooks have changed the object;
	// empty means Never.
	Reinvocation admissionregistrationv1.ReinvocationPolicyType
	// TimeoutSeconds is the time that the API server waits.
	TimeoutSeconds int32
	// Namespaces selects the namespaces; nil selects all.
	Namespaces *metav1.LabelSelector
	// Conditions must all hold for a call. Conditions that other writers add are removed.
	Conditions []admissionregistrationv1.MatchCondition
}

const (
	// ConfigurationName is the name of the ValidatingWebhookConfiguration for policies and clusters.
	ConfigurationName = "refract-policies"
	// PoliciesPath is the path of its webhooks.
	PoliciesPath = "/validate/policies"

	policiesWebhook  = "policies.refract.dev"
	deletionsWebhook = "deletions.policies.refract.dev"
	// timeout is the API server's timeout in seconds for writes, deletionTimeout for deletions, where the answer only
	// has warnings.
	timeout         = 10
	deletionTimeout = 5
)

// newSpec is the condition for a call. The handler would also admit all other writes; without the call, finalizers and
// other metadata can be written while no webhook answers. Objects that are being deleted are not excluded, because they
// are in force while a finalizer keeps them. The API server increments the generation before it calls webhooks.
const newSpec = "request.operation == 'CREATE' || object.metadata.generation != oldObject.metadata.generation || " +
	"(request.kind.kind in ['ClusterOverridePolicy', 'OverridePolicy'] && object" + approval + " != '' && " +
	"object" + approval + " != oldObject" + approval + ") || " +
	"(request.kind.kind == 'FederatedCluster' && " +
	"(has(object.metadata.labels) ? object.metadata.labels : {}) != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}))"

const approval = ".metadata.?annotations[?'" + refractv1alpha1.ApproveReferencesAnnotation + "'].orValue('')"

// byPeople excludes deletions by the hub's own controllers, for example of all objects of a deleted namespace: no user
// reads their warnings.
const byPeople = "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && !request.userInfo.username.startsWith('system:kube-')"

// policiesConfiguration returns the configuration of a hub. It stays when the program ends, so that no policies are
// stored unchecked.
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
		// The answer only has warnings, so a deletion succeeds without the webhook.
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

// entry returns the webhook in the form of the API. A MutatingWebhook has all the fields of a ValidatingWebhook.
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

// entriesOf returns the webhooks that have rules in the form of the API.
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

// object returns the configuration with these entries.
func (c *Configuration) object(entries []any) *unstructured.Unstructured {
	u := c.reference()
	u.Object["webhooks"] = entries
	return u
}

// reference returns the object with only its kind and name.
func (c *Configuration) reference() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(c.Kind.versioned())
	u.SetName(c.Name)
	return u
}
