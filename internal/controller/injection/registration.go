package injection

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/owner"
	"refract.dev/internal/webhook"
	"refract.dev/internal/webhook/injectionpolicies"
)

const (
	// ConfigurationName is that of the webhook configurations of a cluster whose pods
	// are injected: one that mutates and one that validates.
	ConfigurationName = "refract-injection"
	// PoliciesConfigurationName is that of the configurations of an API server where
	// policies are checked, and no pod is injected.
	PoliciesConfigurationName = "refract-injection-policies"
	// PodsWebhook is the webhook for pods. It is registered while there is a policy.
	PodsWebhook = "pods.injection.refract.dev"
	// PoliciesWebhook is the webhook for policies.
	PoliciesWebhook = "policies.injection.refract.dev"
)

// How long the API server waits, in seconds.
const (
	podsTimeout     = 2
	policiesTimeout = 10
)

// configurations are those of a cluster whose pods are injected. While it is not
// known whether there are policies, it is left to an earlier program whether the API
// server asks about pods.
func configurations(known *Cache, systemNamespace string) []webhook.Configuration {
	return []webhook.Configuration{
		{
			Kind: webhook.Mutating, Name: ConfigurationName, Role: owner.InjectionRole, Known: known.synced, Changed: known.changed,
			Webhooks: func() []webhook.Webhook {
				return []webhook.Webhook{mutatePolicies(), injectPods(known.Any(), known.AnyEphemeral(), systemNamespace)}
			},
		},
		{
			Kind: webhook.Validating, Name: ConfigurationName, Role: owner.InjectionRole,
			Webhooks: func() []webhook.Webhook { return []webhook.Webhook{validatePolicies()} },
		},
	}
}

// policyConfigurations are those of an API server where policies are checked alone.
func policyConfigurations() []webhook.Configuration {
	return []webhook.Configuration{
		{
			Kind: webhook.Mutating, Name: PoliciesConfigurationName, Role: owner.HubRole,
			Webhooks: func() []webhook.Webhook { return []webhook.Webhook{mutatePolicies()} },
		},
		{
			Kind: webhook.Validating, Name: PoliciesConfigurationName, Role: owner.HubRole,
			Webhooks: func() []webhook.Webhook { return []webhook.Webhook{validatePolicies()} },
		},
	}
}

// injectPods has the API server ask about pods when they are created and, if a
// policy is for them, when ephemeral containers are added. Nothing in it looks at
// labels or annotations: other webhooks may add them later.
func injectPods(wanted, ephemeral bool, systemNamespace string) webhook.Webhook {
	return webhook.Webhook{
		Name:           PodsWebhook,
		Path:           PodsPath,
		Rules:          podRules(wanted, ephemeral),
		FailurePolicy:  admissionregistrationv1.Ignore,
		Reinvocation:   admissionregistrationv1.IfNeededReinvocationPolicy,
		TimeoutSeconds: podsTimeout,
		Namespaces: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn,
			Values: refractv1beta1.ExemptNamespaces(systemNamespace),
		}}},
	}
}

func podRules(wanted, ephemeral bool) []admissionregistrationv1.RuleWithOperations {
	if !wanted {
		return nil
	}
	rules := []admissionregistrationv1.RuleWithOperations{
		rule(corev1.SchemeGroupVersion.Group, corev1.SchemeGroupVersion.Version, "pods", admissionregistrationv1.Create),
	}
	if ephemeral {
		rules = append(rules, rule(corev1.SchemeGroupVersion.Group, corev1.SchemeGroupVersion.Version,
			"pods/ephemeralcontainers", admissionregistrationv1.Update))
	}
	return rules
}

// mutatePolicies has numbers in policies become text. Policies do without, if
// nobody answers.
func mutatePolicies() webhook.Webhook {
	return webhook.Webhook{
		Name:           PoliciesWebhook,
		Path:           injectionpolicies.MutatePath,
		Rules:          policyRules(),
		FailurePolicy:  admissionregistrationv1.Ignore,
		TimeoutSeconds: policiesTimeout,
	}
}

// validatePolicies has policies checked. Who writes what is in their metadata alone,
// as controllers and people who steer a rollout do, needs nobody to answer. One that
// is being deleted is checked like any other: it is in force for as long as a
// finalizer keeps it. The API server counts the generation up before it asks.
func validatePolicies() webhook.Webhook {
	return webhook.Webhook{
		Name:           PoliciesWebhook,
		Path:           injectionpolicies.ValidatePath,
		Rules:          policyRules(),
		FailurePolicy:  admissionregistrationv1.Fail,
		TimeoutSeconds: policiesTimeout,
		Conditions: []admissionregistrationv1.MatchCondition{
			{Name: "says-something-new", Expression: "request.operation == 'CREATE' || object.metadata.generation != oldObject.metadata.generation"},
		},
	}
}

func policyRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{
		rule(refractv1beta1.GroupVersion.Group, refractv1beta1.GroupVersion.Version, "serviceinjectionpolicies",
			admissionregistrationv1.Create, admissionregistrationv1.Update),
	}
}

func rule(group, version, resource string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	namespaced := admissionregistrationv1.NamespacedScope
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: &namespaced,
		},
	}
}
