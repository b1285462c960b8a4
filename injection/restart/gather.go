package restart

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// namespaceState is the state of a namespace with policies. At most one goroutine at a time uses it.
type namespaceState struct {
	name          string
	policies      *policySet
	examiner      examiner
	workloads     map[types.UID]workloadState
	probes        map[types.UID]probe
	references    map[object]resolution
	written       map[types.UID]written
	unknownOwners map[types.UID]unknownOwner
}

func newNamespaceState(name string) *namespaceState {
	return &namespaceState{
		name: name, policies: &policySet{}, workloads: map[types.UID]workloadState{}, probes: map[types.UID]probe{},
		references: map[object]resolution{}, written: map[types.UID]written{}, unknownOwners: map[types.UID]unknownOwner{},
	}
}

// written is a status that the controller has written and not yet seen in the view.
type written struct {
	version string
	status  *refractv1beta1.ServiceInjectionPolicyStatus
}

// unknownOwner is the result of reading a pod owner of an unknown kind.
type unknownOwner struct {
	top      ref // The topmost controller, as far as known; the owner itself if it has no controller.
	optedOut bool
	// unread is the reason why an owner could not be read; empty if it was read. tries is the number of consecutive
	// failures.
	unread string
	tries  int
	at     time.Time // When it was read.
	until  time.Time // When the owner is read again.
}

// unknownOwnersValid is how long an unknownOwner is valid. Before an eviction the owner is read again earlier.
// mostOwners is the maximum number of owners on the way to the topmost controller, including the first.
const (
	unknownOwnersValid = 5 * time.Minute
	mostOwners         = 5
)

// gatherer gathers the input of a decision about a namespace. It reads owners of unknown kinds from the API server, and
// everything else from the view.
type gatherer struct {
	client   client.Client
	view     *view
	log      logr.Logger
	now      func() time.Time
	patience time.Duration
	disabled bool
	excluded map[string]bool // Namespaces whose pods are not injected.
}

// expire invalidates the results for the unknown owners of some pods, so that they are read again. The argument owners
// are the controllers of these pods, which may be ReplicaSets.
func (r *gatherer) expire(ns *namespaceState, owners []ref) {
	for _, of := range owners {
		uid := unknownAbove(r.view, ns.name, of).uid
		if o, known := ns.unknownOwners[uid]; known {
			o.until = time.Time{} // The old result is still used if the owner cannot be read now.
			ns.unknownOwners[uid] = o
		}
	}
}

func (r *gatherer) gather(ctx context.Context, ns *namespaceState) *snapshot {
	ns.policies = ns.policies.compile(r.log, r.view.policies.all(ns.name))
	ns.examiner.begin(ns.policies.set, r.log)
	s := &snapshot{
		now: r.now(), references: ns.references, probes: ns.probes, previous: ns.workloads,
		patience: r.patience, disabled: r.disabled,
	}
	for _, of := range ns.policies.compiled {
		s.policies = append(s.policies, r.policy(ns, of))
	}
	slices.SortFunc(s.policies, func(a, b *policy) int { return strings.Compare(a.name, b.name) })
	s.groups = r.group(ctx, ns, s.policies)
	return s
}

// policy returns a policy in the form that decide needs.
func (r *gatherer) policy(ns *namespaceState, of *compiled) *policy {
	p := of.from.policy
	out := &policy{
		name: of.from.name, uid: of.from.uid, generation: p.Generation, status: ns.status(of.from),
		paused:   p.Annotations[refractv1beta1.PausedAnnotation] == "true",
		approved: p.Annotations[refractv1beta1.ApproveRolloutAnnotation],
		resumed:  p.Annotations[refractv1beta1.ResumeAnnotation],
		problem:  of.problem, problemReason: of.reason,
	}
	if r.excluded[of.from.namespace] {
		out.problem, out.problemReason = "nothing is injected into pods of namespace "+of.from.namespace, reasonExcluded
	}
	if of.policy == nil || out.problem != "" {
		return out
	}
	out.hash, out.rollout = of.policy.Hash(), of.policy.Rollout()
	out.audit = of.policy.Mode() == refractv1beta1.ModeAudit
	for _, ref := range of.policy.References() {
		if !ref.Optional {
			out.references = append(out.references, ref)
		}
	}
	return out
}

// status returns the status that the controller has written last. The view may still have an older one.
func (ns *namespaceState) status(a *authored) *refractv1beta1.ServiceInjectionPolicyStatus {
	w, pending := ns.written[a.uid]
	if !pending {
		return &a.policy.Status
	}
	if order, err := resourceversion.CompareResourceVersion(a.version, w.version); err == nil && order < 0 {
		return w.status
	}
	delete(ns.written, a.uid)
	return &a.policy.Status
}

