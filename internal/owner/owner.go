// Package owner has what Refract writes for itself into a cluster collected with its
// installation: webhook configurations that ask a Service which is gone refuse every
// write that they ask about, and who deletes manifests by hand does not know of them.
//
// The owner is a ClusterRole of the manifests. It has no namespace, so that it may own
// what has none, and it goes with the installation, however that is deleted.
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

// The ClusterRoles of the manifests that Refract runs by: one for each of its parts. What it
// keeps up to date itself belongs to them, and goes with them.
const (
	HubRole        = "refract-hub"
	InjectionRole  = "refract-injection"
	ConversionRole = "refract-conversion"
)

// Owners knows the ClusterRoles of an installation. It is for several goroutines.
type Owners struct {
	client client.Reader

	mu   sync.Mutex
	seen map[string]bool // By the name of a role.
}

// New returns the owners in the cluster that the client reads: what is there now, not what
// a cache remembers. Its scheme has the kinds of Kubernetes.
func New(c client.Reader) *Owners { return &Owners{client: c, seen: map[string]bool{}} }

// References returns the references of what belongs to the installations that have these
// roles, of those that are there: none if a program runs without an installation, as that
// of a person with rights of their own.
//
// It returns an error if a role has been there before and is no more, or may not be read
// any more: the installation is being deleted, and what was written now would outlive it.
// A nil Owners knows no role.
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

// Apply writes an object that belongs to them, by server-side apply. Where an API server lets
// only those set an owner who may delete the object (OwnerReferencesPermissionEnforcement), which
// Refract may not, it is written without: it stays then when the installation goes, and `refract
// uninstall` takes it away.
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
		return err // It is another right that is missing.
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
