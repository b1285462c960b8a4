package lint

import (
	"fmt"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/tree"
)

// rolloutPolicy is a rollout policy with its subject for findings.
type rolloutPolicy struct {
	subject

	ref      tree.Policy // Without generation.
	waves    []refractv1alpha1.RolloutWave
	compiled *rollout.Policy // Nil if the policy is invalid, which is reported.
}

func rolloutPoliciesOf(set *manifest.Set) []rolloutPolicy {
	var all []rolloutPolicy
	add := func(ref tree.Policy, at func(string) manifest.Place, waves []refractv1alpha1.RolloutWave, compiled *rollout.Policy) {
		all = append(all, rolloutPolicy{subject{policy: name(ref), at: at}, ref, waves, compiled})
	}
	for i := range set.ClusterRolloutPolicies {
		p := &set.ClusterRolloutPolicies[i]
		add(tree.Policy{Kind: refractv1alpha1.KindClusterRolloutPolicy, Name: p.Policy.Name}, p.At, p.Policy.Spec.Waves, p.Compiled)
	}
	for i := range set.RolloutPolicies {
		p := &set.RolloutPolicies[i]
		add(tree.Policy{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: p.Policy.Namespace, Name: p.Policy.Name}, p.At, p.Policy.Spec.Waves, p.Compiled)
	}
	return all
}

// checkRollouts checks the references to rollout policies, and their choice of clusters.
func checkRollouts(set *manifest.Set, clusters *clusters, lost *lost, ended func() bool, out *report) {
	policies := rolloutPoliciesOf(set)
	named, there := map[tree.Policy]bool{}, make(map[tree.Policy]bool, len(policies))
	for i := range policies {
		there[policies[i].ref] = true
	}
	n := &naming{policies: policies, there: there, named: named, lost: lost, out: out}
	for i := range set.Objects {
		n.object(&set.Objects[i])
	}
	for i := range set.Namespaces {
		n.namespace(&set.Namespaces[i])
	}
	for i := range policies {
		if ended() {
			return
		}
		p := &policies[i]
		if !named[p.ref] && !lost.objects() {
			f := p.finding(PolicyNotUsed, "", "no object or namespace names it")
			out.add(f.hint("label %s names one", rolloutLabels[p.ref.Kind]))
		}
		p.checkWaves(clusters, lost, out)
	}
}

// rolloutLabels are the labels that name a policy of each kind.
var rolloutLabels = map[string]string{
	refractv1alpha1.KindRolloutPolicy:        refractv1alpha1.RolloutPolicyLabel,
	refractv1alpha1.KindClusterRolloutPolicy: refractv1alpha1.ClusterRolloutPolicyLabel,
}

// naming checks the labels that name rollout policies.
type naming struct {
	policies     []rolloutPolicy
	there, named map[tree.Policy]bool
	lost         *lost
	out          *report
}

func (n *naming) object(o *manifest.Object) {
	labels, namespace := o.Content.GetLabels(), o.Content.GetNamespace()
	s := subjectOf(o)
	at := labelField(refractv1alpha1.RolloutPolicyLabel)
	value, ok := labels[refractv1alpha1.RolloutPolicyLabel]
	switch {
	case !ok:
	case namespace == "":
		f := s.finding(NamespacedLabel, at, "has no effect: policies of kind %s are for objects of their namespace, and a %s has no namespace",
			refractv1alpha1.KindRolloutPolicy, s.object.Kind)
		n.out.add(f.hint("label %s names a %s", refractv1alpha1.ClusterRolloutPolicyLabel, refractv1alpha1.KindClusterRolloutPolicy))
	default:
		n.names(s, at, tree.Policy{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: namespace, Name: value})
	}
	if value, ok := labels[refractv1alpha1.ClusterRolloutPolicyLabel]; ok && o.Content.GetKind() != "Namespace" {
		n.names(s, labelField(refractv1alpha1.ClusterRolloutPolicyLabel), tree.Policy{Kind: refractv1alpha1.KindClusterRolloutPolicy, Name: value})
	}
}

// namespace checks a Namespace, which may be among the objects, too.
func (n *naming) namespace(o *manifest.Object) {
	if value, ok := o.Content.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel]; ok {
		n.names(subjectOf(o), labelField(refractv1alpha1.ClusterRolloutPolicyLabel), tree.Policy{Kind: refractv1alpha1.KindClusterRolloutPolicy, Name: value})
	}
}

func (n *naming) names(s *subject, at string, ref tree.Policy) {
	if ref.Name == "" {
		n.out.add(s.finding(EmptyPolicyLabel, at, "is empty; it must name a %s", ref.Kind))
		return
	}
	n.named[ref] = true
	if n.there[ref] || n.lost.policy(ref) {
		return
	}
	f := s.finding(MissingPolicy, at, "names %s, which is not in the input", ref).on([]string{s.object.String()}, nil)
	var others []string
	for i := range n.policies {
		if is := n.policies[i].ref; is.Kind == ref.Kind && is.Namespace == ref.Namespace {
			others = append(others, is.Name)
		}
	}
	if meant := nearest.To(ref.Name, others); meant != "" {
		f.hint("did you mean %q?", meant)
		n.named[tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: meant}] = true
	}
	n.out.once(ref.String(), f)
}

// checkWaves finds waves without clusters.
func (p *rolloutPolicy) checkWaves(clusters *clusters, lost *lost, out *report) {
	if p.compiled == nil || !clusters.known {
		return
	}
	taking := map[string]bool{}
	for i := range clusters.all {
		taking[p.compiled.WaveOf(&clusters.all[i].Cluster)] = true
	}
	for i := range p.waves {
		w := &p.waves[i]
		if w.TargetClusters == nil {
			continue // A wave without targetClusters has the remaining clusters, possibly none.
		}
		c := &choice{
			subject: &p.subject, field: fmt.Sprintf("spec.waves[%d].targetClusters", i), names: w.TargetClusters.Clusters, list: "clusters",
			selector: w.TargetClusters.ClusterSelector, affinity: w.TargetClusters.ClusterAffinity, clusters: clusters, lost: lost, out: out,
		}
		c.check()
		if taking[w.Name] || c.reported || lost.clusters() {
			continue
		}
		f := c.subject.finding(WaveTakesNoCluster, c.field, "no cluster satisfies it")
		if c.chosen() > 0 {
			f = c.subject.finding(WaveTakesNoCluster, c.field, "earlier waves contain all clusters that satisfy it")
			f.hint("a cluster is in the first wave that it satisfies")
		} else if parts := c.parts(); len(parts) > 1 {
			f.hint("all must hold: %s", strings.Join(parts, ", "))
		}
		out.add(f)
	}
}

// chosen counts the clusters that fulfill all parts of the choice.
func (c *choice) chosen() int {
	compiled, errs := match.CompileTarget(&corev1alpha1.TargetClusters{Clusters: c.names, ClusterSelector: c.selector, ClusterAffinity: c.affinity}, nil)
	if len(errs) > 0 {
		return 0
	}
	return len(c.clusters.chosen(&compiled))
}