// grouping finds the owner of each pod.
type grouping struct {
	client   client.Client
	view     *view
	log      logr.Logger
	now      func() time.Time
	patience time.Duration

	ns     *namespaceState
	groups map[types.UID]*group
	// selected has the groups with a pod that a policy selects, and the groups that are being recreated.
	selected map[types.UID]bool
}

// group returns the groups of a namespace that are relevant for policies.
func (r *gatherer) group(ctx context.Context, ns *namespaceState, policies []*policy) []*group {
	g := &grouping{
		client: r.client, view: r.view, log: r.log, now: r.now, patience: r.patience,
		ns: ns, groups: map[types.UID]*group{}, selected: map[types.UID]bool{},
	}
	pods := map[types.UID]bool{}
	if !r.excluded[ns.name] {
		var rest []placed
		for _, p := range r.view.pods.all(ns.name) {
			pods[p.uid] = true
			on := placed{p, ns.examiner.examine(p)}
			if on.status == nil || !p.counts() {
				rest = append(rest, on)
				continue
			}
			g.add(g.of(ctx, p), on)
		}
		for _, on := range rest {
			// If an owner of an unknown kind has only irrelevant pods, it is not read, because pipelines leave very
			// many such pods.
			if of := g.groups[on.owner.uid]; of != nil {
				g.add(of, on)
			} else if unknownAbove(g.view, ns.name, on.owner).uid == "" {
				g.add(g.of(ctx, on.pod), on)
			}
		}
	}
	g.underWay(ctx, policies)
	maps.DeleteFunc(ns.probes, func(uid types.UID, _ probe) bool { return !g.selected[uid] })
	maps.DeleteFunc(ns.unknownOwners, func(_ types.UID, s unknownOwner) bool { return !r.now().Before(s.until) })
	out := make([]*group, 0, len(g.selected))
	workloads := map[types.UID]bool{}
	for uid := range g.selected {
		of := g.groups[uid]
		workloads[uid] = true
		if of.workload != nil && of.workload.lean != nil {
			of.prospect = ns.examiner.prospect(of.workload)
		}
		slices.SortFunc(of.pods, func(a, b placed) int { return strings.Compare(a.name, b.name) })
		out = append(out, of)
	}
	slices.SortFunc(out, func(a, b *group) int { return compareRefs(a.ref, b.ref) })
	ns.examiner.forget(pods, workloads)
	return out
}

// add adds a pod to its group.
func (g *grouping) add(of *group, p placed) {
	of.pods = append(of.pods, p)
	if p.status != nil {
		g.selected[of.ref.uid] = true
	}
}

// unknownAbove returns the owner of an unknown kind that controls r or is r itself; a zero ref if there is none. If
// there is one, only the API server knows the topmost controller of the pods.
func unknownAbove(v *view, namespace string, r ref) ref {
	if r.uid != "" && r.class() == classReplicas {
		if w := v.workload(namespace, r); w != nil {
			r = w.owner
		}
	}
	if r.uid == "" || r.class() != classOther {
		return ref{}
	}
	return r
}

// of returns the group of a pod.
func (g *grouping) of(ctx context.Context, p *pod) *group {
	r := p.owner
	if r.uid == "" {
		r = ref{apiVersion: "v1", kind: kindPod, name: p.name, uid: p.uid}
	}
	above := unknownAbove(g.view, g.ns.name, r)
	if known := g.groups[r.uid]; known != nil {
		if _, read := known.readAt[r.uid]; read || above.uid == "" {
			return known
		}
	}
	of := g.resolve(ctx, r)
	if known := g.groups[of.ref.uid]; known != nil {
		known.restrain(of)
		of = known
	}
	if above.uid != "" {
		if of.readAt == nil {
			of.readAt = map[types.UID]time.Time{}
		}
		of.readAt[r.uid] = g.ns.unknownOwners[above.uid].at
	}
	g.groups[of.ref.uid] = of
	g.groups[r.uid] = of // Other pods of the same owner find the group here.
	return of
}

// restrain applies the opt-outs and read errors of a part to the whole group. A group consists of several parts if
// owners of unknown kinds have the same topmost controller.
func (of *group) restrain(part *group) {
	of.optedOut = of.optedOut || part.optedOut
	of.unread = cmp.Or(of.unread, part.unread)
	if of.readAgain.IsZero() || part.readAgain.Before(of.readAgain) {
		of.readAgain = part.readAgain
	}
}

