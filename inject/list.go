package inject

// list is the elements of an array of a pod.
type list struct {
	entries []entry
	index   map[string]int // Of entries, once there are many.
	there   bool           // The pod has the array; it may be empty.
	length  int
	// prepended is how many elements were inserted at its beginning.
	prepended int
}

// entry is an element of such an array: one of the pod's, or one that was added.
type entry struct {
	id  string
	raw []byte
	at  int     // Its index in the pod as it was given.
	by  *Policy // Who added it; nil for one of the pod's.
	of  *item   // What was added.
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

// add puts an item of a policy into the list.
func (l *list) add(it *item, by *Policy) {
	if l.index != nil {
		l.index[it.id] = len(l.entries)
	}
	l.entries = append(l.entries, entry{id: it.id, raw: it.raw, by: by, of: it})
	l.there = true
	l.length++
}

// remove takes away the entries of these ids that are gone, as far as is known. An id
// that is there twice is no policy's: those add none that is there.
func (l *list) remove(ids []string, gone func(*entry) bool) {
	if len(ids) == 0 || len(l.entries) == 0 {
		return
	}
	left := make(map[string]int, len(ids))
	for _, id := range ids {
		left[id] = 1
	}
	for i := range l.entries {
		if _, named := left[l.entries[i].id]; named {
			left[l.entries[i].id]--
		}
	}
	kept := make([]entry, 0, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		if n, named := left[e.id]; !named || n < 0 || !gone(e) {
			kept = append(kept, *e)
		}
	}
	l.entries, l.index = kept, nil
}

// same reports whether the entry is what an item injects.
func (e *entry) same(of itemKind, it *item) bool {
	if e.of != nil {
		return e.of == it || equal(e.of.normal, it.normal)
	}
	return sameItem(of, e.raw, it)
}
