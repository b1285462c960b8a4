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
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("reading namespace %s of cluster %s: %w", namespace, a.member.Name, err)
	case ns.MadeFor != a.hub || ns.Source != "" || ns.Deleting:
		return reconcile.Result{}, nil // Somebody else's, or a copy itself.
	}
	empty, err := a.member.NamespaceEmpty(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("looking for what is in namespace %s of cluster %s: %w", namespace, a.member.Name, err)
	}
	if !empty {
		return reconcile.Result{}, nil
	}
	_, err = a.member.DeleteNamespace(ctx, namespace, ns.UID, ns.ResourceVersion())
	if err != nil && !apierrors.IsConflict(err) {
		return reconcile.Result{}, fmt.Errorf("deleting namespace %s of cluster %s: %w", namespace, a.member.Name, err)
	}
	return reconcile.Result{}, nil
}
