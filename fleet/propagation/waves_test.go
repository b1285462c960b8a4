package propagation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/tree"
)

// TestDiffSaysTheWavesThatCome: on generated fleets, with generated policies and changes, a rollout has the waves
// that refract diff announces, with the same clusters at a time and the same approvals.
func TestDiffSaysTheWavesThatCome(t *testing.T) {
	waves := 0
	for seed := range uint64(200) {
		f := generate(rand.New(rand.NewPCG(seed, 16)))
		d, err := diff.Compare(f.set(t, false), f.set(t, true), diff.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var told []rollout.PlannedWave
		for i := range d.Rollouts {
			told = append(told, d.Rollouts[i].Waves...)
		}
		waves += len(told)
		if diff := cmp.Diff(told, f.roll(t)); diff != "" {
			t.Fatalf("seed %d: -refract diff, +actual waves:\n%s\n%s", seed, diff, f)
		}
	}
	t.Logf("%d waves", waves)
	if waves < 300 {
		t.Errorf("only %d waves: the generated changes prove little", waves)
	}
}

// generated is a fleet, and a change of an object or of its override policy.
type generated struct {
	clusters, rollout, place string
	object, overrides        [2]string // Before and after the change.
}

func (f *generated) String() string {
	return f.yaml(false) + "--- # After the change:\n" + f.yaml(true)
}

func (f *generated) yaml(after bool) string {
	i := 0
	if after {
		i = 1
	}
	return strings.Join([]string{f.clusters, f.rollout, f.place, f.object[i], f.overrides[i]}, "---\n")
}

func (f *generated) set(t *testing.T, after bool) *manifest.Set {
	t.Helper()
	set, problems := manifest.ReadFS(fstest.MapFS{"fleet.yaml": {Data: []byte(f.yaml(after))}})
	if len(problems) > 0 {
		t.Fatal(problems, f)
	}
	return set
}

func generate(r *rand.Rand) *generated {
	f := &generated{}
	n := 1 + r.IntN(25)
	regions, tiers := []string{"eu", "us", "ap"}, []string{"test", "prod"}
	for i := range n {
		f.clusters += fmt.Sprintf("---\n{apiVersion: core.kubeadmiral.io/v1alpha1, kind: FederatedCluster, metadata: {name: c-%02d, labels: {region: %s, tier: %s}}}\n",
			i, regions[r.IntN(3)], tiers[r.IntN(2)])
	}
	target := func() string {
		switch r.IntN(4) {
		case 0:
			return fmt.Sprintf("{clusters: [c-%02d, c-%02d]}", r.IntN(n), (r.IntN(n)+n/2+1)%(n+1))
		case 1:
			return fmt.Sprintf("{clusterSelector: {tier: %s}}", tiers[r.IntN(2)])
		case 2:
			return fmt.Sprintf("{clusterAffinity: [{matchExpressions: [{key: region, operator: NotIn, values: [%s]}]}]}", regions[r.IntN(3)])
		default:
			return fmt.Sprintf("{clusterSelector: {region: %s}}", regions[r.IntN(3)])
		}
	}
	wave := func(i int) string {
		text := fmt.Sprintf("{name: w-%d", i)
		if r.IntN(5) > 0 {
			text += ", targetClusters: " + target()
		}
		if r.IntN(4) == 0 {
			text += ", strategy: Manual"
		}
		if r.IntN(2) == 0 {
			text += fmt.Sprintf(", minReadySeconds: %d", 1+r.IntN(900))
		}
		switch r.IntN(4) {
		case 0:
			text += fmt.Sprintf(", maxConcurrent: %d", 1+r.IntN(6))
		case 1:
			text += fmt.Sprintf(`, maxConcurrent: "%d%%"`, 1+r.IntN(100))
		}
		return text + "}"
	}
	spec := func() string {
		var all []string
		for i := range 1 + r.IntN(4) {
			all = append(all, wave(i))
		}
		text := "waves: [" + strings.Join(all, ", ") + "]"
		if r.IntN(3) == 0 {
			text += fmt.Sprintf(", maxChange: {clusters: %d}", r.IntN(n+2))
		}
		if r.IntN(3) == 0 {
			text += fmt.Sprintf(", budgets: [{label: region, maxUnavailable: %d}]", 1+r.IntN(3))
		}
		return text
	}
	labels := "kubeadmiral.io/propagation-policy-name: place, kubeadmiral.io/override-policy-name: vary"
	floor := ""
	switch r.IntN(3) {
	case 0:
		floor = "refract.dev/cluster-rollout-policy-name: floor"
		f.rollout = fmt.Sprintf("{apiVersion: refract.dev/v1alpha1, kind: ClusterRolloutPolicy, metadata: {name: floor}, spec: {%s, allowNarrower: %t}}\n---\n", spec(), r.IntN(2) == 0)
		if r.IntN(2) == 0 {
			break
		}
		fallthrough
	default:
		labels += ", refract.dev/rollout-policy-name: careful"
		f.rollout += fmt.Sprintf("{apiVersion: refract.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: careful, namespace: shop}, spec: {%s}}\n---\n", spec())
	}
	f.rollout += fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {config.kubernetes.io/local-config: \"true\"}, labels: {%s}}}\n", floor)
	f.place = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: place, namespace: shop}, spec: {schedulingMode: Duplicate"
	if r.IntN(3) == 0 {
		f.place += ", clusterSelector: {tier: " + tiers[r.IntN(2)] + "}"
	}
	f.place += "}}\n"
	f.object[0] = fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop, uid: u-1, labels: {%s}}, data: {level: low, other: b}}\n", labels)
	policy := func() string {
		var rules []string
		for range r.IntN(3) {
			rules = append(rules, fmt.Sprintf("{targetClusters: %s, overriders: {jsonpatch: [{path: /data/level, value: v%d}]}}", target(), r.IntN(3)))
		}
		return "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: vary, namespace: shop}, spec: {overrideRules: [" +
			strings.Join(rules, ", ") + "]}}\n"
	}
	f.overrides[0] = policy()
	f.object[1], f.overrides[1] = f.object[0], f.overrides[0]
	if what := r.IntN(3); what != 0 {
		f.overrides[1] = policy()
		if what == 1 {
			return f
		}
	}
	f.object[1] = strings.Replace(f.object[0], "level: low", "level: high", 1)
	return f
}

