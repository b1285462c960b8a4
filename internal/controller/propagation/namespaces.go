package propagation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// LeastEmpty is the least time for which a namespace has to be marked as empty before it
// is deleted: long enough for somebody to see that, and to do something about it.
const LeastEmpty = 2 * time.Minute

// tidyDelay is how long it takes until a namespace is looked at from which the last copy
// went: what is made again at once finds it.
const tidyDelay = 2 * time.Second

// tidyAgain is when a namespace is looked at again of which the credentials do not
// allow to see what is in it, or to write it, and how often all are looked at. That is
// sooner than a missing right is forgotten that the condition Authorized of the cluster
// names.
const tidyAgain = 4 * time.Minute

// A namespace in which there is something else is looked at again after these times,
// doubling from the first to the last.
const (
	firstTidy = 5 * time.Second
	lastTidy  = 10 * time.Minute
)

// mostTended is how many namespaces of a member may wait to be seen to. Those that are found
// beyond that are found again when all are looked at the next time: a member may say of any
// number of them that they were made for copies, and fail to answer about each.
const mostTended = 10_000

// allNamespaces stands for them in the queue of a member's namespaces. It is no name.
const allNamespaces = ""

// tidyLater has a namespace looked at from which a copy went.
func (a *applier) tidyLater(namespace string) {
	if namespace != "" && a.emptyAfter > 0 {
		a.namespaces.addAfter(namespace, tidyDelay)
	}
}

// made reports whether a namespace was made for copies of this hub and is not one itself,
// with labels that come from its source.
func (a *applier) made(ns *member.Namespace) bool {
	return ns.MadeFor == a.hub && ns.Source == "" && !ns.Native && !ns.Deleting
}

// settled reports whether it is known which namespaces may go: what is to be on the
// member, and what is there.
func (a *applier) settled() bool { return a.emptyAfter == 0 || a.primed.Load() && a.member.Swept() }

// unneeded reports whether no copy is, or is to be, in a namespace.
func (a *applier) unneeded(namespace string) bool {
	return a.member.InNamespace(namespace) == 0 && !a.state.needs(a.member.Name, namespace)
}

// makeNamespace creates a namespace that copies need. It has the hub's labels from the
// beginning: what they forbid is not let in for a moment.
func (a *applier) makeNamespace(ctx context.Context, name string) (reason string, err error) {
	labels, there, err := a.hubLabels(ctx, name)
	switch {
	case err != nil:
		return reasonWriteFailed, fmt.Errorf("creating namespace %s: %w", name, err)
	case !there:
		return reasonWriteFailed, fmt.Errorf("creating namespace %s: it is gone from the hub", name)
	}
	if err := a.member.CreateNamespace(ctx, name, a.hub, labels); err != nil {
		return refusal(err), fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return "", nil
}

// hubLabels reads the labels that a namespace has on the hub and members are to have, too.
func (c *Controller) hubLabels(ctx context.Context, name string) (labels map[string]string, there bool, err error) {
	ns := &corev1.Namespace{}
	switch err := c.live.Get(ctx, types.NamespacedName{Name: name}, ns); {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading namespace %s of the hub: %w", name, err)
	}
	return c.carried.of(ns.Labels), true, nil
}

// namespaceChanged has all members look at a namespace whose labels are others than they
// were.
func (c *Controller) namespaceChanged(name types.NamespacedName, initial bool) {
	ns, _ := c.hubNamespaces.get(name)
	var now map[string]string
	if ns != nil {
		now = c.carried.of(ns.GetLabels())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.labels[name.Name]
	if len(now) == 0 {
		delete(c.labels, name.Name)
	} else {
		c.labels[name.Name] = now
	}
	if initial || maps.Equal(was, now) {
		return // At the start each member's are looked at together.
	}
	for _, a := range c.appliers {
		a.namespaces.add(name.Name, priorityDependency)
	}
}

// tendNamespace sees to one namespace, or finds out which have to be seen to.
func (a *applier) tendNamespace(ctx context.Context, name string) (reconcile.Result, error) {
	ctx, end, ok := a.shards.Begin(ctx, a.member.Name)
	if !ok {
		return reconcile.Result{RequeueAfter: notOurs}, nil
	}
	defer end()
	switch {
	case name == allNamespaces:
		return a.surveyNamespaces(ctx)
	case !a.member.Ready():
		return reconcile.Result{RequeueAfter: tidyAgain}, nil
	}
	ns, err := a.member.Namespace(ctx, name)
	if err == nil && !a.made(&ns) || apierrors.IsNotFound(err) {
		a.tidies.Forget(name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return a.settle(name, "reading", err)
	}
	switch changed, err := a.keepLabels(ctx, &ns); {
	case err != nil:
		return a.settle(name, "labelling", err)
	case changed: // Somebody may change them back each time.
		return reconcile.Result{RequeueAfter: a.tidies.When(name)}, nil
	}
	return a.tidyNamespace(ctx, &ns)
}

// settle says when to look at a namespace again after a request.
func (a *applier) settle(name, doing string, err error) (reconcile.Result, error) {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: firstRetry}, nil
	case apierrors.IsForbidden(err):
		return reconcile.Result{RequeueAfter: tidyAgain}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("%s namespace %s of cluster %s: %w", doing, name, a.member.Name, err)
	}
}

// surveyNamespaces finds the namespaces that were made for copies and have other labels
// than they should, or that are, or were, about to be deleted: somebody has changed them,
// or the hub, while nobody looked.
func (a *applier) surveyNamespaces(ctx context.Context) (reconcile.Result, error) {
	switch {
	case !a.member.Ready():
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	case !a.hubNamespaces.asked():
		return reconcile.Result{RequeueAfter: notOurs}, nil
	}
	settled, full := a.settled(), false
	err := a.member.EachNamespace(ctx, func(ns member.Namespace) {
		if !a.made(&ns) {
			return
		}
		source, _ := a.hubNamespaces.get(types.NamespacedName{Name: ns.Name})
		relabel := source != nil && len(a.carried.changes(&ns, a.carried.of(source.GetLabels()))) > 0
		empty := settled && a.emptyAfter > 0 && !ns.Shared && a.unneeded(ns.Name)
		tidy := settled && (ns.Marked && (!empty || !a.now().Before(ns.RemoveAfter)) || empty && !ns.Marked && !a.surveyed)
		if !relabel && !tidy {
			return
		}
		if full = full || a.namespaces.size() >= mostTended; !full {
			a.namespaces.add(ns.Name, priorityResync)
		}
	})
	a.surveyed = a.surveyed || settled && err == nil && !full
	if err != nil {
		return a.settle("any", "listing", err)
	}
	if !settled {
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	}
	return reconcile.Result{RequeueAfter: tidyAgain}, nil
}

// keepLabels gives a namespace the labels that it has on the hub.
func (a *applier) keepLabels(ctx context.Context, ns *member.Namespace) (changed bool, err error) {
	want, there, err := a.hubLabels(ctx, ns.Name)
	if err != nil || !there {
		return false, err // What is gone from the hub says nothing.
	}
	changes := a.carried.changes(ns, want)
	if len(changes) == 0 {
		return false, nil
	}
	return true, a.patchNamespace(ctx, ns, "labels", changes)
}

// patchNamespace changes labels or annotations of a namespace if it is as it was.
func (a *applier) patchNamespace(ctx context.Context, ns *member.Namespace, part string, changes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion(), part: changes,
	}})
	if err != nil {
		return err
	}
	return a.member.PatchNamespace(ctx, ns.Name, body)
}

