package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
	variants "refract.dev/fleet/variant"
	"refract.dev/tree"
)

// governance describes the rollout policy of an object, and the state of its rollout.
type governance struct {
	policy   *rollout.Policy // Nil while nothing may be released; hold is the reason.
	health   *member.Health  // The health check for copies; nil for none.
	hold     string
	blocked  string // The reason if the object cannot be evaluated at all, with hold as its message; empty otherwise.
	warnings []string
	// led describes the leader of the object, the object that it travels with; nil if the object obeys a policy itself.
	led *led
	// target is the newest revision.
	target refractv1alpha1.Revision
	// recorded is the recorded rollout of the object, or of its leader; nil before the first report. It must not be
	// modified.
	recorded *refractv1alpha1.RolloutStatus
	// placed are the clusters that are to have a copy according to the Propagation. foreign are those of them that may
	// have other content.
	placed  []placement.Target
	foreign foreignContent
	// kept are the revisions before the newest, by name.
	kept map[string]*material
}

// material is the source that copies are rendered from.
type material struct {
	object     *unstructured.Unstructured
	policies   []*override.Policy
	generation int64
	// kept is whether the revision is older than the newest. allowed is whether its policies are authorized to add
	// their references. err is the reason if the revision is not available.
	kept, allowed bool
	err           error
}

// rolloutPlan are the changes that the newest revision would make.
type rolloutPlan struct {
	// changes are the clusters for which the newest revision differs from the last good one. differs are the clusters
	// for which the newest revision differs from the content that they are to have now.
	changes, differs map[string]bool
}

// governs returns the governance of an object, and the policies that the object obeys or waits for. The governance is
// nil for an object without a rollout policy, and for no object. If known is false, the key is retried later.
func (d *decider) governs(
	ctx context.Context, key Key, obj *unstructured.Unstructured, with followed,
) (g *governance, names []tree.Policy, known bool, err error) {
	if obj == nil {
		return nil, nil, true, nil
	}
	var floor map[string]string
	if key.Namespace != "" {
		if floor, known = d.floor(key.Namespace); !known {
			return nil, nil, false, nil
		}
	}
	named, warnings, err := rollout.Named(obj.GetLabels(), key.Namespace, floor)
	if err != nil {
		return &governance{blocked: reasonInvalidLabel, hold: err.Error()}, nil, true, nil //nolint:nilerr // The object reports the error.
	}
	k, _ := d.records.get(key)
	if names = named.All(); len(names) == 0 {
		if keeping, _ := placement.KeepingOf(obj.GetAnnotations()); keeping.DisableFollowing {
			return nil, nil, true, nil
		}
		if by := d.ledBy(key, with); by != nil {
			g, err = d.governedBy(ctx, key, obj, by)
		}
		return g, nil, true, err
	}
	g = &governance{placed: k.placed, foreign: k.foreign}
	var more []string
	g.policy, g.hold, more = rollout.Obeyed(named, d.policies.rollout)
	g.warnings = slices.Concat(warnings, more)
	if g.policy != nil { // The status of a policy counts only the objects that obey it. No object obeys a policy that its floor forbids.
		names = g.policy.Names()
	}
	if g.health = healthOf(g.policy, key.GroupResource); g.health != nil {
		d.state.asked.Store(true)
	}
	if g.recorded = k.rollout; g.recorded == nil {
		before, _ := d.state.previous(key)
		// The Propagation was deleted, and is created again with this rollout.
		g.recorded = before.rollout
	}
	known, err = d.revise(ctx, g, key, obj)
	switch {
	case errors.Is(err, revision.ErrTooLarge):
		g.policy, g.blocked, g.hold = nil, reasonRevisionTooLarge, err.Error()
		return g, names, true, nil
	case err != nil || !known:
		return nil, nil, known, err
	}
	return g, names, true, d.revisions.fill(ctx, key, g)
}

