package simulate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// policyFacts are the facts about a policy.
type policyFacts struct {
	name            string
	closed, missing fact
	why, lacks      string
	asks            fact
	hash            string
	limits, waits   past
	current         map[string]*fact // By workload.
	open            map[types.UID]*opened
	passed          map[string]bool // By hash.
}

// opened is the restart of a workload that a policy has begun.
type opened struct {
	hash              string
	complete, serving bool // Whether this was true at any time since the start.
}

// flockFacts are the facts about a workload.
type flockFacts struct {
	ref                                        string
	complete, serving, owners, touched, ailing fact
	why                                        string
	stale                                      map[types.UID]*fact // By policy: whether pods lack its items and new pods would get them.
	holds                                      map[string]bool
	lastReady                                  time.Time
	// recovered is true if all its pods have been ready at the same time since the last eviction.
	recovered bool
	// annotated maps each value of the annotation to the count [restartRules.contents] at the time when the annotation
	// got this value.
	annotated map[string]int
}

// past has all values of a number within the time by which watches may lag.
type past []valued

type valued struct {
	until time.Time // Zero for the current value.
	value int64
}

func (p *past) set(v int64) {
	now := time.Now()
	if n := len(*p); n > 0 {
		if (*p)[n-1].value == v {
			return
		}
		(*p)[n-1].until = now
	}
	old := func(e valued) bool { return !e.until.IsZero() && now.Sub(e.until) > lagging }
	*p = append(slices.DeleteFunc(*p, old), valued{value: v})
}

// all returns all values within the time by which watches may lag.
func (p *past) all() (values []int64) {
	for _, e := range *p {
		if e.until.IsZero() || time.Since(e.until) <= lagging {
			values = append(values, e.value)
		}
	}
	return values
}
