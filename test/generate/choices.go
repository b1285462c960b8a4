package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// choices are decisions that depend on a seed alone.
type choices struct{ *rand.Rand }

// Each use of a seed has a stream of its own.
const (
	streamRandom uint64 = iota + 1
	streamMutate
)

func choose(seed, stream uint64) choices {
	return choices{rand.New(rand.NewPCG(seed, stream))} //nolint:gosec // It has to be repeatable, not secret.
}

// chance is true in so many of 100 cases.
func (c choices) chance(percent int) bool { return c.IntN(100) < percent }

// slips is whether the author of a manifest makes a mistake here: seldom enough
// for most of a policy to work.
func (c choices) slips() bool { return c.chance(3) }

// between returns a number from low to high, both included.
func (c choices) between(low, high int) int { return low + c.IntN(high-low+1) }

// pick returns one of several values.
func pick[T any](c choices, from ...T) T { return from[c.IntN(len(from))] }

// some returns from one to limit of the values, in another order.
func some[T any](c choices, limit int, from []T) []T {
	out := slices.Clone(from)
	c.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:c.between(1, min(limit, len(out)))]
}

// fresh returns a name that nothing has, as good as always.
func (c choices) fresh(stem string) string { return fmt.Sprintf("%s%d", stem, c.IntN(1_000_000)) }
