package propagation

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// configMapOf returns a ConfigMap of this size with a propagation policy and an override policy.
func configMapOf(name string, bytes int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": name, "namespace": "shop", "uid": "1",
			"labels": map[string]any{corev1alpha1.PropagationPolicyLabel: "pp", corev1alpha1.OverridePolicyLabel: "op"},
		},
		"data": map[string]any{"x": strings.Repeat("a", bytes)},
	}}
}

// fleetOf returns inputs with this number of clusters.
func fleetOf(t *testing.T, clusters int, policy *override.Policy) *inputs {
	t.Helper()
	s := around(t, "", false, map[string]override.Policy{"op": *policy})
	s.clusters = nil
	for i := range clusters {
		s.clusters = append(s.clusters, placement.Cluster{Cluster: match.Cluster{Name: fmt.Sprintf("c%03d", i)}, Ready: true})
	}
	return s
}

// annotate returns an item for each operator, with the entries k0, k1 and so on, whose values alternate.
func annotate(entries int, operators ...corev1alpha1.Operator) []corev1alpha1.StringMapOverrider {
	items := make([]corev1alpha1.StringMapOverrider, len(operators))
	for i, operator := range operators {
		values := make(map[string]string, entries)
		for k := range entries {
			values[fmt.Sprint("k", k)] = string(rune('a' + i%2))
		}
		items[i] = corev1alpha1.StringMapOverrider{Operator: operator, Value: values}
	}
	return items
}

// labelEach returns a policy with one rule for each cluster. Each rule sets a label.
func labelEach(t *testing.T, clusters int) *override.Policy {
	t.Helper()
	var rules []corev1alpha1.OverrideRule
	for i := range clusters {
		rules = append(rules, rule(fmt.Sprintf("c%03d", i), "/metadata/labels/cluster", fmt.Sprintf("%q", fmt.Sprint(i))))
	}
	return compile(t, "op", rules...)
}

// alive returns the bytes of the heap in use.
func alive() int {
	runtime.GC()
	runtime.GC() // Frees objects that finalizers release.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestMemoryOfPlans makes three attacks on the memory of the controllers, as a user with the right to write ConfigMaps
// and one OverridePolicy.
func TestMemoryOfPlans(t *testing.T) {
	overwrite := func(n int) []corev1alpha1.Operator {
		operators := []corev1alpha1.Operator{corev1alpha1.OpAddIfAbsent}
		for range n - 1 {
			operators = append(operators, corev1alpha1.OpOverwrite)
		}
		return operators
	}
	cases := map[string]struct {
		reason   string
		clusters int
		objects  int
		bytes    int // Of each object.
		policy   *override.Policy
		most     int // Bytes for each object.
	}{
		"Changes": {
			reason: "A policy of a hundred kilobytes changes each of a thousand annotations ten times.", clusters: 2, objects: 20, bytes: 200,
			policy: compile(t, "op", corev1alpha1.OverrideRule{Overriders: &corev1alpha1.Overriders{Annotations: annotate(1000, overwrite(10)...)}}),
			most:   150 << 10,
		},
		"Warnings": {
			reason: "The same, but the object has no annotations: each missing one causes a warning.", clusters: 2, objects: 20, bytes: 200,
			policy: compile(t, "op", corev1alpha1.OverrideRule{Overriders: &corev1alpha1.Overriders{Annotations: annotate(1000, overwrite(10)[1:]...)}}),
			most:   150 << 10,
		},
		"Variants": {
			reason: "An object of half a mebibyte has distinct content on each of a hundred clusters.", clusters: 100, objects: 20, bytes: 512 << 10,
			policy: labelEach(t, 100),
			most:   maxBodies/20 + 200<<10,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := fleetOf(t, tc.clusters, tc.policy)
			l := newState()
			sources := make([]source, tc.objects)
			for i := range sources {
				sources[i] = source{gvr: configMaps, kind: "ConfigMap", object: configMapOf(fmt.Sprint("c", i), tc.bytes)}
			}
			before := alive()
			for i, src := range sources {
				p := decideSafely(Key{}, src, previous{uid: "1"}, s, discard)
				if p.blocked != "" || len(p.targets) != tc.clusters || p.targets["c000"].err != nil {
					t.Fatalf("want a plan for %d clusters, got %+v", tc.clusters, p)
				}
				l.setDesired(keyOf("configmaps", fmt.Sprint("c", i)), p, previous{}, nil)
			}
			each := (alive() - before) / tc.objects
			t.Logf("%d bytes are kept for each object", each)
			if each > tc.most {
				t.Errorf("%s\nwant at most %d bytes kept for each object, got %d", tc.reason, tc.most, each)
			}
			runtime.KeepAlive(l)
			runtime.KeepAlive(sources)
		})
	}
}

