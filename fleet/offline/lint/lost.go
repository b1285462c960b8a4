package lint

import (
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/tree"
)

// lost are the parts of the input that could not be read. A missing manifest is not reported if it may be among them.
type lost struct {
	// anything reports whether a document of unknown kind could not be read.
	anything bool
	problems []*manifest.Problem
}

func lostIn(problems []*manifest.Problem) *lost {
	l := &lost{}
	for _, p := range problems {
		if p.Kind == "Kustomization" {
			continue // A kustomization contains no manifest.
		}
		l.problems = append(l.problems, p)
		l.anything = l.anything || (p.Kind == "" && p.Name == "")
	}
	return l
}

// policy reports whether the policy may be in the lost parts.
func (l *lost) policy(ref tree.Policy) bool {
	return l.anything || slices.ContainsFunc(l.problems, func(p *manifest.Problem) bool {
		return mayBe(p, ref.Kind) && (p.Name == "" || p.Name == ref.Name) && (p.Namespace == "" || p.Namespace == ref.Namespace)
	})
}

// cluster reports whether the cluster may be in the lost parts.
func (l *lost) cluster(name string) bool {
	return l.anything || slices.ContainsFunc(l.problems, func(p *manifest.Problem) bool {
		return mayBe(p, corev1alpha1.KindFederatedCluster) && (p.Name == "" || p.Name == name)
	})
}

// clusters reports whether any cluster may be in the lost parts.
func (l *lost) clusters() bool {
	return l.kind(corev1alpha1.KindFederatedCluster)
}

// kind reports whether any object of a kind may be in the lost parts.
func (l *lost) kind(kind string) bool {
	return l.anything || slices.ContainsFunc(l.problems, func(p *manifest.Problem) bool { return mayBe(p, kind) })
}

// objects reports whether any object that could name a policy may be in the lost parts.
func (l *lost) objects() bool {
	return l.anything || slices.ContainsFunc(l.problems, func(p *manifest.Problem) bool { return !slices.Contains(ourKinds, p.Kind) })
}

// mayBe reports whether the manifest with the problem may have the kind.
func mayBe(p *manifest.Problem, kind string) bool {
	return p.Kind == kind || p.Kind == "" || p.Field == "kind" || p.Field == "apiVersion"
}

// ourKinds are the kinds that override and propagation policies do not apply to.
var ourKinds = []string{
	corev1alpha1.KindOverridePolicy, corev1alpha1.KindClusterOverridePolicy,
	corev1alpha1.KindPropagationPolicy, corev1alpha1.KindClusterPropagationPolicy,
	corev1alpha1.KindFederatedCluster,
	refractv1alpha1.KindRolloutPolicy, refractv1alpha1.KindClusterRolloutPolicy,
}
