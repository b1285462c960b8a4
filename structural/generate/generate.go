// Package generate makes CustomResourceDefinitions that an API server accepts, and
// objects for them, out of random numbers: to compare what refract.dev/structural
// says with what an API server says, and to check laws of conversions.
//
// It prefers the edges: nothing, null, empty, the least and the greatest value, one
// beyond, the first and the last of an enumeration, the same key twice, letters
// outside ASCII, integers that a float64 cannot hold. The same numbers make the same
// things.
package generate

// Source is where the choices come from, such as a *math/rand/v2.PCG. One that
// returns the same numbers again makes the same schemas and objects again.
type Source interface{ Uint64() uint64 }

// choices are decisions that depend on a source alone.
type choices struct{ src Source }

// below returns a number from 0 to n-1; n is positive.
func (c choices) below(n int) int {
	return int(c.src.Uint64() % uint64(n)) // Less than n, which is positive.
}

// between returns a number from low to high, both included.
func (c choices) between(low, high int) int {
	if high <= low {
		return low
	}
	return low + c.below(high-low+1)
}

// chance is true in so many of 100 cases.
func (c choices) chance(percent int) bool { return c.below(100) < percent }

// pick returns one of several values.
func pick[T any](c choices, from ...T) T { return from[c.below(len(from))] }

// some returns from low to high of the values, in their order.
func some[T any](c choices, low, high int, from []T) []T {
	want := min(c.between(low, high), len(from))
	out := make([]T, 0, want)
	for i, v := range from {
		if left := len(from) - i; c.below(left) < want-len(out) {
			out = append(out, v)
		}
	}
	return out
}

// weighted is one of several things, and how often it is chosen.
type weighted[T any] struct {
	weight int
	thing  T
}

// draw returns one of several things, by their weights.
func draw[T any](c choices, from []weighted[T]) T {
	total := 0
	for _, w := range from {
		total += w.weight
	}
	at := c.below(total)
	for _, w := range from {
		if at -= w.weight; at < 0 {
			return w.thing
		}
	}
	return from[len(from)-1].thing
}
