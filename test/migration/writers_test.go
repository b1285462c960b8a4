package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/conversion/migration"
)

// The objects of TestWriters, by number. During the migration, writers update those below updated and delete those from
// updated to below deleted. The rest stays unchanged.
const (
	updated = 300
	deleted = 600
	many    = 1200
)

// between is the pause of a writer between two writes. Without the pause, the writers would use more of a small machine
// than the migration.
const between = 5 * time.Millisecond

// TestWriters migrates while clients update, delete and create objects in both versions.
func TestWriters(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("some", many)
	k.mustApply(versions{storage: "v2"})
	before := k.listed()
	if len(before) != many {
		t.Fatalf("want %d objects, got %d", many, len(before))
	}

	w := &writers{k: k, notes: map[string]string{}}
	stop := w.start()
	r := k.migrate(k.options())
	stop()
	if t.Failed() {
		return
	}
	t.Logf("%d objects in %.1f s and %d passes: %d rewritten, %d there, %d gone; meanwhile %d updates, %d deletions, %d new",
		r.Objects, r.Seconds, r.Passes, r.Rewritten, r.Unchanged, r.Gone, w.updates, w.deletions, w.creations)
	if r.Outcome != migration.Migrated {
		t.Fatalf("Run(...): want it migrated, got %+v", r)
	}
	if r.Objects != r.Rewritten+r.Unchanged+r.Gone {
		t.Errorf("Run(...): the numbers do not add up: %+v", r)
	}
	if w.updates == 0 || w.deletions == 0 || w.creations == 0 {
		t.Fatal("want writes during the migration")
	}
	k.wantMigrated(many - w.deletions + w.creations)

	after := k.listed()
	want := map[string]string{}
	for name := range before {
		want[name] = name // The content at the time of the creation.
	}
	maps.Copy(want, w.notes)
	maps.DeleteFunc(want, func(_, note string) bool { return note == "" })
	got := map[string]string{}
	for name, o := range after {
		got[name], _, _ = nested(o.Object, "spec", "note")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects with the content of their last writers: -want, +got:\n%s", diff)
	}
	for i := deleted; i < many; i++ {
		name := fmt.Sprintf("some-%05d", i)
		if diff := cmp.Diff(same(before[name]), same(after[name])); diff != "" {
			t.Fatalf("%s, which no writer changed: -before, +after:\n%s", name, diff)
		}
	}
}

func nested(o map[string]any, parent, name string) (text string, found bool, err error) {
	in, ok := o[parent].(map[string]any)
	if !ok {
		return "", false, errors.New("it has no " + parent)
	}
	text, found = in[name].(string)
	return text, found, nil
}

// writers change objects until they are stopped.
type writers struct {
	k *kind

	mu                            sync.Mutex
	notes                         map[string]string // Last written content; empty for deleted objects.
	updates, deletions, creations int
}

// start starts three writers, and returns a function that stops them and waits until they have ended.
func (w *writers) start() (stop func()) {
	ctx, cancel := context.WithCancel(w.k.t.Context())
	var running sync.WaitGroup
	for _, write := range []func(i int) error{w.update, w.delete, w.create} {
		running.Go(func() {
			ticks := time.NewTicker(between)
			defer ticks.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				if err := write(i); err != nil {
					w.k.t.Errorf("The migration must not disturb a writer: %v", err)
					return
				}
				select {
				case <-ticks.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// either alternates between v1 and v2.
func either(i int) string { return fmt.Sprintf("v%d", i%2+1) }

func (w *writers) note(name, note string, counter *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[name] = note
	*counter++
}

func (w *writers) update(i int) error {
	name := fmt.Sprintf("some-%05d", i*37%updated) // The numbers are spread over all objects, and repeat.
	note := fmt.Sprintf("update %d", i)
	patch := fmt.Appendf(nil, `{"spec":{"note":%q}}`, note)
	if _, err := w.k.in(either(i)).Patch(w.k.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	w.note(name, note, &w.updates)
	return nil
}

func (w *writers) delete(i int) error {
	if updated+i >= deleted {
		return nil // All objects are deleted.
	}
	name := fmt.Sprintf("some-%05d", deleted-1-i)
	if err := w.k.in(either(i)).Delete(w.k.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	w.note(name, "", &w.deletions)
	return nil
}

func (w *writers) create(i int) error {
	o := w.k.object(either(i), fmt.Sprintf("new-%05d", i), int64(i%5))
	if _, err := w.k.in(either(i)).Create(w.k.t.Context(), o, metav1.CreateOptions{}); err != nil {
		return err
	}
	w.note(o.GetName(), o.GetName(), &w.creations)
	return nil
}
