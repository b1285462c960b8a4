package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/internal/revision"
	variants "refract.dev/internal/variant"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/release"
	"refract.dev/tree"
)

// governance is by which rollout policy an object changes, and how far it has come.
type governance struct {
	policy   *release.Policy // Nil while nothing may be released, as hold says.
	health   *member.Health  // What it asks of copies; nil if nothing.
	hold     string
	blocked  string // The reason why nothing can be said of the object at all, of which hold tells; empty if it can.
	warnings []string
	// led is by what the object is led; nil if it obeys a policy itself.
	led *led
	// target is the newest revision.
	target refractv1alpha1.Revision
	// recorded is what is written down of the rollout, or of that of what leads; nil if that is nothing yet. It is not
	// to be modified.
	recorded *refractv1alpha1.RolloutStatus
	// placed are the clusters that the record says are to have a copy, and foreign those that may have another content.
	placed  []placement.Target
	foreign foreignContent
	// kept are revisions that are not the newest, by name.
	kept map[string]*material
}

// material is what copies are rendered from.
type material struct {
	object     *unstructured.Unstructured
	policies   []*override.Policy
	generation int64
	// kept is whether it is that of a revision that is not the newest; allowed whether it was found that its
	// policies may have the object refer to what they bring in; err why it cannot be had.
	kept, allowed bool
	err           error
}

// rolloutPlan is what the newest revision would change.
type rolloutPlan struct {
	// changes and differs are clusters to which it gives another content than the last good
	// revision, and than the one that they are to have.
	changes, differs map[string]bool
}

// governs returns how changes of an object go out, and the policies that say so; nil if none does. The
// key waits if known is false.
func (d *decider) governs(
	ctx context.Context, key Key, obj *unstructured.Unstructured, with followed,
) (g *governance, names []tree.Policy, known bool, err error) {
	var floor map[string]string
	if key.Namespace != "" {
		if floor, known = d.floor(key.Namespace); !known {
			return nil, nil, false, nil
		}
	}
	named, warnings, err := release.Named(obj.GetLabels(), key.Namespace, floor)
	if err != nil {
		return &governance{blocked: reasonInvalidLabel, hold: err.Error()}, nil, true, nil //nolint:nilerr // The object says so.
	}
	k, _ := d.records.get(key)
	// The replica that leads says in the record whether an object is governed. What others know of labels may be older.
	recorded := !d.shards.Leads() && k.rollout != nil
	if names = named.All(); len(names) == 0 && !recorded {
		if keeping, _ := placement.KeepingOf(obj.GetAnnotations()); keeping.DisableFollowing {
			return nil, nil, true, nil
		}
		if by := d.ledBy(key, with); by != nil {
			g, err = d.governedBy(ctx, key, obj, by)
		}
		return g, nil, true, err
	}
	g = &governance{warnings: warnings, placed: k.placed, foreign: k.foreign}
	if len(names) > 0 {
		var more []string
		g.policy, g.hold, more = release.Obeyed(named, d.policies.rollout)
		g.warnings = append(g.warnings, more...)
	}
	if g.health = healthOf(g.policy, key.GroupResource); g.health != nil {
		d.state.asked.Store(true)
	}
	if g.recorded = k.rollout; g.recorded == nil {
		before, _ := d.state.previous(key)
		g.recorded = before.rollout // Somebody has deleted the record: it is made again with that.
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

// revise finds out which revision the newest is. Known is false while not all is known that it leads.
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

// parts returns of what the newest revision of an object is made. It is [revision.ErrTooLarge] if it cannot be kept.
func (d *decider) parts(
	ctx context.Context, key Key, obj *unstructured.Unstructured,
) (object string, policies []refractv1alpha1.PolicyRevision, err error) {
	part, err := revision.ObjectPart(obj)
	if err != nil {
		return "", nil, err
	}
	if _, err := part.Encode(); err != nil {
		return "", nil, fmt.Errorf("the object cannot go out wave by wave, as what is there before has to be kept: %w", err)
	}
	if object, err = d.revisions.nameOf(ctx, key, &part); err != nil {
		return "", nil, err
	}
	refs, _, err := override.Named(obj.GetLabels(), key.Namespace)
	if err != nil {
		return object, nil, nil //nolint:nilerr // The object says so.
	}
	for _, ref := range refs {
		if policy, name := d.policies.revision(ref); policy != nil {
			policies = append(policies, revision.Refer(policy.Ref, name))
		}
	}
	return object, policies, nil
}

// own returns what is written down of the rollout of an object that obeys a policy itself, or else what was; nil if it obeys none.
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

// keeps reports whether a cluster is to keep what it holds, whatever that is: nobody has written down yet what it may have, or it was
// found with that.
func (g *governance) keeps(cluster string) bool {
	return g != nil && (g.recorded == nil || release.Assigned(g.recorded, cluster).Name == release.Found)
}

// enters reports whether a copy that is there may have a content of another time, or of somebody else: the record does not say that the
// cluster has one as it was to have it. Once the rollout has released a cluster that was found with such a content, it is written.
func (g *governance) enters(cluster string) bool {
	if g == nil || g.recorded == nil || g.keeps(cluster) {
		return false
	}
	_, placed := find(g.placed, cluster)
	_, unseen := slices.BinarySearch(g.foreign.unseen, cluster)
	_, keeping := slices.BinarySearch(g.foreign.keeping, cluster)
	return !placed || unseen || keeping && !release.Awaited(g.recorded, cluster)
}

// lost reports whether the revision that a cluster is to have is stored nowhere any more.
func (t *target) lost() bool { return t.from != nil && t.from.kept && t.from.err != nil }

// materialFor returns what the copy on a cluster is rendered from; now is that of the newest revision.
func (g *governance) materialFor(cluster string, now *material) *material {
	if g == nil || g.recorded == nil {
		return now
	}
	return g.materialOf(release.Assigned(g.recorded, cluster), now)
}

func (g *governance) materialOf(r *refractv1alpha1.Revision, now *material) *material {
	if r.Name == g.target.Name || r.Name == release.Found { // What is found is compared with the newest.
		return now
	}
	if m := g.kept[r.Name]; m != nil {
		return m
	}
	return &material{kept: true, err: fmt.Errorf("revision %s is not known", r.Name)}
}

// good is the revision that every cluster had last.
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

// awaits reports whether a rollout waits for the copy on a cluster to become ready.
func (g *governance) awaits(cluster string) bool {
	return g != nil && g.led == nil && g.recorded != nil && release.Awaited(g.recorded, cluster)
}

// plan compares what the newest revision gives to clusters with what they are to have.
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
		if g.keeps(name) { // Nobody has tried the newest there.
			plan.changes[name], plan.differs[name] = true, true
			continue
		}
		// What cannot be rendered is another content: its cluster says why, when its turn has come.
		if newest[name] == "" || newest[name] != is {
			plan.differs[name] = g.materialFor(name, now) != now
		}
		if newest[name] == "" || newest[name] != before[name] {
			plan.changes[name] = true
		}
	}
	return plan
}

// hashes adds those of the content that clusters would have; nothing where it cannot be rendered.
func (p *desiredState) hashes(m *material, names []string, source string, s *inputs, to map[string]string) {
	if m.err != nil || len(names) == 0 {
		return
	}
	var on party
	slices.Sort(names)
	for i := range s.clusters {
		if _, asked := slices.BinarySearch(names, s.clusters[i].Name); asked {
			if at, placed := find(p.placed, s.clusters[i].Name); placed {
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

// rolloutTick is how soon it is looked again whether it is known what the namespace of an object asks for.
const rolloutTick = 200 * time.Millisecond
