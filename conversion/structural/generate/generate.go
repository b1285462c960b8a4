// Package generate generates CustomResourceDefinitions that an API server accepts, and objects for them, from random
// numbers. They are for comparisons of refract.dev/conversion/structural with an API server, and for checks of the laws
// of conversions.
//
// The package prefers edge cases: absent, null, empty, the smallest and the largest value, one more than that, the
// first and the last value of an enum, duplicate keys, letters outside ASCII, integers that a float64 cannot represent.
// The same random numbers give the same results.
package generate

// Source provides random numbers, for example a *math/rand/v2.PCG. The same numbers give the same schemas and objects.
type Source interface{ Uint64() uint64 }

// choices makes random decisions. They depend only on the source.
type choices struct{ src Source }

// below returns a number from 0 to n-1. n must be positive.
func (c choices) below(n int) int {
	return int(c.src.Uint64() % uint64(n)) // Smaller than n, which is positive.
}

// between returns a number from low to high, both included.
func (c choices) between(low, high int) int {
	if high <= low {
		return low
	}
	return low + c.below(high-low+1)
}

// chance returns true with a probability in percent.
func (c choices) chance(percent int) bool { return c.below(100) < percent }

// pick returns one of several values.
func pick[T any](c choices, from ...T) T { return from[c.below(len(from))] }

// some returns a number of the values between low and high, in their order.
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

// weighted is a value with a weight. A larger weight makes the value more likely.
type weighted[T any] struct {
	weight int
	thing  T
}

// draw returns a random value. Its probability is proportional to its weight.
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
