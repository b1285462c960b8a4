package installation

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Namespaces returns the namespaces of the installed parts, sorted; nil if there are none. The result comes from the
// ClusterRoleBinding and the webhook configuration of each part. Namespaces does not search for Deployments: any user
// of a namespace could create one there, and would then get the credentials of members.
func Namespaces(ctx context.Context, c client.Reader, parts ...Part) ([]string, error) {
	var all []string
	for _, part := range parts {
		binding := &rbacv1.ClusterRoleBinding{}
		if err := look(ctx, c, client.ObjectKey{Name: part.Role}, binding); err != nil {
			return nil, fmt.Errorf("reading clusterrolebinding %s: %w", part.Role, err)
		}
		for _, s := range binding.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind && deployed(s.Name) {
				all = append(all, s.Namespace)
			}
		}
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := look(ctx, c, client.ObjectKey{Name: part.Configuration()}, configuration); err != nil {
			return nil, fmt.Errorf("reading validatingwebhookconfiguration %s: %w", part.Configuration(), err)
		}
		for i := range configuration.Webhooks {
			if s := configuration.Webhooks[i].ClientConfig.Service; s != nil && deployed(s.Name) {
				all = append(all, s.Namespace)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	// A second installation, in another namespace, overwrites the ClusterRoleBinding and the webhook configuration of
	// an installation in the default namespace. Then only the Deployments show that the default namespace has an
	// installation.
	there, err := Installed(ctx, c, corev1alpha1.SystemNamespace)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(there, func(p Part) bool { return slices.Contains(parts, p) }) {
		all = append(all, corev1alpha1.SystemNamespace)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Leased returns the namespaces with a Lease of any of the parts, sorted. The Lease is the only object that names the
// namespace of a process outside of the cluster. But any user of a namespace could also create a Lease there. So the
// result may be shown to the user, but credentials must not be stored in these namespaces.
func Leased(ctx context.Context, c client.Reader, parts ...Part) ([]string, error) {
	var all []string
	for _, part := range parts {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("LeaseList"))
		err := c.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: part.Lease()}, client.Limit(pageSize))
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("listing leases %s: %w", part.Lease(), err)
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Namespace)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// look reads an object. If the object or its type does not exist, o remains empty.
func look(ctx context.Context, c client.Reader, key client.ObjectKey, o client.Object) error {
	err := c.Get(ctx, key, o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// deployed reports whether the ServiceAccount and the Service of a part have this name.
func deployed(name string) bool {
	return slices.ContainsFunc(Parts(), func(p Part) bool { return p.Deployment == name })
}
