package simulate

import (
	"fmt"
	"testing"
)

// regressions are plans whose histories once broke a promise.
var regressions = []struct {
	// fault describes the mistake in the code as a user would have seen it.
	fault string
	// seed and steps determine the plan if plan is nil.
	seed  uint64
	steps int
	plan  *Plan
}{
	{"a Secret that a workload begins to refer to while another replica takes the lead never travels", 4, 50, nil},
	{"a replica that does not lead deletes the copies of an object whose policy is missing and whose Propagation was deleted", 39, 50, nil},
	{"the status of a policy that was edited while no replica led stays behind", 59, 50, nil},
	{"a cluster that joins an empty wave of a Manual floor gets the change without an approval", 1592, 16, nil},
	{"minReadySeconds does not begin again when a cluster is rebuilt and its copy written again", 340, 61, planOf(340, 61)},
}

// planOf returns the plan of a seed, with the operation weights of [ownOperations].
func planOf(seed uint64, steps int) *Plan {
	p := NewPlan(seed, steps)
	return &p
}

// TestRegressions runs the histories that once broke a promise.
func TestRegressions(t *testing.T) {
	for i, r := range regressions {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			p := NewPlan(r.seed, r.steps)
			p.Even = r.seed < firstFocused // These plans are older than the different weights of operations.
			if r.plan != nil {
				p = *r.plan
			}
			if got := inBubble(t, r.seed, p, nil); got.Violation != nil {
				Story(t.Output(), r.seed, got, got)
				t.Errorf("%s: %v", r.fault, got.Violation)
			}
		})
	}
}
