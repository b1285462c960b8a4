package webhook

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	admissionregistration "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metaconfig "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// ConfigurationName is that of the ValidatingWebhookConfiguration that has the API
	// server ask about policies and clusters.
	ConfigurationName = "refract-policies"
	// PoliciesPath is where it asks.
	PoliciesPath = "/validate/policies"

	policiesWebhook = "policies.refract.dev"
	fieldManager    = "refract"
	// timeout is how long the API server waits, in seconds.
	timeout = 10
)

// Registration keeps the ValidatingWebhookConfiguration of a server: whatever
// somebody does to it is undone within seconds. It is a Runnable of a manager
// that only the leader runs, so that two versions of the program do not undo what
// the other does.
//
// It stays when the program ends: nobody writes policies unchecked.
type Registration struct{ server *Server }

// Registration returns what keeps the configuration for the server.
func (s *Server) Registration() *Registration { return &Registration{server: s} }

// NeedLeaderElection returns true.
func (*Registration) NeedLeaderElection() bool { return true }

// Start keeps the configuration until ctx ends, from when the server answers.
func (r *Registration) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.server.started:
	}
	key := types.NamespacedName{Name: ConfigurationName}
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	follow(ctx, r.server.client, list, key, r.server.log, r.apply, r.server.source.changes())
	return nil
}

// Registered reports whether the API server asks a webhook about policies, be it
// that of a program that runs no more.
func Registered(ctx context.Context, c client.Reader) (bool, error) {
	err := c.Get(ctx, types.NamespacedName{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	return err == nil, client.IgnoreNotFound(err)
}

// apply makes the configuration what it should be.
func (r *Registration) apply(ctx context.Context) error {
	if err := r.server.Ready(); err != nil {
		return err
	}
	if err := r.server.client.Apply(ctx, r.configuration(), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying ValidatingWebhookConfiguration %s: %w", ConfigurationName, err)
	}
	return r.prune(ctx)
}

// prune takes out what others have added that would keep the API server from
// asking: server-side apply leaves that to them.
func (r *Registration) prune(ctx context.Context) error {
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: ConfigurationName}, is); err != nil {
		return client.IgnoreNotFound(err) // Who deletes it is noticed.
	}
	wanted := map[string]bool{}
	for _, c := range r.configuration().Webhooks[0].MatchConditions {
		wanted[*c.Name] = true
	}
	changed := false
	for i := range is.Webhooks {
		w := &is.Webhooks[i]
		if w.Name != policiesWebhook {
			continue
		}
		var kept []admissionregistrationv1.MatchCondition
		for _, c := range w.MatchConditions {
			if wanted[c.Name] {
				kept = append(kept, c)
			}
		}
		changed = changed || len(kept) < len(w.MatchConditions)
		w.MatchConditions = kept
	}
	if !changed {
		return nil
	}
	err := r.server.client.Update(ctx, is, client.FieldOwner(fieldManager))
	if apierrors.IsConflict(err) {
		return nil // Who was faster is noticed.
	}
	return err
}

// When the API server asks. What these leave out the handler would admit, too;
// this way finalizers, and what else is in the metadata of an object, can be
// written when no webhook answers. The API server counts the generation up before
// it asks.
const (
	notDeleted = "!has(object.metadata.deletionTimestamp)"
	newSpec    = "request.operation == 'CREATE' || object.metadata.generation != oldObject.metadata.generation || " +
		"(request.kind.kind == 'FederatedCluster' && " +
		"(has(object.metadata.labels) ? object.metadata.labels : {}) != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}))"
)

// configuration returns what should be there.
func (r *Registration) configuration() *admissionregistration.ValidatingWebhookConfigurationApplyConfiguration {
	everything := metaconfig.LabelSelector()
	webhook := admissionregistration.ValidatingWebhook().
		WithName(policiesWebhook).
		WithClientConfig(r.clientConfig(PoliciesPath)).
		WithRules(admissionregistration.RuleWithOperations().
			WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update).
			WithAPIGroups(corev1alpha1.GroupVersion.Group).
			WithAPIVersions(corev1alpha1.GroupVersion.Version).
			WithResources("clusteroverridepolicies", "clusterpropagationpolicies", "federatedclusters", "overridepolicies", "propagationpolicies").
			WithScope(admissionregistrationv1.AllScopes)).
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchPolicy(admissionregistrationv1.Equivalent).
		WithSideEffects(admissionregistrationv1.SideEffectClassNone).
		WithTimeoutSeconds(timeout).
		WithAdmissionReviewVersions("v1").
		WithNamespaceSelector(everything).
		WithObjectSelector(everything).
		WithMatchConditions(
			admissionregistration.MatchCondition().WithName("is-not-being-deleted").WithExpression(notDeleted),
			admissionregistration.MatchCondition().WithName("says-something-new").WithExpression(newSpec),
		)
	return admissionregistration.ValidatingWebhookConfiguration(ConfigurationName).WithWebhooks(webhook)
}

func (r *Registration) clientConfig(path string) *admissionregistration.WebhookClientConfigApplyConfiguration {
	at := &r.server.endpoint
	config := admissionregistration.WebhookClientConfig()
	if at.url != nil {
		config.WithURL(at.at(path))
	} else {
		config.WithService(admissionregistration.ServiceReference().
			WithNamespace(at.service.Namespace).WithName(at.service.Name).WithPort(443).WithPath(path))
	}
	if trusted := r.server.source.trusted(); len(trusted) > 0 {
		config.WithCABundle(trusted...)
	}
	return config
}
