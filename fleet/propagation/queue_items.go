package propagation

import (
	"hash/maphash"
	"time"
)

// item is the entry of a key in a queue.
type item[K comparable] struct {
	key  K
	at   time.Duration // The time when the key became or becomes due.
	next ref           // In its line, or among the unused items.
	prev ref           // In its line; in the heap, the index there.
	same ref           // The next item whose key has the same hash.

	priority priority
	place    place
	failures uint8 // Consecutive failures.
	being    being
}

// being has the flags of an item.
type being uint8

const (
	busy    being = 1 << iota // A worker has the key.
	costly                    // The key waits for all others, whatever its priority.
	retried                   // The key comes again by itself, and was not added since.
)

func (e *item[K]) is(b being) bool { return e.being&b != 0 }

// isWanted reports whether the caller of add waits for the key: it was added, is not a retry, and is not costly.
func (e *item[K]) isWanted() bool { return !e.is(costly) && !e.is(retried) }

// line returns the line of an item that is due.
func (e *item[K]) line() priority {
	if e.is(costly) {
		return priorityCostly
	}
	return e.priority
}

// ref names an item. Zero is no item.
type ref uint32

// chunk is the number of items in one allocation: 2 KiB for a Key.
const chunk = 23

// items hold keys, up to hundreds of thousands, each for a short time. A Go map of the items would leave half of its
// slots empty, and would never free their memory. The zero value is ready for use.
type items[K comparable] struct {
	seed   maphash.Seed
	index  map[uint32]ref // The first item by the hash of the key.
	chunks []*[chunk]item[K]
	vacant ref // The first unused item.
	used   int // The number of allocated items, unused ones included.
	count  int // The number of items in use.
}

// at returns an item. The pointer is valid until compact is called.
func (t *items[K]) at(r ref) *item[K] { return &t.chunks[(r-1)/chunk][(r-1)%chunk] }

// find returns the item of a key; zero if it has none.
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

// insert adds an item for a key that has none. The caller must set its place.
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

// remove makes an item unused.
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

// sparse reports whether most of the memory is unused.
func (t *items[K]) sparse() bool {
	return t.used > chunk && t.count < t.used/4
}

// compact moves the items of a sparse set closer together. It returns the new refs, indexed by the old ones.
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
