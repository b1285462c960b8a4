package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// fact is a condition with the time of its last change. Watches may lag, so a process may still see the value before
// the change.
type fact struct {
	known, is bool
	since     time.Time
}

func (f *fact) set(is bool) {
	if !f.known || f.is != is {
		*f = fact{true, is, time.Now()}
	}
}

// could reports whether the condition had the value at some moment within the duration.
func (f *fact) could(be bool, within time.Duration) bool {
	return !f.known || f.is == be || time.Since(f.since) <= within
}

// examinedKey identifies a version of a pod and a set of policies.
type examinedKey struct {
	uid     types.UID
	version string
	set     *inject.Set
}

// examinedPod has the states of a pod by policy.
type examinedPod map[string]inject.State

// examine returns the states of a pod for all policies that select it.
func (in *injection) examine(pod *unstructured.Unstructured, set *inject.Set) examinedPod {
	key := examinedKey{pod.GetUID(), pod.GetResourceVersion(), set}
	if known, found := in.examined[key]; found {
		return known
	}
	if len(in.examined) > 2000 {
		clear(in.examined)
	}
	states := examinedPod{}
	if x, err := set.Examine(encoded(pod.Object)); err == nil {
		for _, s := range x.Statuses {
			states[s.Policy.Name()] = s.State
		}
	}
	in.examined[key] = states
	return states
}

// prospect is what the injection would do with a new pod of a workload.
type prospect struct {
	hash    string
	holds   map[string]bool
	refused bool
}

// foresee tries the injection into a new pod of a workload.
func foresee(workload *unstructured.Unstructured, set *inject.Set) prospect {
	p := prospect{holds: map[string]bool{}}
	template := part(workload, "spec", "template")
	if template == nil {
		return p
	}
	result, err := set.Inject(encoded(podFrom(template, "").Object))
	if err != nil || result.Rejected != nil {
		p.refused = true
		return p
	}
	p.hash = result.Hash
	for _, a := range result.Applied {
		p.holds[a.Policy.Name()] = true
	}
	return p
}

// flock is a workload with its present pods.
type flock struct {
	*unstructured.Unstructured

	ref  string // KIND/NAME
	pods []*unstructured.Unstructured
	prospect
}

// flocks returns the workloads with their pods. Pods without a controller are not included.
func (in *injection) flocks(set *inject.Set) (all []flock) {
	above := map[types.UID]types.UID{}
	for _, rs := range in.all(replicaSetKind) {
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
			above[rs.GetUID()] = owner.UID
		}
	}
	pods := map[types.UID][]*unstructured.Unstructured{}
	for _, p := range in.all(podKind) {
		if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
			uid := owner.UID
			if top, found := above[uid]; found {
				uid = top
			}
			pods[uid] = append(pods[uid], p)
		}
	}
	for _, o := range in.workloads() {
		f := flock{Unstructured: o, ref: o.GetKind() + "/" + o.GetName(), pods: pods[o.GetUID()]}
		if o.GetKind() != cloneSetKind.name {
			f.prospect = in.foreseen(o, set)
		}
		all = append(all, f)
	}
	return all
}

// foreseen is like foresee, with a cache by generation.
func (in *injection) foreseen(o *unstructured.Unstructured, set *inject.Set) prospect {
	key := prospectKey{o.GetUID(), o.GetGeneration(), set}
	if known, found := in.prospects[key]; found {
		return known
	}
	if len(in.prospects) > 1000 {
		clear(in.prospects)
	}
	p := foresee(o, set)
	in.prospects[key] = p
	return p
}

type prospectKey struct {
	uid        types.UID
	generation int64
	set        *inject.Set
}

// isComplete reports whether, according to the status of a workload, all pods have its current template and are
// available. kubectl rollout status waits for the same condition.
func (f *flock) isComplete() bool {
	want, seen := replicasOf(f.Unstructured), number(f.Unstructured, "status", "observedGeneration") >= f.GetGeneration()
	switch f.GetKind() {
	case kindDeployment.name:
		updated := number(f.Unstructured, "status", "updatedReplicas")
		return seen && updated >= want && number(f.Unstructured, "status", "replicas") <= updated &&
			number(f.Unstructured, "status", "availableReplicas") >= updated
	case statefulSetKind.name:
		return seen && textOf(f.Unstructured, "status", "currentRevision") == textOf(f.Unstructured, "status", "updateRevision") &&
			number(f.Unstructured, "status", "replicas") >= want &&
			number(f.Unstructured, "status", "availableReplicas") >= number(f.Unstructured, "status", "replicas")
	case daemonSetKind.name:
		updated := number(f.Unstructured, "status", "updatedNumberScheduled")
		return seen && updated >= want && number(f.Unstructured, "status", "numberAvailable") >= updated
	case replicaSetKind.name:
		current := number(f.Unstructured, "status", "replicas")
		return seen && current >= want && number(f.Unstructured, "status", "availableReplicas") >= current
	default:
		return true
	}
}

