package propagation

import (
	"container/heap"
	"maps"
	"time"
)

// The delays before a failed key is tried again. They double from the first to the last.
const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = 30 * time.Second
)

// fairness makes every eighth key come from the lower priorities, so that a steady stream of keys with a high
// priority does not starve the others.
const fairness = 8

// fewItems is the number of items whose memory is always kept.
const fewItems = 32

// queue orders keys by priority and time. Each key is in it once. Times are durations since a moment that the caller
// chose; the queue has no clock, no goroutine and no lock. Its zero value is ready for use.
type queue[K comparable] struct {
	items map[K]*item[K]
	most  int // The largest number of items since the map was made: a map never frees memory.
	lines [priorityRequired + 1]line[K]
	costs func(K) bool // Whether a key is costly, so that all other keys come first; nil if no key is costly.
	// sooner orders keys with the same time; nil for the order of arrival.
	sooner  func(a, b K) bool
	waiting schedule[K] // The keys that are due later.
	ready   int         // The number of keys in the lines.
	wanted  int         // The number of ready keys that are wanted, see [item.isWanted].
	taken   uint8
}

// item is the entry of a key in a queue.
type item[K comparable] struct {
	key        K
	at         time.Duration // The time when the key became or becomes due.
	prev, next *item[K]      // In its line.
	index      int32         // In the schedule.

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
	retried                   // The key comes again by itself, and nobody has added it since.
)

func (e *item[K]) is(b being) bool { return e.being&b != 0 }

// isWanted reports whether the caller of add waits for the key: it was added, is not a retry, and is not costly.
func (e *item[K]) isWanted() bool { return !e.is(costly) && !e.is(retried) }

// place is the position of an item.
type place uint8

const (
	nowhere place = iota // A worker has the key, and it was not added again.
	due                  // In a line. If a worker has the key: as soon as the worker finishes.
	later                // In the schedule. If a worker has the key: as soon as the worker finishes.
)

// line has the keys of one priority, in the order of their arrival.
type line[K comparable] struct{ head, tail *item[K] }

// schedule is a heap of items, the earliest first.
type schedule[K comparable] []*item[K]

// Len is part of [heap.Interface].
func (s schedule[K]) Len() int { return len(s) }

// Less is part of [heap.Interface].
func (s schedule[K]) Less(i, j int) bool { return s[i].at < s[j].at }

// Swap is part of [heap.Interface].
func (s schedule[K]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = int32(i), int32(j)
}

// Push is part of [heap.Interface].
func (s *schedule[K]) Push(x any) {
	e := x.(*item[K]) //nolint:forcetypeassert // The heap has nothing else.
	e.index = int32(len(*s))
	*s = append(*s, e)
}

// Pop is part of [heap.Interface].
func (s *schedule[K]) Pop() any {
	end := len(*s) - 1
	e := (*s)[end]
	(*s)[end] = nil
	*s = (*s)[:end]
	return e
}

// outcome is the result of the work on a key.
type outcome struct {
	after  time.Duration // The delay before the key comes again; zero if it does not.
	failed bool          // The key comes again, after a delay that grows each time.
}

// add schedules a key for a time, or for now if that time has passed. It neither delays a key that is in the queue
// already, nor lowers its priority.
func (q *queue[K]) add(key K, u priority, at, now time.Duration) {
	e := q.items[key]
	if e == nil {
		if q.items == nil {
			q.items = map[K]*item[K]{}
		}
		e = &item[K]{key: key}
		q.items[key] = e
		q.most = max(q.most, len(q.items))
	}
	if e.place != due {
		e.being &^= retried
	}
	q.ask(e, u, at, now)
}

func (q *queue[K]) ask(e *item[K], u priority, at, now time.Duration) {
	switch {
	case e.place == due && u <= e.priority:
	case e.place == due:
		q.remove(e)
		e.priority = u
		q.enter(e)
	case at <= now:
		if e.place == later {
			u, at = max(u, e.priority), min(at, e.at)
			q.remove(e)
		}
		e.place, e.priority, e.at = due, u, at
		q.enter(e)
	case e.place == later:
		e.priority = max(u, e.priority)
		if at < e.at {
			q.remove(e)
			e.at = at
			q.enter(e)
		}
	default:
		e.place, e.priority, e.at = later, u, at
		q.enter(e)
	}
}

