package match

import (
	"fmt"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Why returns the reason why c is not chosen: one sentence without a period, about the first requirement that c does
// not meet. It is empty exactly when [Clusters.Match] returns true. The sentence calls the cluster "it", so that all
// clusters with the same reason have the same sentence.
func (s *Clusters) Why(c *Cluster) string {
	if s.Match(c) {
		return ""
	}
	if _, ok := s.names[c.Name]; s.names != nil && !ok {
		return "it is not among " + list(s.Names())
	}
	if why := whyLabels(s.labels, c.Labels); why != "" {
		return why
	}
	if len(s.affinity) == 1 {
		return s.affinity[0].why(c)
	}
	terms := make([]string, len(s.affinity))
	for i := range s.affinity {
		terms[i] = fmt.Sprintf("[%d] %s", i, s.affinity[i].why(c))
	}
	return "no term of clusterAffinity matches: " + strings.Join(terms, "; ")
}

// why returns the reason why the term does not match c. It must not be called if the term matches.
func (t *term) why(c *Cluster) string {
	if len(t.labels)+len(t.names) == 0 {
		return "a term of clusterAffinity without requirements selects nothing"
	}
	for i := range t.names {
		r := &t.names[i]
		switch {
		case r.match(c.Name, true):
		case r.operator == corev1alpha1.ClusterSelectorOpIn:
			return "it is not among " + list(r.values)
		default:
			return "it is among " + list(r.values) + ", which are excluded"
		}
	}
	return whyLabels(t.labels, c.Labels)
}

// whyLabels describes the first requirement that the labels do not meet; empty if they meet all.
func whyLabels(requirements []requirement, labels map[string]string) string {
	for i := range requirements {
		value, there := labels[requirements[i].key]
		if !requirements[i].match(value, there) {
			return requirements[i].why(value, there)
		}
	}
	return ""
}

// why describes an unmet requirement on a label.
func (r *requirement) why(value string, there bool) string {
	if !there {
		return "it has no label " + r.key
	}
	var want string
	switch r.operator {
	case corev1alpha1.ClusterSelectorOpIn:
		want = "want " + quoted(r.values)
		if len(r.values) > 1 {
			want = "want one of " + quoted(r.values)
		}
	case corev1alpha1.ClusterSelectorOpNotIn:
		want = "want another value"
		if len(r.values) > 1 {
			want = "want none of " + quoted(r.values)
		}
	case corev1alpha1.ClusterSelectorOpDoesNotExist:
		want = "want no such label"
	case corev1alpha1.ClusterSelectorOpGt:
		want = fmt.Sprintf("want an integer above %d", r.bound)
	case corev1alpha1.ClusterSelectorOpLt:
		want = fmt.Sprintf("want an integer below %d", r.bound)
	default: // Possible only in an invalid selector.
		want = fmt.Sprintf("and there is no operator %q", r.operator)
	}
	return fmt.Sprintf("label %s is %q, %s", r.key, value, want)
}

// listed is the maximum number of values in a sentence. Further values are only counted.
const listed = 3

func list(values []string) string {
	if len(values) <= listed+1 {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(values[:listed], ", "), len(values)-listed)
}

func quoted(values []string) string {
	values = slices.Clone(values)
	for i := range values {
		values[i] = fmt.Sprintf("%q", values[i])
	}
	return list(values)
}
