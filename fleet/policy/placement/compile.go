package placement

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// Limits of a policy. The schemas of the API have the same limits. They are checked here as well, because a policy may
// have been stored before the schemas had limits, and policies in files are not checked by schemas. The objects of a
// policy beyond a limit cannot be placed.
const (
	// MaxPlacements is the maximum number of clusters in the placement list of a policy.
	MaxPlacements = 10_000
	// MaxTolerations is the maximum number of tolerations of a policy.
	MaxTolerations = 100
)

// Compile compiles a PropagationPolicy. See [CompileCluster].
func Compile(p *corev1alpha1.PropagationPolicy) (*Policy, field.ErrorList) {
	return compile(corev1alpha1.KindPropagationPolicy, &p.ObjectMeta, &p.Spec, &p.Status)
}

// CompileCluster compiles a ClusterPropagationPolicy. It reports every mistake in the policy at its field path. It
// returns a policy even if there are mistakes; then its [Policy.Place] fails.
func CompileCluster(p *corev1alpha1.ClusterPropagationPolicy) (*Policy, field.ErrorList) {
	return compile(corev1alpha1.KindClusterPropagationPolicy, &p.ObjectMeta, &p.Spec, &p.Status)
}

func refer(kind string, m *metav1.ObjectMeta) tree.Policy {
	return tree.Policy{Kind: kind, Namespace: m.Namespace, Name: m.Name, Generation: m.Generation}
}

func compile(kind string, m *metav1.ObjectMeta, spec *corev1alpha1.PropagationPolicySpec, status *corev1alpha1.PolicyStatus) (*Policy, field.ErrorList) {
	path := field.NewPath("spec")
	p := &Policy{
		Ref:              refer(kind, m),
		Inert:            inert(spec),
		Divides:          spec.SchedulingMode == corev1alpha1.SchedulingModeDivide,
		DisableFollowers: spec.DisableFollowerScheduling,
		tolerations:      spec.Tolerations,
		max:              -1,
		binpack:          binpacks(spec),
		uid:              string(m.UID),
		answer:           m.Annotations[refractv1alpha1.ApprovePlacementAnnotation],
		approved:         Approval(m, status),
	}
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
		p.max = int(min(*m, math.MaxInt32))
	}
	errs = append(errs, checkTolerations(spec.Tolerations, path.Child("tolerations"))...)
	listErrs := p.list(spec, path.Child("placement"))
	errs = append(errs, listErrs...)
	if len(errs) > 0 {
		p.err = errs[0]
	}
	p.rescheduling(spec)
	return p, errs
}

func binpacks(spec *corev1alpha1.PropagationPolicySpec) bool {
	return spec.ReplicasStrategy != nil && *spec.ReplicasStrategy == corev1alpha1.ReplicasStrategyBinpack
}

// preference has the preferences of a policy for the share of a cluster.
type preference struct {
	min, max int64
	weight   int64
	priority int64
}

// unlisted is the preference for every cluster if the policy lists none.
var unlisted = preference{max: math.MaxInt64, weight: 1}

// maxWeight bounds weights, so that their sums cannot overflow.
const maxWeight = math.MaxInt32

// list compiles the placement list.
func (p *Policy) list(spec *corev1alpha1.PropagationPolicySpec, path *field.Path) field.ErrorList {
	if len(spec.Placements) == 0 {
		return nil
	}
	if n := len(spec.Placements); n > MaxPlacements {
		return field.ErrorList{field.TooMany(path, n, MaxPlacements)}
	}
	var errs field.ErrorList
	weighted := slices.ContainsFunc(spec.Placements, func(d corev1alpha1.DesiredPlacement) bool { return d.Preferences.Weight != nil })
	weights := false // Whether any weight is not 0.
	p.listed = make(map[string]preference, len(spec.Placements))
	for i := range spec.Placements {
		d, at := &spec.Placements[i], path.Index(i)
		if d.Cluster == "" {
			errs = append(errs, field.Required(at.Child("cluster"), "name the cluster"))
		} else if _, twice := p.listed[d.Cluster]; twice {
			errs = append(errs, field.Duplicate(at.Child("cluster"), d.Cluster))
		}
		own, ownErrs := compilePreference(&d.Preferences, weighted, at.Child("preferences"))
		errs = append(errs, ownErrs...)
		weights = weights || own.weight > 0 || len(ownErrs) > 0
		p.listed[d.Cluster] = own
	}
	if !weights && p.Divides && !p.binpack {
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "all weights are 0, so no cluster gets replicas: leave them out for equal shares"))
	}
	return errs
}

