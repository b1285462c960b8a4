package propagation

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/reference"
	variants "refract.dev/fleet/variant"
	"refract.dev/tree"
)

// arrival is a rendered object and the names of the clusters that it is for.
type arrival struct {
	object   *unstructured.Unstructured
	clusters []string
	// unasked are the references that override policies add without authorization.
	unasked map[reference.Reference]tree.Policy
}

// render sets the target of each cluster, rendered from the revision that the cluster is to have. now is the newest
// revision. It returns the rendered objects.
func (p *desiredState) render(now *material, by tree.Policy, s *inputs) (rendered []arrival) {
	var placed []placement.Target
	var all []*material
	parties := map[*material]*party{}
	for i := range s.clusters {
		at, found := placement.Find(p.placed, s.clusters[i].Name)
		if !found {
			continue
		}
		placed = append(placed, p.placed[at])
		m := p.governed.materialFor(s.clusters[i].Name, now)
		to := parties[m]
		if to == nil {
			to = &party{}
			parties[m] = to
			all = append(all, m)
		}
		to.clusters = append(to.clusters, s.clusters[i].Cluster)
		to.targets = append(to.targets, p.placed[at])
	}
	p.placed = placed
	now.allowed = parties[now] != nil // The authorization is checked only for rendered revisions.
	for _, m := range all {
		rendered = append(rendered, p.renderFrom(m, parties[m], by, s)...)
	}
	return rendered
}

// party is a group of clusters with the same revision.
type party struct {
	clusters []match.Cluster
	targets  []placement.Target
}

// renderFrom sets the targets of one revision. It records in the revision whether its policies are authorized to add
// their references.
func (p *desiredState) renderFrom(m *material, to *party, by tree.Policy, s *inputs) (rendered []arrival) {
	if m.err != nil {
		p.fail(to, &target{err: m.err, from: m, generation: m.generation})
		return nil
	}
	for _, e := range m.byVersion(to, s) {
		if e.err != nil {
			p.fail(&e.party, &target{err: e.err, generation: m.generation})
			m.allowed = false // The references in this revision are unknown.
			continue
		}
		rendered = append(rendered, p.renderVersion(m, e, by, s)...)
	}
	return rendered
}

// fail sets the target of clusters for which the object cannot be rendered.
func (p *desiredState) fail(to *party, t *target) {
	for i := range to.clusters {
		p.targets[to.clusters[i].Name] = t
	}
}

// renderVersion is renderFrom for the clusters that get the same API version.
func (p *desiredState) renderVersion(m *material, e *versioned, by tree.Policy, s *inputs) (rendered []arrival) {
	obj, clusters, targets, policies := e.object, e.clusters, e.targets, m.policies
	source := sourceOf(s.hub, p.uid, p.gvr.GroupResource(), obj.GetNamespace(), obj.GetName())
	secret := p.gvr.Group == "" && p.gvr.Resource == "secrets"
	for _, v := range variants.Render(obj, clusters, targets, by, policies...) {
		t := target{err: v.Err, warnings: warned(v.Warnings, maxText-p.warned), generation: m.generation, from: e.from}
		if e.note != "" {
			t.warnings = append(t.warnings, e.note)
		}
		p.warned += sizeOf(t.warnings)
		for _, i := range v.Policies {
			t.policies = append(t.policies, *policyReference(policies[i].Ref))
		}
		var without map[reference.Reference]tree.Policy
		if granted := m.kept && m.allowed; v.Err == nil && !granted {
			without, v.Err = unasked(obj, &v, clusters[v.Clusters[0]], policies, s)
			t.err = v.Err
			m.allowed = m.allowed && v.Err == nil && len(without) == 0
		}
		if v.Err == nil {
			c, err := encode(v.Object, p.gvr, source, &p.keeping, leftTo(&p.keeping, v.Changes))
			t.err = err
			if err == nil {
				t.variant = p.variant(c, v.Changes, secret)
			}
			rendered = append(rendered, arrival{object: v.Object, unasked: without})
		}
		// Clusters of one variant have the same share.
		t.replicas = targets[v.Clusters[0]].Replicas
		for _, i := range v.Clusters {
			to := t.on(clusters[i].Name, s)
			p.targets[clusters[i].Name] = to
			if v.Err == nil && to == &t {
				last := &rendered[len(rendered)-1]
				last.clusters = append(last.clusters, clusters[i].Name)
			}
		}
	}
	return rendered
}

// variant returns the variant with this content, and creates it if it does not exist yet.
func (p *desiredState) variant(c *content, changes []tree.Change, secret bool) *variant {
	for _, is := range p.variants {
		if is.hash == c.hash {
			return is
		}
	}
	v := &variant{content: c}
	p.bodies += c.size
	if p.bodies > maxPlanBodies {
		c.body.Store(nil)
	}
	if len(p.variants) < maxVariants {
		v.changes = lines(changes, secret, maxText-p.text)
		p.text += sizeOf(v.changes)
	}
	p.variants = append(p.variants, v)
	return v
}
