// Package rollout decides how a change of an object is released to clusters: which clusters get the change now, which
// keep their content, and when the change is stopped or reverted.
//
// It is pure: from the last RolloutStatus and the state of the clusters, [Next] returns the next RolloutStatus. The
// caller stores it before it changes any cluster. The caller calls Next again when the state changes, and at the time
// that Next returned. Next has no other memory than the RolloutStatus, so any replica may call it, any number of times.
package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/expression"
	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// Limits of a policy. The schemas of the API have the same limits. They are checked here as well, because a policy may
// have been stored before the schemas had limits, and policies in files are not checked by schemas. With a policy
// beyond a limit, no change is released.
const (
	MaxWaves   = 50
	MaxBudgets = 10
	// MaxSeconds bounds times: thirty days.
	MaxSeconds = 30 * 24 * 60 * 60
	// MaxExpression bounds health.cel, in bytes.
	MaxExpression = 4096
)

// mostCost is the maximum cost of one evaluation of health.cel. The expression is evaluated after each change of a copy
// for which the rollout waits.
const mostCost = 10_000

// defaultTimeout is the default of health.timeoutSeconds.
const defaultTimeout = 10 * time.Minute

// Policy is a compiled RolloutPolicy or ClusterRolloutPolicy, or a floor combined with an object's policy. It is
// immutable.
type Policy struct {
	// Refs are the policies from which it was compiled, the floor first.
	Refs []tree.Policy
	// uids are the UIDs of Refs. They are necessary because a policy that is deleted and created again starts with
	// generation 1 again.
	uids []types.UID
	// AllowNarrower is whether objects may name another policy inside this floor.
	AllowNarrower bool

	levels      [][]wave // One level, or the levels of floor and object. The last wave of a level has the clusters that are in no other wave.
	timeout     time.Duration
	health      []condition // All must be true.
	maxFailures int
	revert      bool
	budgets     []refractv1alpha1.RolloutBudget
	maxChange   int // Negative means no limit.
}

// wave is a wave of one policy.
type wave struct {
	name     string // Empty for the clusters that are in no wave.
	clusters match.Clusters
	manual   bool
	most     *intstr.IntOrString
	minReady time.Duration
}

// condition is the health.cel of one policy.
type condition struct {
	*expression.Condition

	text string
}

// Compile compiles a RolloutPolicy. See [CompileCluster].
func Compile(p *refractv1alpha1.RolloutPolicy) (*Policy, field.ErrorList) {
	return compile(refractv1alpha1.KindRolloutPolicy, &p.ObjectMeta, &p.Spec)
}

// CompileCluster compiles a ClusterRolloutPolicy. It reports every mistake in the policy at its field path, and returns
// nil if there is any.
func CompileCluster(p *refractv1alpha1.ClusterRolloutPolicy) (*Policy, field.ErrorList) {
	c, errs := compile(refractv1alpha1.KindClusterRolloutPolicy, &p.ObjectMeta, &p.Spec.RolloutPolicySpec)
	if c != nil {
		c.AllowNarrower = p.Spec.AllowNarrower
	}
	return c, errs
}

