package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// choices makes decisions that depend only on a seed.
type choices struct{ *rand.Rand }

// Streams of random numbers, one for each use of a seed.
const (
	streamRandom uint64 = iota + 1
	streamMutate
)

func choose(seed, stream uint64) choices {
	return choices{rand.New(rand.NewPCG(seed, stream))} //nolint:gosec // It has to be repeatable, not secret.
}

// chance returns true with a probability of percent.
func (c choices) chance(percent int) bool { return c.IntN(100) < percent }

// slips reports whether the author of a manifest makes a mistake here. Mistakes are rare, so that most of a policy
// works.
func (c choices) slips() bool { return c.chance(3) }

// between returns a number from low to high, inclusive.
func (c choices) between(low, high int) int { return low + c.IntN(high-low+1) }

// pick returns one of several values.
func pick[T any](c choices, from ...T) T { return from[c.IntN(len(from))] }

// some returns 1 to limit of the values, in random order.
func some[T any](c choices, limit int, from []T) []T {
	out := slices.Clone(from)
	c.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:c.between(1, min(limit, len(out)))]
}

// fresh returns a name that is very probably unused.
func (c choices) fresh(stem string) string { return fmt.Sprintf("%s%d", stem, c.IntN(1_000_000)) }
