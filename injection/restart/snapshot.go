package restart

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// snapshot is the whole input of a decision about a namespace.
type snapshot struct {
	now      time.Time
	policies []*policy // Sorted by name.
	groups   []*group  // Sorted by kind and name.
	// references has the results of reading the objects that policies name, and probes the results of dry-run creations
	// of pods.
	references map[object]resolution
	probes     map[types.UID]probe
	// previous is the remembered state of workloads. It makes the controller more patient, never less: after a restart
	// it is empty.
	previous map[types.UID]workloadState
	// patience is how long a workload may make no progress.
	patience time.Duration
	// disabled is true if no workload may be touched.
	disabled bool
}

// policy is a policy in the form for a decision.
type policy struct {
	name       string
	uid        types.UID
	generation int64
	hash       string
	audit      bool
	rollout    refractv1beta1.Rollout
	references []inject.Reference // Only required objects.
	// problem is the reason why the policy is not in effect, and problemReason the same in one word.
	problem, problemReason string
	// unreadable is true if the stored object is not a policy at all. Its status cannot be written either.
	unreadable bool
	// paused, approved and resumed come from annotations of users.
	paused            bool
	approved, resumed string
	// status is the last written status.
	status *refractv1beta1.ServiceInjectionPolicyStatus
}

// group is an owner with its pods.
type group struct {
	ref   ref // The pod itself for a bare pod.
	class class
	// workload is nil for bare pods, unknown kinds and objects that the view does not have (yet).
	workload *workload
	optedOut bool
	// unread is the reason why the opt-out of an owner of an unknown kind is not known; empty if it is known. readAgain
	// is when the owner is read again.
	unread    string
	readAgain time.Time
	// readAt is when owners of unknown kinds were read, by the UID of the controller of the pods.
	readAt   map[types.UID]time.Time
	prospect prospect
	pods     []placed
}

// placed is a pod with its status, which is nil if no policy selects the pod.
type placed struct {
	*pod

	status *podStatus
}

// object names an object that a policy refers to.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

// resolution is the result of reading an object that policies refer to.
type resolution struct {
	found bool
	keys  map[string]bool
	err   string // The error of the read.
	at    time.Time
	// same is the number of consecutive identical results.
	same int
}

// probe is the result of a dry-run creation of a workload's pod.
type probe struct {
	hash            string // The expected hash.
	ok              bool
	reason, message string
	at              time.Time
	tries           int
	retry           time.Time
}

// workloadState is the remembered state of a workload.
type workloadState struct {
	ref ref
	// hash is the written annotation of its template, and generation the workload's generation after that. hash is
	// empty if the annotation was not written, or if another writer changed it.
	hash       string
	generation int64
	// contents are the hashes of the policies for which the workload was touched, by name. It is dropped when the
	// workload is complete.
	contents map[string]string
	// begun is when the recreation of its pods became known. progress is the last observed progress, and changed the
	// time of that observation.
	begun    time.Time
	progress string
	changed  time.Time
	// Until lenient, broken pods do not halt the rollout, because a user has resumed it.
	lenient time.Time
	// reverts is the number of times that the annotation was removed soon after it was written.
	reverts int
	// notBefore is when the workload may be touched again; reason and message explain the delay.
	notBefore       time.Time
	reason, message string
	// evicted is the UID of the last evicted pod. firstEviction is the time of the first eviction, and pods the number
	// of pods before the last eviction. For owners of unknown kinds, the status has pods, too.
	evicted       types.UID
	firstEviction time.Time
	pods          int
	// refused is the number of consecutive refused evictions, bounced the number of times that a replacement lacked the
	// expected items.
	refused, bounced int
}

// lacks reports whether the last eviction is so recent that the replacement may still be missing.
func (m *workloadState) lacks(now time.Time, patience time.Duration) bool {
	return m.evicted != "" && now.Before(m.changed.Add(patience))
}

// plan has the actions to take, and the statuses and events that describe them.
type plan struct {
	statuses map[string]*refractv1beta1.ServiceInjectionPolicyStatus // By policy.
	// resolve and probe are checks that are needed for further decisions. owners control pods that are to be evicted;
	// owners of unknown kinds among them may have opted out since they were last read.
	resolve []object
	probe   []query
	owners  []ref
	touches []touch
	events  []event
	next    map[types.UID]workloadState // The state of workloads to remember.
	// resumed are the policies whose halted rollout a user has resumed.
	resumed []string
	// pods counts pods by the worst of their states.
	pods map[inject.State]int
	// again is the time until the next reconciliation that no event triggers; zero for never.
	again time.Duration
}

// query asks whether a pod of the group can be created. The answer comes from a dry run with a new pod of the template,
// or with a copy of the pod to evict (victim). hash is the hash that the new pod is expected to have.
type query struct {
	group  *group
	victim *pod
	hash   string
}

// touch is one step of the recreation of a group's pods.
type touch struct {
	group *group
	// victim is the pod to evict; nil to annotate the template.
	victim *pod
	// bounced is true if the victim itself was created after the first eviction.
	bounced bool
	// policies are the policies for which the step is taken, and contents their hashes.
	policies []string
	contents map[string]string
}

// event is an event for a policy, or for a workload if group is set.
type event struct {
	policy  string
	group   *group
	warning bool
	reason  string
	message string
}

// due schedules a reconciliation for a point in time.
func (p *plan) due(now, at time.Time) {
	d := max(at.Sub(now), 0) + time.Millisecond
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

func compareRefs(a, b ref) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.apiVersion, b.apiVersion), cmp.Compare(a.uid, b.uid))
}

// sortedUnion returns the union of both lists, sorted.
func sortedUnion(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
