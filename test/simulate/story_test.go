package simulate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStory: a story contains the actions of people, the faults, and Refract's writes to the objects of the violation.
// Its last line is the act that breaks the promise.
func TestStory(t *testing.T) {
	whole := &Result{Steps: 60, Violation: &Broken{Invariant: beyondBudget, Step: 42, Message: "injector-a.2 evicts Pod web-1"}}
	r := &Result{
		Steps: 3, Requests: 70, Processes: []string{"injector-a.1", "injector-b.2", "refract-a.3", "injector-a.4"},
		Violation: &Broken{Invariant: beyondBudget, Step: 4, Message: "injector-a.4 has the pods of Deployment/web restarted, though it is paused"},
	}
	add := func(step int, actor, text string) {
		r.Entries = append(r.Entries, Entry{Step: step, After: time.Duration(len(r.Entries)) * 20500 * time.Millisecond, Actor: actor, Text: text})
	}
	add(0, atStart, "there is Deployment shop/api on the hub")
	add(0, atStart, "there is Deployment bakery/web on eu-1: 3 replicas, obeys RolloutPolicy bakery/careful")
	add(0, atStart, `there is RolloutPolicy careful on the hub: it says "all clusters"`)
	add(0, atStart, `there is RolloutPolicy other on the hub: it says "all clusters"`)
	add(1, "refract-a.3", "reports on Secret shop/web: Synced")
	add(1, "carol", "edits Deployment bakery/web: spec.replicas 2 → 3")
	for range 2 {
		add(1, "injector-b.2", "reports on ServiceInjectionPolicy bakery/cache: Rolling")
		add(1, "injector-a.1", "reports on ServiceInjectionPolicy bakery/cache: Halted")
	}
	add(3, fault, "injector-a.1 is killed, and starts again as injector-a.4")
	add(4, passing, "the steps are over")
	add(4, "injector-a.4", "changes Deployment bakery/web on eu-1: a → b")
	add(4, violated, "restart-beyond-budget: as above")
	r.Entries[len(r.Entries)-1].After = r.Entries[len(r.Entries)-2].After
	add(4, "time", "3m0s pass")
	want, err := os.ReadFile("testdata/story.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	Story(&got, 7, whole, r)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("Story(): -want, +got:\n%s\ngot:\n%s", diff, got.String())
	}
}

// TestDifference: difference lists fields with both values.
func TestDifference(t *testing.T) {
	was, is := object(kindSecret, "shop", "keys", fields{"data": fields{"password": "YQ==", "user": "Yg=="}, "list": []any{fields{"name": "x", "value": "1"}}}),
		object(kindSecret, "shop", "keys", fields{"data": fields{"password": "Yw=="}, "list": []any{fields{"name": "x", "value": "2"}}, "more": []any{"a"}})
	is.SetResourceVersion("7")
	if got, want := difference(was, is), `data.password a → c, data.user b → none, list.x.value 1 → 2, more none → ["a"]`; got != want {
		t.Errorf("difference(): want %s, got %s", want, got)
	}
	if got := difference(is, is); got != "" {
		t.Errorf("difference(): want nothing of equal objects, got %s", got)
	}
}

// TestAgain: again lists the objects that are still written repeatedly.
func TestAgain(t *testing.T) {
	before := time.Now().Add(-10 * time.Minute)
	o := &oracle{writes: []written{{before, "Job shop/migrate"}, {before, "Job shop/migrate"}, {before, "Service shop/web"}}}
	for i, what := range []string{"Deployment shop/web", "Secret shop/keys", "Deployment shop/web", "Service shop/web", "Deployment shop/web", "Secret shop/keys"} {
		o.writes = append(o.writes, written{time.Now().Add(time.Duration(i-60) * time.Second), what})
	}
	if got, want := o.again(5*time.Minute), "Deployment shop/web (3 times); Secret shop/keys (2 times); Service shop/web (1 times)"; got != want {
		t.Errorf("again(5m): want %s, got %s", want, got)
	}
	if got, want := o.again(time.Hour), "Deployment shop/web (3 times); Secret shop/keys (2 times); Service shop/web (2 times)"; got != want {
		t.Errorf("again(1h): want %s, got %s", want, got)
	}
}

// TestMentions: mentions finds all objects that are named in a text.
func TestMentions(t *testing.T) {
	got := mentions("refract-a.1 writes Deployment shop/web, DaemonSet/agent. Synced says the Propagation of Namespace shop, on cluster eu-1 a cluster that leaves")
	want := []mention{{"Deployment", "shop", "web"}, {"DaemonSet", "", "agent"}, {"Namespace", "", "shop"}, {"cluster", "", "eu-1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mention{})); diff != "" {
		t.Errorf("mentions(): -want, +got:\n%s", diff)
	}
}
