// Package placement decides on which clusters an object is placed. It is pure:
// the same policy, clusters and previous placement give the same answer.
package placement

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/tree"
)

// ErrUnsupported is wrapped by the error of [Policy.Place] for a policy that asks
// for something that cannot be left out without placing the wrong thing.
var ErrUnsupported = errors.New("is not supported yet")

// Cluster is what placement knows of a cluster.
type Cluster struct {
	match.Cluster
	// Taints keep objects that do not tolerate them away.
	Taints []corev1.Taint
	// Ready is whether the cluster can take objects now. One that is not ready
	// gets nothing new and keeps what it has.
	Ready bool
}

// Policy is a compiled PropagationPolicy or ClusterPropagationPolicy. It is
// immutable and may be used by many goroutines.
type Policy struct {
	// Ref names the policy.
	Ref tree.Policy
	// Inert are warnings about fields that are accepted and not acted on.
	Inert []string

	selector    match.Clusters
	listed      map[string]bool // Nil when every cluster may be chosen.
	tolerations []corev1.Toleration
	max         int // Negative means no bound.
	err         error
}

// Compile compiles a PropagationPolicy. See [CompileCluster].
func Compile(p *corev1alpha1.PropagationPolicy) (*Policy, field.ErrorList) {
	return compile(refer(corev1alpha1.KindPropagationPolicy, &p.ObjectMeta), &p.Spec)
}

// CompileCluster compiles a ClusterPropagationPolicy. It reports every mistake
// in the policy at its field path. A policy with mistakes is returned all the
// same, and its [Policy.Place] fails.
func CompileCluster(p *corev1alpha1.ClusterPropagationPolicy) (*Policy, field.ErrorList) {
	return compile(refer(corev1alpha1.KindClusterPropagationPolicy, &p.ObjectMeta), &p.Spec)
}

func refer(kind string, m *metav1.ObjectMeta) tree.Policy {
	return tree.Policy{Kind: kind, Namespace: m.Namespace, Name: m.Name, Generation: m.Generation}
}

func compile(ref tree.Policy, spec *corev1alpha1.PropagationPolicySpec) (*Policy, field.ErrorList) {
	path := field.NewPath("spec")
	p := &Policy{Ref: ref, tolerations: spec.Tolerations, max: -1, Inert: inert(spec)}
	var errs field.ErrorList
	p.selector, errs = match.Compile(spec.ClusterSelector, spec.ClusterAffinity, path)
	switch spec.SchedulingMode {
	case corev1alpha1.SchedulingModeDuplicate, corev1alpha1.SchedulingModeDivide:
	case "":
		errs = append(errs, field.Required(path.Child("schedulingMode"), "must be Duplicate or Divide"))
	default:
		errs = append(errs, field.NotSupported(path.Child("schedulingMode"), spec.SchedulingMode,
			[]corev1alpha1.SchedulingMode{corev1alpha1.SchedulingModeDuplicate, corev1alpha1.SchedulingModeDivide}))
	}
	if s := spec.ReplicasStrategy; s != nil && *s != corev1alpha1.ReplicasStrategySpread && *s != corev1alpha1.ReplicasStrategyBinpack {
		errs = append(errs, field.NotSupported(path.Child("replicasStrategy"), *s,
			[]corev1alpha1.ReplicasStrategy{corev1alpha1.ReplicasStrategySpread, corev1alpha1.ReplicasStrategyBinpack}))
	}
	if m := spec.MaxClusters; m != nil {
		if *m < 0 {
			errs = append(errs, field.Invalid(path.Child("maxClusters"), *m, "must not be negative"))
		}
		p.max = int(*m)
	}
	if len(spec.Placements) > 0 {
		p.listed = make(map[string]bool, len(spec.Placements))
	}
	for i := range spec.Placements {
		name := spec.Placements[i].Cluster
		if name == "" {
			errs = append(errs, field.Required(path.Child("placement").Index(i).Child("cluster"), "name the cluster"))
		}
		p.listed[name] = true
	}
	switch {
	case len(errs) > 0:
		p.err = errs[0]
	case spec.SchedulingMode == corev1alpha1.SchedulingModeDivide:
		p.err = fmt.Errorf("spec.schedulingMode: Divide %w: with Duplicate every cluster gets all replicas", ErrUnsupported)
	}
	return p, errs
}

// inert names what a policy asks for in vain.
func inert(spec *corev1alpha1.PropagationPolicySpec) []string {
	const end = " is accepted and not acted on"
	var w []string
	if spec.SchedulingProfile != "" {
		w = append(w, "spec.schedulingProfile"+end)
	}
	if spec.AutoMigration != nil {
		w = append(w, "spec.autoMigration"+end)
	}
	if r := spec.ReschedulePolicy; r != nil && r.DisableRescheduling {
		w = append(w, "spec.reschedulePolicy.disableRescheduling"+end+": the placement follows the clusters")
	}
	if spec.SchedulingMode != corev1alpha1.SchedulingModeDuplicate {
		return w
	}
	if spec.ReplicasStrategy != nil {
		w = append(w, "spec.replicasStrategy has no meaning with schedulingMode Duplicate")
	}
	for i := range spec.Placements {
		if spec.Placements[i].Preferences != (corev1alpha1.Preferences{}) {
			w = append(w, fmt.Sprintf("spec.placement[%d].preferences has no meaning with schedulingMode Duplicate", i))
		}
	}
	return w
}

// Place returns the names of the clusters that the object belongs on, sorted.
// Previous are the clusters that it is on now: where maxClusters leaves a
// choice these are kept, then names decide. A cluster that is not ready, or
// whose taint keeps new objects away, is chosen only if it is among them.
//
// It returns an error, and no placement, for a policy with mistakes or one that
// is not supported ([ErrUnsupported]); the object then stays where it is.
func (p *Policy) Place(clusters []Cluster, previous []string) ([]string, error) {
	if p.err != nil {
		return nil, p.err
	}
	var kept, fresh []string
	previous = slices.Sorted(slices.Values(previous))
	for i := range clusters {
		c := &clusters[i]
		_, placed := slices.BinarySearch(previous, c.Name)
		if !p.fits(c, placed) {
			continue
		}
		if placed {
			kept = append(kept, c.Name)
		} else {
			fresh = append(fresh, c.Name)
		}
	}
	slices.Sort(kept)
	slices.Sort(fresh)
	chosen := slices.Concat(kept, fresh)
	if p.max >= 0 && len(chosen) > p.max {
		chosen = chosen[:p.max]
	}
	slices.Sort(chosen)
	return chosen, nil
}

func (p *Policy) fits(c *Cluster, placed bool) bool {
	if p.listed != nil && !p.listed[c.Name] {
		return false
	}
	return p.selector.Match(&c.Cluster) && p.tolerates(c.Taints, placed) && (c.Ready || placed)
}

// tolerates follows Kubernetes: NoSchedule keeps new objects away, NoExecute
// also those that are there, PreferNoSchedule none.
func (p *Policy) tolerates(taints []corev1.Taint, placed bool) bool {
	for i := range taints {
		t := &taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || (t.Effect == corev1.TaintEffectNoSchedule && placed) {
			continue
		}
		if !slices.ContainsFunc(p.tolerations, func(o corev1.Toleration) bool { return tolerated(t, &o) }) {
			return false
		}
	}
	return true
}

func tolerated(t *corev1.Taint, by *corev1.Toleration) bool {
	if (by.Effect != "" && by.Effect != t.Effect) || (by.Key != "" && by.Key != t.Key) {
		return false
	}
	switch by.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return by.Key != "" && by.Value == t.Value
	default:
		return false
	}
}
