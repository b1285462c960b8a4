package simulate

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// injectionSeeds returns n seeds of worlds with injection.
func injectionSeeds(n int) (seeds []uint64) {
	for seed := uint64(1); len(seeds) < n; seed++ {
		if rand.New(rand.NewPCG(seed, 41)).IntN(4) == 0 {
			seeds = append(seeds, seed)
		}
	}
	return seeds
}

// runInjection runs a history that only has the injection.
func runInjection(seed uint64, steps int, to io.Writer) *World {
	w := newWorld(seed, to)
	defer w.end()
	w.beginInjection()
	w.drain(20 * time.Second)
	w.calm = false
	for i := range steps {
		if w.failed != nil {
			return w
		}
		w.step = i + 1
		w.Rand = rand.New(rand.NewPCG(seed, uint64(i+1)))
		w.operateOn(bakeryOperations)
		w.proceed()
		w.injectionAfter()
	}
	w.step, w.Rand, w.calm = steps+1, rand.New(rand.NewPCG(seed, 2)), true
	w.mendInjection()
	for _, p := range w.Processes {
		clear(p.cut)
	}
	for _, replica := range injectorNames {
		w.revive(replica)
	}
	for range 60 {
		if w.failed == nil {
			w.injectionControllers()
			w.drain(20 * time.Second)
		}
	}
	if w.failed == nil {
		w.injectionAtEnd()
	}
	return w
}

// operateOn performs a random operation.
func (w *World) operateOn(all []operation) {
	sum := 0
	for _, o := range all {
		sum += o.weight
	}
	n := w.Rand.IntN(sum)
	for _, o := range all {
		if n -= o.weight; n < 0 {
			began := w.Journal.mark(w)
			if actor, text := o.do(w); text != "" {
				w.stats.operations[o.name]++
				w.Journal.addAt(w, began, actor, text)
			}
			return
		}
	}
}

func numberFrom(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: want a number, got %q", variable, text)
	}
	return n
}

// TestInjection runs histories that only have the injection. They are much faster than complete ones.
func TestInjection(t *testing.T) {
	steps := numberFrom(t, "REFRACT_STEPS", 150)
	seeds := injectionSeeds(numberFrom(t, "REFRACT_INJECTIONS", 4))
	var log io.Writer
	if one := numberFrom(t, "REFRACT_INJECTION", 0); one > 0 {
		seeds, log = []uint64{uint64(one)}, os.Stderr
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := runInjection(seed, steps, log)
				if w.failed == nil {
					return
				}
				var story strings.Builder
				r := w.result(steps)
				Story(&story, seed, r, r)
				w.injection.describe(&story)
				t.Errorf("violation: %s seed=%d step=%d: %s\n%s", w.failed.Invariant, seed, w.failed.Step, w.failed.Message, story.String())
			})
		})
	}
}

// describe prints the objects of the bakery.
func (in *injection) describe(to io.Writer) {
	objects := in.policies()
	set := in.setOf(objects)
	for _, o := range objects {
		fmt.Fprintf(to, "policy %s: generation %d, annotations %v, status %s\n", o.GetName(), o.GetGeneration(), o.GetAnnotations(), encoded(part(o, "status")))
	}
	for _, f := range in.flocks(set) {
		fmt.Fprintf(to, "%s: generation %d, hash %s, to come %s %v, complete %t, serving %t, %s, status %s\n", f.ref, f.GetGeneration(), templateHash(f.Unstructured),
			f.hash, f.holds, f.isComplete(), f.isServing(), f.isOwners(), encoded(part(f.Unstructured, "status")))
		for _, p := range f.pods {
			fmt.Fprintf(to, "    %s: alive %t, ready %t, %s, hash %q, %v\n", p.GetName(), alive(p), isReady(p), trouble(p), p.GetAnnotations()["refract.dev/injection-hash"], in.examine(p, set))
		}
	}
}