// resolve finds the owner that recreates the pods of controller r: the Deployment of a ReplicaSet, the CronJob of a
// Job, or the topmost controller above an owner of an unknown kind. A Deployment may have a controller itself. resolve
// ignores it, because it has no pods.
func (g *grouping) resolve(ctx context.Context, r ref) *group {
	switch r.class() {
	case classReplicas, classJob:
		w := g.view.workload(g.ns.name, r)
		if w == nil || w.owner.uid == "" {
			return &group{ref: r, class: r.class(), workload: w}
		}
		if above := w.owner.class(); r.class() == classJob && above != classCronJob {
			return &group{ref: r, class: classJob, workload: w, optedOut: w.optedOut}
		}
		of := g.resolve(ctx, w.owner)
		if r.class() == classJob { // For a ReplicaSet, the annotations of its Deployment count; its own copy may be outdated.
			of.optedOut = of.optedOut || w.optedOut
		}
		return of
	case classOther:
		found := g.topOwner(ctx, r)
		return &group{ref: found.top, class: classOther, optedOut: found.optedOut, unread: found.unread, readAgain: found.until}
	default:
		return &group{ref: r, class: r.class(), workload: g.view.workload(g.ns.name, r)}
	}
}

// topOwner finds the topmost controller above an owner of an unknown kind, and whether an owner on the way has opted
// out. If an owner cannot be read, it may have opted out, and the earlier topmost controller still counts.
func (g *grouping) topOwner(ctx context.Context, r ref) unknownOwner {
	before, known := g.ns.unknownOwners[r.uid]
	if known && g.now().Before(before.until) {
		return before
	}
	found := unknownOwner{top: r, until: g.now().Add(unknownOwnersValid)}
	for range mostOwners {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(found.top.apiVersion, found.top.kind))
		err := g.client.Get(ctx, client.ObjectKey{Namespace: g.ns.name, Name: found.top.name}, o)
		if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
			break // The owner is deleted. The excluded status cause means only that the server does not know this version of the type.
		}
		if err != nil {
			g.log.V(1).Info("Cannot read an owner of pods", "kind", found.top.kind, "name", found.top.name, "error", err.Error())
			found.unread = fmt.Sprintf("the annotations of %s cannot be read: %s", found.top, err)
			found.tries, found.until = before.tries+1, g.now().Add(backoff(firstLook, unknownOwnersValid, before.tries))
			if known {
				found.top, found.optedOut = before.top, found.optedOut || before.optedOut
			}
			break
		}
		found.optedOut = found.optedOut || optedOut(o)
		above, controlled := controllerOf(o)
		if !controlled {
			break
		}
		found.top = above
	}
	found.at = g.now()
	g.ns.unknownOwners[r.uid] = found
	return found
}

// underWay adds the groups that are being recreated and have no pods now.
func (g *grouping) underWay(ctx context.Context, policies []*policy) {
	for _, p := range policies {
		if p.status.Rollout == nil {
			continue
		}
		for _, name := range p.status.Rollout.Current {
			kind, name, _ := strings.Cut(name, "/")
			g.addWorkload(kind, name)
		}
		for _, e := range evictedIn(p.status.Rollout) {
			g.addEvicted(ctx, ref{apiVersion: e.APIVersion, kind: e.Kind, name: e.Name, uid: e.UID})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(g.ns.workloads)) {
		m := g.ns.workloads[uid]
		if m.ref.class() != classOther || m.evicted == "" || !g.now().Before(m.changed.Add(2*g.patience)) {
			continue
		}
		g.addEvicted(ctx, m.ref)
	}
}

// evictedIn returns the workloads in the status whose pods are evicted one by one. Each may cost a request, and other
// clients may have written the status, so the number is bounded here, too.
func evictedIn(status *refractv1beta1.RolloutStatus) []refractv1beta1.EvictedWorkload {
	return status.Evicted[:min(len(status.Evicted), refractv1beta1.MaxEvicted)]
}

// addEvicted adds an owner of an unknown kind whose pod was evicted, unless it is deleted. Only the evicted pod may have
// named it.
func (g *grouping) addEvicted(ctx context.Context, r ref) {
	of := g.groups[r.uid]
	if of == nil {
		if r.class() != classOther || g.isDeleted(ctx, r) {
			return
		}
		of = &group{ref: r, class: classOther}
		g.groups[r.uid] = of
	}
	g.selected[of.ref.uid] = true // It may have a topmost owner by now.
}

// isDeleted reports whether an owner of an unknown kind is deleted. If it cannot be read, it counts as existing.
func (g *grouping) isDeleted(ctx context.Context, r ref) bool {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(r.apiVersion, r.kind))
	err := g.client.Get(ctx, client.ObjectKey{Namespace: g.ns.name, Name: r.name}, o)
	return apierrors.IsNotFound(err) || (err == nil && (o.UID != r.uid || o.DeletionTimestamp != nil))
}

func (g *grouping) addWorkload(kind, name string) {
	for _, t := range workloadTypes {
		w := g.view.workloads[t.kind].get(g.ns.name, name)
		if t.kind.Kind != kind || w == nil {
			continue
		}
		if w.owner.uid != "" && w.ref.class() == classReplicas {
			continue
		}
		g.selected[w.uid] = true
		if g.groups[w.uid] == nil {
			g.groups[w.uid] = &group{ref: w.ref, class: w.ref.class(), workload: w}
		}
	}
}
