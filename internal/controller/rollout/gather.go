package rollout

import (
	"context"
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

// namespaceState is what is remembered of a namespace with policies. One goroutine at a time
// works on it.
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

// written is a status that was written, until it is seen.
type written struct {
	version string
	status  *refractv1beta1.ServiceInjectionPolicyStatus
}

// unknownOwner is what was found of an owner of an unknown kind.
type unknownOwner struct {
	top      ref // Who controls it in the end; itself if nobody does.
	optedOut bool
	at       time.Time
}

// unknownOwnersValid is how long what was found of an owner of an unknown kind holds, and
// mostOwners how many owners above it are looked for.
const (
	unknownOwnersValid = 5 * time.Minute
	mostOwners         = 5
)

// gatherer reads what a decision about a namespace depends on: from the view, and of owners
// of unknown kinds from the API server.
type gatherer struct {
	client   client.Client
	view     *view
	log      logr.Logger
	now      func() time.Time
	patience time.Duration
	disabled bool
	excluded map[string]bool // Namespaces into whose pods nothing is injected.
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

// policy returns what is decided about.
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

// status returns the policy's status as it was last written.
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
	// selected are the groups with a pod that a policy selects, or that are being rolled.
	selected map[types.UID]bool
}

// group returns the groups of a namespace that policies have to do with.
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
			// Who made what is of no interest is not asked after: pipelines leave many.
			if of := g.groups[on.owner.uid]; of != nil {
				g.add(of, on)
			} else if !g.isUnknown(on.owner) {
				g.add(g.of(ctx, on.pod), on)
			}
		}
	}
	g.underWay(ctx, policies)
	maps.DeleteFunc(ns.probes, func(uid types.UID, _ probe) bool { return !g.selected[uid] })
	maps.DeleteFunc(ns.unknownOwners, func(_ types.UID, s unknownOwner) bool { return !r.now().Before(s.at.Add(unknownOwnersValid)) })
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

// isUnknown reports whether only the API server can say who controls the pods of an owner.
func (g *grouping) isUnknown(r ref) bool {
	if r.uid != "" && r.class() == classReplicas {
		if w := g.view.workload(g.ns.name, r); w != nil {
			r = w.owner
		}
	}
	return r.uid != "" && r.class() == classOther
}

// of returns the group of a pod.
func (g *grouping) of(ctx context.Context, p *pod) *group {
	r := p.owner
	if r.uid == "" {
		r = ref{apiVersion: "v1", kind: kindPod, name: p.name, uid: p.uid}
	}
	if known := g.groups[r.uid]; known != nil {
		return known
	}
	of := g.resolve(ctx, r)
	if known := g.groups[of.ref.uid]; known != nil {
		of = known
	}
	g.groups[of.ref.uid] = of
	g.groups[r.uid] = of // Of the pods that come after it.
	return of
}

// resolve finds the owner that recreates the pods which r controls: the Deployment of
// a ReplicaSet, the CronJob of a Job; of an unknown kind, who controls it in the end.
// What controls a Deployment or its like owns the template and no pods.
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
		if r.class() == classJob { // A ReplicaSet keeps a copy of what its Deployment said once.
			of.optedOut = of.optedOut || w.optedOut
		}
		return of
	case classOther:
		top, out := g.topOwner(ctx, r)
		return &group{ref: top, class: classOther, optedOut: out}
	default:
		return &group{ref: r, class: r.class(), workload: g.view.workload(g.ns.name, r)}
	}
}

// topOwner looks for who controls an owner of an unknown kind. What may not be read is
// taken for the end.
func (g *grouping) topOwner(ctx context.Context, r ref) (top ref, optOut bool) {
	if known, ok := g.ns.unknownOwners[r.uid]; ok && g.now().Before(known.at.Add(unknownOwnersValid)) {
		return known.top, known.optedOut
	}
	found := unknownOwner{top: r, at: g.now()}
	for range mostOwners {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(found.top.apiVersion, found.top.kind))
		if err := g.client.Get(ctx, client.ObjectKey{Namespace: g.ns.name, Name: found.top.name}, o); err != nil {
			g.log.V(1).Info("Cannot read an owner of pods", "kind", found.top.kind, "name", found.top.name, "error", err.Error())
			break
		}
		found.optedOut = found.optedOut || optedOut(o)
		above, controlled := controllerOf(o)
		if !controlled {
			break
		}
		found.top = above
	}
	g.ns.unknownOwners[r.uid] = found
	return found.top, found.optedOut
}

// underWay adds the groups that are being rolled and have no pods at this moment.
func (g *grouping) underWay(ctx context.Context, policies []*policy) {
	for _, p := range policies {
		if p.status.Rollout == nil {
			continue
		}
		for _, name := range p.status.Rollout.Current {
			kind, name, _ := strings.Cut(name, "/")
			g.addWorkload(kind, name)
		}
	}
	for uid, m := range g.ns.workloads {
		if m.ref.class() != classOther || m.evicted == "" || !g.now().Before(m.changed.Add(2*g.patience)) {
			continue
		}
		if g.groups[uid] == nil {
			if g.isDeleted(ctx, m.ref) {
				continue
			}
			g.groups[uid] = &group{ref: m.ref, class: classOther}
		}
		g.selected[uid] = true
	}
}

// isDeleted reports whether an owner of an unknown kind is deleted. What may not be read
// is not.
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