// isServing reports whether the workload has all of its pods, and all are ready.
func (f *flock) isServing() bool {
	n := count(f.pods, alive)
	return n >= replicasOf(f.Unstructured) && count(f.pods, isServing) == n
}

// isOwners returns the reason why the owner of a workload must recreate its pods, or "".
func (f *flock) isOwners() string {
	switch {
	case f.GetAnnotations()[refractv1beta1.RolloutAnnotation] == "false":
		return `its annotation refract.dev/rollout is "false"`
	case isTrue(f.Unstructured, "spec", "paused"):
		return "it is paused"
	case isOnDelete(f.Unstructured):
		return "its update strategy is OnDelete"
	case number(f.Unstructured, "spec", "updateStrategy", "rollingUpdate", "partition") > 0:
		return "its update strategy has a partition"
	default:
		return ""
	}
}

// stale returns the number of pods that are stale for a policy.
func (f *flock) stale(in *injection, set *inject.Set, policy string) int64 {
	return count(f.pods, func(p *unstructured.Unstructured) bool {
		return alive(p) && in.examine(p, set)[policy] == inject.StateStale
	})
}

// fixable reports whether new pods get the items of the policy.
func (f *flock) fixable(policy string) bool {
	return f.GetKind() == cloneSetKind.name || f.holds[policy]
}

// isAiling reports whether unready pods exist, and all of them are stale and cannot start.
func (f *flock) isAiling(in *injection, set *inject.Set) bool {
	sick := false
	for _, p := range f.pods {
		if !alive(p) || isReady(p) {
			continue
		}
		isStale := false
		for _, s := range in.examine(p, set) {
			isStale = isStale || s == inject.StateStale
		}
		if !isStale || trouble(p) == "" {
			return false
		}
		sick = true
	}
	return sick
}

// lastReady returns the time at which the last of the ready pods became ready.
func (f *flock) lastReady() (last time.Time) {
	for _, p := range f.pods {
		if !isServing(p) {
			continue
		}
		text, _ := stateOf(p, "Ready")["lastTransitionTime"].(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil && at.After(last) {
			last = at
		}
	}
	return last
}

// isFailing reports whether a pod of the workload cannot start.
func (f *flock) isFailing() bool {
	return slices.ContainsFunc(f.pods, func(p *unstructured.Unstructured) bool { return alive(p) && trouble(p) != "" })
}

// missing returns the first missing object or key that pods need for a policy, or "".
func (in *injection) missing(p *inject.Policy) string {
	for _, ref := range p.References() {
		if ref.Optional {
			continue
		}
		k := map[string]kind{"Secret": kindSecret, "ConfigMap": kindConfigMap, "PersistentVolumeClaim": kindClaim}[ref.Kind]
		all := in.all(k)
		i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetName() == ref.Name })
		if i < 0 {
			return fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name)
		}
		for _, key := range ref.Keys {
			if _, found := part(all[i], "data")[key]; !found {
				return fmt.Sprintf("%s %s has no key %s", ref.Kind, ref.Name, key)
			}
		}
	}
	return ""
}

// closed returns the reason why the policy allows no restarts now, or "".
func (in *injection) closed(o *unstructured.Unstructured, p *inject.Policy) string {
	annotations := o.GetAnnotations()
	hash := p.Hash()
	halted := textOf(o, "status", "rollout", "phase") == string(refractv1beta1.PhaseHalted) && textOf(o, "status", "rollout", "hash") == hash
	switch {
	case halted && annotations[refractv1beta1.ResumeAnnotation] != hash:
		return "it is halted"
	case annotations[refractv1beta1.PausedAnnotation] == "true":
		return "it is paused"
	case p.Rollout().Strategy == refractv1beta1.RolloutManual && annotations[refractv1beta1.ApproveRolloutAnnotation] != hash:
		return "its strategy is Manual, and its present content is not approved"
	default:
		return ""
	}
}

// asks reports whether a policy asks for restarts.
func asks(p *inject.Policy) bool {
	return p.Mode() != refractv1beta1.ModeAudit && p.Rollout().Strategy != refractv1beta1.RolloutNone
}

// currentOf returns the workloads that are being restarted according to the status of a policy.
func currentOf(o *unstructured.Unstructured) []string {
	names, _, _ := unstructured.NestedStringSlice(o.Object, "status", "rollout", "current")
	return names
}

// nameOf returns the name in KIND/NAME.
func nameOf(ref string) string {
	_, name, _ := strings.Cut(ref, "/")
	return name
}
