package injector

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/injectionpolicies"
	"refract.dev/internal/owner"
	"refract.dev/internal/webhook"
)

const (
	// ConfigurationName is the name of both webhook configurations in a cluster with injection, the mutating and the
	// validating one.
	ConfigurationName = "refract-injection"
	// PoliciesConfigurationName is the name of the configurations on an API server that only reviews policies, and
	// injects no pods.
	PoliciesConfigurationName = "refract-injection-policies"
	// PodsWebhook is the webhook for pods. It is registered while a policy exists.
	PodsWebhook = "pods.injection.refract.dev"
	// PoliciesWebhook is the webhook for policies.
	PoliciesWebhook = "policies.injection.refract.dev"
)

// Timeouts of webhook calls by the API server, in seconds.
const (
	podsTimeout     = 2
	policiesTimeout = 10
)

// configurations are the webhook configurations of a cluster with injection. Until the policies are known, an existing
// registration of PodsWebhook does not change.
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

// policyConfigurations are the webhook configurations of an API server that only reviews policies.
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

// injectPods registers the webhook for new pods. If a policy applies to ephemeral containers, it also registers the
// webhook for the update that adds them. The webhook gets pods with any labels and annotations, because webhooks that
// are called later may add some.
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

// mutatePolicies registers the webhook that turns numbers in policies into strings. If the webhook is unreachable,
// policies are stored without this change.
func mutatePolicies() webhook.Webhook {
	return webhook.Webhook{
		Name:           PoliciesWebhook,
		Path:           injectionpolicies.MutatePath,
		Rules:          policyRules(),
		FailurePolicy:  admissionregistrationv1.Ignore,
		TimeoutSeconds: policiesTimeout,
	}
}

// validatePolicies registers the webhook that validates policies. Writes of metadata alone do not call it. So
// controllers, and users who pause or approve a rollout, do not depend on it. A policy in deletion is validated like
// any other, because it has effect while a finalizer keeps it. The match condition can use the generation, because the
// API server increments it before the call.
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
