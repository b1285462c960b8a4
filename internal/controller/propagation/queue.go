package propagation

import "time"

// A key that failed is tried again after these times, doubling from the first to
// the last.
const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = 30 * time.Second
)

// fairness is how many keys are taken for one that is not of the highest priority, so
// that a steady stream of what has a high priority lets the rest through, too.
const fairness = 8

// queue orders keys by priority and time. Each is in it once. Times are since some
// moment that the user chose; the queue has no clock, no goroutine and no lock. Its
// zero value is ready for use.
type queue[K comparable] struct {
	items   items[K]
	fifos   [priorityRequired + 1]fifo
	costs   func(K) bool // Whether a key is to wait for the others; nil if none is.
	waiting []ref        // A heap of what is due later, the earliest first.
	ready   int          // How many are in the lines.
	wanted  int          // Those of them that somebody waits for, see [item.isWanted].
	taken   uint8
}

// fifo holds keys of one priority in the order in which they came.
type fifo struct{ head, tail ref }

// place is where an item is.
type place uint8

const (
	vacant  place = iota // It is none.
	nowhere              // It is worked on, and not asked for again.
	due                  // In a line; when it is worked on, as soon as that ends.
	later                // In the heap; when it is worked on, as soon as that ends.
)

// outcome is what became of the work on a key.
type outcome struct {
	after  time.Duration // The key comes again after it, unless it is zero.
	failed bool          // The key comes again, later each time.
}

// add has a key worked on at a time, or at once if that has passed. It neither
// delays a key nor makes it less important.
func (q *queue[K]) add(key K, u priority, at, now time.Duration) {
	r := q.items.find(key)
	if r == 0 {
		r = q.items.insert(key)
		q.items.at(r).place = nowhere
	}
	if e := q.items.at(r); e.place != due {
		e.being &^= retried
	}
	q.ask(r, u, at, now)
}

func (q *queue[K]) ask(r ref, u priority, at, now time.Duration) {
	e := q.items.at(r)
	switch {
	case e.place == due && u <= e.priority:
	case e.place == due:
		q.remove(r)
		e.priority = u
		q.enter(r)
	case at <= now:
		if e.place == later {
			u, at = max(u, e.priority), min(at, e.at)
			q.remove(r)
		}
		e.place, e.priority, e.at = due, u, at
		q.enter(r)
	case e.place == later:
		e.priority = max(u, e.priority)
		if at < e.at {
			q.remove(r)
			e.at = at
			q.enter(r)
		}
	default:
		e.place, e.priority, e.at = later, u, at
		q.enter(r)
	}
}

// get returns the key that is to be worked on, with the priority that it was asked for with, and since
// when it is due. finish must be called for it.
func (q *queue[K]) get() (key K, u priority, since time.Duration, ok bool) {
	r := q.choose()
	for r != 0 && q.costs != nil && !q.items.at(r).is(costly) && q.costs(q.items.at(r).key) {
		q.remove(r)
		q.items.at(r).being |= costly
		q.enter(r)
		r = q.choose()
	}
	if r == 0 {
		return key, 0, 0, false
	}
	e := q.items.at(r)
	q.remove(r)
	e.place, e.being = nowhere, busy
	return e.key, e.priority, e.at, true
}

// choose returns what waits longest of what is of the highest priority, and now and then what
// waits longest of all the rest.
func (q *queue[K]) choose() ref {
	var most, rest ref
	for u := range q.fifos {
		head := q.fifos[u].head
		if head == 0 {
			continue
		}
		if most != 0 && (rest == 0 || q.items.at(most).at < q.items.at(rest).at) {
			rest = most
		}
		most = head
	}
	q.taken = (q.taken + 1) % fairness
	if q.taken == 0 && rest != 0 {
		return rest
	}
	return most
}

