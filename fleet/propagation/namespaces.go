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
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// LeastEmpty is the minimum time between the mark that a namespace is empty and its deletion. It gives a user time to
// see the mark and to react.
const LeastEmpty = 2 * time.Minute

// tidyDelay is the delay before a namespace is checked after its last copy was deleted, so that copies which are
// created again at once still find the namespace.
const tidyDelay = 2 * time.Second

// tidyAgain is the interval between checks of all namespaces. It is also the delay before another check of a
// namespace whose content the credentials may not list, or which they may not write. It is shorter than the time for
// which the condition Authorized of the cluster lists a missing right. So the right stays in the condition until it
// is granted.
const tidyAgain = 4 * time.Minute

// The delays before another check of a namespace that has other content. They double from the first to the last.
const (
	firstTidy = 5 * time.Second
	lastTidy  = 10 * time.Minute
)

// mostTended bounds the namespaces of a member that may wait for a check. The next check of all namespaces finds the
// others. Without the bound, a member could claim any number of namespaces as created for copies, and fail each
// request about them.
const mostTended = 10_000

// allNamespaces is the key for a check of all namespaces, in the queue of a member's namespaces. It is not a valid
// name.
const allNamespaces = ""

// hubNamespaces are the namespaces of the hub. Some of their labels are copied to members.
type hubNamespaces struct {
	live    client.Reader
	carried namespaceLabels
	view    *view
	changed func(name string) // Called with a namespace whose copied labels have changed.
	// floorChanged is called with a namespace that names another rollout policy than before.
	floorChanged func(name string)

	mu     sync.Mutex
	labels map[string]map[string]string // The copied labels, by namespace.
	floors map[string]string            // The rollout policies that namespaces name, by namespace.
}

// floor returns the labels of a namespace, which name its rollout policies. known is false until the namespaces of
// the hub have been listed.
func (h *hubNamespaces) floor(name string) (labels map[string]string, known bool) {
	ns, known := h.view.get(types.NamespacedName{Name: name})
	if ns == nil {
		return nil, known
	}
	return ns.GetLabels(), true
}

// hasFloor reads from the hub whether a namespace names a rollout policy for its objects.
func (h *hubNamespaces) hasFloor(ctx context.Context, name string) (bool, error) {
	ns := &corev1.Namespace{}
	if err := h.live.Get(ctx, types.NamespacedName{Name: name}, ns); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the rollout policy of namespace %s of the hub: %w", name, err)
	}
	_, is := ns.Labels[refractv1alpha1.ClusterRolloutPolicyLabel]
	return is, nil
}

// floored returns the namespaces that name a rollout policy for their objects and are not propagated themselves, sorted
// by name. They are shared and read-only.
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

// read reads the copied labels of a namespace from the hub.
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

// seen is called when the watch reports a new, changed or deleted namespace.
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
	if !initial && !maps.Equal(was, now) { // At the start, each member checks all of its namespaces.
		h.changed(name.Name)
	}
}

// differs reports whether a namespace of a member has other labels than it should, according to the cache.
func (h *hubNamespaces) differs(ns *member.Namespace) bool {
	source, _ := h.view.get(types.NamespacedName{Name: ns.Name})
	return source != nil && len(h.carried.changes(ns, h.carried.of(source.GetLabels()))) > 0
}

