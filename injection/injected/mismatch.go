package injected

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// mismatch describes why a selector does not match these labels: it names the first requirement that the labels do not
// meet.
func mismatch(selector *metav1.LabelSelector, of map[string]string) string {
	if selector == nil {
		return "has no selector"
	}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		if value, ok := of[key]; !ok || value != selector.MatchLabels[key] {
			return fmt.Sprintf("selects %s=%s, and the pod has %s", key, selector.MatchLabels[key], has(of, key))
		}
	}
	for i := range selector.MatchExpressions {
		r := &selector.MatchExpressions[i]
		if !meets(r, of) {
			return fmt.Sprintf("selects %s, and the pod has %s", requirement(r), has(of, r.Key))
		}
	}
	return "does not select the pod"
}

func meets(r *metav1.LabelSelectorRequirement, has map[string]string) bool {
	one, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{*r}})
	return err == nil && one.Matches(labels.Set(has))
}

func requirement(r *metav1.LabelSelectorRequirement) string {
	values := "(" + strings.Join(r.Values, ", ") + ")"
	switch r.Operator {
	case metav1.LabelSelectorOpIn:
		return r.Key + " in " + values
	case metav1.LabelSelectorOpNotIn:
		return r.Key + " not in " + values
	case metav1.LabelSelectorOpExists:
		return "pods with the label " + r.Key
	case metav1.LabelSelectorOpDoesNotExist:
		return "pods without the label " + r.Key
	default:
		return r.Key + " " + string(r.Operator) + " " + values
	}
}

func has(of map[string]string, key string) string {
	if value, ok := of[key]; ok {
		return key + "=" + value
	}
	return "no label " + key
}
