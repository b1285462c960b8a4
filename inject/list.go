package inject

// list is the elements of an array of a pod.
type list struct {
	entries []entry
	index   map[string]int // Of entries, once there are many.
	there   bool           // The pod has the array; it may be empty.
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
	of    *item   // What was added.
}

// many is how many entries are searched one by one.
const many = 64

// find returns the last entry with an id, for of two variables of one name the last
// one counts. It returns nil if there is none.
func (l *list) find(id string) *entry {
	if len(l.entries) > many {
		if at, ok := l.indexed()[id]; ok {
			return &l.entries[at]
		}
		return nil
	}
	for i := len(l.entries) - 1; i >= 0; i-- {
		if l.entries[i].id == id {
			return &l.entries[i]
		}
	}
	return nil
}

func (l *list) indexed() map[string]int {
	if l.index == nil {
		l.index = make(map[string]int, 2*len(l.entries))
		for i := range l.entries {
			l.index[l.entries[i].id] = i
		}
	}
	return l.index
}

// add puts an item of a policy into the list, in this place.
func (l *list) add(it *item, by *Policy, at int) {
	if l.index != nil {
		l.index[it.id] = len(l.entries)
	}
	if at < l.length {
		l.inserted = append(l.inserted, at)
	}
	l.entries = append(l.entries, entry{id: it.id, raw: it.raw, at: at, since: len(l.inserted), by: by, of: it})
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
	if e.of != nil {
		return e.of == it || equal(e.of.normal, it.normal)
	}
	return sameItem(of, e.raw, it)
}
