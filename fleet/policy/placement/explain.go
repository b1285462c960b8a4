package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Why returns the reason why the object is not placed on c, as one sentence without a period that calls the cluster
// "it"; empty if the object is placed there. The decision is that of [Policy.Place] for the request. If Place fails,
// the sentence is its error.
func (p *Policy) Why(c *Cluster, r *Request, d *Decision) string {
	if p.err != nil {
		return p.err.Error()
	}
	if _, found := Find(d.Targets, c.Name); found {
		return ""
	}
	if d.Held != nil && slices.Contains(d.Held.Joins, c.Name) {
		return "the policy chooses it, but the change waits for approval"
	}
	if slices.Contains(d.Waiting, c.Name) {
		return fmt.Sprintf("a new decision would choose it, but %s keeps the object where it is", d.Kept)
	}
	_, placed := Find(r.Previous, c.Name)
	own, listed := p.listed[c.Name]
	if p.listed != nil && !listed {
		return "the policy's placement does not list it"
	}
	if why := p.selector.Why(&c.Cluster); why != "" {
		return why
	}
	for i := range c.Taints {
		if !p.tolerates(c.Taints[i:i+1], placed) {
			return fmt.Sprintf("taint %s is not tolerated", c.Taints[i].ToString())
		}
	}
	divided := p.total(r) != nil
	switch {
	case !c.Ready && !placed:
		return "it is not ready, so it gets no new objects"
	case p.max >= 0 && (!divided || len(d.Targets) >= p.max):
		return fmt.Sprintf("maxClusters (%d) is reached without it", p.max)
	case divided && listed && own.max == 0:
		return "its maxReplicas is 0"
	case divided && listed && !p.binpack && own.weight == 0:
		return "its weight is 0"
	default:
		return fmt.Sprintf("none of the %s is left for it", replicas(r.Replicas))
	}
}

func replicas(n *int64) string {
	switch {
	case n == nil:
		return "replicas"
	case *n == 1:
		return "1 replica"
	default:
		return fmt.Sprintf("%d replicas", *n)
	}
}

// few is the maximum number of clusters that a warning lists. Further clusters are counted.
const few = 3

func list(names []string) string {
	if len(names) <= few+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
