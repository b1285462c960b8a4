// Package jitter spreads actions over time that would otherwise happen at the same time.
package jitter

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Between returns a pseudorandom duration between two bounds, both included. The second bound must not be less than the
// first. The duration depends only on the name and the present time. So a simulation with its own clock always gets the
// same durations.
func Between(name string, least, most time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64([]byte(name), uint64(time.Now().UnixNano())))
	return least + time.Duration(mixed(h.Sum64())%uint64(most-least+1)) // It is not negative.
}

// mixed changes all bits of a number, depending on each of its bits. Without it, times that differ only slightly would
// give similar durations.
func mixed(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
