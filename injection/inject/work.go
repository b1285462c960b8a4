package inject

import "fmt"

// maxWork is the maximum work for one pod and the policies that select it, in units of about 10 ns: about 20 ms of one
// processor. Work is counted and not timed, so that the same pod and policies give the same result on any machine with
// any load. A pod beyond the limit is admitted without any policy, because the pods of other users must not wait for
// it.
//
// BenchmarkInjectHeavy measures pods at the limit and beyond it.
const maxWork = 2_000_000

// maxElements is the maximum number of elements in the lists of a pod's containers, including the volumes. An element
// needs many times the memory of its JSON. A container needs as much memory as elementsOfContainer elements. With more
// elements, fifty policies would exceed maxWork.
const (
	maxElements         = maxWork / 50
	elementsOfContainer = 8
)

// The costs of each step, in units of work. To find an item in a list costs 1 unit.
const (
	workOfByte       = 16  // The number of bytes of a pod that 1 unit reads or compares.
	workOfPolicy     = 100 // To start a policy and report its outcome.
	workOfAddition   = 50  // To add an item and record it.
	workOfComparison = 100 // To compare the normal forms of two items, in addition to their bytes.
	workOfName       = 10  // To match and list the name of a container.
)

// spent reports whether the work limit is exceeded.
func (b *body) spent() bool { return b.work > maxWork }

// exceeded returns the outcome TooMuchWork for all policies.
func exceeded(policies []*Policy) []outcome {
	message := fmt.Sprintf("%d policies choose the pod, and with its containers and items they exceed the limit of %d units of work for a pod: use fewer "+
		"policies, containers or items", len(policies), maxWork)
	out := make([]outcome, len(policies))
	for i, p := range policies {
		out[i].skipped = &Skipped{Policy: p, Reason: ReasonTooMuchWork, Message: message}
	}
	return out
}
