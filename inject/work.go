package inject

import "fmt"

// maxWork is how much work one pod may be, with the policies that choose it: some 20 ms
// of one processor, of which a unit is some 10 ns. It is counted and not timed, so that
// the same pod and policies give the same result on every machine, however busy that is.
// A pod that is more is let through without any policy, for the pods of others wait.
//
// BenchmarkInjectHeavy shows what pods take that have, or exceed, what they may.
const maxWork = 2_000_000

// maxElements is how many items a pod may have in the lists of its containers, together with
// its volumes. Each takes many times what it has in JSON, a container as much as some of
// them; and no more could be looked at for fifty policies.
const (
	maxElements         = maxWork / 50
	elementsOfContainer = 8
)

// What things are in units of work, next to the 1 of finding an item in a list.
const (
	workOfByte       = 16  // So many bytes of a pod are read, or compared, for one unit.
	workOfPolicy     = 100 // To begin with a policy, and to say what became of it.
	workOfAddition   = 50  // To add an item, and to write it down.
	workOfComparison = 100 // To compare two spellings of an item, besides its bytes.
	workOfName       = 10  // To match the name of a container, and to list it.
)

// spent reports whether the work that a pod may be is used up.
func (b *body) spent() bool { return b.work > maxWork }

// exceeded says of all policies that together they are too much work for a pod.
func exceeded(policies []*Policy) []outcome {
	message := fmt.Sprintf("%d policies choose the pod, and with all its containers and items they are more than the %d units of work that a pod may be: "+
		"have fewer policies choose it, or fewer containers in it, or fewer items in them", len(policies), maxWork)
	out := make([]outcome, len(policies))
	for i, p := range policies {
		out[i].skipped = &Skipped{Policy: p, Reason: ReasonTooMuchWork, Message: message}
	}
	return out
}
