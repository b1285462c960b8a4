// Package owner lets the garbage collector delete the objects that Refract writes for itself, together with its
// installation. A webhook configuration whose Service is gone would reject every matching write, and a user who deletes
// the manifests does not know about it.
//
// The owner is a ClusterRole of the manifests. A ClusterRole has no namespace, so it may own cluster-scoped objects,
// and every kind of removal deletes it.
package owner

import (
	"context"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The ClusterRoles of the manifests, one for each part of Refract. They own the objects that Refract maintains, which
// are deleted with them.
const (
	HubRole        = "refract-hub"
	InjectionRole  = "refract-injection"
	ConversionRole = "refract-conversion"
)

// Owners knows the ClusterRoles of an installation. It is safe for concurrent use.
type Owners struct {
	client client.Reader

	mu   sync.Mutex
	seen map[string]bool // Roles that existed once, by name.
}

// New returns the owners in the cluster of a client. The client must read live objects, and not a cache. Its scheme
// must have the types of Kubernetes.
func New(c client.Reader) *Owners { return &Owners{client: c, seen: map[string]bool{}} }

// References returns owner references to those of the roles that exist. A program that runs without an installation,
// with the rights of a user, gets none.
//
// References returns an error if a role existed before, and is now gone, being deleted or no longer readable: the
// installation is being deleted, and an object that is written now would outlive it. A nil Owners returns no
// references.
func (o *Owners) References(ctx context.Context, roles ...string) ([]metav1.OwnerReference, error) {
	if o == nil {
		return nil, nil
	}
	var references []metav1.OwnerReference
	for _, name := range roles {
		role := &rbacv1.ClusterRole{}
		err := o.client.Get(ctx, client.ObjectKey{Name: name}, role)
		switch {
		case err == nil && role.DeletionTimestamp == nil:
			o.note(name)
			references = append(references, metav1.OwnerReference{
				APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: name, UID: role.UID,
			})
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return nil, fmt.Errorf("reading ClusterRole %s: %w", name, err)
		case o.knows(name):
			return nil, fmt.Errorf("ClusterRole %s is gone, and what belongs to it is not written any more: it would outlive the installation", name)
		}
	}
	return references, nil
}

// Apply writes an object with owner references by server-side apply. With OwnerReferencesPermissionEnforcement, an API
// server accepts an owner only from an account that may delete the object, and Refract has no such right. Apply then
// writes the object without an owner. Such an object remains after the installation, and `refract uninstall` deletes
// it.
func Apply(ctx context.Context, c client.Writer, object *unstructured.Unstructured, references []metav1.OwnerReference, manager string) error {
	write := func() error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner(manager), client.ForceOwnership)
	}
	object.SetOwnerReferences(references)
	err := write()
	if !apierrors.IsForbidden(err) || len(references) == 0 {
		return err
	}
	object.SetOwnerReferences(nil)
	if without := write(); without != nil {
		return err // Another right is missing.
	}
	return nil
}

func (o *Owners) note(role string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[role] = true
}

func (o *Owners) knows(role string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[role]
}
