package inject

import (
	"bytes"
	"hash/maphash"
)

// list is one array of a pod, such as the variables of a container.
type list struct {
	entries []entry
	index   *index // The index of the entries by id; created after many comparisons.
	there   bool   // Whether the pod has the array, which may be empty.
	looked  int32  // The number of comparisons before the index was created.
	length  int
	// prepended is the number of elements that were inserted at the beginning. inserted has the index of each insertion
	// before the end of the list, in the order of insertion.
	prepended int
	inserted  []int
}

// entry is an element of such an array: an original one of the pod or an added one.
type entry struct {
	id    string
	raw   []byte
	at    int     // The index in the original pod, or the index at which the entry was inserted.
	since int     // The length of list.inserted when the entry was added.
	by    *Policy // The policy that added the entry; nil for an entry of the original pod.
	of    *item   // The added item. For an entry of the original pod, its normal form, set at the first comparison.
}

// many is the number of comparisons after which a list gets an index. For a few comparisons, an index costs more than
// it saves.
const many = 1000

// seed is the seed of the hashes of ids. It is random so that a user cannot make a pod whose ids all have the same
// hash. No result depends on it.
var seed = maphash.MakeSeed()

func hashOfID(id string) uint64 { return maphash.String(seed, id) }

// find returns the last entry with this id, because the last of two variables with the same name counts. It returns nil
// if there is no such entry.
func (l *list) find(id string) *entry {
	if l.indexed() {
		return l.index.find(l.entries, id, hashOfID(id))
	}
	return l.look(id)
}

// findItem is like find, but uses the hash that the item already has.
func (l *list) findItem(it *item) *entry {
	if l.indexed() {
		return l.index.find(l.entries, it.id, it.hash)
	}
	return l.look(it.id)
}

// look finds an entry without an index.
func (l *list) look(id string) *entry {
	for i := len(l.entries) - 1; i >= 0; i-- {
		l.looked++
		if l.entries[i].id == id {
			return &l.entries[i]
		}
	}
	return nil
}

// indexed reports whether the list has an index. It first creates the index if the list has had many comparisons.
func (l *list) indexed() bool {
	if l.index == nil && l.looked > many {
		l.index = &index{}
		l.index.build(l.entries)
	}
	return l.index != nil
}

// index finds entries by id. It is a hash table with linear probing.
type index struct {
	slots []slot // The length is a power of two; at least half of the slots are free.
	used  int
}

// slot has the number of an entry, starting with 1, and the hash of its id.
type slot struct {
	entry int
	hash  uint64
}

// find returns the last entry with this id; nil if there is no such entry.
func (x *index) find(entries []entry, id string, hash uint64) *entry {
	if at := x.slot(entries, id, hash).entry; at > 0 {
		return &entries[at-1]
	}
	return nil
}

// slot returns the slot with the id. If the index lacks the id, it returns the free slot for the id.
func (x *index) slot(entries []entry, id string, hash uint64) *slot {
	last := len(x.slots) - 1
	for at := int(hash & uint64(last)); ; at = (at + 1) & last {
		s := &x.slots[at]
		if s.entry == 0 || s.hash == hash && entries[s.entry-1].id == id {
			return s
		}
	}
}

// put maps an id to the last of the entries.
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

// fewSlots is the number of slots for a short list.
const fewSlots = 64

// build indexes all entries.
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

// add adds an item of a policy to the list, at this index.
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

// position returns the current index of an entry.
func (l *list) position(e *entry) int {
	at := e.at
	for _, inserted := range l.inserted[e.since:] {
		if inserted <= at {
			at++
		}
	}
	return at
}

// remove removes the entries for which gone returns true, and returns their size in bytes. It keeps entries that share
// their id with another entry: a policy did not add them, because policies do not add an existing item.
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

// times returns the number of entries with each id.
func (l *list) times() map[string]int {
	times := make(map[string]int, len(l.entries))
	for i := range l.entries {
		times[l.entries[i].id]++
	}
	return times
}

// same reports whether the entry is equal to an item.
func (e *entry) same(of itemKind, it *item) bool {
	if bytes.Equal(e.raw, it.raw) {
		return true
	}
	if e.of == nil {
		e.of = &item{normal: normalize(of, decode(e.raw))}
	}
	return e.of == it || equal(e.of.normal, it.normal)
}
