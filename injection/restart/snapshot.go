package restart

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// snapshot is the complete input of a decision about a namespace.
type snapshot struct {
	now      time.Time
	policies []*policy // Sorted by name.
	groups   []*group  // Sorted by kind and name.
	// references has the objects that policies name, as read from the API server. probes has the results of the dry
	// runs that create pods.
	references map[object]resolution
	probes     map[types.UID]probe
	// previous is the remembered state of workloads. After a restart it is empty. It can delay a recreation, but never
	// speed it up.
	previous map[types.UID]workloadState
	// patience is how long a workload may be without progress.
	patience time.Duration
	// disabled is true if no workload may be touched.
	disabled bool
}

// policy is a policy in the form that decide needs.
type policy struct {
	name       string
	uid        types.UID
	generation int64
	hash       string
	audit      bool
	rollout    refractv1beta1.Rollout
	references []inject.Reference // Only required objects.
	// problem is the reason why the policy is not in effect, and problemReason is the reason as one word.
	problem, problemReason string
	// unreadable is true if the stored object violates the schema. Its status cannot be written either.
	unreadable bool
	// Users set paused, approved and resumed by annotations.
	paused            bool
	approved, resumed string
	// status is the status that was written last.
	status *refractv1beta1.ServiceInjectionPolicyStatus
}

// group is an owner with its pods.
type group struct {
	ref   ref // The owner; for a bare pod, the pod itself.
	class class
	// workload is nil for bare pods, for owners of unknown kinds, and while the view does not have the object yet.
	workload *workload
	optedOut bool
	// unread is the reason why an owner of an unknown kind could not be read, so that it may have opted out; empty if
	// it was read. readAgain is the time at which it is read again.
	unread    string
	readAgain time.Time
	// readAt has the times at which owners of unknown kinds were read. The keys are the UIDs of the controllers of the
	// pods.
	readAt   map[types.UID]time.Time
	prospect prospect
	pods     []placed
}

// placed is a pod with its status. The status is nil if no policy selects the pod.
type placed struct {
	*pod

	status *podStatus
}

// object names an object that a policy refers to.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

// resolution is the result of reading an object that policies name.
type resolution struct {
	found bool
	keys  map[string]bool
	err   string // The error of the read.
	at    time.Time
	// same is the number of consecutive identical results.
	same int
}

// probe is the result of a dry run that creates a pod of a workload.
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
	// hash is the annotation that the controller has written into the template, and generation is the generation of the
	// workload after that write. hash is empty if the controller has not written the annotation, or if another writer
	// has changed it.
	hash       string
	generation int64
	// contents maps the names of the policies for which the workload was touched to their hashes. It is dropped when
	// the workload is complete.
	contents map[string]string
	// begun is when the controller noticed the recreation of the pods. progress is the last observed progress, and
	// changed is when it was first observed.
	begun    time.Time
	progress string
	changed  time.Time
	// lenient is the time until which broken pods do not halt the rollout, because a user has resumed it.
	lenient time.Time
	// reverts counts how often the annotation was removed soon after it was written.
	reverts int
	// notBefore is the earliest time at which the workload may be touched again. reason and message explain the delay.
	notBefore       time.Time
	reason, message string
	// evicted is the UID of the last evicted pod. firstEviction is the time of the first eviction, and pods the number
	// of pods before the last eviction. For owners of unknown kinds, the status has pods, too.
	evicted       types.UID
	firstEviction time.Time
	pods          int
	// refused is the number of consecutive refused evictions. bounced is the number of evictions whose replacement
	// lacked the expected items.
	refused, bounced int
}

// lacks reports whether the last eviction was so recent that its replacement may not exist yet.
func (m *workloadState) lacks(now time.Time, patience time.Duration) bool {
	return m.evicted != "" && now.Before(m.changed.Add(patience))
}

// plan has the actions to take, and the statuses and events to write.
type plan struct {
	statuses map[string]*refractv1beta1.ServiceInjectionPolicyStatus // By policy.
	// resolve, probe and owners request checks that further decisions need. owners are the owners of pods that will be
	// evicted: if their kind is unknown, they may have opted out since they were last read.
	resolve []object
	probe   []query
	owners  []ref
	touches []touch
	events  []event
	next    map[types.UID]workloadState // The state of workloads to remember.
	// resumed are the policies with an annotation that resumes a halted rollout. It is removed, because it is valid
	// only once.
	resumed []string
	// pods has the number of pods by state. A pod counts once, with the worst of its states.
	pods map[inject.State]int
	// again is the time after which the namespace must be reconciled even without an event; zero if this is not
	// necessary.
	again time.Duration
}

// query requests a dry run that creates a pod of the group. The pod is a new pod of the template or, if victim is set,
// a copy of the pod to evict. hash is the hash that the new pod is expected to have.
type query struct {
	group  *group
	victim *pod
	hash   string
}

// touch is one step of the recreation of a group's pods: it annotates the template or evicts a pod.
type touch struct {
	group *group
	// victim is the pod to evict; nil if the template is annotated.
	victim *pod
	// bounced is true if the victim was itself created after the first eviction.
	bounced bool
	// policies are the policies that require the step, and contents their hashes by name.
	policies []string
	contents map[string]string
}

// event is an event to record for a policy or, if group is set, for a workload.
type event struct {
	policy  string
	group   *group
	warning bool
	reason  string
	message string
}

// due requests a reconciliation at a point in time.
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
