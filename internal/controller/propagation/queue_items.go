package propagation

import (
	"hash/maphash"
	"time"
)

// item is what a queue knows of one key.
type item[K comparable] struct {
	key  K
	at   time.Duration // When it was due, or will be.
	next ref           // In its line, or among the vacant.
	prev ref           // In its line; where it is in the heap if it waits there.
	same ref           // Another item whose key has the same hash.

	priority priority
	place    place
	failures uint8 // In a row.
	being    being
}

// being is what else is true of an item.
type being uint8

const (
	busy    being = 1 << iota // It is worked on.
	costly                    // It waits for all others, whatever its priority is.
	retried                   // It comes again by itself, and nobody has asked for it since.
)

func (e *item[K]) is(b being) bool { return e.being&b != 0 }

// isWanted reports whether somebody waits for what becomes of a key: it was asked for, and much has not been done for those who did.
func (e *item[K]) isWanted() bool { return !e.is(costly) && !e.is(retried) }

// line is that in which an item waits that is due.
func (e *item[K]) line() priority {
	if e.is(costly) {
		return priorityCostly
	}
	return e.priority
}

// ref names an item. Zero names none.
type ref uint32

// chunk is how many items are allocated at once: with a Key, 2 KiB.
const chunk = 23

// items hold a hundred thousand keys of which each is needed for a moment. A
// map of them would hold each key in a slot that is empty half of the time, and
// would never give any of that back. Its zero value is ready for use.
type items[K comparable] struct {
	seed   maphash.Seed
	index  map[uint32]ref // By the hash of the key.
	chunks []*[chunk]item[K]
	vacant ref // The first of those that can be used again.
	used   int // How many there are, vacant or not.
	count  int // How many are not vacant.
}

// at returns an item, which stays where it is until compact is called.
func (t *items[K]) at(r ref) *item[K] { return &t.chunks[(r-1)/chunk][(r-1)%chunk] }

// find returns the item of a key; zero if there is none.
func (t *items[K]) find(key K) ref {
	if t.count == 0 {
		return 0
	}
	r := t.index[t.hash(key)]
	for r != 0 && t.at(r).key != key {
		r = t.at(r).same
	}
	return r
}

// insert makes an item for a key that has none. Its place must be set.
func (t *items[K]) insert(key K) ref {
	if t.index == nil {
		t.seed, t.index = maphash.MakeSeed(), map[uint32]ref{}
	}
	r := t.vacant
	if r == 0 {
		if t.used == len(t.chunks)*chunk {
			t.chunks = append(t.chunks, new([chunk]item[K]))
		}
		t.used++
		r = ref(t.used)
	}
	e, h := t.at(r), t.hash(key)
	t.vacant = e.next
	*e = item[K]{key: key, same: t.index[h]}
	t.index[h] = r
	t.count++
	return r
}

// remove makes an item vacant.
func (t *items[K]) remove(r ref) {
	e := t.at(r)
	h := t.hash(e.key)
	switch before := t.index[h]; {
	case before != r:
		for t.at(before).same != r {
			before = t.at(before).same
		}
		t.at(before).same = e.same
	case e.same != 0:
		t.index[h] = e.same
	default:
		delete(t.index, h)
	}
	*e = item[K]{next: t.vacant}
	t.vacant = r
	t.count--
}

// sparse reports whether most of the memory is not needed any more.
func (t *items[K]) sparse() bool {
	return t.used > chunk && t.count < t.used/4
}

// compact moves the items of sparse ones closer together. It returns the new names, by the old
// ones.
func (t *items[K]) compact() []ref {
	old, moved := *t, make([]ref, t.used+1)
	*t = items[K]{}
	t.seed, t.index = old.seed, make(map[uint32]ref, old.count)
	for r := ref(1); int(r) <= old.used; r++ {
		if e := old.at(r); e.place != vacant {
			moved[r] = t.insert(e.key)
		}
	}
	for r, to := range moved {
		if to == 0 {
			continue
		}
		e, same := t.at(to), t.at(to).same
		*e = *old.at(ref(r))
		e.next, e.same = moved[e.next], same
		if e.place == due {
			e.prev = moved[e.prev]
		}
	}
	return moved
}

func (t *items[K]) hash(key K) uint32 { return uint32(maphash.Comparable(t.seed, key)) }