// TestBodiesAreLetGo: bodies are kept from the decision until the last cluster has its copy.
func TestBodiesAreLetGo(t *testing.T) {
	const bytes = 1 << 20
	key := keyOf("configmaps", "big")
	s := fleetOf(t, 10, labelEach(t, 10))
	src := source{gvr: configMaps, kind: "ConfigMap", object: configMapOf("big", bytes)}
	kept := func(p *desiredState) (n int) {
		for _, v := range p.variants {
			if v.body.Load() != nil {
				n++
			}
		}
		return n
	}
	l := newState()
	p := decide(src, previous{uid: "1"}, s)
	l.setDesired(key, p, previous{}, nil)
	if n := kept(p); n != 7 || l.bodies > maxPlanBodies || l.bodies < 7*bytes {
		t.Errorf("Seven of ten copies of a mebibyte fit into %d bytes: got %d, %d bytes", maxPlanBodies, n, l.bodies)
	}
	again := decide(src, previous{uid: "1"}, s)
	l.setDesired(key, again, previous{}, nil)
	if n := kept(p); n != 0 || l.bodies > maxPlanBodies {
		t.Errorf("A replaced plan keeps no bodies: got %d, %d bytes", n, l.bodies)
	}
	p = again
	for i, c := range s.clusters {
		if kept(p) != 7 {
			t.Errorf("The bodies are kept until the last cluster has its copy; got none after %d", i)
		}
		l.report(key, c.Name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: p.targets[c.Name].variant.hash})
	}
	if n := kept(p); n != 0 || l.bodies != 0 {
		t.Errorf("No body is kept after every cluster has its copy: got %d, %d bytes", n, l.bodies)
	}
	b := p.variants[0].body.Load()
	l.keep(key, p, p.variants[0], &body{})
	if p.variants[0].body.Load() != nil || b != nil {
		t.Error("keep() keeps a body that no cluster needs")
	}
	next := decide(src, previous{uid: "1"}, s)
	l.setDesired(key, next, previous{}, nil)
	if n := kept(next); n != 0 || l.bodies != 0 {
		t.Errorf("A new plan with the same content needs no writes: got %d, %d bytes", n, l.bodies)
	}
}

// TestBodiesOfAllObjects: the bodies of all waiting objects exceed the limit.
func TestBodiesOfAllObjects(t *testing.T) {
	const bytes = 2 << 20 / 10 * 7
	s := fleetOf(t, 2, compile(t, "plain"))
	l := newState()
	var plans []*desiredState
	for i := range maxBodies/bytes + 2 {
		p := decide(source{gvr: configMaps, kind: "ConfigMap", object: configMapOf("big", bytes)}, previous{uid: "1"}, s)
		l.setDesired(keyOf("configmaps", fmt.Sprint(i)), p, previous{}, nil)
		plans = append(plans, p)
	}
	if l.bodies > maxBodies || l.bodies < maxBodies-bytes {
		t.Errorf("want the bound for all bodies used up, %d, got %d", maxBodies, l.bodies)
	}
	last := plans[len(plans)-1]
	v, key := last.variants[0], keyOf("configmaps", fmt.Sprint(len(plans)-1))
	if plans[0].variants[0].body.Load() == nil || v.body.Load() != nil {
		t.Error("want the bodies of the first objects, which are written first")
	}
	l.keep(key, last, v, &body{})
	if v.body.Load() != nil {
		t.Error("keep() exceeds the bound")
	}
	l.forget(keyOf("configmaps", "0"), plans[0])
	l.keep(key, last, v, &body{})
	if v.body.Load() == nil {
		t.Error("keep() keeps nothing below the bound")
	}
}

