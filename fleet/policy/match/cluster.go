// Package match decides whether a selector chooses a cluster. Selectors are compiled once, and many goroutines may use
// them.
package match

import (
	"maps"
	"slices"
	"strconv"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Cluster has the properties of a cluster that selectors can examine.
type Cluster struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Clusters is a selector of clusters. It chooses the clusters that satisfy the names, the labels and the affinity. An
// empty criterion is satisfied by every cluster, so the zero Clusters chooses every cluster. It is immutable.
type Clusters struct {
	names    map[string]struct{} // Nil if the names do not restrict the choice.
	labels   []requirement
	affinity []term
}

// term is one alternative of an affinity.
type term struct {
	labels []requirement
	names  []requirement // Requirements on the field metadata.name.
}

// requirement is a condition on the value of a label or field.
type requirement struct {
	key      string
	operator corev1alpha1.ClusterSelectorOperator
	values   []string
	bound    int64 // The value of Gt and Lt.
}

// CompileTarget compiles the targetClusters of an override rule; nil chooses every cluster. Every mistake is reported
// with its field path, which begins with path.
func CompileTarget(t *corev1alpha1.TargetClusters, path *field.Path) (Clusters, field.ErrorList) {
	if t == nil {
		return Clusters{}, nil
	}
	c, errs := Compile(t.ClusterSelector, t.ClusterAffinity, path)
	if len(t.Clusters) > 0 {
		c.names = make(map[string]struct{}, len(t.Clusters))
		for _, name := range t.Clusters {
			c.names[name] = struct{}{}
		}
	}
	return c, errs
}

// MaxTerms is the maximum number of terms of a clusterAffinity. The schemas of the API have the same limit;
// [refract.dev/fleet/policy/override.MaxRules] explains why the limit is checked here as well.
const MaxTerms = 100

// Compile compiles a clusterSelector and a clusterAffinity. Every mistake is reported with its field path, which begins
// with path. The result keeps parts of the arguments.
func Compile(selector map[string]string, affinity []corev1alpha1.ClusterSelectorTerm, path *field.Path) (Clusters, field.ErrorList) {
	var c Clusters
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		at := path.Child("clusterSelector").Key(key)
		errs = append(errs, metav1validation.ValidateLabelName(key, at)...)
		errs = append(errs, labelValue(selector[key], at)...)
		c.labels = append(c.labels, requirement{key: key, operator: corev1alpha1.ClusterSelectorOpIn, values: []string{selector[key]}})
	}
	if n := len(affinity); n > MaxTerms {
		return c, append(errs, field.TooMany(path.Child("clusterAffinity"), n, MaxTerms))
	}
	for i := range affinity {
		t, termErrs := compileTerm(&affinity[i], path.Child("clusterAffinity").Index(i))
		errs = append(errs, termErrs...)
		c.affinity = append(c.affinity, t)
	}
	return c, errs
}

func compileTerm(t *corev1alpha1.ClusterSelectorTerm, path *field.Path) (term, field.ErrorList) {
	var out term
	var errs field.ErrorList
	for i := range t.MatchExpressions {
		r, reqErrs := compileExpression(&t.MatchExpressions[i], path.Child("matchExpressions").Index(i))
		errs = append(errs, reqErrs...)
		out.labels = append(out.labels, r)
	}
	for i := range t.MatchFields {
		r, reqErrs := compileField(&t.MatchFields[i], path.Child("matchFields").Index(i))
		errs = append(errs, reqErrs...)
		out.names = append(out.names, r)
	}
	return out, errs
}