// get returns the next key, with its priority and the time when it became due. The caller must call finish for it.
func (q *queue[K]) get() (key K, u priority, since time.Duration, ok bool) {
	e := q.choose()
	for e != nil && q.costs != nil && !e.is(costly) && q.costs(e.key) {
		q.remove(e)
		e.being |= costly
		q.enter(e)
		e = q.choose()
	}
	if e == nil {
		return key, 0, 0, false
	}
	q.remove(e)
	e.place, e.being = nowhere, busy
	return e.key, e.priority, e.at, true
}

// choose returns the first item of the line with the highest priority. In one of [fairness] calls, it returns the item
// that has been due for the longest time in the other lines.
func (q *queue[K]) choose() *item[K] {
	var most, rest *item[K]
	for u := range q.lines {
		head := q.lines[u].head
		if head == nil {
			continue
		}
		if most != nil && (rest == nil || most.at < rest.at) {
			rest = most
		}
		most = head
	}
	q.taken = (q.taken + 1) % fairness
	if q.taken == 0 && rest != nil {
		return rest
	}
	return most
}

// finish ends the work on a key that get returned with this priority.
func (q *queue[K]) finish(key K, u priority, o outcome, now time.Duration) {
	e := q.items[key]
	asked, urgent, at := e.place, e.priority, e.at
	e.place, e.being = nowhere, 0
	if asked != nowhere {
		q.ask(e, urgent, at, now)
	} else {
		e.being = retried
	}
	switch {
	case o.failed:
		q.ask(e, u, now+min(firstBackoff<<e.failures, lastBackoff), now)
		if firstBackoff<<e.failures < lastBackoff {
			e.failures++
		}
		return
	case o.after > 0:
		q.ask(e, u, now+o.after, now)
	}
	e.failures = 0
	if e.place == nowhere {
		delete(q.items, key)
		if q.most > fewItems && len(q.items) < q.most/4 {
			q.items, q.most = maps.Collect(maps.All(q.items)), len(q.items)
		}
	}
}

// next returns the time of the earliest key that is not due yet.
func (q *queue[K]) next() (at time.Duration, ok bool) {
	if len(q.waiting) == 0 {
		return 0, false
	}
	return q.waiting[0].at, true
}

// promote moves the keys that have become due from the schedule to their lines.
func (q *queue[K]) promote(now time.Duration) {
	for len(q.waiting) > 0 && q.waiting[0].at <= now {
		e := q.waiting[0]
		q.remove(e)
		e.place = due
		q.enter(e)
	}
}

// line returns the line of an item that is due.
func (q *queue[K]) line(e *item[K]) *line[K] {
	if e.is(costly) {
		return &q.lines[priorityCostly]
	}
	return &q.lines[e.priority]
}

// enter puts an item at the end of its line, or into the schedule, depending on its place. The item of a key that a
// worker has enters when the worker finishes.
func (q *queue[K]) enter(e *item[K]) {
	if e.is(busy) {
		return
	}
	if e.place == later {
		heap.Push(&q.waiting, e)
		return
	}
	l := q.line(e)
	after := l.tail
	for q.sooner != nil && after != nil && after.at == e.at && q.sooner(e.key, after.key) {
		after = after.prev
	}
	e.prev, e.next = after, l.head
	if after == nil {
		l.head = e
	} else {
		e.next = after.next
		after.next = e
	}
	if e.next == nil {
		l.tail = e
	} else {
		e.next.prev = e
	}
	q.count(e, 1)
}

// remove takes an item out of its line or the schedule.
func (q *queue[K]) remove(e *item[K]) {
	if e.is(busy) {
		return
	}
	if e.place == later {
		heap.Remove(&q.waiting, int(e.index))
		return
	}
	l := q.line(e)
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	q.count(e, -1)
}

// count counts an item that enters or leaves a line.
func (q *queue[K]) count(e *item[K], n int) {
	q.ready += n
	if e.isWanted() {
		q.wanted += n
	}
}

// arrange sets the order of keys with the same time, and sorts the present lines by it.
func (q *queue[K]) arrange(sooner func(a, b K) bool) {
	q.sooner = sooner
	for i := range q.lines {
		var all []*item[K]
		for e := q.lines[i].head; e != nil; e = e.next {
			all = append(all, e)
		}
		for _, e := range all {
			q.remove(e)
			q.enter(e)
		}
	}
}
