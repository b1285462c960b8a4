package inventory

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
)

// TestMostEntries checks the bound on clusters of an inventory, and that ignored clusters do not count as gone.
func TestMostEntries(t *testing.T) {
	l := &listed{read: readProfile, log: logr.Discard(), changed: func(string) {}}
	var all []any
	for i := range mostEntries {
		all = append(all, object(t, fmt.Sprintf("{kind: ClusterProfile, metadata: {name: c%05d, namespace: fleet}}", i)))
	}
	if err := l.Replace(all, "1"); err != nil {
		t.Fatal(err)
	}
	if e, known := l.get("none"); e != nil || !known {
		t.Errorf("get(none): want no entry, and known, got %v, %t", e, known)
	}
	more := object(t, "{kind: ClusterProfile, metadata: {name: more, namespace: fleet}}")
	if err := l.Add(more); err != nil {
		t.Fatal(err)
	}
	if e, known := l.get("more"); e != nil || known || len(l.entries) != mostEntries {
		t.Errorf("get(more): want the entry ignored, and not known, got %v, %t of %d", e, known, len(l.entries))
	}
	if err := l.Replace(append(all, more), "2"); err != nil {
		t.Fatal(err)
	}
	if e, known := l.get("more"); e != nil || known || len(l.entries) != mostEntries {
		t.Errorf("get(more): want the listed entry ignored, and not known, got %v, %t of %d", e, known, len(l.entries))
	}
}