func compilePreference(from *corev1alpha1.Preferences, weighted bool, path *field.Path) (preference, field.ErrorList) {
	var errs field.ErrorList
	number := func(name string, value *int64, absent, most int64) int64 {
		switch {
		case value == nil:
			return absent
		case *value < 0:
			errs = append(errs, field.Invalid(path.Child(name), *value, "must not be negative"))
		case *value > most:
			errs = append(errs, field.Invalid(path.Child(name), *value, fmt.Sprintf("must be at most %d", most)))
		}
		return *value
	}
	var noWeight int64 = 1
	if weighted {
		noWeight = 0
	}
	out := preference{
		min:      number("minReplicas", &from.MinReplicas, 0, math.MaxInt64),
		max:      number("maxReplicas", from.MaxReplicas, math.MaxInt64, math.MaxInt64),
		weight:   number("weight", from.Weight, noWeight, maxWeight),
		priority: number("priority", from.Priority, 0, math.MaxInt64),
	}
	if out.min > out.max && out.max >= 0 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), out.min, fmt.Sprintf("must not be greater than maxReplicas, which is %d", out.max)))
	}
	return out, errs
}

// checkTolerations checks tolerations by the rules that Kubernetes has for pods.
func checkTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	if n := len(tolerations); n > MaxTolerations {
		return field.ErrorList{field.TooMany(path, n, MaxTolerations)}
	}
	var errs field.ErrorList
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if t.Key == "" {
				errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when key is empty"))
			}
			for _, msg := range validation.IsValidLabelValue(t.Value) {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty with operator Exists"))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect,
				[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
		}
	}
	return errs
}

// inert lists the fields of a policy that have no effect.
func inert(spec *corev1alpha1.PropagationPolicySpec) []string {
	const end = " has no effect"
	var w []string
	if spec.SchedulingProfile != "" {
		w = append(w, "spec.schedulingProfile"+end)
	}
	if spec.AutoMigration != nil {
		w = append(w, "spec.autoMigration"+end)
	}
	if r := spec.ReschedulePolicy; r != nil && r.Trigger != nil && r.Trigger.ClusterAPIResourcesChanged {
		w = append(w, "spec.reschedulePolicy.rescheduleWhen.clusterAPIResourcesChanged"+end)
	}
	for i := range spec.Tolerations {
		if spec.Tolerations[i].TolerationSeconds != nil {
			w = append(w, fmt.Sprintf("spec.tolerations[%d].tolerationSeconds%s: a taint is tolerated permanently", i, end))
		}
	}
	if spec.SchedulingMode == corev1alpha1.SchedulingModeDivide {
		return append(w, inertPreferences(spec)...)
	}
	if spec.SchedulingMode != corev1alpha1.SchedulingModeDuplicate {
		return w
	}
	if spec.ReplicasStrategy != nil {
		w = append(w, "spec.replicasStrategy has no effect with schedulingMode Duplicate")
	}
	for i := range spec.Placements {
		if spec.Placements[i].Preferences != (corev1alpha1.Preferences{}) {
			w = append(w, fmt.Sprintf("spec.placement[%d].preferences has no effect with schedulingMode Duplicate", i))
		}
	}
	return w
}

// inertPreferences lists the preferences that belong to the other replicasStrategy.
func inertPreferences(spec *corev1alpha1.PropagationPolicySpec) []string {
	var w []string
	for i := range spec.Placements {
		own := &spec.Placements[i].Preferences
		switch {
		case own.Weight != nil && binpacks(spec):
			w = append(w, fmt.Sprintf("spec.placement[%d].preferences.weight has no effect with replicasStrategy Binpack", i))
		case own.Priority != nil && !binpacks(spec):
			w = append(w, fmt.Sprintf("spec.placement[%d].preferences.priority has no effect with replicasStrategy Spread", i))
		}
	}
	return w
}
