package drills

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
)

// seed makes a drill make the same changes in every run. The times of the faults still differ.
const seed = 4

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// story makes seeded changes on a hub: it creates, changes and deletes objects and policies.
type story struct {
	*drill

	random *rand.Rand
	alive  []string // KIND NAME of the objects.
	plain  map[string]bool
	few    map[string]bool // Objects that the policy "few" places.
	number int             // Number of the last change.
	// removals is the number of objects that the story may still delete without an approval by the guard.
	removals int
}

// everywhere is the policy that places most objects of a story.
const everywhere = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate}
`

// tell begins a story with n objects.
func (d *drill) tell(n int) *story {
	d.Helper()
	s := &story{drill: d, random: rand.New(rand.NewPCG(seed, uint64(n))), plain: map[string]bool{}, few: map[string]bool{}}
	d.apply("hub", everywhere)
	s.place()
	s.override()
	for range n {
		s.create()
	}
	return s
}

// try repeats a write until the hub accepts it, as a user does.
func (s *story) try(what string, write func(context.Context) error) {
	s.Helper()
	err := harness.Await(context.Background(), func(ctx context.Context) error {
		once, done := context.WithTimeout(ctx, 5*time.Second)
		defer done()
		return write(once)
	})
	if err != nil {
		s.Errorf("%s: %v", what, err)
	}
}

// change makes one change.
func (s *story) change() {
	s.number++
	switch n := s.random.IntN(100); {
	case n < 3:
		s.override()
	case n < 5:
		s.place()
	case n < 30 || len(s.alive) < 20:
		s.create()
	case n < 38 && s.removals > 0:
		s.remove()
	case n < 41:
		s.again()
	case n < 50:
		s.relabel()
	default:
		s.write(s.any())
	}
}

// few is the maximum number of objects that a story deletes at a time. Without a watch, the guard requires an approval
// for more than ten copies of a member.
const few = 8

// changes makes n changes, of which at most few delete objects.
func (s *story) changes(n int) {
	s.removals = few
	for range n {
		s.change()
	}
}

func (s *story) any() string { return s.alive[s.random.IntN(len(s.alive))] }

func (s *story) create() {
	kind := []string{"ConfigMap", "ConfigMap", "Deployment"}[s.random.IntN(3)]
	o := fmt.Sprintf("%s %s-%d", kind, strings.ToLower(kind), s.number*1000+len(s.alive))
	s.alive = append(s.alive, o)
	s.write(o)
}

// write writes an object with new content.
func (s *story) write(o string) {
	kind, name := cut(o)
	labels := map[string]any{corev1alpha1.PropagationPolicyLabel: "everywhere", corev1alpha1.OverridePolicyLabel: "sizes"}
	if s.few[o] {
		labels[corev1alpha1.PropagationPolicyLabel] = "few"
	}
	if s.plain[o] {
		delete(labels, corev1alpha1.OverridePolicyLabel)
	}
	u := object(kind, s.ns, name)
	u.Object["metadata"].(map[string]any)["labels"] = labels
	value := fmt.Sprint(s.random.IntN(1 << 20))
	if kind == "ConfigMap" {
		u.Object["data"] = map[string]any{"value": value}
		if s.random.IntN(2) == 0 {
			u.Object["data"].(map[string]any)["sometimes"] = value
		}
	} else {
		u.Object["spec"] = map[string]any{
			"replicas": int64(s.random.IntN(10)),
			"selector": map[string]any{"matchLabels": map[string]any{"app": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": name}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "image:" + value}}},
			},
		}
	}
	s.try("writing "+o, func(ctx context.Context) error { return harness.Apply(ctx, s.hub(), u.DeepCopy().Object) })
}

// remove deletes a random object.
func (s *story) remove() {
	s.removals--
	i := s.random.IntN(len(s.alive))
	o := s.alive[i]
	s.alive = slices.Delete(s.alive, i, i+1)
	kind, name := cut(o)
	delete(s.few, o)
	delete(s.plain, o)
	s.try("removing "+o, func(ctx context.Context) error {
		return client.IgnoreNotFound(s.hub().Delete(ctx, object(kind, s.ns, name)))
	})
}

// again deletes an object and creates another one with the same name at once.
func (s *story) again() {
	o := s.any()
	kind, name := cut(o)
	s.try("removing "+o, func(ctx context.Context) error {
		return client.IgnoreNotFound(s.hub().Delete(ctx, object(kind, s.ns, name)))
	})
	s.write(o)
}

// relabel changes the labels of a random object: those that choose the override policy, or those that choose the
// propagation policy.
func (s *story) relabel() {
	o := s.any()
	const most = 4 // A member may lose this number of objects at once without an approval.
	switch {
	case s.random.IntN(2) == 0:
		s.plain[o] = !s.plain[o]
	case s.few[o]:
		delete(s.few, o)
	case len(s.few) < most:
		s.few[o] = true
	}
	s.write(o)
}

// place makes the policy "few" choose other clusters.
func (s *story) place() {
	var clusters []any
	for _, i := range s.random.Perm(len(s.Members))[:1+s.random.IntN(len(s.Members))] {
		clusters = append(clusters, map[string]any{"cluster": s.Members[i]})
	}
	s.policy("PropagationPolicy", "few", map[string]any{"schedulingMode": "Duplicate", "placement": clusters})
}

// override changes the rules of the policy "sizes".
func (s *story) override() {
	var rules []any
	for _, m := range s.Members {
		rules = append(rules, map[string]any{
			"targetClusters": map[string]any{"clusters": []any{m}},
			"overriders": map[string]any{"annotations": []any{map[string]any{
				"operator": "addIfAbsent", "value": map[string]any{"drills/size": fmt.Sprintf("%s-%d", m, s.random.IntN(1000))},
			}}},
		})
	}
	s.policy("OverridePolicy", "sizes", map[string]any{"overrideRules": rules})
}

func (s *story) policy(kind, name string, spec map[string]any) {
	s.try("writing "+name, func(ctx context.Context) error {
		return harness.Apply(ctx, s.hub(), map[string]any{
			"apiVersion": corev1alpha1.GroupVersion.String(), "kind": kind,
			"metadata": map[string]any{"namespace": s.ns, "name": name}, "spec": spec,
		})
	})
}

// beats are durations of changes, and of comparable writes without the controllers at the same time. Both are sorted.
type beats struct{ changes, bare []time.Duration }

func (b *beats) add(more beats) {
	b.changes, b.bare = append(b.changes, more.changes...), append(b.bare, more.bare...)
	slices.Sort(b.changes)
	slices.Sort(b.bare)
}

// pulse makes a change on the hub, and returns the time until it has arrived on all these members.
func (s *story) pulse(clusters ...string) time.Duration {
	s.Helper()
	s.number++
	beat := fmt.Sprint(s.number)
	u := object("ConfigMap", s.ns, "pulse")
	u.SetLabels(map[string]string{corev1alpha1.PropagationPolicyLabel: "everywhere"})
	u.Object["data"] = map[string]any{"beat": beat}
	began := time.Now()
	s.must(harness.Apply(s.Context(), s.hub(), u.Object))
	for _, c := range clusters {
		err := harness.Await(s.Context(), func(ctx context.Context) error { return s.beatIs(ctx, c, beat) })
		if err != nil {
			s.Fatalf("a change did not arrive on %s: %v", c, err)
		}
	}
	return time.Since(began)
}

// measured repeats pulse. Each time it also measures comparable writes to the hub and to these members without the
// controllers.
func (s *story) measured(n int, clusters ...string) beats {
	s.Helper()
	var all beats
	for range n {
		all.add(beats{changes: []time.Duration{s.pulse(clusters...)}})
		began := time.Now()
		for _, c := range append([]string{"hub"}, clusters...) {
			u := object("ConfigMap", metav1.NamespaceDefault, s.ns)
			u.Object["data"] = map[string]any{"beat": fmt.Sprint(s.number)}
			s.must(harness.Apply(s.Context(), s.clients[c], u.Object))
		}
		all.add(beats{bare: []time.Duration{time.Since(began)}})
	}
	return all
}

func (s *story) beatIs(ctx context.Context, cluster, want string) error {
	u := s.get(ctx, cluster, "ConfigMap", "pulse")
	if u == nil {
		return errors.New("it is not there")
	}
	data, _ := u.Object["data"].(map[string]any)
	if data["beat"] != want {
		return fmt.Errorf("it is %v, want %s", data["beat"], want)
	}
	return nil
}

// undelayed compares the durations of changes on healthy members before and during the fault of another member. Other
// drills load the machine differently over time, so the comparable writes without the controllers determine the
// tolerance.
func (s *story) undelayed(before, during beats) {
	s.Helper()
	median := func(d []time.Duration) time.Duration { return d[len(d)/2] }
	worst := func(d []time.Duration) time.Duration { return d[len(d)-1] }
	for what, b := range map[string]beats{"before": before, "during": during} {
		s.Logf("%s: %d changes to the other members: median %s, at most %s; without the controllers: median %s, at most %s", what,
			len(b.changes), round(median(b.changes)), round(worst(b.changes)), round(median(b.bare)), round(worst(b.bare)))
	}
	slower := max(1, float64(median(during.bare))/float64(median(before.bare)))
	limit := time.Duration(slower * float64(3*median(before.changes)+500*time.Millisecond))
	if got := median(during.changes); got > limit {
		s.Errorf("a broken member must not delay the others: got a median of %s, want at most %s", round(got), round(limit))
	}
	most := time.Duration(slower * float64(10*time.Second)) // Requests to the broken member take longer to time out.
	if got := worst(during.changes); got > most+worst(during.bare) {
		s.Errorf("a broken member must not delay the others: the slowest change took %s, want at most %s", round(got), round(most))
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func cut(o string) (kind, name string) {
	kind, name, _ = strings.Cut(o, " ")
	return kind, name
}
