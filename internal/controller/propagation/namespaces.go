package propagation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/placement"
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

// hubNamespaces are the namespaces of the hub, whose labels members have, too.
type hubNamespaces struct {
	live    client.Reader
	carried namespaceLabels
	view    *view
	changed func(name string) // Called for one whose labels have changed.
	// floorChanged is called for one that names another rollout policy.
	floorChanged func(name string)

	mu     sync.Mutex
	labels map[string]map[string]string // That members have, too, by name.
	floors map[string]string            // The rollout policies that namespaces name, by name.
}

// floor returns the labels of a namespace by which it says how its objects change; known is false until
// the hub has said which namespaces there are.
func (h *hubNamespaces) floor(name string) (labels map[string]string, known bool) {
	ns, known := h.view.get(types.NamespacedName{Name: name})
	if ns == nil {
		return nil, known
	}
	return ns.GetLabels(), true
}

// hasFloor reads whether a namespace names a rollout policy for its objects.
func (h *hubNamespaces) hasFloor(ctx context.Context, name string) (bool, error) {
	ns := &corev1.Namespace{}
	if err := h.live.Get(ctx, types.NamespacedName{Name: name}, ns); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading whether namespace %s of the hub names a rollout policy: %w", name, err)
	}
	_, is := ns.Labels[refractv1alpha1.ClusterRolloutPolicyLabel]
	return is, nil
}

// floored returns the namespaces that name a rollout policy for their objects and do not travel
// themselves, by name. They are shared, and not to be modified.
func (h *hubNamespaces) floored() []*unstructured.Unstructured {
	h.mu.Lock()
	names := slices.Sorted(maps.Keys(h.floors))
	h.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, name := range names {
		ns, _ := h.view.get(types.NamespacedName{Name: name})
		if ns == nil {
			continue
		}
		if _, asks, _, _ := placement.Named(ns.GetLabels(), ""); !asks {
			all = append(all, ns)
		}
	}
	return all
}

func newHubNamespaces(live client.Reader, carried namespaceLabels, changed func(string)) *hubNamespaces {
	h := &hubNamespaces{live: live, carried: carried, changed: changed, labels: map[string]map[string]string{}, floors: map[string]string{}}
	h.view = &view{changed: h.seen}
	return h
}

// read reads the labels that a namespace has on the hub and members are to have, too.
func (h *hubNamespaces) read(ctx context.Context, name string) (labels map[string]string, there bool, err error) {
	ns := &corev1.Namespace{}
	switch err := h.live.Get(ctx, types.NamespacedName{Name: name}, ns); {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading namespace %s of the hub: %w", name, err)
	}
	return h.carried.of(ns.Labels), true, nil
}

// seen is told of a namespace that came, changed or went.
func (h *hubNamespaces) seen(name types.NamespacedName, initial bool) {
	ns, _ := h.view.get(name)
	var now map[string]string
	if ns != nil {
		now = h.carried.of(ns.GetLabels())
	}
	h.mu.Lock()
	was := h.labels[name.Name]
	if len(now) == 0 {
		delete(h.labels, name.Name)
	} else {
		h.labels[name.Name] = now
	}
	floor, floorNow := h.floors[name.Name], ""
	if ns != nil {
		floorNow = ns.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel]
	}
	if h.floors[name.Name] = floorNow; floorNow == "" {
		delete(h.floors, name.Name)
	}
	h.mu.Unlock()
	if !initial && floor != floorNow {
		h.floorChanged(name.Name)
	}
	if !initial && !maps.Equal(was, now) { // At the start each member's are looked at together.
		h.changed(name.Name)
	}
}

// differs reports whether a namespace of a member has other labels than it should, as far as
// is known without asking the hub.
func (h *hubNamespaces) differs(ns *member.Namespace) bool {
	source, _ := h.view.get(types.NamespacedName{Name: ns.Name})
	return source != nil && len(h.carried.changes(ns, h.carried.of(source.GetLabels()))) > 0
}

