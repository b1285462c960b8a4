package inject

import "fmt"

// maxWork is the most units of work for one pod and the policies that select it: about 20 ms of one processor, at about
// 10 ns for each unit. Work is counted instead of timed, so that the same pod and policies give the same result on
// every machine, however busy it is. A pod beyond the limit is admitted without any policy, because the pods of other
// users wait.
//
// BenchmarkInjectHeavy measures pods at and beyond the limit.
const maxWork = 2_000_000

// maxElements is the most elements that a pod may have in the lists of its containers, together with its volumes. An
// element takes many times its JSON in memory, and a container as much as elementsOfContainer elements. With more
// elements, fifty policies would exceed maxWork.
const (
	maxElements         = maxWork / 50
	elementsOfContainer = 8
)

// The units of work of each step. Finding an item in a list is 1 unit.
const (
	workOfByte       = 16  // Bytes of a pod that are read or compared for one unit.
	workOfPolicy     = 100 // To start a policy and report its outcome.
	workOfAddition   = 50  // To add an item and record it.
	workOfComparison = 100 // To compare two forms of an item, in addition to its bytes.
	workOfName       = 10  // To match the name of a container and list it.
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
