package lint

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/output"
)

// checkKnown finds an input without clusters.
func checkKnown(clusters *clusters, policies *policies, lost *lost, out *report) {
	if clusters.known || lost.clusters() || len(policies.overriding)+len(policies.placing) == 0 {
		return
	}
	var first *subject
	if len(policies.placing) > 0 {
		first = &policies.placing[0].subject
	} else {
		first = &policies.overriding[0].subject
	}
	finding := first.finding(NoClusters, "", "the input has no FederatedCluster, so the choice of clusters is not checked")
	finding.Policy = nil
	out.add(finding.hint("add the FederatedClusters to the input"))
}

// checkPlacing finds propagation policies that choose no cluster, or that name missing clusters.
func checkPlacing(placing []*placingPolicy, clusters *clusters, lost *lost, out *report) {
	if !clusters.known {
		return
	}
	for _, p := range placing {
		names := make([]string, len(p.spec.Placements))
		for i := range p.spec.Placements {
			names[i] = p.spec.Placements[i].Cluster
		}
		c := &choice{
			subject: &p.subject, field: "spec", names: names, list: "placement", suffix: ".cluster",
			selector: p.spec.ClusterSelector, affinity: p.spec.ClusterAffinity, clusters: clusters, lost: lost, out: out,
		}
		c.check()
		p.reported = c.reported
	}
}

// checkTaints finds clusters whose taints keep all objects away, propagation policies that ask for clusters with taints
// that they do not tolerate, and those that choose no cluster for any other reason.
func checkTaints(manifests []manifest.Cluster, placing []*placingPolicy, clusters *clusters, lost *lost, out *report) {
	if !clusters.known {
		return
	}
	closed := reportClosed(manifests, placing, clusters.all, out)
	for _, p := range placing {
		if p.reported || len(clusters.all) == 0 {
			continue
		}
		chosen, err := p.compiled.Place(&placement.Request{Clusters: clusters.all})
		if err != nil {
			continue
		}
		for i := range p.spec.Placements {
			p.reportListed(i, clusters.all, closed, out)
		}
		if len(chosen.Targets) > 0 || p.reported || lost.clusters() {
			continue
		}
		if field, why := p.whyNone(clusters.all, closed); why != "" {
			n := output.Count(len(clusters.all), "cluster", "clusters")
			out.add(p.finding(PropagationChoosesNoCluster, field, "chooses none of %s", n).hint("%s", why))
		}
	}
}

// whyNone returns the reason why a policy chooses none of the clusters, and the responsible field; empty if the reason
// is already reported.
func (p *placingPolicy) whyNone(clusters []placement.Cluster, closed map[string]bool) (field, why string) {
	if p.spec.MaxClusters != nil && *p.spec.MaxClusters == 0 {
		return "spec.maxClusters", "maxClusters is 0"
	}
	var tainted, unready []string
	for i := range clusters {
		c := &clusters[i]
		switch {
		case !p.wants(c):
		case closed[c.Name]:
			return "", ""
		case !p.tolerates(c):
			tainted = append(tainted, c.Name)
		case !c.Ready:
			unready = append(unready, c.Name)
		}
	}
	switch {
	case len(tainted) > 0:
		return "spec", "it does not tolerate the taints of " + render.Few(tainted)
	case len(unready) > 0:
		return "spec", "not ready: " + render.Few(unready)
	default:
		return "spec", "placement, clusterSelector and clusterAffinity must all choose the cluster"
	}
}

// wants reports whether the policy would choose the cluster if it had no taint and were ready.
func (p *placingPolicy) wants(c *placement.Cluster) bool {
	d, err := p.compiled.Place(&placement.Request{Clusters: []placement.Cluster{{Cluster: c.Cluster, Ready: true}}})
	return err == nil && (len(d.Targets) > 0 || (p.spec.MaxClusters != nil && *p.spec.MaxClusters == 0))
}

// tolerates reports whether the policy would place a new object on the cluster if the cluster were ready.
func (p *placingPolicy) tolerates(c *placement.Cluster) bool {
	ready := *c
	ready.Ready = true
	d, err := p.compiled.Place(&placement.Request{Clusters: []placement.Cluster{ready}})
	return err != nil || len(d.Targets) > 0
}

// reportClosed reports the clusters that propagation policies would choose, but whose taints none of these policies
// tolerates. It returns their names.
func reportClosed(
	manifests []manifest.Cluster, placing []*placingPolicy, clusters []placement.Cluster, out *report,
) map[string]bool {
	closed := map[string]bool{}
	byName := make(map[string]*manifest.Cluster, len(manifests))
	for i := range manifests {
		byName[manifests[i].Cluster.Name] = &manifests[i]
	}
	for i := range clusters {
		c := &clusters[i]
		if len(c.Taints) == 0 {
			continue
		}
		wanted, enters := 0, false
		for _, p := range placing {
			if p.wants(c) {
				wanted++
				enters = enters || p.tolerates(c)
			}
		}
		if wanted == 0 || enters {
			continue
		}
		closed[c.Name] = true
		m := byName[c.Name]
		s := subject{object: &render.Object{APIVersion: m.Cluster.APIVersion, Kind: m.Cluster.Kind, Name: c.Name}, at: m.At}
		finding := s.finding(TaintNotTolerated, "spec.taints", "nothing is placed on the cluster: %s would choose it, and %s the taint %s",
			output.Count(wanted, "propagation policy", "propagation policies"), doesNot(wanted), keepsOut(c))
		out.add(finding)
	}
	return closed
}

func doesNot(n int) string {
	if n == 1 {
		return "does not tolerate"
	}
	return "none tolerates"
}

// keepsOut returns the first taint of a cluster that keeps objects away.
func keepsOut(c *placement.Cluster) string {
	for i := range c.Taints {
		if t := &c.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule {
			return t.ToString()
		}
	}
	return ""
}

// reportListed reports a cluster that the policy lists and whose taint it does not tolerate, unless the cluster is
// reported as closed.
func (p *placingPolicy) reportListed(i int, clusters []placement.Cluster, closed map[string]bool, out *report) {
	name := p.spec.Placements[i].Cluster
	for j := range clusters {
		c := &clusters[j]
		if c.Name != name || closed[name] || !p.wants(c) || p.tolerates(c) {
			continue
		}
		field := fmt.Sprintf("spec.placement[%d].cluster", i)
		finding := p.finding(TaintNotTolerated, field,
			"cluster %q has the taint %s, which the policy does not tolerate", name, keepsOut(c))
		out.add(finding.on(nil, []string{name}))
		p.reported = true
	}
}

// checkInert finds fields of propagation policies that have no effect.
func checkInert(placing []*placingPolicy, out *report) {
	for _, p := range placing {
		for _, w := range p.compiled.Inert {
			field, fact, _ := strings.Cut(w, " ") // Each warning begins with its field.
			cause := p.ref.String() + fact
			if !strings.Contains(field, "[") {
				cause += field
			}
			out.once(cause, p.finding(InertField, field, "%s", fact))
		}
	}
}
