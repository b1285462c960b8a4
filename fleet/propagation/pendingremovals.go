package propagation

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// pendingRemovals are the deletions that need an approval. Each change updates the counters, because thousands of
// deletions may be added or removed one after the other.
type pendingRemovals struct {
	byKey   map[Key]removal
	byGroup map[group]int
	much    map[group]int // The deletions that exceed a limit, without those that need an approval by themselves.
	sum     [4]uint64     // The sum of the digests of all.
	kept    int           // The number of those that need approval because of their data,
	keptSum [4]uint64     // and the sum of their digests.
}

func newPendingRemovals() pendingRemovals {
	return pendingRemovals{byKey: map[Key]removal{}, byGroup: map[group]int{}, much: map[group]int{}}
}

// add adds a removal, or replaces the one of the same copy.
func (p *pendingRemovals) add(r removal) {
	p.remove(r.Key)
	p.byKey[r.Key] = r
	p.count(r, 1)
}

func (p *pendingRemovals) remove(key Key) {
	if r, is := p.byKey[key]; is {
		delete(p.byKey, key)
		p.count(r, -1)
	}
}

func (p *pendingRemovals) count(r removal, n int) {
	add(p.byGroup, r.group(), n)
	if !r.needsApproval {
		add(p.much, r.group(), n)
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%s", r.GroupResource, r.Namespace, r.Name, r.uid))
	for i := range p.sum {
		p.sum[i] += uint64(n) * binary.BigEndian.Uint64(digest[8*i:])
		if r.kept() {
			p.keptSum[i] += uint64(n) * binary.BigEndian.Uint64(digest[8*i:])
		}
	}
	if r.kept() {
		p.kept += n
	}
}

func add(counts map[group]int, of group, n int) {
	if counts[of] += n; counts[of] == 0 {
		delete(counts, of)
	}
}

// digest identifies the set of pending deletions, in any order; it is empty for no deletions. A restart does not
// change it.
func (p *pendingRemovals) digest() string {
	if len(p.byKey) == 0 {
		return ""
	}
	return digestOf(p.sum)
}

// othersDigest identifies the pending deletions of copies that hold no data. It is empty unless deletions of copies
// with data are pending as well.
func (p *pendingRemovals) othersDigest() string {
	if p.kept == 0 || p.kept == len(p.byKey) {
		return ""
	}
	sum := p.sum
	for i := range sum {
		sum[i] -= p.keptSum[i]
	}
	return digestOf(sum)
}

func digestOf(sum [4]uint64) string {
	var text []byte
	for _, part := range sum {
		text = binary.BigEndian.AppendUint64(text, part)
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])[:16]
}
