package propagation

import "time"

// The delays before a failed key is tried again. They double from the first to the last.
const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = 30 * time.Second
)

// fairness makes every eighth key come from the lower priorities, so that a steady stream of keys with a high
// priority does not starve the others.
const fairness = 8

// queue orders keys by priority and time. Each key is in it once. Times are durations since a moment that the caller
// chose; the queue has no clock, no goroutine and no lock. Its zero value is ready for use.
type queue[K comparable] struct {
	items items[K]
	fifos [priorityRequired + 1]fifo
	costs func(K) bool // Whether a key is costly, so that all others come before it; nil if no key is.
	// sooner orders keys with the same time; nil for the order of arrival.
	sooner  func(a, b K) bool
	waiting []ref // A heap of the keys that are due later, the earliest first.
	ready   int   // The number of keys in the lines.
	wanted  int   // The number of these that are wanted, see [item.isWanted].
	taken   uint8
}

// fifo is the line of the keys of one priority, in the order of their arrival.
type fifo struct{ head, tail ref }

// place is the position of an item.
type place uint8

const (
	vacant  place = iota // The item is unused.
	nowhere              // A worker has the key, and it was not added again.
	due                  // In a line. If a worker has the key: as soon as the worker finishes.
	later                // In the heap. If a worker has the key: as soon as the worker finishes.
)

// outcome is the result of the work on a key.
type outcome struct {
	after  time.Duration // The delay before the key comes again; zero if it does not.
	failed bool          // The key comes again, after longer delays each time.
}

// add schedules a key for a time, or for now if that time has passed. It neither delays a key that is in the queue
// already, nor lowers its priority.
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

// get returns the next key, with its priority and the time when it became due. The caller must call finish for it.
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

// choose returns the first item of the line with the highest priority. For one of [fairness] calls, it returns the
// item of all other lines that became due first.
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

// finish ends the work on a key that get returned with this priority.
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

// next returns the time of the earliest key that is not due yet.
func (q *queue[K]) next() (at time.Duration, ok bool) {
	if len(q.waiting) == 0 {
		return 0, false
	}
	return q.items.at(q.waiting[0]).at, true
}

// promote moves the keys that have become due from the heap to their lines.
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

// enter puts an item at the end of its line, or into the heap, as its place says. An item that a worker has enters
// when the worker finishes.
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
	after := l.tail
	for q.sooner != nil && after != 0 && q.items.at(after).at == e.at && q.sooner(e.key, q.items.at(after).key) {
		after = q.items.at(after).prev
	}
	e.prev, e.next = after, l.head
	if after == 0 {
		l.head = r
	} else {
		e.next = q.items.at(after).next
		q.items.at(after).next = r
	}
	if e.next == 0 {
		l.tail = r
	} else {
		q.items.at(e.next).prev = r
	}
	q.ready++
	if e.isWanted() {
		q.wanted++
	}
}

// arrange sets the order of keys with the same time, and sorts the present lines by it.
func (q *queue[K]) arrange(sooner func(a, b K) bool) {
	q.sooner = sooner
	for i := range q.fifos {
		var line []ref
		for r := q.fifos[i].head; r != 0; r = q.items.at(r).next {
			line = append(line, r)
		}
		for _, r := range line {
			q.remove(r)
			q.enter(r)
		}
	}
}

// remove takes an item out of its line or the heap.
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

// rise moves the item at index i of the heap up to its position, and returns the new index.
func (q *queue[K]) rise(i int) int {
	q.items.at(q.waiting[i]).prev = ref(i)
	for i > 0 && q.before(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i
}

// sink moves the item at index i of the heap down to its position.
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

// shrink frees memory when the queue holds far fewer keys than before.
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
