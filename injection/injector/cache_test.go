package injector

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

// policy decodes a policy.
func policy(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte("apiVersion: refract.dev/v1beta1\nkind: ServiceInjectionPolicy\n" + strings.TrimPrefix(text, "\n")))
	if err != nil {
		tb.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		tb.Fatal(err)
	}
	return u
}

// database is a policy that selects the role frontend.
const database = `
metadata: {name: allow-database, namespace: shop, uid: "1", generation: 1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  env: [{name: DB_PORT, value: 6379}]
  volumes: [{name: cache-volume, emptyDir: {}}]
  volumeMounts: [{mountPath: /cache, name: cache-volume}]
`

// changed replaces parts of a text. pairs has an old part, its new part, the next old part, and so on.
func changed(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// record collects log lines.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, args)
	}, funcr.Options{})
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// full returns a synced cache that has these policies.
func full(tb testing.TB, texts ...string) *Cache {
	tb.Helper()
	c := newCache(logr.Discard())
	for _, text := range texts {
		c.update(policy(tb, text))
	}
	close(c.synced)
	return c
}

// names returns the names of the policies of a namespace.
func names(c *Cache, namespace string) []string {
	var out []string
	for _, p := range c.Set(namespace).Policies() {
		out = append(out, p.Name())
	}
	return out
}

func TestCacheFollows(t *testing.T) {
	const later = `metadata: {name: a-later, namespace: shop, creationTimestamp: "2026-02-01T00:00:00Z"}
spec: {selector: {}, env: [{name: A, value: a}], containers: {ephemeralContainers: true}}`
	c := newCache(logr.Discard())
	var forgotten []string
	c.forget = func(namespace string) { forgotten = append(forgotten, namespace) }
	state := func(reason string, some, ephemeral bool, shop, bank []string) {
		t.Helper()
		if c.Any() != some || c.AnyEphemeral() != ephemeral {
			t.Errorf("%s\nAny() is %t, AnyEphemeral() is %t, want %t, %t", reason, c.Any(), c.AnyEphemeral(), some, ephemeral)
		}
		if diff := cmp.Diff([][]string{shop, bank}, [][]string{names(c, "shop"), names(c, "bank")}); diff != "" {
			t.Errorf("%s\n-want, +got:\n%s", reason, diff)
		}
	}
	state("It is empty.", false, false, nil, nil)
	c.update(policy(t, later))
	c.update(policy(t, database))
	c.update(policy(t, changed(database, "shop", "bank")))
	state("The oldest comes first, and each has its namespace.", true, true, []string{"allow-database", "a-later"}, []string{"allow-database"})
	c.remove(policy(t, later))
	c.remove(policy(t, later))
	state("One has gone, of which nobody need be told twice.", true, false, []string{"allow-database"}, []string{"allow-database"})
	c.remove(toolscache.DeletedFinalStateUnknown{Obj: policy(t, database)})
	c.remove(policy(t, changed(database, "shop", "bank")))
	state("All have gone.", false, false, nil, nil)
	if diff := cmp.Diff([]string{"shop", "shop", "bank", "shop", "shop", "bank"}, forgotten); diff != "" {
		t.Errorf("What is remembered of a namespace goes with every change there: -want, +got:\n%s", diff)
	}
	select {
	case <-c.changed:
	default:
		t.Error("Other pods are to be asked about, and nobody was told.")
	}
}

// TestCacheIsLeftAlone: an update that does not change the injected content does not change the cache.
func TestCacheIsLeftAlone(t *testing.T) {
	const implicit = `
status: {matched: 3, fromService: {env: [{name: HOST, value: db}]}}`
	cases := map[string]struct {
		reason string
		before string
		now    string
		same   bool
	}{
		"Counts":      {"The counts in the status change often, and do not matter.", database + "status: {matched: 1}", database + "status: {matched: 2}", true},
		"Metadata":    {"Labels of the policy do not matter.", database, changed(database, "uid", "labels: {a: b}, uid"), true},
		"Spec":        {"The injected content has changed.", database, changed(database, "6379", "7000", "generation: 1", "generation: 2"), false},
		"Forced":      {"The injected content has changed, although the generation has not.", database, changed(database, "6379", "7000"), false},
		"Generation":  {"The generation is in the records of pods.", database, changed(database, "generation: 1", "generation: 2"), false},
		"Another":     {"Another policy has the same name.", database, changed(database, `uid: "1"`, `uid: "2"`), false},
		"FromService": {"The items of the Service have changed.", database + implicit, database + changed(implicit, "value: db", "value: other"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCache(logr.Discard())
			c.update(policy(t, tc.before))
			before := c.Set("shop")
			c.update(policy(t, tc.now))
			if same := c.Set("shop") == before; same != tc.same {
				t.Errorf("%s\nThe set is the same: %t, want %t", tc.reason, same, tc.same)
			}
		})
	}
}