// finish ends the work on a key that was taken with a priority.
func (q *queue[K]) finish(key K, u priority, o outcome, now time.Duration) {
	r := q.items.find(key)
	e := q.items.at(r)
	asked, urgent, at := e.place, e.priority, e.at
	e.place, e.being = nowhere, 0
	if asked != nowhere {
		q.ask(r, urgent, at, now)
	} else {
		e.being = retried
	}
	switch {
	case o.failed:
		q.ask(r, u, now+min(firstBackoff<<e.failures, lastBackoff), now)
		if firstBackoff<<e.failures < lastBackoff {
			e.failures++
		}
		return
	case o.after > 0:
		q.ask(r, u, now+o.after, now)
	}
	e.failures = 0
	if e.place == nowhere {
		q.items.remove(r)
		q.shrink()
	}
}

// next returns when the next key is due that is not yet.
func (q *queue[K]) next() (at time.Duration, ok bool) {
	if len(q.waiting) == 0 {
		return 0, false
	}
	return q.items.at(q.waiting[0]).at, true
}

// promote puts into the lines what has become due.
func (q *queue[K]) promote(now time.Duration) {
	for len(q.waiting) > 0 {
		r := q.waiting[0]
		e := q.items.at(r)
		if e.at > now {
			return
		}
		q.remove(r)
		e.place = due
		q.enter(r)
	}
}

// enter puts an item where its place is, at the end. What is worked on has to wait
// for that.
func (q *queue[K]) enter(r ref) {
	e := q.items.at(r)
	if e.is(busy) {
		return
	}
	if e.place == later {
		q.waiting = append(q.waiting, r)
		q.rise(len(q.waiting) - 1)
		return
	}
	l := &q.fifos[e.line()]
	e.prev, e.next = l.tail, 0
	if l.tail == 0 {
		l.head = r
	} else {
		q.items.at(l.tail).next = r
	}
	l.tail = r
	q.ready++
	if e.isWanted() {
		q.wanted++
	}
}

// remove takes an item from where enter put it.
func (q *queue[K]) remove(r ref) {
	e := q.items.at(r)
	if e.is(busy) {
		return
	}
	if e.place == later {
		i, end := int(e.prev), len(q.waiting)-1
		q.swap(i, end)
		q.waiting = q.waiting[:end]
		if i < end {
			q.sink(q.rise(i))
		}
		e.prev = 0
		return
	}
	l := &q.fifos[e.line()]
	if e.prev == 0 {
		l.head = e.next
	} else {
		q.items.at(e.prev).next = e.next
	}
	if e.next == 0 {
		l.tail = e.prev
	} else {
		q.items.at(e.next).prev = e.prev
	}
	e.prev, e.next = 0, 0
	q.ready--
	if e.isWanted() {
		q.wanted--
	}
}

// rise moves what is at i of the heap up to where it belongs, and returns where that is.
func (q *queue[K]) rise(i int) int {
	q.items.at(q.waiting[i]).prev = ref(i)
	for i > 0 && q.before(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

// sink moves what is at i of the heap down to where it belongs.
func (q *queue[K]) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(q.waiting) {
			return
		}
		if child+1 < len(q.waiting) && q.before(child+1, child) {
			child++
		}
		if !q.before(child, i) {
			return
		}
		q.swap(i, child)
		i = child
	}
}

func (q *queue[K]) before(i, j int) bool {
	return q.items.at(q.waiting[i]).at < q.items.at(q.waiting[j]).at
}

func (q *queue[K]) swap(i, j int) {
	q.waiting[i], q.waiting[j] = q.waiting[j], q.waiting[i]
	q.items.at(q.waiting[i]).prev, q.items.at(q.waiting[j]).prev = ref(i), ref(j)
}

// shrink gives memory back when the queue holds far less than it did.
func (q *queue[K]) shrink() {
	if !q.items.sparse() {
		return
	}
	moved := q.items.compact()
	for i := range q.fifos {
		q.fifos[i] = fifo{head: moved[q.fifos[i].head], tail: moved[q.fifos[i].tail]}
	}
	waiting := make([]ref, len(q.waiting))
	for i, r := range q.waiting {
		waiting[i] = moved[r]
	}
	q.waiting = waiting
}
