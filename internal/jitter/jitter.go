// Package jitter spreads what would otherwise happen at the same time.
package jitter

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Between returns a duration from least up to most, which must not be less. It is another one for each name, and at each time. The same
// name at the same time has the same one, so that a simulation, which has a clock of its own, can be repeated.
func Between(name string, least, most time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64([]byte(name), uint64(time.Now().UnixNano())))
	return least + time.Duration(mixed(h.Sum64())%uint64(most-least+1)) // It is not negative.
}

// mixed has each bit of a number change all others: two times that differ in their last digits alone give numbers far apart.
func mixed(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