// roll rolls out the change by the controllers' decisions. The members apply everything at once, and each requested
// approval is given. It returns the actual waves.
func (f *generated) roll(t *testing.T) []rollout.PlannedWave {
	t.Helper()
	was, is := f.set(t, false), f.set(t, true)
	object := func(s *manifest.Set) *material {
		m := &material{}
		for i := range s.Objects {
			if s.Objects[i].Content.GetKind() == "ConfigMap" {
				m.object = s.Objects[i].Content
			}
		}
		for i := range s.OverridePolicies {
			m.policies = append(m.policies, s.OverridePolicies[i].Compiled)
		}
		return m
	}
	before, after := object(was), object(is)
	before.kept = true
	rules := is.Rollouts()
	names, _, err := rollout.Named(after.object.GetLabels(), "shop", is.Namespaces[0].Content.GetLabels())
	if err != nil {
		t.Fatal(err)
	}
	policy, hold, _ := rollout.Obeyed(names, rules.Find)
	if hold != "" {
		t.Fatal(hold)
	}
	in := &inputs{
		hub: "hub", propagation: func(tree.Policy) *placement.Policy { return is.PropagationPolicies[0].Compiled },
		override: func(tree.Policy) *override.Policy { return is.OverridePolicies[0].Compiled },
	}
	for i := range is.Clusters {
		c := is.Clusters[i].Cluster
		in.clusters = append(in.clusters, placement.Cluster{Cluster: match.Cluster{Name: c.Name, Labels: c.Labels}, Ready: true})
	}
	s := &simulation{
		t: t, in: in, object: after.object, before: before, policy: policy, began: -1,
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), has: map[string]string{}, since: map[string]time.Time{},
	}
	return s.run()
}