// compileExpression compiles a requirement on a label. The grammar is that of Kubernetes' label selectors.
func compileExpression(e *corev1alpha1.ClusterSelectorRequirement, path *field.Path) (requirement, field.ErrorList) {
	r := requirement{key: e.Key, operator: e.Operator, values: e.Values}
	values := path.Child("values")
	errs := metav1validation.ValidateLabelName(e.Key, path.Child("key"))
	switch e.Operator {
	case corev1alpha1.ClusterSelectorOpIn, corev1alpha1.ClusterSelectorOpNotIn:
		if len(e.Values) == 0 {
			errs = append(errs, field.Required(values, "must have at least one value with operator "+string(e.Operator)))
		}
	case corev1alpha1.ClusterSelectorOpExists, corev1alpha1.ClusterSelectorOpDoesNotExist:
		if len(e.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "must be empty with operator "+string(e.Operator)))
		}
	case corev1alpha1.ClusterSelectorOpGt, corev1alpha1.ClusterSelectorOpLt:
		if len(e.Values) != 1 {
			return r, append(errs, field.Invalid(values, e.Values, "must be exactly one integer with operator "+string(e.Operator)))
		}
		var err error
		if r.bound, err = strconv.ParseInt(e.Values[0], 10, 64); err != nil {
			return r, append(errs, field.Invalid(values.Index(0), e.Values[0], "must be an integer with operator "+string(e.Operator)))
		}
	default:
		return r, append(errs, field.NotSupported(path.Child("operator"), e.Operator, []string{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}))
	}
	for i, v := range e.Values {
		errs = append(errs, labelValue(v, values.Index(i))...)
	}
	return r, errs
}

// nameField is the only field that a requirement can name.
const nameField = "metadata.name"

// compileField compiles a requirement on a field. A name is not checked as a label value, because it may be longer.
func compileField(e *corev1alpha1.ClusterSelectorRequirement, path *field.Path) (requirement, field.ErrorList) {
	r := requirement{key: e.Key, operator: e.Operator, values: e.Values}
	var errs field.ErrorList
	if e.Key != nameField {
		errs = append(errs, field.NotSupported(path.Child("key"), e.Key, []string{nameField}))
	}
	switch {
	case e.Operator != corev1alpha1.ClusterSelectorOpIn && e.Operator != corev1alpha1.ClusterSelectorOpNotIn:
		errs = append(errs, field.NotSupported(path.Child("operator"), e.Operator, []string{"In", "NotIn"}))
	case len(e.Values) == 0:
		errs = append(errs, field.Required(path.Child("values"), "must have at least one name"))
	}
	return r, errs
}

func labelValue(v string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsValidLabelValue(v) {
		errs = append(errs, field.Invalid(path, v, msg))
	}
	return errs
}

// Narrows reports whether names, labels or an affinity restrict the choice.
func (s *Clusters) Narrows() bool { return s.names != nil || len(s.labels)+len(s.affinity) > 0 }

// Match reports whether c is chosen.
func (s *Clusters) Match(c *Cluster) bool {
	if s.names != nil {
		if _, ok := s.names[c.Name]; !ok {
			return false
		}
	}
	if !matchLabels(s.labels, c.Labels) {
		return false
	}
	if len(s.affinity) == 0 {
		return true
	}
	for i := range s.affinity {
		if s.affinity[i].match(c) {
			return true
		}
	}
	return false
}

// Names returns the cluster names in the selector, sorted. It is empty if names do not restrict the choice.
func (s *Clusters) Names() []string { return slices.Sorted(maps.Keys(s.names)) }

// match implements the semantics of node selector terms in Kubernetes: a term without requirements matches nothing.
func (t *term) match(c *Cluster) bool {
	if len(t.labels)+len(t.names) == 0 {
		return false
	}
	for i := range t.names {
		if !t.names[i].match(c.Name, true) {
			return false
		}
	}
	return matchLabels(t.labels, c.Labels)
}

func matchLabels(requirements []requirement, labels map[string]string) bool {
	for i := range requirements {
		value, there := labels[requirements[i].key]
		if !requirements[i].match(value, there) {
			return false
		}
	}
	return true
}

// match reports whether a label with this value meets the requirement. Argument there is false for a missing label.
func (r *requirement) match(value string, there bool) bool {
	switch r.operator {
	case corev1alpha1.ClusterSelectorOpIn:
		return there && slices.Contains(r.values, value)
	case corev1alpha1.ClusterSelectorOpNotIn:
		return !there || !slices.Contains(r.values, value)
	case corev1alpha1.ClusterSelectorOpExists:
		return there
	case corev1alpha1.ClusterSelectorOpDoesNotExist:
		return !there
	case corev1alpha1.ClusterSelectorOpGt:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n > r.bound
	case corev1alpha1.ClusterSelectorOpLt:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && n < r.bound
	default:
		return false
	}
}