func compile(kind string, m *metav1.ObjectMeta, spec *refractv1alpha1.RolloutPolicySpec) (*Policy, field.ErrorList) {
	path := field.NewPath("spec")
	p := &Policy{
		Refs: []tree.Policy{{Kind: kind, Namespace: m.Namespace, Name: m.Name, Generation: m.Generation}}, uids: []types.UID{m.UID},
		timeout: defaultTimeout, budgets: spec.Budgets, maxChange: -1,
	}
	waves, errs := compileWaves(spec.Waves, path.Child("waves"))
	p.levels = [][]wave{append(waves, wave{})}
	if h := spec.Health; h != nil {
		at := path.Child("health")
		if h.TimeoutSeconds != 0 {
			p.timeout = time.Duration(h.TimeoutSeconds) * time.Second
			errs = append(errs, seconds(h.TimeoutSeconds, at.Child("timeoutSeconds"))...)
		}
		if h.CEL != "" {
			c, celErrs := compileHealth(h.CEL, at.Child("cel"))
			p.health, errs = append(p.health, c), append(errs, celErrs...)
		}
	}
	if f := spec.OnFailure; f != nil {
		at := path.Child("onFailure")
		p.maxFailures, p.revert = int(f.MaxFailures), f.Action == refractv1alpha1.ActionRevert
		if f.MaxFailures < 0 {
			errs = append(errs, field.Invalid(at.Child("maxFailures"), f.MaxFailures, "must not be negative"))
		}
		if f.Action != "" && f.Action != refractv1alpha1.ActionHalt && f.Action != refractv1alpha1.ActionRevert {
			errs = append(errs, field.NotSupported(at.Child("action"), f.Action,
				[]refractv1alpha1.FailureAction{refractv1alpha1.ActionHalt, refractv1alpha1.ActionRevert}))
		}
	}
	errs = append(errs, checkBudgets(spec.Budgets, path.Child("budgets"))...)
	if m := spec.MaxChange; m != nil {
		p.maxChange = int(m.Clusters)
		if m.Clusters < 0 {
			errs = append(errs, field.Invalid(path.Child("maxChange", "clusters"), m.Clusters, "must not be negative"))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return p, nil
}

func compileHealth(text string, path *field.Path) (condition, field.ErrorList) {
	if n := len(text); n > MaxExpression {
		return condition{}, field.ErrorList{field.TooLong(path, "", MaxExpression)}
	}
	c, problems := expression.CompileCondition(text, expression.Limits{Cost: mostCost})
	var errs field.ErrorList
	for _, p := range problems {
		errs = append(errs, field.Invalid(path, text, p.String()))
	}
	return condition{c, text}, errs
}

// Health returns the texts of health.cel of the floor and of the object's policy; empty if both have none. A stored
// result of [Policy.Healthy] is valid only for the same texts.
func (p *Policy) Health() string {
	var texts []string
	for _, c := range p.health {
		texts = append(texts, c.text)
	}
	return strings.Join(texts, "\n&&\n")
}

// ErrUnhealthy is wrapped by the error of [Policy.Healthy] for an object that is not healthy. The text of that error
// contains no part of the object. Other errors are about expressions that cannot be evaluated, and may quote values of
// the object.
var ErrUnhealthy = errors.New("health.cel is false")

// Healthy returns an error with the reason if the copy, in its state on the cluster, is not healthy by health.cel; nil
// if it is healthy.
func (p *Policy) Healthy(object map[string]any) error {
	for _, c := range p.health {
		switch holds, err := c.Holds(object); {
		case err != nil:
			return fmt.Errorf("health.cel: %w", err)
		case !holds:
			return fmt.Errorf("%w: %s", ErrUnhealthy, strings.Join(strings.Fields(c.text), " "))
		}
	}
	return nil
}

func compileWaves(from []refractv1alpha1.RolloutWave, path *field.Path) ([]wave, field.ErrorList) {
	if n := len(from); n > MaxWaves {
		return nil, field.ErrorList{field.TooMany(path, n, MaxWaves)}
	}
	waves := make([]wave, 0, len(from)+1)
	var errs field.ErrorList
	for i := range from {
		w, at := &from[i], path.Index(i)
		for _, msg := range validation.IsDNS1123Label(w.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), w.Name, msg))
		}
		if slices.ContainsFunc(from[:i], func(before refractv1alpha1.RolloutWave) bool { return before.Name == w.Name }) {
			errs = append(errs, field.Duplicate(at.Child("name"), w.Name))
		}
		clusters, targetErrs := match.CompileTarget(w.TargetClusters, at.Child("targetClusters"))
		errs = append(errs, targetErrs...)
		switch w.Strategy {
		case "", refractv1alpha1.WaveRolling, refractv1alpha1.WaveManual:
		default:
			errs = append(errs, field.NotSupported(at.Child("strategy"), w.Strategy,
				[]refractv1alpha1.WaveStrategy{refractv1alpha1.WaveRolling, refractv1alpha1.WaveManual}))
		}
		errs = append(errs, checkConcurrent(w.MaxConcurrent, at.Child("maxConcurrent"))...)
		if w.MinReadySeconds != 0 {
			errs = append(errs, seconds(w.MinReadySeconds, at.Child("minReadySeconds"))...)
		}
		waves = append(waves, wave{
			name: w.Name, clusters: clusters, manual: w.Strategy == refractv1alpha1.WaveManual,
			most: w.MaxConcurrent, minReady: time.Duration(w.MinReadySeconds) * time.Second,
		})
	}
	return waves, errs
}

