package member

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// ErrNotRenewable is wrapped by errors about a member whose credentials are not a token that `refract join` can replace.
var ErrNotRenewable = errors.New("the credentials are not a token of Refract's account")

// TokenSecret returns the Secret of a member if it has a token of the account for the endpoint of the member. The token
// may be expired. Otherwise the error names the source of the credentials. The author of a FederatedCluster cannot
// obtain a token for another cluster, because the Secret names the endpoint.
func TokenSecret(
	ctx context.Context, hub client.Reader, namespace string, fc *corev1alpha1.FederatedCluster, account types.NamespacedName,
) (*corev1.Secret, error) {
	if from := fc.Annotations[refractv1alpha1.InventoryAnnotation]; from != "" {
		return nil, fmt.Errorf("%w: %s lists the cluster and has the credentials", ErrNotRenewable, from)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: fc.Spec.SecretRef.Name}
	if err := hub.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading secret %s: %w", key, err)
	}
	cfg, err := Config(fc, secret)
	if err != nil {
		return nil, err
	}
	if AccountOf(cfg) != account || string(secret.Data[corev1alpha1.SecretServiceAccountToken]) != cfg.BearerToken {
		return nil, fmt.Errorf("%w %s: write new ones to secret %s", ErrNotRenewable, account, key)
	}
	return secret, nil
}

// Recognize returns an error unless cfg leads to the endpoint of a member, and to the cluster that the hub records for
// the member, if it records one.
func Recognize(ctx context.Context, fc *corev1alpha1.FederatedCluster, cfg *rest.Config) error {
	asked, err := endpoint(fc.Spec.APIEndpoint)
	if err != nil {
		return fmt.Errorf("spec.apiEndpoint: %w", err)
	}
	if server, err := endpoint(cfg.Host); err != nil || server != asked {
		return fmt.Errorf("the cluster at %s %w than %q, which is at %s", cfg.Host, ErrAnotherCluster, fc.Name, asked)
	}
	if fc.Status.ClusterUID != "" {
		return Identify(ctx, fc, cfg)
	}
	_, err = reach(ctx, fc.Name, cfg)
	return err
}

// Renew writes the credentials of cfg into the Secret of a member. They must lead to the same cluster: see [Recognize].
// The controllers use the new credentials at once.
func Renew(ctx context.Context, hub client.Client, fc *corev1alpha1.FederatedCluster, secret *corev1.Secret, cfg *rest.Config) error {
	if err := Recognize(ctx, fc, cfg); err != nil {
		return err
	}
	data, err := credentials(cfg)
	if err != nil {
		return fmt.Errorf("credentials of cluster %q: %w", fc.Name, err)
	}
	before := secret.DeepCopy()
	secret = secret.DeepCopy()
	secret.Data = data
	if err := hub.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}