// revise determines the newest revision. known is false until all followers of the object are known.
func (d *decider) revise(ctx context.Context, g *governance, key Key, obj *unstructured.Unstructured) (known bool, err error) {
	object, policies, err := d.parts(ctx, key, obj)
	if err != nil {
		return false, err
	}
	g.target = revision.Of(object, obj.GetGeneration(), policies)
	if known, err = d.follow(ctx, key, g); err != nil || !known {
		return known, err
	}
	naming(g.recorded, &g.target)
	return true, nil
}

// parts returns the parts of the newest revision of an object. The error is [revision.ErrTooLarge] if a part is too
// large to be stored.
func (d *decider) parts(
	ctx context.Context, key Key, obj *unstructured.Unstructured,
) (object string, policies []refractv1alpha1.PolicyRevision, err error) {
	part, err := revision.ObjectPart(obj)
	if err != nil {
		return "", nil, err
	}
	if _, err := part.Encode(); err != nil {
		return "", nil, fmt.Errorf("the object cannot change wave by wave, as its previous content must be stored: %w", err)
	}
	if object, err = d.revisions.nameOf(ctx, key, &part); err != nil {
		return "", nil, err
	}
	refs, _, err := override.Named(obj.GetLabels(), key.Namespace)
	if err != nil {
		return object, nil, nil //nolint:nilerr // The object reports the error.
	}
	for _, ref := range refs {
		if policy, name := d.policies.revision(ref); policy != nil {
			policies = append(policies, revision.Refer(policy.Ref, name))
		}
	}
	return object, policies, nil
}

// own returns the rollout of an object that obeys a policy itself: the recorded one, or was if none is recorded. It is
// nil if the object obeys no policy, or changes with its leader.
func (g *governance) own(was *refractv1alpha1.RolloutStatus) *refractv1alpha1.RolloutStatus {
	switch {
	case g == nil || g.led != nil:
		return nil
	case g.recorded == nil:
		return was
	default:
		return g.recorded
	}
}

// keeps reports whether a cluster is to keep its present content: the content was found on the cluster, or no recorded
// rollout assigns a revision yet.
func (g *governance) keeps(cluster string) bool {
	return g != nil && (g.recorded == nil || rollout.Assigned(g.recorded, cluster).Name == rollout.Found)
}

// enters reports whether an existing copy on a cluster may have old or foreign content, because the Propagation shows
// no correct copy there. It is false once the rollout has released the cluster: then the copy is written.
func (g *governance) enters(cluster string) bool {
	if g == nil || g.recorded == nil || g.keeps(cluster) {
		return false
	}
	_, placed := placement.Find(g.placed, cluster)
	_, unseen := slices.BinarySearch(g.foreign.unseen, cluster)
	_, keeping := slices.BinarySearch(g.foreign.keeping, cluster)
	return !placed || unseen || keeping && !rollout.Awaited(g.recorded, cluster)
}

// warned returns the warnings; none if the object has no rollout policy.
func (g *governance) warned() []string {
	if g == nil {
		return nil
	}
	return g.warnings
}

// lost reports whether the revision for the cluster is no longer stored.
func (t *target) lost() bool { return t != nil && t.from != nil && t.from.kept && t.from.err != nil }

// materialFor returns the material of the copy on a cluster. now is the material of the newest revision.
func (g *governance) materialFor(cluster string, now *material) *material {
	if g == nil || g.recorded == nil {
		return now
	}
	return g.materialOf(rollout.Assigned(g.recorded, cluster), now)
}

func (g *governance) materialOf(r *refractv1alpha1.Revision, now *material) *material {
	if r.Name == g.target.Name || r.Name == rollout.Found { // Found content is compared with the newest revision.
		return now
	}
	if m := g.kept[r.Name]; m != nil {
		return m
	}
	return &material{kept: true, err: fmt.Errorf("revision %s is not known", r.Name)}
}

// good returns the last revision that every cluster had.
func (g *governance) good() *refractv1alpha1.Revision {
	if g.recorded.Phase == refractv1alpha1.RolloutComplete {
		return &g.recorded.Target
	}
	return &g.recorded.LastGood
}

