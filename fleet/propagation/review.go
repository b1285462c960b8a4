package propagation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// The delay before the status of a policy is written after a change of the objects that name it: reviewDelay, and
// perUser for each of these objects, because the status is about all of them.
const (
	reviewDelay = 2 * time.Second
	perUser     = 5 * time.Millisecond
)

// reviewer writes the status of each policy: its use and its effect.
type reviewer struct {
	client   client.Client // Reads from caches.
	lead     *lead
	members  *member.Set
	policies *policies
	state    *state
	records  *records
	answers  map[tree.Policy]answered // Approved questions that later ones wait for.
	until    time.Time                // After this time, statuses are written even if not all objects are decided; set by the first call.
	queue    *workQueue[tree.Policy]
}

func newReviewer(v *reviewer, log logr.Logger) (*reviewer, error) {
	v.answers = map[tree.Policy]answered{}
	var err error
	v.queue, err = newWorkQueue("review", 1, log, v.reviewOne)
	return v, err
}

// later queues a write of the status of a policy.
func (v *reviewer) later(ref tree.Policy) {
	v.queue.addAfter(ref, v.patience(v.state.count(ref)))
}

// patience returns the delay of the status of a policy with this number of users.
func (v *reviewer) patience(users int) time.Duration {
	return reviewDelay + time.Duration(users)*perUser
}

