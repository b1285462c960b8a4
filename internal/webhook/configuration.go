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

// Kind is that of a configuration, as it stands in a manifest.
type Kind string

// Kinds of configurations.
const (
	// Validating has the API server ask whether something may be written.
	Validating Kind = "ValidatingWebhookConfiguration"
	// Mutating has it ask what is to be written instead.
	Mutating Kind = "MutatingWebhookConfiguration"
)

func (k Kind) versioned() schema.GroupVersionKind {
	return admissionregistrationv1.SchemeGroupVersion.WithKind(string(k))
}

// Configuration has the API server ask a server's webhooks.
type Configuration struct {
	Kind Kind
	// Name of the object. Two programs must not keep one of the same kind and name.
	Name string
	// Role is the ClusterRole of the manifests that the configuration belongs to: it is
	// collected with it. A program that runs without them keeps it all the same. Empty if
	// it belongs to none.
	Role string
	// Webhooks returns all that the configuration may hold, as they should be now.
	// Those without rules are taken out of it; if none has any, it is deleted. It is
	// called by several goroutines.
	Webhooks func() []Webhook
	// Known is closed when Webhooks can tell; until then the configuration is left as
	// it is. Nil if it can from the beginning.
	Known <-chan struct{}
	// Changed is sent to when Webhooks may return something else. Nil if it never does.
	Changed <-chan struct{}
}

// Webhook is when an API server asks, and where.
type Webhook struct {
	// Name has at least three parts, as a domain.
	Name string
	// Path is one that the server handles.
	Path string
	// Rules are what the API server asks about.
	Rules []admissionregistrationv1.RuleWithOperations
	// FailurePolicy is what comes of a write if nobody answers.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Writes is whether an answer that allows something has effects other than that,
	// unless it is about a dry run.
	Writes bool
	// Reinvocation is whether a mutating webhook is asked again if others have changed
	// something after it; Never if empty.
	Reinvocation admissionregistrationv1.ReinvocationPolicyType
	// TimeoutSeconds is how long the API server waits.
	TimeoutSeconds int32
	// Namespaces are those it asks about; nil for all.
	Namespaces *metav1.LabelSelector
	// Conditions must all hold for it to ask. Those that others add are taken out.
	Conditions []admissionregistrationv1.MatchCondition
}

const (
	// ConfigurationName is that of the ValidatingWebhookConfiguration that has the API
	// server ask about policies and clusters.
	ConfigurationName = "refract-policies"
	// PoliciesPath is where it asks.
	PoliciesPath = "/validate/policies"

	policiesWebhook  = "policies.refract.dev"
	deletionsWebhook = "deletions.policies.refract.dev"
	// timeout is how long the API server waits, in seconds; deletionTimeout how long if it only wants to know what a deletion does.
	timeout         = 10
	deletionTimeout = 5
)

// newSpec is when the API server asks. What this leaves out the handler would
// admit, too; this way finalizers, and what else is in the metadata of an object,
// can be written when no webhook answers. That an object is being deleted is no
// reason not to ask: it is in force for as long as a finalizer keeps it. The API
// server counts the generation up before it asks.
const newSpec = "request.operation == 'CREATE' || object.metadata.generation != oldObject.metadata.generation || " +
	"(request.kind.kind in ['ClusterOverridePolicy', 'OverridePolicy'] && object" + approval + " != '' && " +
	"object" + approval + " != oldObject" + approval + ") || " +
	"(request.kind.kind == 'FederatedCluster' && " +
	"(has(object.metadata.labels) ? object.metadata.labels : {}) != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}))"

const approval = ".metadata.?annotations[?'" + refractv1alpha1.ApproveReferencesAnnotation + "'].orValue('')"

// byPeople leaves out deletions by the hub's own controllers, as of a namespace with all that is in it: nobody reads
// their warnings.
const byPeople = "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:') && !request.userInfo.username.startsWith('system:kube-')"

// policiesConfiguration is the one of a hub. It stays when the program ends:
// nobody writes policies unchecked.
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
		// The answer only has warnings, so a deletion waits for nobody who is not there.
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

// entry returns the webhook as an API server has it. That of a mutating webhook
// has all the fields of a validating one.
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

// entriesOf returns these webhooks as an API server has them, without those that
// have no rules.
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

// reference returns the object with its name alone.
func (c *Configuration) reference() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(c.Kind.versioned())
	u.SetName(c.Name)
	return u
}
