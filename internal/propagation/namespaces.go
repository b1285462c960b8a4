package propagation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// tidyDelay is how long a namespace stays after its last copy went: what is made
// again at once finds it.
const tidyDelay = 2 * time.Second

// tidyAgain is when a namespace is looked at again of which the credentials do not
// allow to see what is in it, or to delete it. That is sooner than a missing right is
// forgotten that the condition Authorized of the cluster names.
const tidyAgain = 4 * time.Minute

// A namespace in which there is something else is looked at again after these times,
// doubling from the first to the last.
const (
	firstTidy = 5 * time.Second
	lastTidy  = 10 * time.Minute
)

// tidyLater has a namespace looked at from which a copy went.
func (a *applier) tidyLater(namespace string) {
	if namespace != "" {
		a.namespaces.addAfter(namespace, tidyDelay)
	}
}

// tidyNamespace deletes a namespace that was made for copies, when none is there, none
// is to come, and nothing else is in it.
func (a *applier) tidyNamespace(ctx context.Context, namespace string) (reconcile.Result, error) {
	ctx, end, ok := a.shards.Begin(ctx, a.member.Name)
	if !ok {
		return reconcile.Result{}, nil
	}
	defer end()
	if !a.member.Ready() || a.ledger.needs(a.member.Name, namespace) || a.member.InNamespace(namespace) > 0 {
		return reconcile.Result{}, nil // When the last copy goes it is looked at again.
	}
	ns, err := a.member.Read(ctx, namespaceResource, types.NamespacedName{Name: namespace})
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsForbidden(err):
		return reconcile.Result{RequeueAfter: tidyAgain}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading namespace %s of cluster %s: %w", namespace, a.member.Name, err)
	case ns.MadeFor != a.hub || ns.Source != "" || ns.Native || ns.Deleting:
		return reconcile.Result{}, nil // Somebody else's, or a copy itself, or the cluster's own.
	}
	empty, err := a.member.NamespaceEmpty(ctx, namespace)
	switch {
	case apierrors.IsForbidden(err):
		return reconcile.Result{RequeueAfter: tidyAgain}, nil // It stays until everything in it may be seen.
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("looking for what is in namespace %s of cluster %s: %w", namespace, a.member.Name, err)
	case !empty:
		// What copies made there, as Pods, may take a while to go.
		return reconcile.Result{RequeueAfter: a.tidies.When(namespace)}, nil
	case a.ledger.needs(a.member.Name, namespace):
		return reconcile.Result{}, nil // Since a moment.
	}
	a.tidies.Forget(namespace)
	_, err = a.member.DeleteNamespace(ctx, namespace, ns.UID, ns.ResourceVersion())
	switch {
	case apierrors.IsForbidden(err):
		return reconcile.Result{RequeueAfter: tidyAgain}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("deleting namespace %s of cluster %s: %w", namespace, a.member.Name, err)
	}
	return reconcile.Result{}, nil
}