// namespaces makes those that copies need on one member, keeps their labels as they are on
// the hub, and deletes those that are empty, if that is asked for.
type namespaces struct {
	hub        string // UID of the hub.
	member     *member.Member
	state      *state
	source     *hubNamespaces
	emptyAfter time.Duration // Zero if they stay.
	// begin begins what is done on the member, unless it is not this replica's.
	begin func(ctx context.Context, member string) (_ context.Context, end func(), ok bool)
	now   func() time.Time // By the clock that replicas share: a namespace says when it is to be deleted.

	queue    *workQueue[string] // With other labels than they should have, or not needed any more.
	retries  workqueue.TypedRateLimiter[string]
	surveyed bool // Whether all were looked at since it is known what is needed; the worker's alone.
}

func newNamespaces(n *namespaces, log logr.Logger) (*namespaces, error) {
	n.retries = workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstTidy, lastTidy)
	var err error
	if n.queue, err = newWorkQueue("namespaces-"+n.member.Name, 1, log, n.reconcile); err != nil {
		return nil, err
	}
	n.queue.add(allNamespaces, priorityResync)
	return n, nil
}

// tidyLater has a namespace looked at from which a copy went.
func (n *namespaces) tidyLater(namespace string) {
	if namespace != "" && n.emptyAfter > 0 {
		n.queue.addAfter(namespace, tidyDelay)
	}
}

// made reports whether a namespace was made for copies of this hub and is not one itself,
// with labels that come from its source.
func (n *namespaces) made(ns *member.Namespace) bool {
	return ns.MadeFor == n.hub && ns.Source == "" && !ns.Native && !ns.Deleting
}

// settled reports whether it is known which namespaces may be deleted: what is to be on the
// member, and what is there.
func (n *namespaces) settled() bool {
	return n.emptyAfter == 0 || n.state.complete.Load() && n.member.Copies.Swept()
}

// unneeded reports whether no copy is, or is to be, in a namespace.
func (n *namespaces) unneeded(namespace string) bool {
	return n.member.Copies.InNamespace(namespace) == 0 && !n.state.needs(n.member.Name, namespace)
}

// create creates a namespace that copies need. It has the hub's labels from the
// beginning: what they forbid is not let in for a moment.
func (n *namespaces) create(ctx context.Context, name string) (reason string, err error) {
	labels, there, err := n.source.read(ctx, name)
	switch {
	case err != nil:
		return reasonWriteFailed, fmt.Errorf("creating namespace %s: %w", name, err)
	case !there:
		return reasonWriteFailed, fmt.Errorf("creating namespace %s: it is gone from the hub", name)
	}
	if err := n.member.Namespaces.Create(ctx, name, n.hub, labels); err != nil {
		return refusal(err), fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return "", nil
}

// reconcile sees to one namespace, or finds out which have to be seen to.
func (n *namespaces) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	ctx, end, ok := n.begin(ctx, n.member.Name)
	if !ok {
		return reconcile.Result{RequeueAfter: notOurs}, nil
	}
	defer end()
	switch {
	case name == allNamespaces:
		return n.survey(ctx)
	case !n.member.Ready():
		return reconcile.Result{RequeueAfter: tidyAgain}, nil
	}
	ns, err := n.member.Namespaces.Get(ctx, name)
	if err == nil && !n.made(&ns) || apierrors.IsNotFound(err) {
		n.retries.Forget(name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return n.settle(name, "reading", err)
	}
	switch changed, err := n.keepLabels(ctx, &ns); {
	case err != nil:
		return n.settle(name, "labelling", err)
	case changed: // Somebody may change them back each time.
		return reconcile.Result{RequeueAfter: n.retries.When(name)}, nil
	}
	return n.tidy(ctx, &ns)
}

// settle says when to look at a namespace again after a request.
func (n *namespaces) settle(name, doing string, err error) (reconcile.Result, error) {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: firstRetry}, nil
	case apierrors.IsForbidden(err):
		return reconcile.Result{RequeueAfter: tidyAgain}, nil
	default:
		return reconcile.Result{}, fmt.Errorf("%s namespace %s of cluster %s: %w", doing, name, n.member.Name, err)
	}
}

