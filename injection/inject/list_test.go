package inject

import (
	"fmt"
	"testing"
)

// TestIndex: a search has the same result with and without an index.
func TestIndex(t *testing.T) {
	l := &list{}
	for i := range 3 * fewSlots {
		l.entries = append(l.entries, entry{id: fmt.Sprintf("V%d", i%100), at: i})
	}
	l.length = len(l.entries)
	check := func(reason string) {
		t.Helper()
		for i := range 4 * fewSlots {
			it := &item{id: fmt.Sprintf("V%d", i)}
			it.hash = hashOfID(it.id)
			want := l.look(it.id)
			if got := l.find(it.id); got != want {
				t.Errorf("%s: find(%s): got %+v, want %+v", reason, it.id, got, want)
			}
			if got := l.findItem(it); got != want {
				t.Errorf("%s: findItem(%s): got %+v, want %+v", reason, it.id, got, want)
			}
		}
	}
	check("The last one of a name counts")
	if l.index == nil {
		t.Fatalf("After %d looks there is no index", l.looked)
	}
	for i := range 4 * fewSlots {
		it := &item{id: fmt.Sprintf("V%d", 50+i)}
		it.hash = hashOfID(it.id)
		l.add(it, &Policy{}, l.length)
	}
	check("So it does of those that are added")
	l.remove(func(e *entry) bool { return e.at%2 == 0 })
	check("What was taken away is not found")
}