// TestRestartRules breaks each promise. The check of the promise must report the violation.
func TestRestartRules(t *testing.T) {
	hash := map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		refractv1beta1.HashAnnotation: "0123456789abcdef",
	}}}}}
	cases := map[string]struct {
		reason    string
		do        func(in *injection, by hand) error
		invariant string
	}{
		"NoReason": {
			"No pod of the Deployment lacks an item, no policy reports a restart, and there was no dry run.",
			func(_ *injection, by hand) error { return by.patch(kindDeployment, bakery, "web", "", hash) }, beyondBudget,
		},
		"More": {
			"The injection never changes the number of replicas.",
			func(_ *injection, by hand) error {
				return by.patch(kindDeployment, bakery, "web", "", map[string]any{"spec": map[string]any{"replicas": 7}})
			}, beyondBudget,
		},
		"Evicted": {
			"The pod lacks no item of a policy.",
			func(in *injection, by hand) error {
				return by.delete(podKind, bakery, in.podsNamed("web")[0].GetName(), metav1.DeleteOptions{})
			}, beyondBudget,
		},
		"Foreign": {
			"The injection reads Secrets, and never writes them.",
			func(_ *injection, by hand) error {
				return by.patch(kindSecret, bakery, "db", "", map[string]any{"data": map[string]any{"password": "bmV3"}})
			}, beyondBudget,
		},
		"Paused": {
			"The injection never removes the annotation that pauses a rollout.",
			func(_ *injection, by hand) error {
				return by.patch(injectionKind, bakery, "settled", "", map[string]any{"metadata": map[string]any{"annotations": map[string]any{
					refractv1beta1.PausedAnnotation: nil,
				}}})
			}, beyondBudget,
		},
		"NoLease": {
			"Another replica holds the Lease.",
			func(in *injection, by hand) error {
				in.world.hand(&in.at.Target, "admin").must(in.world.hand(&in.at.Target, "admin").patch(kindLease, systemNamespace, "refract-injection", "",
					map[string]any{"spec": map[string]any{"holderIdentity": "injector-b.2"}}))
				return by.patch(injectionKind, bakery, "settled", "status", map[string]any{"status": map[string]any{"stale": 0}})
			}, twoInjectors,
		},
		"Status": {
			"No process writes the status of the policy.",
			func(in *injection, _ hand) error { in.world.injectionAtEnd(); return nil }, policyStatus,
		},
		"Nothing": {"A bakery without a violation breaks no promise.", func(*injection, hand) error { return nil }, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(injectionSeeds(1)[0], nil)
				defer w.end()
				in := w.injection
				p := &Process{Name: "injector-a.1", Replica: injectorNames[0], cut: map[*Target]bool{}, cancel: func() {}, done: make(chan struct{})}
				close(p.done)
				in.quiet(p)
				if err := tc.do(in, in.user(p.Name)); err != nil {
					t.Fatalf("%s\n%v", tc.reason, err)
				}
				got := ""
				if w.failed != nil {
					got = w.failed.Invariant
				}
				if got != tc.invariant {
					t.Errorf("%s\nviolated: got %q, want %q: %v", tc.reason, got, tc.invariant, w.failed)
				}
			})
		})
	}
}

// quiet creates a bakery without pending work, and a process that holds the Lease.
func (in *injection) quiet(p *Process) {
	w, admin := in.world, in.user("admin")
	w.Processes = append(w.Processes, p)
	in.admission()
	in.at.Server.OnWrite(in.rules.written)
	for _, name := range []string{systemNamespace, bakery} {
		if admin.get(kindNamespace, "", name) == nil {
			admin.must(admin.create(object(kindNamespace, "", name, nil)))
		}
	}
	admin.must(admin.create(in.secret()))
	web := in.newWorkload(&breads[0])
	put(web, "true", "spec", "template", "metadata", "labels", "uses-database")
	admin.must(admin.create(web))
	policy := object(injectionKind, bakery, "settled", anything(map[string]any{"spec": map[string]any{
		"selector": recipes[0].selector, "env": []any{map[string]any{"name": "DB_HOST", "value": "db"}},
	}}))
	annotate(policy, refractv1beta1.PausedAnnotation, "true")
	admin.must(admin.create(policy))
	admin.must(admin.create(object(kindLease, systemNamespace, "refract-injection", map[string]any{"spec": map[string]any{"holderIdentity": p.Name}})))
	w.injectionControllers()
	w.drain(3 * time.Minute)
}

// podsNamed returns the pods of a workload.
func (in *injection) podsNamed(app string) (pods []*unstructured.Unstructured) {
	for _, p := range in.all(podKind) {
		if p.GetLabels()["app"] == app {
			pods = append(pods, p)
		}
	}
	return pods
}