// tidyNamespace deletes a namespace that was made for copies, if that is asked for, when
// none is there, none is to come, nothing else is in it, and nobody else has a hand in it.
// When it is found so for the first time it is marked with when it may go.
func (a *applier) tidyNamespace(ctx context.Context, ns *member.Namespace) (reconcile.Result, error) {
	switch {
	case !a.settled():
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	case a.emptyAfter == 0 || ns.Shared || !a.unneeded(ns.Name):
		return a.unmark(ctx, ns) // When the last copy goes it is looked at again.
	}
	empty, err := a.member.NamespaceEmpty(ctx, ns.Name)
	switch {
	case err != nil:
		return a.settle(ns.Name, "looking for what is in", err) // It stays until everything in it may be seen.
	case !empty:
		// What copies made there, as Pods, may take a while to go.
		if result, err := a.unmark(ctx, ns); err != nil || result.RequeueAfter > 0 {
			return result, err
		}
		return reconcile.Result{RequeueAfter: a.tidies.When(ns.Name)}, nil
	case !a.unneeded(ns.Name):
		return a.unmark(ctx, ns) // Since a moment.
	}
	a.tidies.Forget(ns.Name)
	now := a.now()
	switch due := ns.RemoveAfter; {
	case due.IsZero() || due.Sub(now) > a.emptyAfter+time.Second:
		after := now.Add(a.emptyAfter + time.Second).UTC().Format(time.RFC3339) // The format cuts off what is less than a second.
		if err := a.patchNamespace(ctx, ns, "annotations", map[string]any{refractv1alpha1.RemoveAfterAnnotation: after}); err != nil {
			return a.settle(ns.Name, "marking", err)
		}
		return reconcile.Result{RequeueAfter: a.emptyAfter + time.Second}, nil
	case now.Before(due):
		return reconcile.Result{RequeueAfter: due.Sub(now)}, nil
	}
	_, err = a.member.DeleteNamespace(ctx, ns.Name, ns.UID, ns.ResourceVersion())
	return a.settle(ns.Name, "deleting", err)
}

// unmark takes back that a namespace may be deleted.
func (a *applier) unmark(ctx context.Context, ns *member.Namespace) (reconcile.Result, error) {
	if !ns.Marked {
		return reconcile.Result{}, nil
	}
	return a.settle(ns.Name, "unmarking", a.patchNamespace(ctx, ns, "annotations", map[string]any{refractv1alpha1.RemoveAfterAnnotation: nil}))
}
