package rollout

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
)

// snapshot is all that a decision about a namespace depends on.
type snapshot struct {
	now      time.Time
	policies []*policy // By name.
	groups   []*group  // By kind and name.
	// references is what was found of the objects that policies name, and probes what
	// came of trying to create pods of workloads.
	references map[object]resolution
	probes     map[types.UID]probe
	// previous is what is remembered of workloads. It makes the controller more patient,
	// never less: after a restart it is empty.
	previous map[types.UID]workloadState
	// patience is how long a workload may make no progress.
	patience time.Duration
	// disabled has nothing touched.
	disabled bool
}

// policy is what is decided about.
type policy struct {
	name       string
	uid        types.UID
	generation int64
	hash       string
	audit      bool
	rollout    refractv1beta1.Rollout
	references []inject.Reference // Those that pods cannot do without.
	// problem is why the policy is not in effect, and problemReason one word for it.
	problem, problemReason string
	// unreadable says that what is stored is no policy at all: nothing can be written to
	// it either.
	unreadable bool
	// paused, approved and resumed are what people have annotated.
	paused            bool
	approved, resumed string
	// status is what was last written.
	status *refractv1beta1.ServiceInjectionPolicyStatus
}

// group is an owner with its pods.
type group struct {
	ref   ref // Of a bare pod, itself.
	class class
	// workload is nil for bare pods and unknown kinds, and for what is not there (yet).
	workload *workload
	optedOut bool
	prospect prospect
	pods     []placed
}

// placed is a pod with its status, which is nil if no policy selects it.
type placed struct {
	*pod

	status *podStatus
}

// object names what a policy refers to.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

// resolution is what was found of an object that policies refer to.
type resolution struct {
	found bool
	keys  map[string]bool
	err   string // It could not be read.
	at    time.Time
	// same is how often in a row it was found like this.
	same int
}

// probe is what came of trying to create a pod of a workload's template.
type probe struct {
	hash            string // That was expected.
	ok              bool
	reason, message string
	at              time.Time
	tries           int
	retry           time.Time
}

// workloadState is what is remembered of a workload.
type workloadState struct {
	ref ref
	// hash is what its template's annotation was set to, with which the workload had
	// this generation; empty if it was not, or if somebody has changed it.
	hash       string
	generation int64
	// policies are those for which it was touched last, until it is complete.
	policies []string
	// begun is since when the recreation of its pods is known of, and progress what was
	// last seen of it, at the time changed.
	begun    time.Time
	progress string
	changed  time.Time
	// lenient is until when what is wrong with its pods is no reason to halt: somebody
	// has had the rollout go on.
	lenient time.Time
	// reverts is how often the annotation was removed again soon.
	reverts int
	// notBefore is when the workload may be touched again, and why not before.
	notBefore       time.Time
	reason, message string
	// evicted is the UID of the pod that was evicted last; firstEviction is when the first
	// was, and pods how many there were then.
	evicted       types.UID
	firstEviction time.Time
	pods          int
	// refused is how often in a row an eviction was refused, bounced how often a pod came
	// back without what it should have.
	refused, bounced int
}

// plan is what is to be done, and to be said about it.
type plan struct {
	statuses map[string]*refractv1beta1.ServiceInjectionPolicyStatus // By policy.
	// resolve and probe are to be found out before more can be decided.
	resolve []object
	probe   []query
	touches []touch
	events  []event
	next    map[types.UID]workloadState // What is to be remembered of workloads.
	// resumed are policies whose halted rollout goes on because somebody said so.
	resumed []string
	// pods counts pods by the worst of their states.
	pods map[inject.State]int
	// again is after how long something is due without an event; zero for never.
	again time.Duration
}

// query asks whether a pod can be created for a group, and with what hash it comes
// back: one of its template, or one like the victim.
type query struct {
	group  *group
	victim *pod
	hash   string
}

// touch is a step of a recreation.
type touch struct {
	group *group
	// victim is the pod to evict; nil to annotate the template.
	victim *pod
	// bounced says that the victim was itself created since evictions began.
	bounced bool
	// policies are those for which it is done.
	policies []string
}

// event is told on a policy, or on a workload if group is set.
type event struct {
	policy  string
	group   *group
	warning bool
	reason  string
	message string
}

// due notes that something is due at a time.
func (p *plan) due(now, at time.Time) {
	d := max(at.Sub(now), 0) + time.Millisecond
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

func compareRefs(a, b ref) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.apiVersion, b.apiVersion), cmp.Compare(a.uid, b.uid))
}

// sortedUnion returns what is in either list, sorted.
func sortedUnion(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