// settled reports whether every cluster is to have the newest revision.
func (g *governance) settled() bool {
	return g == nil || (g.recorded != nil && g.recorded.Phase == refractv1alpha1.RolloutComplete && g.recorded.Target.Name == g.target.Name)
}

// assigned returns the name of the revision that a cluster is to have during a rollout; empty if there is no rollout.
func (g *governance) assigned(cluster string) string {
	if g.settled() || g.recorded == nil {
		return ""
	}
	return rollout.Assigned(g.recorded, cluster).Name
}

// attempt returns the recorded attempt of the rollout; 0 if none is recorded.
func (g *governance) attempt() int32 {
	if g == nil || g.recorded == nil {
		return 0
	}
	return g.recorded.Attempt
}

// awaits reports whether a rollout waits for the copy on a cluster to become ready.
func (g *governance) awaits(cluster string) bool {
	return g != nil && g.led == nil && g.recorded != nil && rollout.Awaited(g.recorded, cluster)
}

// plan compares the newest revision with the content that the clusters are to have.
func (p *desiredState) plan(now *material, source string, s *inputs) *rolloutPlan {
	g := p.governed
	if g.recorded == nil || g.settled() {
		return nil
	}
	good := g.materialOf(g.good(), now)
	newest, before := map[string]string{}, map[string]string{}
	var others, elsewhere []string
	for name, t := range p.targets {
		hash := ""
		if t.variant != nil {
			hash = t.variant.hash
		}
		if is := g.materialFor(name, now); is == now {
			newest[name] = hash
		} else {
			others = append(others, name)
		}
		if is := g.materialFor(name, now); is == good {
			before[name] = hash
		} else {
			elsewhere = append(elsewhere, name)
		}
	}
	p.hashes(now, others, source, s, newest)
	p.hashes(good, elsewhere, source, s, before)
	plan := &rolloutPlan{changes: map[string]bool{}, differs: map[string]bool{}}
	for name, t := range p.targets {
		is := ""
		if t.variant != nil {
			is = t.variant.hash
		}
		if g.keeps(name) { // The newest revision has not been tried there.
			plan.changes[name], plan.differs[name] = true, true
			continue
		}
		// A variant that cannot be rendered counts as other content: its cluster reports the error when its wave
		// begins.
		if newest[name] == "" || newest[name] != is {
			plan.differs[name] = g.materialFor(name, now) != now
		}
		if newest[name] == "" || newest[name] != before[name] {
			plan.changes[name] = true
		}
	}
	return plan
}

// hashes adds the content hash for each cluster to the map. A cluster for which the object cannot be rendered gets
// none.
func (p *desiredState) hashes(m *material, names []string, source string, s *inputs, to map[string]string) {
	if m.err != nil || len(names) == 0 {
		return
	}
	var on party
	slices.Sort(names)
	for i := range s.clusters {
		if _, asked := slices.BinarySearch(names, s.clusters[i].Name); asked {
			if at, placed := placement.Find(p.placed, s.clusters[i].Name); placed {
				on.clusters = append(on.clusters, s.clusters[i].Cluster)
				on.targets = append(on.targets, p.placed[at])
			}
		}
	}
	for _, e := range m.byVersion(&on, s) {
		if e.err != nil {
			continue
		}
		for _, v := range variants.Render(e.object, e.clusters, e.targets, tree.Policy{}, m.policies...) {
			if v.Err != nil {
				continue
			}
			c, err := encode(v.Object, p.gvr, source, &p.keeping, leftTo(&p.keeping, v.Changes))
			if err != nil {
				continue
			}
			for _, i := range v.Clusters {
				to[e.clusters[i].Name] = c.hash
			}
		}
	}
}

// rolloutTick is the delay before a key is retried whose namespace or leaders are not known yet.
const rolloutTick = 200 * time.Millisecond
