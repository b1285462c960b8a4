package lint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/internal/output"
)

// choice is the choice of clusters by a policy or by one of its rules.
type choice struct {
	clusters *clusters
	lost     *lost
	out      *report

	subject  *subject
	field    string // The field with the parts below.
	names    []string
	list     string // The name of the list that has the names,
	suffix   string // and the field of its elements.
	selector map[string]string
	affinity []corev1alpha1.ClusterSelectorTerm
	// reported reports whether a finding explains why no cluster is chosen.
	reported bool
}

// checkTargets checks the choice of clusters by the rules of override policies.
func checkTargets(overriding []*policy, clusters *clusters, lost *lost, out *report) {
	if !clusters.known {
		return
	}
	for _, p := range overriding {
		for _, r := range p.rules {
			if r.spec.TargetClusters != nil {
				r.checkTarget(clusters, lost, out)
			}
		}
	}
}

func (r *rule) checkTarget(clusters *clusters, lost *lost, out *report) {
	t := r.spec.TargetClusters
	c := &choice{
		subject: &r.policy.subject, field: r.field + ".targetClusters", names: t.Clusters, list: "clusters",
		selector: t.ClusterSelector, affinity: t.ClusterAffinity, clusters: clusters, lost: lost, out: out,
	}
	c.check()
	if len(clusters.chosen(r.policy.compiled.Target(r.index))) > 0 {
		return
	}
	r.reported = true
	if c.reported || lost.clusters() {
		return
	}
	finding := c.subject.finding(RuleMatchesNoCluster, c.field, "no cluster satisfies it")
	if parts := c.parts(); len(parts) > 1 {
		finding.hint("all must hold: %s", strings.Join(parts, ", "))
	}
	out.add(finding)
}

// check checks each part by itself.
func (c *choice) check() {
	c.checkNames()
	for _, key := range slices.Sorted(maps.Keys(c.selector)) {
		at := c.field + ".clusterSelector[" + key + "]"
		if c.knowsKey(key, at) {
			c.knowsValues(key, []string{c.selector[key]}, func(int) string { return at })
		}
	}
	for i := range c.affinity {
		c.checkTerm(&c.affinity[i], fmt.Sprintf("%s.clusterAffinity[%d]", c.field, i))
	}
}

// mostNamed is the maximum number of findings on the names of one list. Further ones would have the same cause.
const mostNamed = 100

func (c *choice) checkNames() {
	first := map[string]bool{}
	before := len(c.out.findings)
	for i, name := range c.names {
		if len(c.out.findings)-before >= mostNamed {
			return
		}
		at := fmt.Sprintf("%s.%s[%d]%s", c.field, c.list, i, c.suffix)
		if first[name] {
			c.out.add(c.subject.finding(DuplicateName, at, "cluster %q is in the list twice", name))
			continue
		}
		first[name] = true
		c.knowsCluster(name, at, c.names)
	}
}

// knowsCluster finds a missing cluster. The hint does not suggest clusters that the list already has.
func (c *choice) knowsCluster(name, at string, listed []string) {
	names := c.clusters.names()
	if slices.Contains(names, name) {
		return
	}
	c.reported = true
	if c.lost.cluster(name) {
		return
	}
	finding := c.subject.finding(UnknownCluster, at, "there is no cluster %q", name)
	if slices.Contains(listed, near(name, names)) {
		finding.choices("the clusters are %s", names)
	}
	c.out.once(name, finding.meanOf(name, "clusters", names))
}

// knowsKey reports whether a cluster has the label, and adds a finding if none has.
func (c *choice) knowsKey(key, at string) bool {
	if len(c.clusters.labels[key]) > 0 {
		return true
	}
	c.reported = true
	if c.lost.clusters() {
		return false
	}
	keys := c.clusters.labelKeys()
	finding := c.subject.finding(UnknownClusterLabel, at, "no cluster has a label %q", key)
	c.out.once(key, finding.meanOf(key, "labels of clusters", keys))
	return false
}