// TestEncodeFor: the body rendered again for one cluster equals the body that the decision rendered for all clusters.
func TestEncodeFor(t *testing.T) {
	op := compile(t, "op", rule("eu-1", "/spec/replicas", "5"))
	cases := map[string]struct {
		reason      string
		mode        corev1alpha1.SchedulingMode
		overrides   map[string]override.Policy
		annotations map[string]string
	}{
		"Plain":      {reason: "The unchanged object."},
		"Overridden": {reason: "The rules for the cluster apply.", overrides: map[string]override.Policy{"op": *op}},
		"Divided":    {reason: "The replicas are the share of the cluster.", mode: corev1alpha1.SchedulingModeDivide},
		"Retained":   {reason: "The number of replicas on the member is retained.", annotations: map[string]string{corev1alpha1.RetainReplicasAnnotation: "true"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			labels := map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}
			var policies []*override.Policy
			if tc.overrides != nil {
				labels[corev1alpha1.OverridePolicyLabel] = "op"
				policies = append(policies, op)
			}
			obj := deployment(labels, tc.annotations, false)
			s := around(t, tc.mode, false, tc.overrides)
			p := decide(source{gvr: deployments, kind: "Deployment", object: obj}, previous{uid: "1"}, s)
			for i := range s.clusters {
				cluster := &s.clusters[i].Cluster
				want := p.targets[cluster.Name].variant
				got := p.encodeFor(obj, cluster, policies, sourceOf(s.hub, p.uid, p.gvr.GroupResource(), "shop", "web"))
				if got == nil || got.hash != want.hash || got.size != want.size || !slices.EqualFunc(got.left, want.left, tree.Pattern.Equal) || got.gvr != want.gvr {
					t.Fatalf("%s\nencodeFor(): want %+v, got %+v", tc.reason, want.content, got)
				}
				if diff := cmp.Diff(string(want.body.Load().forNew()), string(got.body.Load().forNew())); diff != "" {
					t.Errorf("%s\nforNew(): -want, +got:\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(string(want.body.Load().forKnown("u", false)), string(got.body.Load().forKnown("u", false))); diff != "" {
					t.Errorf("%s\nforKnown(): -want, +got:\n%s", tc.reason, diff)
				}
			}
			if p.encodeFor(obj, &match.Cluster{Name: "left"}, policies, "") != nil {
				t.Error("encodeFor() returns a body for a cluster that the object is not placed on.")
			}
		})
	}
}

// TestLargestCopy checks the size that clusters store and API servers read.
func TestLargestCopy(t *testing.T) {
	empty, err := encode(configMapOf("big", 0), configMaps, "hub/1", &placement.Keeping{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := encode(configMapOf("big", member.MostSent-empty.size), configMaps, "hub/1", &placement.Keeping{}, nil); err != nil {
		t.Errorf("A copy of the maximum size passes: %v", err)
	}
	if _, err := encode(configMapOf("big", member.MostSent-empty.size+1), configMaps, "hub/1", &placement.Keeping{}, nil); !errors.As(err, new(*member.SizeError)) {
		t.Errorf("A copy with one byte more fails, got %v", err)
	}
	lines := configMapOf("big", 0)
	lines.Object["data"] = map[string]any{"x": strings.Repeat("\x01", maxBody/6+1)}
	if _, err := encode(lines, configMaps, "hub/1", &placement.Keeping{}, nil); err == nil || errors.As(err, new(*member.SizeError)) {
		t.Errorf("A cluster stores these copies, but its API server cannot read them, got %v", err)
	}
}

// TestLargeCopies: at most one large copy is written to a member at a time, and a limited number to all members. Small
// copies do not wait for them.
func TestLargeCopies(t *testing.T) {
	ctx := t.Context()
	over, cancel := context.WithCancel(ctx)
	cancel() // A call that would have to wait fails instead.
	all := make(chan struct{}, maxLarge)
	var ends []func()
	for range maxLarge {
		a := newLargeWrites(all)
		end, ok := a.begin(ctx, largeBody+1)
		if !ok {
			t.Fatal("want as many begin as may be written at a time")
		}
		ends = append(ends, end)
		if len(ends) > 1 {
			continue
		}
		if _, ok := a.begin(over, largeBody+1); ok {
			t.Error("a second write begins on the member")
		}
		if _, ok := a.begin(over, largeBody); !ok {
			t.Error("a small copy waits for large ones")
		}
	}
	other := newLargeWrites(all)
	if _, ok := other.begin(over, largeBody+1); ok {
		t.Error("one more write begins on another member")
	}
	ends[0]()
	if _, ok := other.begin(ctx, largeBody+1); !ok {
		t.Error("no write begins after another has ended")
	}
}

// TestLargeCopiesLineUp: however many large copies a member has, one of its workers is left for other copies.
func TestLargeCopiesLineUp(t *testing.T) {
	a := newLargeWrites(nil)
	var leave func()
	for i := range largeAtOnce {
		var ok bool
		if leave, ok = a.enter(largeBody + 1); !ok {
			t.Fatalf("enter(): %d of %d workers handle large copies, want one more", i, largeAtOnce)
		}
	}
	if _, ok := a.enter(largeBody + 1); ok {
		t.Error("enter(): more workers than permitted handle large copies")
	}
	if _, ok := a.enter(largeBody); !ok {
		t.Error("enter(): a small copy has to wait")
	}
	leave()
	if _, ok := a.enter(largeBody + 1); !ok {
		t.Error("enter(): no large copy is accepted after another has ended")
	}
}

// BenchmarkDecide decides a Deployment of some kilobytes with eight overriders for three clusters, records the desired
// state, and reports that each cluster has its copy.
func BenchmarkDecide(b *testing.B) {
	key, src, s := decidable(b, 3)
	b.ReportAllocs()
	for b.Loop() {
		l := newState()
		p := decideSafely(key, src, previous{uid: "1"}, s, discard)
		l.setDesired(key, p, previous{}, nil)
		for name, target := range p.targets {
			_ = target.variant.body.Load().forNew()
			l.report(key, name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: target.variant.hash})
		}
		if len(p.variants[0].changes) != 8 || l.objects[key].behind != 0 {
			b.Fatalf("want a plan with eight changes that is carried out, got %+v", p)
		}
	}
}

// BenchmarkDecideAgain decides the same Deployment on 1,000 clusters, one of them with another label, and records the
// result: one copy changes.
func BenchmarkDecideAgain(b *testing.B) {
	key, src, s := decidable(b, 1000)
	l := newState()
	tiers := []string{"gold", "iron"}
	changed := &s.clusters[500]
	decide := func(i int) (concerned []string) {
		changed.Labels = map[string]string{"tier": tiers[i%2]}
		was, _ := l.previous(key)
		p := decideSafely(key, src, was, s, discard)
		concerned, _, _ = l.setDesired(key, p, previous{}, nil)
		for _, name := range concerned {
			l.report(key, name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: p.targets[name].variant.hash})
		}
		return concerned
	}
	decide(0)
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		if concerned := decide(i); len(concerned) != 1 {
			b.Fatalf("want one copy changed, got %d", len(concerned))
		}
	}
}