// namespaces creates the namespaces that copies need on one member, keeps the copied labels equal to those on the
// hub, and deletes empty namespaces if the configuration asks for it.
type namespaces struct {
	hub        string // UID of the hub.
	member     *member.Member
	state      *state
	source     *hubNamespaces
	emptyAfter time.Duration // Zero if empty namespaces stay.
	// begin begins work on the member. It reports false if this replica does not lead.
	begin func(ctx context.Context, member string) (_ context.Context, end func(), ok bool)
	now   func() time.Time // The clock that replicas share, because the mark on a namespace has the time of its deletion.

	queue    *workQueue[string] // Namespaces with wrong labels, and namespaces that may be unneeded.
	retries  workqueue.TypedRateLimiter[string]
	surveyed bool // Whether a survey was made after the needed namespaces were known. Only the worker uses it.
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

// tidyLater queues a check of a namespace that lost a copy.
func (n *namespaces) tidyLater(namespace string) {
	if namespace != "" && n.emptyAfter > 0 {
		n.queue.addAfter(namespace, tidyDelay)
	}
}

// made reports whether a namespace was created for copies of this hub and is not a copy itself: a Namespace that is a
// copy has the labels of its source.
func (n *namespaces) made(ns *member.Namespace) bool {
	return ns.MadeFor == n.hub && ns.Source == "" && !ns.Native && !ns.Deleting
}

// settled reports whether the unneeded namespaces are known: all objects are decided, and the member was searched for
// copies.
func (n *namespaces) settled() bool {
	return n.emptyAfter == 0 || n.state.complete.Load() && n.member.Copies.Swept()
}

// unneeded reports whether a namespace has no copy, and no copy is to be written there.
func (n *namespaces) unneeded(namespace string) bool {
	return n.member.Copies.InNamespace(namespace) == 0 && !n.state.needs(n.member.Name, namespace)
}

// create creates a namespace that copies need. It has the labels of the hub from the start, so that their
// restrictions apply at once.
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

// reconcile checks one namespace. With [allNamespaces], it finds the namespaces to check.
func (n *namespaces) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	ctx, end, ok := n.begin(ctx, n.member.Name)
	if !ok {
		return reconcile.Result{RequeueAfter: leadsAgain}, nil
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
	case changed: // Another client may change the labels back each time, so the next check waits longer.
		return reconcile.Result{RequeueAfter: n.retries.When(name)}, nil
	}
	return n.tidy(ctx, &ns)
}

// settle returns the delay before the next check of a namespace after a request, or the error of the request.
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

// survey enqueues the namespaces that were created for copies and need a check. These are namespaces with wrong labels,
// and marked namespaces that are due for deletion or no longer empty. The first complete survey also enqueues all empty
// namespaces. So it finds changes that were made on the hub or on the member while no controller ran.
func (n *namespaces) survey(ctx context.Context) (reconcile.Result, error) {
	switch {
	case !n.member.Ready():
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	case !n.source.view.asked():
		return reconcile.Result{RequeueAfter: leadsAgain}, nil
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
		return false, err // A namespace that is gone from the hub changes no labels.
	}
	changes := n.source.carried.changes(ns, want)
	if len(changes) == 0 {
		return false, nil
	}
	return true, n.patch(ctx, ns, "labels", changes)
}

// patch changes labels or annotations of a namespace, if it still has the UID and the resourceVersion of ns.
func (n *namespaces) patch(ctx context.Context, ns *member.Namespace, part string, changes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion(), part: changes,
	}})
	if err != nil {
		return err
	}
	return n.member.Namespaces.Patch(ctx, ns.Name, body)
}

// tidy deletes a namespace that was created for copies, if the configuration asks for it and the namespace is unneeded:
// it has no copy and no other content, no copy is to be written there, and no other client has changed it. The first
// check with this result marks the namespace with the earliest time for its deletion.
func (n *namespaces) tidy(ctx context.Context, ns *member.Namespace) (reconcile.Result, error) {
	switch {
	case !n.settled():
		return reconcile.Result{RequeueAfter: soonRetry}, nil
	case n.emptyAfter == 0 || ns.Shared || !n.unneeded(ns.Name):
		return n.unmark(ctx, ns) // The deletion of the last copy causes another check.
	}
	empty, err := n.member.Namespaces.Empty(ctx, ns.Name)
	switch {
	case err != nil:
		return n.settle(ns.Name, "listing the content of", err) // The namespace stays until the credentials may list all of its content.
	case !empty:
		// Objects that the copies created, such as Pods, may take a while to be deleted.
		if result, err := n.unmark(ctx, ns); err != nil || result.RequeueAfter > 0 {
			return result, err
		}
		return reconcile.Result{RequeueAfter: n.retries.When(ns.Name)}, nil
	case !n.unneeded(ns.Name):
		return n.unmark(ctx, ns) // A copy was placed there during the request.
	}
	n.retries.Forget(ns.Name)
	now := n.now()
	switch due := ns.RemoveAfter; {
	case due.IsZero() || due.Sub(now) > n.emptyAfter+time.Second:
		after := now.Add(n.emptyAfter + time.Second).UTC().Format(time.RFC3339) // The format drops fractions of a second.
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

// unmark removes the mark that the namespace may be deleted.
func (n *namespaces) unmark(ctx context.Context, ns *member.Namespace) (reconcile.Result, error) {
	if !ns.Marked {
		return reconcile.Result{}, nil
	}
	return n.settle(ns.Name, "unmarking", n.patch(ctx, ns, "annotations", map[string]any{refractv1alpha1.RemoveAfterAnnotation: nil}))
}
