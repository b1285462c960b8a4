package propagation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	variants "refract.dev/internal/variant"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// What is kept in memory of copies that are about to be written. What there is no room
// for is rendered again when its turn comes.
const (
	// maxPlanBodies is how many bytes of one object are kept.
	maxPlanBodies = 8 << 20
	// maxBodies is how many bytes of all objects are.
	maxBodies = 128 << 20
)

// Copies of more than largeBody bytes are written to each member one after the other, and
// to all together maxLarge at a time: every member has workers of its own, and a request
// holds all of a copy.
const (
	largeBody = 256 << 10
	maxLarge  = 64
)

// lineDelay is for how long a large copy waits when half of the workers see to others.
const lineDelay = 250 * time.Millisecond

// outdatedDelay is for how long a copy waits for a plan that is decided anew.
const outdatedDelay = 100 * time.Millisecond

// errOutdated says that a plan is not what would be decided now, and is decided anew.
var errOutdated = errors.New("the plan is outdated")

// hold counts the bodies of a plan that is new, and keeps those that there is room for
// and somebody needs. The lock must be held.
func (l *ledger) hold(e *entry) {
	for _, v := range e.plan.variants {
		switch {
		case v.body.Load() == nil:
		case e.behind == 0, e.plan.dryRun, l.bodies+v.size > maxBodies:
			v.body.Store(nil)
		default:
			l.bodies += v.size
			e.bodies += v.size
		}
	}
}

// drop lets the bodies of a plan go. The lock must be held.
func (l *ledger) drop(e *entry) {
	if e.bodies == 0 {
		return
	}
	for _, v := range e.plan.variants {
		v.body.Store(nil)
	}
	l.bodies -= e.bodies
	e.bodies = 0
}

// keep keeps a body that was made again, if there is room by now and more clusters wait.
func (l *ledger) keep(key Key, p *plan, v *variant, b *body) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil || e.plan != p || e.behind < 2 || e.bodies+v.size > maxPlanBodies || l.bodies+v.size > maxBodies {
		return
	}
	if v.body.CompareAndSwap(nil, b) {
		l.bodies += v.size
		e.bodies += v.size
	}
}

// bodyOf returns what the copy of a target is written with; nil if the plan is outdated.
func (a *applier) bodyOf(key Key, p *plan, t *target) *body {
	if b := t.variant.body.Load(); b != nil {
		return b
	}
	c := a.encodeAgain(key, p)
	if c == nil || c.hash != t.variant.hash {
		if a.ledger.plan(key) == p {
			a.decide.add(key, ripple)
		}
		return nil
	}
	b := c.body.Load()
	a.ledger.keep(key, p, t.variant, b)
	return b
}

// encodeAgain renders an object for the member as its plan says, of what is known now; nil
// if that cannot be what the plan was made of.
func (a *applier) encodeAgain(key Key, p *plan) *content {
	src, known := a.sources.get(key)
	if !known || src.object == nil || src.object.GetUID() != p.uid {
		return nil
	}
	var policies []*override.Policy
	for _, ref := range p.overrides {
		policy := a.policies.override(tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		if policy == nil || *policyReference(policy.Ref) != ref {
			return nil
		}
		policies = append(policies, policy)
	}
	clusters := a.members.Clusters()
	at, found := slices.BinarySearchFunc(clusters, a.member.Name, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		return nil
	}
	return p.encodeFor(src.object, &clusters[at].Cluster, policies, sourceOf(a.hub, p.uid, p.gvr.GroupResource(), key.Namespace, key.Name))
}

// encodeFor renders and encodes the object of the plan for one of its clusters; nil if it
// cannot be.
func (p *plan) encodeFor(obj *unstructured.Unstructured, cluster *match.Cluster, policies []*override.Policy, source string) *content {
	at, placed := find(p.placed, cluster.Name)
	if !placed {
		return nil
	}
	v := variants.Render(obj, []match.Cluster{*cluster}, p.placed[at:at+1], tree.Policy{}, policies...)[0]
	if v.Err != nil {
		return nil
	}
	c, err := encode(v.Object, p.gvr, source, &p.keeping)
	if err != nil {
		return nil
	}
	return c
}