func checkConcurrent(most *intstr.IntOrString, path *field.Path) field.ErrorList {
	if most == nil {
		return nil
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(most, 100, false)
	if err != nil || n < 1 || (most.Type == intstr.String && n > 100) {
		return field.ErrorList{field.Invalid(path, most.String(), `must be a number of clusters, at least 1, or a percentage of them from "1%" to "100%"`)}
	}
	return nil
}

func seconds(n int32, path *field.Path) field.ErrorList {
	if n < 1 || n > MaxSeconds {
		return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("must be from 1 to %d", MaxSeconds))}
	}
	return nil
}

func checkBudgets(budgets []refractv1alpha1.RolloutBudget, path *field.Path) field.ErrorList {
	if n := len(budgets); n > MaxBudgets {
		return field.ErrorList{field.TooMany(path, n, MaxBudgets)}
	}
	var errs field.ErrorList
	for i := range budgets {
		b, at := &budgets[i], path.Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(b.Label, at.Child("label"))...)
		if slices.ContainsFunc(budgets[:i], func(before refractv1alpha1.RolloutBudget) bool { return before.Label == b.Label }) {
			errs = append(errs, field.Duplicate(at.Child("label"), b.Label))
		}
		if b.MaxUnavailable < 1 {
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), b.MaxUnavailable, "must be at least 1, or nothing could ever change"))
		}
	}
	return errs
}

// Inside returns the combination of p with a floor, for an object that names p. It has the waves of the floor, and
// inside each of these the waves of p. For all other settings, the stricter value applies.
func (p *Policy) Inside(floor *Policy) *Policy {
	both := &Policy{
		Refs:        slices.Concat(floor.Refs, p.Refs),
		uids:        slices.Concat(floor.uids, p.uids),
		levels:      slices.Concat(floor.levels, p.levels),
		timeout:     min(floor.timeout, p.timeout),
		health:      slices.Concat(floor.health, p.health),
		maxFailures: min(floor.maxFailures, p.maxFailures),
		revert:      floor.revert || p.revert,
		budgets:     slices.Concat(floor.budgets, p.budgets),
		maxChange:   floor.maxChange,
	}
	if both.maxChange < 0 || (p.maxChange >= 0 && p.maxChange < both.maxChange) {
		both.maxChange = p.maxChange
	}
	return both
}

// Names returns the policies from which it was compiled, without generation, the floor first.
func (p *Policy) Names() []tree.Policy {
	names := slices.Clone(p.Refs)
	for i := range names {
		names[i].Generation = 0
	}
	return names
}

// waves returns the number of waves.
func (p *Policy) waves() int {
	n := 1
	for _, level := range p.levels {
		n *= len(level)
	}
	return n
}

// waveOf returns the index of a cluster's wave.
func (p *Policy) waveOf(c *match.Cluster) int {
	index := 0
	for _, level := range p.levels {
		at := slices.IndexFunc(level, func(w wave) bool { return w.clusters.Match(c) })
		index = index*len(level) + at // The last wave of a level matches every cluster.
	}
	return index
}

// WaveOf returns the name of a cluster's wave, as in the status; empty for a cluster that is in no wave.
func (p *Policy) WaveOf(c *match.Cluster) string { return p.nameOf(p.waveOf(c)) }

// parts returns the waves that are combined in the wave with this index: one of each level.
func (p *Policy) parts(index int) []*wave {
	parts := make([]*wave, len(p.levels))
	for i := len(p.levels) - 1; i >= 0; i-- {
		level := p.levels[i]
		parts[i] = &level[index%len(level)]
		index /= len(level)
	}
	return parts
}

// outer returns the index of the wave of the first level in which the wave with this index lies.
func (p *Policy) outer(index int) int {
	for _, level := range p.levels[1:] {
		index /= len(level)
	}
	return index
}

// nameOf returns the name of a wave; empty for the clusters that are in no wave.
func (p *Policy) nameOf(index int) string {
	var names []string
	for _, part := range p.parts(index) {
		names = append(names, part.name)
	}
	if name := strings.Join(names, "/"); strings.Trim(name, "/") != "" {
		return name
	}
	return ""
}

// minReady returns the minimum time for which a copy must be ready.
func (p *Policy) minReady(index int) time.Duration {
	var most time.Duration
	for _, part := range p.parts(index) {
		most = max(most, part.minReady)
	}
	return most
}

// scaled returns the number of clusters that may change at once, of n clusters. It is at least 1.
func scaled(most *intstr.IntOrString, n int) int {
	if most == nil {
		return n
	}
	m, err := intstr.GetScaledValueFromIntOrPercent(most, n, false)
	if err != nil {
		return 1 // Compile has checked the value.
	}
	return max(m, 1)
}