// TestBrokenPolicies stores policies that an API server would reject.
func TestBrokenPolicies(t *testing.T) {
	cases := map[string]string{
		"Selector":   changed(database, "matchLabels: {role: frontend}", "matchExpressions: [{key: role, operator: Foo}]"),
		"NoSelector": changed(database, "selector: {matchLabels: {role: frontend}}", ""),
		"Type":       changed(database, "env: [{name: DB_PORT, value: 6379}]", "env: many"),
		"Status":     database + "status: {fromService: {env: many}}",
		"NoSpec":     "metadata: {name: allow-database, namespace: shop}",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			var log record
			c := newCache(log.logger())
			good := changed(database, "allow-database", "good")
			c.update(policy(t, good))
			for range 3 {
				c.update(policy(t, text))
			}
			if diff := cmp.Diff([]string{"good"}, names(c, "shop")); diff != "" {
				t.Errorf("It harms no other: -want, +got:\n%s", diff)
			}
			if lines := log.String(); strings.Count(lines, "not valid") != 1 || !strings.Contains(lines, `"policy"="allow-database"`) {
				t.Errorf("It is logged once, by name:\n%s", lines)
			}
			c.remove(policy(t, good))
			if c.Any() {
				t.Error("A policy that is not valid is for no pod.")
			}
			c.update(policy(t, changed(database, "generation: 1", "generation: 2")))
			if diff := cmp.Diff([]string{"allow-database"}, names(c, "shop")); diff != "" {
				t.Errorf("Mended, it counts: -want, +got:\n%s", diff)
			}
		})
	}
}

// TestSetsAreMadeWhenAskedFor: many changes create only one set, at the next lookup, and this set has all changes.
func TestSetsAreMadeWhenAskedFor(t *testing.T) {
	const many = 100_000
	c := newCache(logr.Discard())
	one := policy(t, database)
	compiled := c.compile(one)
	if compiled.err != nil {
		t.Fatal(compiled.err)
	}
	c.policies["shop"] = map[string]*entry{}
	for i := range many { // Compiling each policy would take minutes.
		c.policies["shop"][fmt.Sprintf("p-%d", i)] = compiled
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.update(one)
	runtime.ReadMemStats(&after)
	// The set has 8 bytes for each policy. The remaining allocations are for the updated policy.
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*many {
		t.Errorf("One policy among %d takes %d bytes", many, took)
	}
	set := c.Set("shop")
	if got := len(set.Policies()); got != many+1 || c.Set("shop") != set {
		t.Errorf("A set of %d policies, want %d, and the same for everybody", got, many+1)
	}
	c.update(policy(t, changed(database, "allow-database", "p-new")))
	if got := len(c.Set("shop").Policies()); got != many+2 {
		t.Errorf("A set of %d policies, want %d", got, many+2)
	}
	c.remove(one)
	if got := len(c.Set("shop").Policies()); got != many+1 {
		t.Errorf("A set of %d policies, want %d", got, many+1)
	}
}

// TestCacheIsReadWhileItChanges is for the race detector.
func TestCacheIsReadWhileItChanges(t *testing.T) {
	c := full(t)
	one, other := policy(t, database), policy(t, changed(database, "6379", "7000"))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if got := c.Set("shop").Policies(); len(got) > 1 {
						t.Errorf("There are %d policies.", len(got))
						return
					}
				}
			}
		})
	}
	for range 200 {
		c.update(one)
		c.update(other)
		c.remove(other)
	}
	close(done)
	readers.Wait()
}
