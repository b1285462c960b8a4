package propagation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// leaving returns the error for a ControllerRevision in deletion.
func leaving(c *appsv1.ControllerRevision) error {
	return fmt.Errorf("the ControllerRevision %s is being deleted, and its finalizers %q keep it: remove them",
		client.ObjectKeyFromObject(c), c.Finalizers)
}

// named starts periodic checks of the revisions that the rollout of an object names, because other clients may delete
// them.
func (v *revisions) named(key Key) {
	for _, namespace := range []string{key.Namespace, v.system} {
		if _, watched := v.watched.LoadOrStore(namespace, true); namespace != "" && !watched {
			v.queue.addAfter(namespace, sweepDelay)
		}
	}
}

// later queues a search for unneeded revisions.
func (v *revisions) later(key Key) {
	if key.Namespace != "" {
		v.queue.addAfter(key.Namespace, sweepDelay)
	}
	v.queue.addAfter(v.system, sweepDelay)
}

// sweep deletes the revisions of a namespace that no rollout has named for the time leastAge, and stores missing
// named ones again.
func (v *revisions) sweep(ctx context.Context, namespace string) (reconcile.Result, error) {
	if !v.leads() {
		v.watched.Delete(namespace)
		delete(v.spare, namespace)
		return reconcile.Result{}, nil
	}
	again, spare := time.Duration(0), map[types.UID]time.Time{}
	var errs []error
	look := func(o client.Object, needed map[types.NamespacedName]bool) {
		at := client.ObjectKeyFromObject(o)
		if needed[at] {
			return
		}
		if left := leastAge - v.unnamed(o, spare); left > 0 {
			again = max(again, left)
			return
		}
		v.cache.drop(at)
		errs = append(errs, client.IgnoreNotFound(v.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())})))
	}
	ours := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{refractv1alpha1.RevisionLabel: "true"}}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevisionList"))
	if err := v.live.List(ctx, list, ours...); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing revisions of namespace %s: %w", namespace, err)
	}
	rollouts := v.rollouts() // Read after the list, so that it includes all names of listed revisions.
	needed := map[types.NamespacedName]bool{}
	for key, s := range rollouts {
		for at, part := range partsOf(key, s, v.system) {
			needed[at] = true
			if part.sealed { // Until the Propagation has the present names, the plain part may be the only one with this content.
				needed[plainPlace(part.of, at.Name, v.system)] = true
			}
		}
	}
	there := map[types.NamespacedName]bool{}
	for i := range list.Items {
		there[client.ObjectKeyFromObject(&list.Items[i])] = list.Items[i].DeletionTimestamp == nil
		look(&list.Items[i], needed)
	}
	v.spare[namespace] = spare
	for _, key := range slices.SortedFunc(maps.Keys(rollouts), compareKeys) {
		names, err := v.keepAgain(ctx, namespace, key, rollouts[key], there)
		if errs = append(errs, err); names && again == 0 {
			again = keptAgain
		}
	}
	if again == 0 {
		v.watched.Delete(namespace)
		delete(v.spare, namespace)
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// unnamed returns the time for which a revision has had no reference, as far as this replica knows. It records the
// start of this time in spare. The creation time of the revision comes from the clock of another machine, so it is not
// used.
func (v *revisions) unnamed(o client.Object, spare map[types.UID]time.Time) time.Duration {
	now := v.now()
	since, known := v.spare[o.GetNamespace()][o.GetUID()]
	if !known {
		since = now
	}
	if stored := v.stored.last(client.ObjectKeyFromObject(o), now); stored.After(since) {
		since = stored
	}
	spare[o.GetUID()] = since
	return now.Sub(since)
}

// keepAgain stores the missing parts that a rollout names in a namespace: the newest revision from the objects on the
// hub, the others if they are in the cache of this process. It reports whether the rollout names any part there.
func (v *revisions) keepAgain(
	ctx context.Context, namespace string, key Key, s *refractv1alpha1.RolloutStatus, there map[types.NamespacedName]bool,
) (names bool, err error) {
	parts := partsOf(key, s, v.system)
	var gone []types.NamespacedName
	for at := range parts {
		if at.Namespace != namespace {
			continue
		}
		if names = true; !there[at] {
			gone = append(gone, at)
		}
	}
	if len(gone) == 0 && s.Phase != refractv1alpha1.RolloutStalled {
		return names, nil
	}
	var errs []error
	if err := v.keep(ctx, key, v.decider, &s.Target); err != nil && !errors.Is(err, errRevision) {
		errs = append(errs, err)
	}
	slices.SortFunc(gone, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	for _, at := range gone {
		if text := v.cache.get(at); text != nil {
			if err := v.put(ctx, at, text, parts[at].sealed); !errors.Is(err, errRevision) {
				errs = append(errs, err)
			}
		}
	}
	v.decider.add(key, priorityDependency) // A lost part may have been restored.
	return names, errors.Join(errs...)
}

// readKeyAgain reads the key again. If it has changed, all objects are decided again. A part that does not open causes
// a read of the key as well. But a digest does not show which key made it: with an outdated key, this replica would
// report digests that no other process recognizes.
func (v *revisions) readKeyAgain(ctx context.Context, _ struct{}) (reconcile.Result, error) {
	err := v.key.readAgain(ctx, v.live, v.system)
	if v.key.replaced() {
		v.decider.everything.add(struct{}{}, priorityResync)
	}
	return reconcile.Result{RequeueAfter: keyReadAgain}, err
}
