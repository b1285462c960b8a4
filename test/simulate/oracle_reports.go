package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// gist summarizes the content of an object.
func gist(object *unstructured.Unstructured) string {
	if image := imageOf(object); image != "" {
		return " (image " + image[strings.LastIndex(image, "/")+1:] + ")"
	}
	if object.GetKind() == kindConfigMap.name {
		data, _, _ := unstructured.NestedMap(object.Object, "data") // Nil without data.
		return " (data " + string(encoded(data)) + ")"
	}
	return ""
}

// saidOf summarizes a report.
func saidOf(report *unstructured.Unstructured) string {
	if report == nil {
		return ""
	}
	var rows []string
	for _, row := range rowsOf(report) {
		text := row.Name + " " + string(row.State)
		if row.Reason != "" {
			text += " (" + row.Reason + ")"
		}
		rows = append(rows, text)
	}
	slices.Sort(rows)
	text := strings.Join(rows, ", ")
	if text == "" {
		text = "no cluster"
	}
	if r := rolloutOf(report); r != nil {
		text += "; rollout " + string(r.Phase) + stepsOf(r)
	}
	return text
}

// stepsOf summarizes the progress of a rollout.
func stepsOf(r *refractv1alpha1.RolloutStatus) string {
	var begun, current, failed []string
	for _, w := range r.Waves {
		if w.Since != nil {
			begun = append(begun, strconv.Quote(w.Name))
		}
	}
	for _, c := range r.Current {
		current = append(current, c.Name)
	}
	for _, c := range r.Failed {
		failed = append(failed, c.Name)
	}
	var parts []string
	for _, part := range []struct {
		says  string
		names []string
	}{{"waves begun", begun}, {"released to", current}, {"done", r.Done}, {"failed", failed}} {
		if len(part.names) > 0 && r.Phase != refractv1alpha1.RolloutComplete {
			parts = append(parts, ", "+part.says+": "+list(part.names))
		}
	}
	if r.Awaits != "" {
		parts = append(parts, ", waits for an approval")
	}
	return strings.Join(parts, "")
}

// conditionsOf summarizes the status of a cluster.
func conditionsOf(fc *unstructured.Unstructured) string {
	if fc == nil {
		return ""
	}
	var texts []string
	all, _, _ := unstructured.NestedSlice(fc.Object, "status", "conditions") // Empty without conditions.
	for _, c := range all {
		if c, ok := c.(map[string]any); ok {
			texts = append(texts, fmt.Sprintf("%v=%v (%v)", c["type"], c["status"], c["reason"]))
		}
	}
	if held, found, _ := unstructured.NestedMap(fc.Object, "status", "deletionsHeld"); found { // Not found without waiting deletions.
		texts = append(texts, fmt.Sprintf("%v deletions wait for approval", held["copies"]))
	}
	return strings.Join(texts, ", ")
}

// rowsOf returns the rows of a Propagation. Clusters with equal rows share one row; rowsOf returns a row for each.
func rowsOf(report *unstructured.Unstructured) []refractv1alpha1.ClusterStatus {
	s := &refractv1alpha1.PropagationStatus{}
	raw, _, _ := unstructured.NestedMap(report.Object, "status") // Nil without a status.
	if mustDecode(raw, s) != nil {
		return nil
	}
	rows := s.Clusters
	for _, alike := range s.Alike {
		for _, name := range alike.Names {
			row := alike.Row
			row.Name = name
			rows = append(rows, row)
		}
	}
	return rows
}

// rolloutOf returns the rollout in a Propagation, or nil.
func rolloutOf(report *unstructured.Unstructured) *refractv1alpha1.RolloutStatus {
	raw, found, err := unstructured.NestedMap(report.Object, "status", "rollout")
	if !found || err != nil {
		return nil
	}
	r := &refractv1alpha1.RolloutStatus{}
	if mustDecode(raw, r) != nil {
		return nil
	}
	return r
}

// reportKey returns the key of a Propagation's object.
func reportKey(report *unstructured.Unstructured) copyKey {
	api, _, _ := unstructured.NestedString(report.Object, "spec", "source", "apiVersion") // Empty without a source.
	resource, _, _ := unstructured.NestedString(report.Object, "spec", "source", "resource")
	name, _, _ := unstructured.NestedString(report.Object, "spec", "source", "name")
	gv, _ := schema.ParseGroupVersion(api) // Empty without a version.
	return copyKey{schema.GroupResource{Group: gv.Group, Resource: resource}, report.GetNamespace(), name}
}

// report returns the Propagation of an object, or nil.
func (o *oracle) report(key copyKey) *unstructured.Unstructured {
	k := kindReport
	if key.namespace == "" {
		k = kindReportGlobe
	}
	for _, report := range o.w.Hub.Server.All(k.GroupVersionResource) {
		if reportKey(report) == key {
			return report
		}
	}
	return nil
}

// onHubNow returns an object of the hub, or nil.
func (o *oracle) onHubNow(key copyKey) *unstructured.Unstructured {
	for _, k := range ofHub {
		if k.GroupVersionResource.GroupResource() == key.GroupResource {
			return o.w.Hub.Server.Peek(k.GroupVersionResource, key.namespace, key.name)
		}
	}
	return nil
}

// conditionIs reports whether a condition of a FederatedCluster has the status.
func conditionIs(fc *corev1alpha1.FederatedCluster, of corev1alpha1.ClusterConditionType, want metav1.ConditionStatus) bool {
	return slices.ContainsFunc(fc.Status.Conditions, func(c corev1alpha1.ClusterCondition) bool { return c.Type == of && c.Status == want })
}
