package placement

import (
	"fmt"
	"slices"
)

// Why returns why the object does not belong on c: one sentence without an end
// mark that calls the cluster "it"; empty if the object does. Placed is whether c
// was among the previous clusters that [Policy.Place] was given, and chosen are
// those that it returned. For a policy whose Place fails, the sentence is its error.
func (p *Policy) Why(c *Cluster, placed bool, chosen []string) string {
	if p.err != nil {
		return p.err.Error()
	}
	if _, found := slices.BinarySearch(chosen, c.Name); found {
		return ""
	}
	if p.listed != nil && !p.listed[c.Name] {
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
	if !c.Ready && !placed {
		return "it is not ready, and gets nothing new"
	}
	return fmt.Sprintf("maxClusters, which is %d, is reached without it", p.max)
}
