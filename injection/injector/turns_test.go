package injector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTooMuchWork: a pod that exceeds the work limit is admitted. A warning has the reason.
func TestTooMuchWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // With a simulated clock, the turn comes in time even on a busy machine.
		policies := make([]string, 100)
		for i := range policies {
			policies[i] = changed(database, "allow-database", fmt.Sprintf("policy-%02d", i))
		}
		pod := `{metadata: {name: website, labels: {role: frontend}}, spec: {containers: [` +
			strings.Repeat("{name: c},", 30_000) + `{name: c}]}}`
		before := counted(t, reviews.WithLabelValues(outcomeExceeded))
		got := ask(t, served(t, policies...), (&request{pod: pod}).body(t))
		if !got.Allowed || len(got.Warnings) != 1 {
			t.Fatalf("It is admitted with one warning: %t, %q", got.Allowed, got.Warnings)
		}
		for _, part := range []string{"nothing is injected: 100 policies choose the pod", "units of work", "policy-00,policy-01"} {
			if !strings.Contains(got.Warnings[0], part) {
				t.Errorf("%q is not in %q", part, got.Warnings[0])
			}
		}
		if after := patched(t, pod, got); !strings.Contains(after, "TooMuchWork") || strings.Contains(after, "DB_PORT") {
			t.Errorf("It is on record in the pod, and nothing is injected: %.300s", after)
		}
		if more := counted(t, reviews.WithLabelValues(outcomeExceeded)) - before; more != 1 {
			t.Errorf("Counted %v times", more)
		}
	})
}

// occupy lets a namespace take all places and fill its queue, until the returned function is called.
func occupy(t *testing.T, p *pods, namespace string) func() {
	t.Helper()
	places := p.fallback.turns.places
	end := make(chan struct{})
	for range 1000 { // More than there is room for.
		go func() {
			if done, err := places.Take(t.Context(), namespace, 1); err == nil {
				<-end
				done()
			}
		}()
	}
	synctest.Wait()
	return func() { close(end) }
}

// TestBusy: a pod without a turn in time is admitted with a warning.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := served(t, database)
		free := occupy(t, p, "bank")
		before := counted(t, reviews.WithLabelValues(outcomeBusy))
		begun := time.Now()
		got := ask(t, p, (&request{pod: website}).body(t))
		if !got.Allowed || got.Patch != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "too many pods") {
			t.Errorf("A pod that has waited long enough is admitted as it is, with a warning: %+v", got)
		}
		if waited := time.Since(begun); waited != turnPatience {
			t.Errorf("It waited for %s", waited)
		}
		if more := counted(t, reviews.WithLabelValues(outcomeBusy)) - before; more != 1 {
			t.Errorf("Counted %v times", more)
		}
		if got := ask(t, p, (&request{pod: website, namespace: "empty"}).body(t)); len(got.Warnings) > 0 {
			t.Errorf("A pod of a namespace without policies waits for nobody: %q", got.Warnings)
		}
		free()
	})
}

// TestOthersDoNotWait: one namespace creates more pods than have a place. A pod of another namespace gets its turn as
// soon as one place is free.
func TestOthersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := served(t, database)
		free := occupy(t, p, "bank")
		answers := make(chan bool, 20)
		for range cap(answers) {
			go func() { answers <- ask(t, p, (&request{pod: website}).body(t)).Patch != nil }()
		}
		synctest.Wait()
		free()
		injected := 0
		for range cap(answers) {
			if <-answers {
				injected++
			}
		}
		if injected != cap(answers) {
			t.Errorf("%d of %d pods were injected", injected, cap(answers))
		}
	})
}

// TestFull: the number of waiting pods is bounded, and a pod beyond the bound gets a response at once.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := served(t, database)
		free := occupy(t, p, "shop")
		begun := time.Now()
		got := ask(t, p, (&request{pod: website}).body(t))
		if waited := time.Since(begun); waited != 0 || !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "too many pods") }) {
			t.Errorf("After %s: %q", waited, got.Warnings)
		}
		free()
	})
}