// survey finds the namespaces that were made for copies and have other labels
// than they should, or that are, or were, about to be deleted: somebody has changed them,
// or the hub, while nobody looked.
func (n *namespaces) survey(ctx context.Context) (reconcile.Result, error) {
	switch {
	case !n.member.Ready():
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	case !n.source.view.asked():
		return reconcile.Result{RequeueAfter: notOurs}, nil
	}
	settled, full := n.settled(), false
	err := n.member.Namespaces.Each(ctx, func(ns member.Namespace) {
		if !n.made(&ns) {
			return
		}
		relabel := n.source.differs(&ns)
		empty := settled && n.emptyAfter > 0 && !ns.Shared && n.unneeded(ns.Name)
		tidy := settled && (ns.Marked && (!empty || !n.now().Before(ns.RemoveAfter)) || empty && !ns.Marked && !n.surveyed)
		if !relabel && !tidy {
			return
		}
		if full = full || n.queue.size() >= mostTended; !full {
			n.queue.add(ns.Name, priorityResync)
		}
	})
	n.surveyed = n.surveyed || settled && err == nil && !full
	if err != nil {
		return n.settle("any", "listing", err)
	}
	if !settled {
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	}
	return reconcile.Result{RequeueAfter: tidyAgain}, nil
}

// keepLabels gives a namespace the labels that it has on the hub.
func (n *namespaces) keepLabels(ctx context.Context, ns *member.Namespace) (changed bool, err error) {
	want, there, err := n.source.read(ctx, ns.Name)
	if err != nil || !there {
		return false, err // What is deleted on the hub says nothing.
	}
	changes := n.source.carried.changes(ns, want)
	if len(changes) == 0 {
		return false, nil
	}
	return true, n.patch(ctx, ns, "labels", changes)
}

// patch changes labels or annotations of a namespace if it is as it was.
func (n *namespaces) patch(ctx context.Context, ns *member.Namespace, part string, changes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion(), part: changes,
	}})
	if err != nil {
		return err
	}
	return n.member.Namespaces.Patch(ctx, ns.Name, body)
}

// tidy deletes a namespace that was made for copies, if that is asked for, when
// none is there, none is to come, nothing else is in it, and nobody else has a hand in it.
// When it is found so for the first time it is marked with when it may be deleted.
func (n *namespaces) tidy(ctx context.Context, ns *member.Namespace) (reconcile.Result, error) {
	switch {
	case !n.settled():
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	case n.emptyAfter == 0 || ns.Shared || !n.unneeded(ns.Name):
		return n.unmark(ctx, ns) // When the last copy is deleted it is looked at again.
	}
	empty, err := n.member.Namespaces.Empty(ctx, ns.Name)
	switch {
	case err != nil:
		return n.settle(ns.Name, "looking for what is in", err) // It stays until everything in it may be seen.
	case !empty:
		// What copies made there, as Pods, may take a while to be deleted.
		if result, err := n.unmark(ctx, ns); err != nil || result.RequeueAfter > 0 {
			return result, err
		}
		return reconcile.Result{RequeueAfter: n.retries.When(ns.Name)}, nil
	case !n.unneeded(ns.Name):
		return n.unmark(ctx, ns) // Since a moment.
	}
	n.retries.Forget(ns.Name)
	now := n.now()
	switch due := ns.RemoveAfter; {
	case due.IsZero() || due.Sub(now) > n.emptyAfter+time.Second:
		after := now.Add(n.emptyAfter + time.Second).UTC().Format(time.RFC3339) // The format cuts off what is less than a second.
		if err := n.patch(ctx, ns, "annotations", map[string]any{refractv1alpha1.RemoveAfterAnnotation: after}); err != nil {
			return n.settle(ns.Name, "marking", err)
		}
		return reconcile.Result{RequeueAfter: n.emptyAfter + time.Second}, nil
	case now.Before(due):
		return reconcile.Result{RequeueAfter: due.Sub(now)}, nil
	}
	_, err = n.member.Namespaces.Delete(ctx, ns.Name, ns.UID, ns.ResourceVersion())
	return n.settle(ns.Name, "deleting", err)
}

// unmark takes back that a namespace may be deleted.
func (n *namespaces) unmark(ctx context.Context, ns *member.Namespace) (reconcile.Result, error) {
	if !ns.Marked {
		return reconcile.Result{}, nil
	}
	return n.settle(ns.Name, "unmarking", n.patch(ctx, ns, "annotations", map[string]any{refractv1alpha1.RemoveAfterAnnotation: nil}))
}
