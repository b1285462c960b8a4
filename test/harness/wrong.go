package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/playground"
)

// Wrong returns all differences from the intended state. It is for use while nothing changes. It finds copies that are
// missing, superfluous or different from the output of `refract render`; objects of the hub without a Propagation; and
// Propagations without an object, with an unfinished deletion, with the condition Synced false, or with rows for the
// wrong clusters. The result is empty if everything is correct.
//
// If a Propagation is not synced or is being deleted, Wrong returns only such Propagations. That takes milliseconds;
// the complete check takes a second.
func (e *Env) Wrong(ctx context.Context) ([]string, error) {
	reports, err := e.reports(ctx)
	if err != nil {
		return nil, err
	}
	var wrong []string
	for i := range reports {
		if text := unsettled(&reports[i]); text != "" {
			wrong = append(wrong, fmt.Sprintf("hub: %s: %s", describe(&reports[i]), text))
		}
	}
	if len(wrong) > 0 {
		return wrong, nil
	}
	want, err := e.rendered()
	if err != nil {
		return nil, err
	}
	sources, err := e.objects(ctx, "hub", corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel)
	if err != nil {
		return nil, err
	}
	have := make([]map[string]*unstructured.Unstructured, len(e.Members))
	errs := make([]error, len(e.Members))
	var all sync.WaitGroup
	for i, m := range e.Members {
		all.Go(func() { have[i], errs[i] = e.objects(ctx, m, corev1alpha1.ManagedLabel+"=true") })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	placed := map[string][]string{}
	for i, m := range e.Members {
		for _, key := range slices.Sorted(maps.Keys(want[m])) {
			placed[key] = append(placed[key], m)
			if text := differs(want[m][key], have[i][key]); text != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s: %s", m, key, text))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(have[i])) {
			if want[m][key] == nil {
				wrong = append(wrong, fmt.Sprintf("%s: %s should not be there", m, key))
			}
		}
	}
	// The Propagations may have changed since the first read.
	if reports, err = e.reports(ctx); err != nil {
		return nil, err
	}
	return append(wrong, wrongReports(reports, sources, placed)...), nil
}

// differs returns the first difference of a copy from the rendered object, or "".
func differs(want, have *unstructured.Unstructured) string {
	if have == nil {
		return "is missing"
	}
	if have.GetDeletionTimestamp() != nil {
		return "is being deleted"
	}
	if at := Lacks("", want.Object, have.Object); at != "" {
		return at
	}
	// API servers add nothing to labels and data, so the copy must not have additional ones.
	labels := have.GetLabels()
	delete(labels, corev1alpha1.ManagedLabel)
	asked := want.GetLabels()
	delete(asked, corev1alpha1.ManagedLabel)
	if _, ok := asked[playground.TeamLabel]; !ok {
		delete(labels, playground.TeamLabel) // The webhook of member-2 adds this label.
	}
	if !maps.Equal(labels, asked) {
		return fmt.Sprintf("labels: want %v, got %v", asked, labels)
	}
	if at := Lacks("/data", have.Object["data"], want.Object["data"]); at != "" && want.Object["stringData"] == nil {
		return "has too much: " + at
	}
	return ""
}

// reports returns the Propagations and ClusterPropagations of the hub.
func (e *Env) reports(ctx context.Context) ([]unstructured.Unstructured, error) {
	hub, err := e.reader("hub")
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	for _, resource := range []string{"propagations", "clusterpropagations"} {
		list, err := hub.objects.Resource(refractv1alpha1.GroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

func describe(report *unstructured.Unstructured) string {
	return keyOf(report.GroupVersionKind().GroupKind(), report.GetNamespace(), report.GetName())
}

// wrongReports compares the Propagations with the objects and their clusters.
func wrongReports(reports []unstructured.Unstructured, sources map[string]*unstructured.Unstructured, placed map[string][]string) []string {
	var wrong []string
	reported := map[string]bool{}
	for i := range reports {
		key, text := wrongReport(&reports[i], sources, placed)
		reported[key] = true
		if text != "" {
			wrong = append(wrong, fmt.Sprintf("hub: %s: %s", describe(&reports[i]), text))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(sources)) {
		if !reported[key] {
			wrong = append(wrong, fmt.Sprintf("hub: %s has no Propagation", key))
		}
	}
	return wrong
}

// unsettled returns the reason why a Propagation is not finished according to its own status, or "".
func unsettled(p *unstructured.Unstructured) string {
	if p.GetDeletionTimestamp() != nil {
		return "it is stuck in its deletion"
	}
	conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		switch {
		case !ok || c["type"] != "Synced":
		case c["status"] == "True":
			return ""
		default:
			return fmt.Sprintf("Synced is %v, %v: %v", c["status"], c["reason"], c["message"])
		}
	}
	return "has no condition Synced"
}

// wrongReport returns the key of the object of a Propagation, and what is wrong with the Propagation, or "".
func wrongReport(p *unstructured.Unstructured, sources map[string]*unstructured.Unstructured, placed map[string][]string) (key, text string) {
	source, _, _ := unstructured.NestedStringMap(p.Object, "spec", "source")
	gv, _ := schema.ParseGroupVersion(source["apiVersion"])
	key = keyOf(gv.WithKind(source["kind"]).GroupKind(), p.GetNamespace(), source["name"])
	object := sources[key]
	switch {
	case object == nil:
		return key, "its object is gone, or does not ask to be propagated"
	case string(object.GetUID()) != source["uid"]:
		return key, fmt.Sprintf("it is about another object of the name: UID %s, which is %s", source["uid"], object.GetUID())
	}
	if text := unsettled(p); text != "" {
		return key, text
	}
	rows, _, _ := unstructured.NestedSlice(p.Object, "status", "clusters")
	var clusters []string
	for _, row := range rows {
		r, _ := row.(map[string]any)
		clusters = append(clusters, fmt.Sprint(r["name"]))
		if r["state"] != "Synced" {
			return key, fmt.Sprintf("%v is %v, %v: %v", r["name"], r["state"], r["reason"], r["message"])
		}
	}
	if want := placed[key]; !slices.Equal(clusters, want) {
		return key, fmt.Sprintf("it has rows for %v, and should for %v", clusters, want)
	}
	return key, ""
}

// rendered returns the intended objects of each cluster.
func (e *Env) rendered() (map[string]map[string]*unstructured.Unstructured, error) {
	out, err := e.Refract("render", "--kubeconfig", e.Kubeconfig("hub"), "-o", "json")
	if err != nil {
		return nil, err
	}
	var result struct {
		Clusters []struct {
			Name    string            `json:"name"`
			Objects []json.RawMessage `json:"objects"`
		} `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return nil, err
	}
	all := map[string]map[string]*unstructured.Unstructured{}
	for _, c := range result.Clusters {
		all[c.Name] = map[string]*unstructured.Unstructured{}
		for _, raw := range c.Objects {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw); err != nil {
				return nil, fmt.Errorf("reading what refract render says: %w", err)
			}
			all[c.Name][keyOf(u.GroupVersionKind().GroupKind(), u.GetNamespace(), u.GetName())] = u
		}
	}
	return all, nil
}

// objects returns the objects of all types on a cluster that match one of the selectors.
func (e *Env) objects(ctx context.Context, cluster string, selectors ...string) (map[string]*unstructured.Unstructured, error) {
	from, err := e.reader(cluster)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredResources(from.discovery) // The cache of discovery may lack new types.
	if err != nil {
		return nil, fmt.Errorf("discovering the types of %s: %w", cluster, err)
	}
	types, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "patch"}}, lists))
	if err != nil {
		return nil, fmt.Errorf("discovering the types of %s: %w", cluster, err)
	}
	out := map[string]*unstructured.Unstructured{}
	for gvr := range types {
		if gvr.Group == corev1alpha1.GroupVersion.Group || gvr.Group == refractv1alpha1.GroupVersion.Group {
			continue
		}
		for _, selector := range selectors {
			list, err := from.objects.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return nil, fmt.Errorf("listing %s of %s: %w", gvr.GroupResource(), cluster, err)
			}
			for i := range list.Items {
				u := &list.Items[i]
				out[keyOf(u.GroupVersionKind().GroupKind(), u.GetNamespace(), u.GetName())] = u
			}
		}
	}
	return out, nil
}

// keyOf returns a readable key of an object.
func keyOf(kind schema.GroupKind, namespace, name string) string {
	return strings.TrimPrefix(fmt.Sprintf("%s %s/%s", kind, namespace, name), "/")
}
