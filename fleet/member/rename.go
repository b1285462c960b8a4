package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Errors that callers of Replace may branch on.
var (
	// ErrUnidentified is returned for a member whose cluster the hub has not identified yet.
	ErrUnidentified = errors.New("the hub has not identified it yet")
	// ErrAnotherCluster is returned if a name or an address belongs to another cluster than the given member.
	ErrAnotherCluster = errors.New("is another cluster")
)

// SecondNameError means that a cluster already has a name.
type SecondNameError struct {
	Name   string // The second name.
	Served string // The name that is served.
}

func (e *SecondNameError) Error() string {
	return fmt.Sprintf("cluster %q is a member already, as %q", e.Name, e.Served)
}

// clusters returns the FederatedClusters of a hub.
func clusters(ctx context.Context, hub client.Reader) ([]corev1alpha1.FederatedCluster, error) {
	var list corev1alpha1.FederatedClusterList
	if err := hub.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	return list.Items, nil
}

// onlyName returns a [SecondNameError] if a cluster has another name.
func onlyName(ctx context.Context, hub client.Reader, name string, uid types.UID) error {
	all, err := clusters(ctx, hub)
	if err != nil {
		return err
	}
	names := namesOf(uid, all)
	if uid == "" || len(names) == 0 {
		return nil
	}
	chain := succession(names)
	return &SecondNameError{Name: name, Served: chain[len(chain)-1].Name}
}

// OtherName returns in servedAs the served name of the cluster, if it differs from the name of the FederatedCluster.
// Otherwise it returns in second another name of the cluster that prevents the FederatedCluster from leaving, if any.
func OtherName(ctx context.Context, hub client.Reader, fc *corev1alpha1.FederatedCluster) (servedAs, second string, err error) {
	all, err := clusters(ctx, hub)
	if err != nil {
		return "", "", err
	}
	switch is := stand(fc.Name, all); is.standing {
	case duplicate, renamed:
		return is.other, "", nil
	case unclaimed, choosing, waiting, inService:
	}
	return "", contested(fc, all), nil
}

// Identify returns an error unless cfg leads to the cluster of a FederatedCluster.
func Identify(ctx context.Context, fc *corev1alpha1.FederatedCluster, cfg *rest.Config) error {
	uid, err := reach(ctx, fc.Name, cfg)
	switch {
	case err != nil:
		return err
	case uid != fc.Status.ClusterUID:
		return fmt.Errorf("the cluster at %s %w than %q", cfg.Host, ErrAnotherCluster, fc.Name)
	}
	return nil
}

// Replaced returns the FederatedCluster that has replaced a name, or will replace it; nil if none exists.
func Replaced(ctx context.Context, hub client.Reader, name, old string) (*corev1alpha1.FederatedCluster, error) {
	fc, err := Find(ctx, hub, name)
	if errors.Is(err, ErrNotJoined) || err == nil && replaces(fc) != old {
		return nil, nil //nolint:nilnil // A missing FederatedCluster is no error.
	}
	return fc, err
}

// Replace gives a member another name. It creates a FederatedCluster that replaces the old one. The new one has the
// credentials, the labels and the taints of the old one, in addition to the given labels and taints. If the
// FederatedCluster exists, Replace completes it, so that an interrupted call can be repeated. The controllers do the
// rest. When the new FederatedCluster is ready, the caller must delete the old one.
func Replace(
	ctx context.Context, hub client.Client, namespace, name string, old *corev1alpha1.FederatedCluster,
	labels map[string]string, taints []corev1.Taint,
) (*corev1alpha1.FederatedCluster, error) {
	switch {
	case validName(name) != nil:
		return nil, validName(name)
	case name == old.Name:
		return nil, fmt.Errorf("cluster %q has this name already", name)
	case old.Status.ClusterUID == "":
		return nil, fmt.Errorf("cluster %q: %w", old.Name, ErrUnidentified)
	}
	all := maps.Clone(old.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	taints = slices.Concat(old.Spec.Taints, taints)
	fc, err := Find(ctx, hub, name)
	if err == nil {
		if fc.Status.ClusterUID != "" && fc.Status.ClusterUID != old.Status.ClusterUID {
			return nil, fmt.Errorf("cluster %q %w than %q", name, ErrAnotherCluster, old.Name)
		}
		if !fc.DeletionTimestamp.IsZero() {
			return nil, fmt.Errorf("cluster %q is being deleted", name)
		}
		before := fc.DeepCopy()
		maps.Copy(all, fc.Labels)
		fc.Labels = all
		if len(fc.Spec.Taints) == 0 {
			fc.Spec.Taints = taints
		}
		metav1.SetMetaDataAnnotation(&fc.ObjectMeta, refractv1alpha1.ReplacesAnnotation, old.Name)
		if err := hub.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("changing cluster %q: %w", name, err)
		}
		if err := Permit(ctx, hub, namespace, fc.Spec.SecretRef.Name); err != nil {
			return nil, err
		}
		return fc, adopt(ctx, hub, namespace, fc)
	}
	if !errors.Is(err, ErrNotJoined) {
		return nil, err
	}
	fc = &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all, Finalizers: []string{refractv1alpha1.Finalizer}}}
	old.Spec.DeepCopyInto(&fc.Spec)
	fc.Spec.Taints = taints
	metav1.SetMetaDataAnnotation(&fc.ObjectMeta, refractv1alpha1.ReplacesAnnotation, old.Name)
	if fc.Spec.SecretRef.Name, err = copySecret(ctx, hub, namespace, name, old); err != nil {
		return nil, err
	}
	if err := Permit(ctx, hub, namespace, fc.Spec.SecretRef.Name); err != nil {
		return nil, err
	}
	if err := hub.Create(ctx, fc); err != nil {
		return nil, fmt.Errorf("creating cluster %q: %w", name, err)
	}
	return fc, adopt(ctx, hub, namespace, fc)
}

