package lint

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/placement"
)

// checkKnown looks for an input without clusters.
func checkKnown(f *fleet, out *report) {
	if f.known || f.lost.clusters() || len(f.overriding)+len(f.placing) == 0 {
		return
	}
	var first *subject
	if len(f.placing) > 0 {
		first = &f.placing[0].subject
	} else {
		first = &f.overriding[0].subject
	}
	finding := first.finding(NoClusters, "", "no FederatedCluster is in the input, so what policies say of clusters is not checked")
	finding.Policy = nil
	out.add(finding.hint("give the FederatedClusters, too"))
}

// checkPlacing looks for propagation policies that choose no cluster, or name some
// that are not there.
func checkPlacing(f *fleet, out *report) {
	for _, p := range f.placing {
		if !f.known {
			continue
		}
		names := make([]string, len(p.spec.Placements))
		for i := range p.spec.Placements {
			names[i] = p.spec.Placements[i].Cluster
		}
		c := &choice{
			fleet: f, report: out, subject: &p.subject, field: "spec", names: names, list: "placement", suffix: ".cluster",
			selector: p.spec.ClusterSelector, affinity: p.spec.ClusterAffinity,
		}
		c.check()
		p.reported = c.reported
	}
}

// checkTaints looks for clusters from which taints keep everything away, for
// propagation policies that ask for clusters whose taints they do not tolerate,
// and for those that choose no cluster for any other reason.
func checkTaints(f *fleet, out *report) {
	if !f.known {
		return
	}
	taken := f.closed(out)
	for _, p := range f.placing {
		if p.reported || len(f.clusters) == 0 {
			continue
		}
		chosen, err := p.compiled.Place(&placement.Request{Clusters: f.clusters})
		if err != nil {
			continue
		}
		for i := range p.spec.Placements {
			f.listed(out, p, i, taken)
		}
		if len(chosen.Targets) > 0 || p.reported || f.lost.clusters() {
			continue
		}
		if field, why := f.whyNone(p, taken); why != "" {
			n := output.Count(len(f.clusters), "cluster", "clusters")
			out.add(p.finding(PropagationChoosesNoCluster, field, "chooses none of %s", n).hint("%s", why))
		}
	}
}

// whyNone returns why a policy chooses no cluster, and the field that says so;
// nothing when that is reported already.
func (f *fleet) whyNone(p *placingPolicy, taken map[string]bool) (field, why string) {
	if p.spec.MaxClusters != nil && *p.spec.MaxClusters == 0 {
		return "spec.maxClusters", "maxClusters is 0"
	}
	var tainted, unready []string
	for i := range f.clusters {
		c := &f.clusters[i]
		switch {
		case !f.wants(p, c):
		case taken[c.Name]:
			return "", ""
		case !tolerated(p, c):
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

// wants reports whether the policy would choose the cluster if it had no taint
// and were ready.
func (f *fleet) wants(p *placingPolicy, c *placement.Cluster) bool {
	d, err := p.compiled.Place(&placement.Request{Clusters: []placement.Cluster{{Cluster: c.Cluster, Ready: true}}})
	return err == nil && (len(d.Targets) > 0 || (p.spec.MaxClusters != nil && *p.spec.MaxClusters == 0))
}

// tolerated reports whether the policy would put something new on the cluster if
// it were ready.
func tolerated(p *placingPolicy, c *placement.Cluster) bool {
	ready := *c
	ready.Ready = true
	d, err := p.compiled.Place(&placement.Request{Clusters: []placement.Cluster{ready}})
	return err != nil || len(d.Targets) > 0
}

// closed reports every cluster that some propagation policies would choose and
// none tolerates, and returns their names.
func (f *fleet) closed(out *report) map[string]bool {
	closed := map[string]bool{}
	taints := make(map[string]int, len(f.set.Clusters))
	for i := range f.set.Clusters {
		taints[f.set.Clusters[i].Cluster.Name] = i
	}
	for i := range f.clusters {
		c := &f.clusters[i]
		if len(c.Taints) == 0 {
			continue
		}
		wanted, enters := 0, false
		for _, p := range f.placing {
			if f.wants(p, c) {
				wanted++
				enters = enters || tolerated(p, c)
			}
		}
		if wanted == 0 || enters {
			continue
		}
		closed[c.Name] = true
		m := &f.set.Clusters[taints[c.Name]]
		s := subject{object: &render.Object{APIVersion: m.Cluster.APIVersion, Kind: m.Cluster.Kind, Name: c.Name}, at: m.At}
		finding := s.finding(TaintNotTolerated, "spec.taints", "nothing is placed on the cluster: %s would choose it, and %s the taint %s",
			output.Count(wanted, "propagation policy", "propagation policies"), doesNot(wanted), f.keepsOut(c))
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
func (f *fleet) keepsOut(c *placement.Cluster) string {
	for i := range c.Taints {
		if t := &c.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule {
			return t.ToString()
		}
	}
	return ""
}

// listed looks at a cluster that a policy lists and whose taint it does not
// tolerate.
func (f *fleet) listed(out *report, p *placingPolicy, i int, taken map[string]bool) {
	name := p.spec.Placements[i].Cluster
	for j := range f.clusters {
		c := &f.clusters[j]
		if c.Name != name || taken[name] || !f.wants(p, c) || tolerated(p, c) {
			continue
		}
		field := fmt.Sprintf("spec.placement[%d].cluster", i)
		finding := p.finding(TaintNotTolerated, field, "cluster %q has the taint %s, which the policy does not tolerate", name, f.keepsOut(c))
		out.add(finding.on(nil, []string{name}))
		p.reported = true
	}
}

// checkInert looks for what propagation policies ask for in vain.
func checkInert(f *fleet, out *report) {
	for _, p := range f.placing {
		for _, w := range p.compiled.Inert {
			field, fact, _ := strings.Cut(w, " ") // Each begins with its field.
			cause := p.ref.String() + fact
			if !strings.Contains(field, "[") {
				cause += field
			}
			out.once(cause, p.finding(InertField, field, "%s", fact))
		}
	}
}