// decidable returns a Deployment of some kilobytes and the inputs for it: n clusters, and policies with eight
// overriders for all clusters and one for gold clusters.
func decidable(b *testing.B, n int) (Key, source, *inputs) {
	b.Helper()
	var patches []corev1alpha1.JSONPatchOverrider
	for i := range 9 {
		patches = append(patches, corev1alpha1.JSONPatchOverrider{
			Path: fmt.Sprint("/spec/added", i), Operator: corev1alpha1.OpAdd, Value: &apiextensionsv1.JSON{Raw: []byte(`{"a": ["b", 1]}`)},
		})
	}
	gold := &corev1alpha1.TargetClusters{ClusterSelector: map[string]string{"tier": "gold"}}
	policy, errs := override.Compile(&corev1alpha1.OverridePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "op"},
		Spec: corev1alpha1.OverridePolicySpec{OverrideRules: []corev1alpha1.OverrideRule{
			{Overriders: &corev1alpha1.Overriders{JSONPatch: patches[:8]}},
			{TargetClusters: gold, Overriders: &corev1alpha1.Overriders{JSONPatch: patches[8:]}},
		}},
	})
	if len(errs) > 0 {
		b.Fatal(errs.ToAggregate())
	}
	obj := deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp", corev1alpha1.OverridePolicyLabel: "op"}, nil, false)
	containers := make([]any, 5)
	for i := range containers {
		env := make([]any, 10)
		for j := range env {
			env[j] = map[string]any{"name": fmt.Sprint("VARIABLE_", j), "value": strings.Repeat("v", 20)}
		}
		containers[i] = map[string]any{"name": fmt.Sprint("c", i), "image": "registry.example/web:v1", "env": env}
	}
	obj.Object["spec"].(map[string]any)["template"] = map[string]any{"spec": map[string]any{"containers": containers}}
	pp, errs := placement.Compile(&corev1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp"},
		Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate},
	})
	if len(errs) > 0 {
		b.Fatal(errs.ToAggregate())
	}
	s := &inputs{
		hub: "hub", may: nobodyMay,
		propagation: func(tree.Policy) *placement.Policy { return pp },
		override:    func(tree.Policy) *override.Policy { return policy },
	}
	for i := range n {
		s.clusters = append(s.clusters, placement.Cluster{Cluster: match.Cluster{Name: fmt.Sprintf("c-%04d", i)}, Ready: true})
	}
	return keyOf("deployments", "web"), source{gvr: deployments, kind: "Deployment", object: obj}, s
}