// copySecret copies the Secret of a member for another name, and returns the name of the copy. If `refract join` has
// not created the Secret, it returns the name of the original, because another program maintains that Secret.
func copySecret(ctx context.Context, hub client.Client, namespace, name string, old *corev1alpha1.FederatedCluster) (string, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: old.Spec.SecretRef.Name}
	if err := hub.Get(ctx, key, secret); err != nil {
		return "", fmt.Errorf("reading secret %s: %w", key, err)
	}
	if !createdFor(secret, old) || metav1.GetControllerOf(secret) != nil {
		return key.Name, nil
	}
	made := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: name, Labels: map[string]string{refractv1alpha1.JoinedLabel: "true"}, Annotations: map[string]string{},
		},
		Type: secret.Type, Data: secret.Data,
	}
	for _, a := range []string{refractv1alpha1.EndpointAnnotation, refractv1alpha1.InsecureAnnotation} {
		if value, ok := secret.Annotations[a]; ok {
			made.Annotations[a] = value
		}
	}
	err := hub.Create(ctx, made)
	if !apierrors.IsAlreadyExists(err) {
		return name, err
	}
	there := &corev1.Secret{}
	if err := hub.Get(ctx, client.ObjectKeyFromObject(made), there); err != nil {
		return "", fmt.Errorf("reading secret %s/%s: %w", key.Namespace, name, err)
	}
	// An interrupted run of the same command may have left the Secret.
	if there.Labels[refractv1alpha1.JoinedLabel] != "true" || there.Annotations[refractv1alpha1.JoinedAnnotation] != "" ||
		there.Annotations[refractv1alpha1.EndpointAnnotation] != made.Annotations[refractv1alpha1.EndpointAnnotation] {
		return "", fmt.Errorf("secret %s/%s %w", key.Namespace, name, ErrLeftSecret)
	}
	return name, nil
}

// adopt records the FederatedCluster in its Secret, if `refract join` has created the Secret and the Secret records no
// other FederatedCluster.
func adopt(ctx context.Context, hub client.Client, namespace string, fc *corev1alpha1.FederatedCluster) error {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: fc.Spec.SecretRef.Name}
	if err := hub.Get(ctx, key, secret); err != nil {
		return fmt.Errorf("reading secret %s: %w", key, err)
	}
	if secret.Name != fc.Name || secret.Labels[refractv1alpha1.JoinedLabel] != "true" || secret.Annotations[refractv1alpha1.JoinedAnnotation] != "" {
		return nil
	}
	return own(ctx, hub, secret, fc)
}

// own records in a Secret the FederatedCluster for which it was created.
func own(ctx context.Context, hub client.Client, secret *corev1.Secret, fc *corev1alpha1.FederatedCluster) error {
	before := secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, refractv1alpha1.JoinedAnnotation, string(fc.UID))
	if err := hub.Patch(ctx, secret, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("marking secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// createdFor reports whether a Secret was created for a FederatedCluster, by `refract join` or for an inventory, and so
// may be deleted with it.
func createdFor(secret *corev1.Secret, fc *corev1alpha1.FederatedCluster) bool {
	return fc.UID != "" && (metav1.IsControlledBy(secret, fc) ||
		secret.Labels[refractv1alpha1.JoinedLabel] == "true" && secret.Annotations[refractv1alpha1.JoinedAnnotation] == string(fc.UID))
}

// OwnSecret returns the Secret with the credentials of a member, if it may be deleted with the member. Otherwise it
// returns the reason why the Secret must not be deleted. Both results are empty if the Secret does not exist.
func OwnSecret(ctx context.Context, hub client.Reader, namespace string, fc *corev1alpha1.FederatedCluster) (own *corev1.Secret, stays string, err error) {
	if fc.Spec.SecretRef.Name == "" {
		return nil, "", nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: fc.Spec.SecretRef.Name}
	if err := hub.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, "", nil
		}
		return nil, "", fmt.Errorf("reading secret %s: %w", key, err)
	}
	if !createdFor(secret, fc) {
		return nil, fmt.Sprintf("secret %s stays: it is not marked as created by refract join for this cluster", key), nil
	}
	all, err := clusters(ctx, hub)
	if err != nil {
		return nil, "", err
	}
	for i := range all {
		if all[i].Name != fc.Name && all[i].Spec.SecretRef.Name == key.Name {
			return nil, fmt.Sprintf("secret %s stays: cluster %s refers to it, too", key, all[i].Name), nil
		}
	}
	return secret, "", nil
}

// Forget deletes the credentials of a member that has left, if they may be deleted with it; see [OwnSecret]. It also
// revokes the right of the account on the hub to read them.
func Forget(ctx context.Context, hub client.Client, namespace string, fc *corev1alpha1.FederatedCluster) (stays string, err error) {
	secret, stays, err := OwnSecret(ctx, hub, namespace, fc)
	if err != nil {
		return "", err
	}
	if secret != nil {
		if err := hub.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("deleting secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
	}
	return stays, withdraw(ctx, hub, namespace, fc)
}
