package inject

import (
	"bytes"
	"hash/maphash"
)

// list is the elements of an array of a pod.
type list struct {
	entries []entry
	index   *index // Of entries, once many were looked at.
	there   bool   // The pod has the array; it may be empty.
	looked  int32  // How many entries were looked at as there was no index.
	length  int
	// prepended is how many elements were inserted at its beginning, and inserted are
	// the places of all that were inserted before others, one after the other.
	prepended int
	inserted  []int
}

// entry is an element of such an array: one of the pod's, or one that was added.
type entry struct {
	id    string
	raw   []byte
	at    int     // Its index in the pod as it was given, or when it was added.
	since int     // How many elements had been inserted then.
	by    *Policy // Who added it; nil for one of the pod's.
	of    *item   // What was added; of one of the pod's what it says, once somebody wanted to know.
}

// many is how many entries of a list are looked at before it gets an index. To make one
// is more work than it saves where a few policies look for a few items; and where many
// do, all that was looked at before it was there is little.
const many = 1000

// seed is that of the hashes of ids. No result depends on it: nobody can make a pod
// whose ids all have the same hash.
var seed = maphash.MakeSeed()

func hashOfID(id string) uint64 { return maphash.String(seed, id) }

// find returns the last entry with an id, for of two variables of one name the last
// one counts. It returns nil if there is none.
func (l *list) find(id string) *entry {
	if l.indexed() {
		return l.index.find(l.entries, id, hashOfID(id))
	}
	return l.look(id)
}

// findItem is find with the id of an item, whose hash is known.
func (l *list) findItem(it *item) *entry {
	if l.indexed() {
		return l.index.find(l.entries, it.id, it.hash)
	}
	return l.look(it.id)
}

// look looks at the entries one by one.
func (l *list) look(id string) *entry {
	for i := len(l.entries) - 1; i >= 0; i-- {
		l.looked++
		if l.entries[i].id == id {
			return &l.entries[i]
		}
	}
	return nil
}

// indexed reports whether there is an index, and makes it when it is time.
func (l *list) indexed() bool {
	if l.index == nil && l.looked > many {
		l.index = &index{}
		l.index.build(l.entries)
	}
	return l.index != nil
}

// index finds entries by id: a table in which one is in the first free slot from the
// place that the hash of its id gives.
type index struct {
	slots []slot // As many as a power of two; half of them or more are free.
	used  int
}

// slot has the number of an entry, beginning with 1, and the hash of its id.
type slot struct {
	entry int
	hash  uint64
}

// find returns the last entry with an id; nil if there is none.
func (x *index) find(entries []entry, id string, hash uint64) *entry {
	if at := x.slot(entries, id, hash).entry; at > 0 {
		return &entries[at-1]
	}
	return nil
}

// slot returns the slot of an id, or the free one where it belongs.
func (x *index) slot(entries []entry, id string, hash uint64) *slot {
	last := len(x.slots) - 1
	for at := int(hash & uint64(last)); ; at = (at + 1) & last {
		s := &x.slots[at]
		if s.entry == 0 || s.hash == hash && entries[s.entry-1].id == id {
			return s
		}
	}
}

// put has an id found at the last of the entries.
func (x *index) put(entries []entry, id string, hash uint64) {
	if 2*(x.used+1) > len(x.slots) {
		x.build(entries)
		return
	}
	s := x.slot(entries, id, hash)
	if s.entry == 0 {
		x.used++
	}
	*s = slot{entry: len(entries), hash: hash}
}

// fewSlots are those of a short list.
const fewSlots = 64

// build has all entries found.
func (x *index) build(entries []entry) {
	size := fewSlots
	for size < 4*len(entries) {
		size *= 2
	}
	*x = index{slots: make([]slot, size)}
	for i := range entries {
		x.put(entries[:i+1], entries[i].id, entries[i].hash())
	}
}

func (e *entry) hash() uint64 {
	if e.by != nil {
		return e.of.hash
	}
	return hashOfID(e.id)
}

// add puts an item of a policy into the list, in this place.
func (l *list) add(it *item, by *Policy, at int) {
	if at < l.length {
		l.inserted = append(l.inserted, at)
	}
	l.entries = append(l.entries, entry{id: it.id, raw: it.raw, at: at, since: len(l.inserted), by: by, of: it})
	if l.index != nil {
		l.index.put(l.entries, it.id, it.hash)
	}
	l.there = true
	l.length++
}

// position returns the index that an entry has by now.
func (l *list) position(e *entry) int {
	at := e.at
	for _, inserted := range l.inserted[e.since:] {
		if inserted <= at {
			at++
		}
	}
	return at
}

// remove takes away the entries that are gone, and returns how many bytes they have.
// What is there twice is no policy's: those add nothing that is there.
func (l *list) remove(gone func(*entry) bool) int {
	bytes := 0
	var times map[string]int
	kept := l.entries[:0:0]
	for i := range l.entries {
		e := &l.entries[i]
		if !gone(e) {
			kept = append(kept, *e)
			continue
		}
		if times == nil {
			times = l.times()
		}
		if times[e.id] > 1 {
			kept = append(kept, *e)
			continue
		}
		bytes += len(e.raw)
	}
	l.entries, l.index = kept, nil
	return bytes
}

// times returns how often each id is there.
func (l *list) times() map[string]int {
	times := make(map[string]int, len(l.entries))
	for i := range l.entries {
		times[l.entries[i].id]++
	}
	return times
}

// same reports whether the entry is what an item injects.
func (e *entry) same(of itemKind, it *item) bool {
	if bytes.Equal(e.raw, it.raw) {
		return true
	}
	if e.of == nil {
		e.of = &item{normal: normalize(of, decode(e.raw))}
	}
	return e.of == it || equal(e.of.normal, it.normal)
}