// simulation is a rollout on members without delay.
type simulation struct {
	t      *testing.T
	in     *inputs
	object *unstructured.Unstructured
	before *material
	policy *rollout.Policy

	now      time.Time
	has      map[string]string // The hash of each cluster's copy.
	since    map[string]time.Time
	waves    []rollout.PlannedWave
	approval string // The last requested approval, until a wave begins.
	began    int    // The index of the last wave while its minReadySeconds are unknown; otherwise negative.
}

func (s *simulation) run() []rollout.PlannedWave {
	good, target := refractv1alpha1.Revision{Name: "good"}, refractv1alpha1.Revision{Name: "target"}
	status := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
	in := &rollout.Input{Policy: s.policy, Target: target, Nonce: "n"}
	for first := true; ; first = false {
		s.in.governed = &governance{policy: s.policy, target: target, recorded: status, kept: map[string]*material{good.Name: s.before}}
		p := decide(source{gvr: configMaps, kind: "ConfigMap", object: s.object}, previous{uid: "u-1"}, s.in)
		if changed := s.apply(p); len(changed) > 0 && !first {
			s.note(status, changed)
		}
		if status.Phase == refractv1alpha1.RolloutComplete && status.Target.Name == target.Name {
			return s.waves
		}
		if in.Now, in.Clusters = s.now, s.clusters(p); len(in.Clusters) == 0 {
			return nil // The rollout waits for a placement.
		}
		is, until := rollout.Next(status, in)
		if cmp.Equal(status, is) && !until.After(s.now) {
			s.t.Fatalf("the rollout does not continue: %+v", status)
		}
		status, in.Approved = is, is.Awaits
		if s.began >= 0 && until.After(s.now) {
			s.waves[s.began].MinReadySeconds = int32(until.Sub(s.now).Seconds())
		}
		s.began = -1
		if is.Awaits != "" {
			s.approval = is.Message
		}
		if until.After(s.now) {
			s.now = until
		}
	}
}

// apply gives clusters their wanted content, and returns those whose content has changed.
func (s *simulation) apply(p *desiredState) (changed []string) {
	for _, name := range slices.Sorted(maps.Keys(p.targets)) {
		if hash := p.targets[name].variant.hash; s.has[name] != hash {
			s.has[name], s.since[name] = hash, s.now
			changed = append(changed, name)
		}
	}
	return changed
}

func (s *simulation) clusters(p *desiredState) []rollout.Cluster {
	var all []rollout.Cluster
	for i := range s.in.clusters {
		name := s.in.clusters[i].Name
		if p.targets[name] == nil {
			continue
		}
		c := rollout.Cluster{Cluster: s.in.clusters[i].Cluster, Holds: true, Ready: true, ReadySince: s.since[name]}
		if p.rollout != nil {
			c.Changes, c.Differs = p.rollout.changes[name], p.rollout.differs[name]
		}
		all = append(all, c)
	}
	return all
}

// note adds the clusters that got the change to the present wave.
func (s *simulation) note(status *refractv1alpha1.RolloutStatus, changed []string) {
	name := ""
	for i := range status.Waves {
		if status.Waves[i].Since != nil {
			name = status.Waves[i].Name
		}
	}
	at := slices.IndexFunc(s.waves, func(w rollout.PlannedWave) bool { return w.Name == name })
	if at < 0 {
		at = len(s.waves)
		s.waves = append(s.waves, rollout.PlannedWave{Name: name, AtOnce: len(changed), Approval: s.approval})
		s.approval, s.began = "", at
	}
	w := &s.waves[at]
	w.Clusters = append(w.Clusters, changed...)
	slices.Sort(w.Clusters)
}
