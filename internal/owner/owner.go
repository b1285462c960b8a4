// Package owner makes objects that Refract writes for itself depend on its installation, so that the garbage collector
// deletes them with it. For example, a webhook configuration without its Service would reject every matching write.
// Users who delete the manifests do not know about such objects.
//
// The owner is a ClusterRole of the manifests. A ClusterRole is cluster-scoped, so it may own cluster-scoped objects,
// and every way to remove an installation deletes it.
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

// The ClusterRoles of the manifests, one for each part of Refract. They own the objects that the part writes.
const (
	HubRole        = "refract-hub"
	InjectionRole  = "refract-injection"
	ConversionRole = "refract-conversion"
)

// Owners returns references to the ClusterRoles of an installation. It is safe for concurrent use.
type Owners struct {
	client client.Reader

	mu   sync.Mutex
	seen map[string]bool // The roles that were found before, by name.
}

// New returns Owners that read with this client. The client must not read from a cache, and its scheme must have the
// types of Kubernetes.
func New(c client.Reader) *Owners { return &Owners{client: c, seen: map[string]bool{}} }

// References returns owner references to those roles that exist. If Refract runs without an installation, with the
// permissions of a user, there are none.
//
// References returns an error if it found a role before, and the role now is deleted, is being deleted or cannot be
// read. In this case the installation is being deleted, and an object that is written now would remain. If o is nil,
// References returns no references.
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

// Apply writes an object by server-side apply, with owner references. If the API server rejects the references, Apply
// writes the object without them: an API server with the plugin OwnerReferencesPermissionEnforcement requires the
// permission to delete the owner, which Refract does not have. Then only `refract uninstall` deletes the object; the
// garbage collector does not.
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
