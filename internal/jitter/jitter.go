// Package jitter spreads actions over time that would otherwise happen at the same moment.
package jitter

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Between returns a pseudorandom duration from least up to most, which must not be less. The duration depends only on the name and the present time, so that a
// simulation, which has its own clock, can be repeated.
func Between(name string, least, most time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64([]byte(name), uint64(time.Now().UnixNano())))
	return least + time.Duration(mixed(h.Sum64())%uint64(most-least+1)) // It is not negative.
}

// mixed spreads each bit of a number over all bits of the result: two times that differ only in their last digits give very different numbers.
func mixed(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
