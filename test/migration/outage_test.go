package migration

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/migration"
	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// TestOutage: a migration continues after an outage of the API server.
func TestOutage(t *testing.T) {
	t.Parallel()
	const objects = 400
	own, err := newHub(harness.New(t, harness.Topology{Own: true})) // The test kills this API server, so other tests cannot use it.
	if err != nil {
		t.Fatal(err)
	}
	k := install(t, kind{hub: own})
	k.create("some", objects)
	k.mustApply(versions{storage: "v2"})
	before := k.listed()
	o := k.options()
	o.Rate = 300
	midway := make(chan struct{})
	tell := sync.OnceFunc(func() { close(midway) })
	o.Progress = func(p migration.Progress) {
		if p.Phase == migration.Rewriting && p.Done > 150 {
			tell()
		}
	}
	var running sync.WaitGroup
	running.Go(func() {
		defer tell() // Also after a failure.
		r, err := migration.Run(t.Context(), o)
		if err != nil || r.Outcome != migration.Migrated || r.Objects != objects {
			t.Errorf("Run(...): want all objects migrated, got %+v, %v", r, err)
		}
	})
	<-midway
	if err := own.Playground.Kill("hub", playground.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := own.Playground.Revive(t.Context(), "hub", playground.APIServer); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	k.wantMigrated(objects)
	for name, is := range k.listed() {
		if diff := cmp.Diff(same(before[name]), same(is)); diff != "" {
			t.Fatalf("%s: -before, +after:\n%s", name, diff)
		}
	}
}