// knowsValues finds values of a label that no cluster has. If some of the values exist, it reports only those that are
// similar to an existing value.
func (c *choice) knowsValues(key string, values []string, at func(int) string) {
	have := c.clusters.labels[key]
	some := slices.ContainsFunc(values, func(v string) bool { return slices.Contains(have, v) })
	for i, v := range values {
		if slices.Contains(have, v) || (some && near(v, have) == "") {
			continue
		}
		c.reported = true
		if c.lost.clusters() {
			continue
		}
		finding := c.subject.finding(UnknownClusterLabel, at(i),
			"no cluster has %s=%s: label %s has the values %s", key, v, key, quoted(have))
		c.out.once(key+"="+v, finding.mean(v, have))
	}
}

// quoted lists the first few of the values, quoted.
func quoted(values []string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.Quote(v)
	}
	return render.Few(texts)
}

func (c *choice) checkTerm(t *corev1alpha1.ClusterSelectorTerm, at string) {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		c.reported = true
		c.out.add(c.subject.finding(RuleMatchesNoCluster, at, "a term without requirements matches no cluster"))
	}
	for i := range t.MatchExpressions {
		c.checkExpression(&t.MatchExpressions[i], fmt.Sprintf("%s.matchExpressions[%d]", at, i))
	}
	for i := range t.MatchFields {
		for j, name := range t.MatchFields[i].Values {
			c.knowsCluster(name, fmt.Sprintf("%s.matchFields[%d].values[%d]", at, i, j), t.MatchFields[i].Values)
		}
	}
}

func (c *choice) checkExpression(e *corev1alpha1.ClusterSelectorRequirement, at string) {
	valueAt := func(i int) string { return fmt.Sprintf("%s.values[%d]", at, i) }
	switch e.Operator {
	case corev1alpha1.ClusterSelectorOpNotIn, corev1alpha1.ClusterSelectorOpDoesNotExist:
		// A match of clusters without the label may be intended, so only a probable typo is reported.
		if len(c.clusters.labels[e.Key]) == 0 && near(e.Key, c.clusters.labelKeys()) != "" {
			c.knowsKey(e.Key, at+".key")
		}
	case corev1alpha1.ClusterSelectorOpIn:
		if c.knowsKey(e.Key, at+".key") {
			c.knowsValues(e.Key, e.Values, valueAt)
		}
	case corev1alpha1.ClusterSelectorOpGt, corev1alpha1.ClusterSelectorOpLt:
		if c.knowsKey(e.Key, at+".key") {
			c.comparable(e, at)
		}
	default:
		c.knowsKey(e.Key, at+".key")
	}
}

// comparable finds a compared label that is no integer on any cluster.
func (c *choice) comparable(e *corev1alpha1.ClusterSelectorRequirement, at string) {
	values := c.clusters.labels[e.Key]
	integer := func(v string) bool {
		_, err := strconv.ParseInt(v, 10, 64)
		return err == nil
	}
	if slices.ContainsFunc(values, integer) {
		return
	}
	c.reported = true
	c.out.add(c.subject.finding(LabelNotInteger, at+".operator",
		"%s compares integers, and label %s has the values %s", e.Operator, e.Key, quoted(values)))
}

// parts lists for each part the number of clusters that it chooses by itself.
func (c *choice) parts() []string {
	var parts []string
	say := func(what string, t corev1alpha1.TargetClusters) {
		if compiled, errs := match.CompileTarget(&t, nil); len(errs) == 0 {
			n := output.Count(len(c.clusters.chosen(&compiled)), "cluster", "clusters")
			parts = append(parts, fmt.Sprintf("%s chooses %s", what, n))
		}
	}
	if len(c.names) > 0 {
		say(c.list, corev1alpha1.TargetClusters{Clusters: c.names})
	}
	if len(c.selector) > 0 {
		say("clusterSelector", corev1alpha1.TargetClusters{ClusterSelector: c.selector})
	}
	if len(c.affinity) > 0 {
		say("clusterAffinity", corev1alpha1.TargetClusters{ClusterAffinity: c.affinity})
	}
	return parts
}