// reviewOne writes the status of a policy: whether it is valid, the objects and clusters that use it, and whether it
// is in effect there.
func (v *reviewer) reviewOne(ctx context.Context, ref tree.Policy) (reconcile.Result, error) {
	switch {
	case !v.lead.Leads(): // The Lease was not renewed in time.
		return reconcile.Result{RequeueAfter: leadsAgain}, nil
	case !v.state.complete.Load() && v.awaits(time.Now()):
		return reconcile.Result{RequeueAfter: reviewDelay}, nil
	}
	known := v.policies.object(ref)
	if known == nil {
		return reconcile.Result{}, nil // The policy is deleted.
	}
	switch known.(type) {
	case *refractv1alpha1.RolloutPolicy, *refractv1alpha1.ClusterRolloutPolicy:
		return reconcile.Result{}, v.reviewRollouts(ctx, ref, known)
	}
	generation := known.GetGeneration()
	obj, status := policyObject(ref)
	obj.SetNamespace(ref.Namespace)
	obj.SetName(ref.Name)
	obj.SetResourceVersion(known.GetResourceVersion())
	statusIn(known).DeepCopyInto(status)
	before, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		return reconcile.Result{}, nil
	}
	was := statusIn(known)
	u := v.state.usage(ref, generation)
	status.RefCount = int64(len(u.users))
	status.TypedRefCount = count(u.users)
	status.ClusterCount, status.UnmatchedRules = int64(len(u.clusters)), nil
	if policy := v.policies.override(ref); policy != nil {
		var rules []int64
		status.ClusterCount, rules = v.matched(policy, u.clusters)
		if len(u.clusters) > 0 {
			status.UnmatchedRules = rules
		}
	}
	accepted := metav1.Condition{
		Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Valid", Message: "every rule is valid",
		ObservedGeneration: generation,
	}
	if err := v.policies.problem(ref); err != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, reasonInvalidPolicy, output.Cut(err.Error(), 4000)
	}
	meta.SetStatusCondition(&status.Conditions, accepted)
	meta.SetStatusCondition(&status.Conditions, inEffect(&u, accepted.Status, generation))
	held, after := v.question(ref, known, &u)
	status.PlacementHeld = held
	if equality.Semantic.DeepEqual(was, status) {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	patch, asks := client.MergeFrom(before), !equality.Semantic.DeepEqual(was.PlacementHeld, held)
	if asks { // The question from a former leader must not be overwritten.
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	switch err := v.client.Status().Patch(ctx, obj, patch); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // The policy is deleted.
	case err != nil:
		return again(err)
	case asks:
		v.policies.wrote(obj)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// awaits reports whether the statuses wait for the first decisions, which tell the use of each policy. An object that
// can never be decided does not delay the statuses of other tenants' policies for longer than primingPatience.
func (v *reviewer) awaits(now time.Time) bool {
	if v.until.IsZero() {
		v.until = now.Add(primingPatience)
	}
	return now.Before(v.until)
}

// matched returns the number of clusters that match a rule of the policy, and the rules that match no cluster.
func (v *reviewer) matched(policy *override.Policy, on map[string]bool) (clusters int64, unmatched []int64) {
	matches := make([]bool, policy.Rules())
	all := v.members.Clusters()
	for i := range all {
		if !on[all[i].Name] {
			continue
		}
		some := false
		for rule := range matches {
			if policy.Target(rule).Match(&all[i].Cluster) {
				matches[rule], some = true, true
			}
		}
		if some {
			clusters++
		}
	}
	for rule, is := range matches {
		if !is {
			unmatched = append(unmatched, int64(rule))
		}
	}
	return clusters, unmatched
}

// inEffect returns the condition InEffect: whether the users of a policy have the state that it asks for.
func inEffect(u *usage, accepted metav1.ConditionStatus, generation int64) metav1.Condition {
	c := metav1.Condition{Type: "InEffect", Status: metav1.ConditionFalse, ObservedGeneration: generation}
	switch {
	case len(u.users) == 0:
		c.Reason, c.Message = "Unused", "no object names the policy"
	case accepted != metav1.ConditionTrue:
		c.Reason, c.Message = reasonInvalidPolicy, fmt.Sprintf("%d objects keep the result of the last valid version of the policy", len(u.users))
	case u.held > 0:
		c.Reason = reasonAwaitingApproval
		c.Message = fmt.Sprintf("%d of %d objects wait for approval; the first is %s %s: it %s",
			u.held, len(u.users), u.waiting.GroupResource, u.waiting.NamespacedName, u.waits.message())
	case u.behind > 0:
		c.Reason = reasonProgressing
		c.Message = fmt.Sprintf("the policy is not yet in effect for %d of %d objects; the first is %s %s",
			u.behind, len(u.users), u.first.GroupResource, u.first.NamespacedName)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, "InEffect"
		c.Message = fmt.Sprintf("the policy is in effect for %d objects on %d clusters", len(u.users), len(u.clusters))
	}
	return c
}

// reviewRollouts writes the status of a rollout policy: whether it is valid, and the phases of the rollouts of the
// objects that obey it.
func (v *reviewer) reviewRollouts(ctx context.Context, ref tree.Policy, known client.Object) error {
	obj, ok := known.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	before, ok := known.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	status := rolloutStatusIn(obj)
	status.ObservedGeneration = known.GetGeneration()
	status.Objects, status.Phases = 0, refractv1alpha1.RolloutPhases{}
	for _, key := range v.state.usersOf(ref) {
		status.Objects++
		switch v.records.phase(key) {
		case refractv1alpha1.RolloutProgressing:
			status.Phases.Progressing++
		case refractv1alpha1.RolloutHalted, refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:
			status.Phases.Stopped++
		case refractv1alpha1.RolloutComplete:
			status.Phases.Complete++
		default:
			status.Phases.Waiting++
		}
	}
	accepted := metav1.Condition{
		Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Valid", Message: "every wave is valid", ObservedGeneration: known.GetGeneration(),
	}
	if err := v.policies.problem(ref); err != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, reasonInvalidPolicy, output.Cut(err.Error(), 4000)
	}
	meta.SetStatusCondition(&status.Conditions, accepted)
	if equality.Semantic.DeepEqual(rolloutStatusIn(before), status) {
		return nil
	}
	return client.IgnoreNotFound(v.client.Status().Patch(ctx, obj, client.MergeFrom(before)))
}

// rolloutStatusIn returns the status of a rollout policy, for reading and writing.
func rolloutStatusIn(obj client.Object) *refractv1alpha1.RolloutPolicyStatus {
	switch o := obj.(type) {
	case *refractv1alpha1.RolloutPolicy:
		return &o.Status
	case *refractv1alpha1.ClusterRolloutPolicy:
		return &o.Status
	default:
		return &refractv1alpha1.RolloutPolicyStatus{}
	}
}

// policyObject returns an empty policy of the kind, and its status. A write of a status needs no more.
func policyObject(ref tree.Policy) (client.Object, *corev1alpha1.PolicyStatus) {
	var obj client.Object
	switch ref.Kind {
	case corev1alpha1.KindOverridePolicy:
		obj = &corev1alpha1.OverridePolicy{}
	case corev1alpha1.KindClusterOverridePolicy:
		obj = &corev1alpha1.ClusterOverridePolicy{}
	case corev1alpha1.KindPropagationPolicy:
		obj = &corev1alpha1.PropagationPolicy{}
	default:
		obj = &corev1alpha1.ClusterPropagationPolicy{}
	}
	return obj, statusIn(obj)
}

// statusIn returns the status of a policy, for reading and writing.
func statusIn(obj client.Object) *corev1alpha1.PolicyStatus {
	switch o := obj.(type) {
	case *corev1alpha1.OverridePolicy:
		return &o.Status
	case *corev1alpha1.ClusterOverridePolicy:
		return &o.Status
	case *corev1alpha1.PropagationPolicy:
		return &o.Status
	case *corev1alpha1.ClusterPropagationPolicy:
		return &o.Status
	default:
		return &corev1alpha1.PolicyStatus{}
	}
}

// count counts keys by type, ordered by type.
func count(keys []Key) []corev1alpha1.TypedRefCount {
	n := map[schema.GroupResource]int64{}
	for _, key := range keys {
		n[key.GroupResource]++
	}
	var counts []corev1alpha1.TypedRefCount
	for r, of := range n {
		counts = append(counts, corev1alpha1.TypedRefCount{Group: r.Group, Resource: r.Resource, Count: of})
	}
	slices.SortFunc(counts, func(a, b corev1alpha1.TypedRefCount) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return counts
}

// policyNames returns the policies that an object names, whether they are valid or not.
func policyNames(obj *unstructured.Unstructured) []tree.Policy {
	if obj == nil {
		return nil
	}
	refs, _, _ := override.Named(obj.GetLabels(), obj.GetNamespace()) // An invalid label names no policy.
	if ref, ok, _, err := placement.Named(obj.GetLabels(), obj.GetNamespace()); ok && err == nil {
		refs = append(refs, ref)
	}
	return refs
}
