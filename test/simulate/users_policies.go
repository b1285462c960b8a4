package simulate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// wishes are annotations that control copies. The empty value removes the annotation.
//
//nolint:gochecknoglobals // It is a constant.
var wishes = []struct {
	key    string
	values []string
}{
	{corev1alpha1.RetainReplicasAnnotation, []string{"true", ""}},
	{refractv1alpha1.LeftToMembersAnnotation, []string{`["/spec/replicas"]`, `["/data/extra"]`, `["/spec/template/spec/containers/*/env"]`,
		`["/metadata/labels/version"]`, ""}},
	{refractv1alpha1.KeepAnnotation, []string{"true", "true", ""}},
	{corev1alpha1.ConflictResolutionAnnotation, []string{"adopt", "adopt", ""}},
	{corev1alpha1.ClustersToAdoptAnnotation, []string{`{"clusters":["eu-1","us-1"]}`, `{"regexp":".*"}`, ""}},
	{corev1alpha1.OrphanAnnotation, []string{"all", "adopted", ""}},
	{corev1alpha1.NoSchedulingAnnotation, []string{"true", "", ""}},
	{corev1alpha1.DryRunAnnotation, []string{"true", "", ""}},
	{corev1alpha1.DisableFollowingAnnotation, []string{"true", "", ""}},
	{corev1alpha1.FollowersAnnotation, []string{`[{"group":"","kind":"ConfigMap","name":"page-1"}]`,
		`[{"group":"","kind":"Secret","name":"keys"},{"group":"","kind":"ConfigMap","name":"page-2"}]`, ""}},
}

func (w *World) annotateSomething() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	g, o := w.there(h, space, true)
	if g == nil {
		return "", ""
	}
	wish := pick(w, wishes)
	value := pick(w, wish.values)
	if wish.key == refractv1alpha1.LeftToMembersAnnotation && value != "" && g.kind == kindDeployment && w.Rand.IntN(2) == 0 {
		value = wish.values[0] // The first value is for a field that objects of this kind have.
	}
	if o.GetAnnotations()[wish.key] == value {
		return "", ""
	}
	what := h.changed(g.kind, space, g.object, func(o *unstructured.Unstructured) bool {
		annotate(o, wish.key, value)
		if w.Rand.IntN(3) == 0 {
			pick(w, g.edits)(w, o)
		}
		if wish.key == corev1alpha1.ConflictResolutionAnnotation && value != "" && o.GetAnnotations()[corev1alpha1.ClustersToAdoptAnnotation] == "" {
			annotate(o, corev1alpha1.ClustersToAdoptAnnotation, `{"regexp":".*"}`)
		}
		return true
	})
	if what == "" {
		return "", ""
	}
	return user, fmt.Sprintf("annotates %s on the hub: %s", named(g.kind, space, g.object), what)
}

// write creates a policy, or changes its spec.
func (w *World) write(user string, k kind, space, name string, specs []variant) (actor, text string) {
	h := w.hand(w.Hub, user)
	v := pick(w, specs)
	if h.get(k, space, name) == nil {
		if h.create(object(k, space, name, map[string]any{"spec": v.spec()})) != nil {
			return "", ""
		}
		return user, fmt.Sprintf("creates %s on the hub: %s", named(k, space, name), v.text)
	}
	was := ""
	what := h.changed(k, space, name, func(o *unstructured.Unstructured) bool {
		before := encoded(o.Object["spec"])
		was = variantOf(o, specs)
		o.Object["spec"] = v.spec()
		return string(before) != string(encoded(o.Object["spec"]))
	})
	if what == "" {
		return "", ""
	}
	return user, fmt.Sprintf("edits %s on the hub: it said %q → it says %q", named(k, space, name), was, v.text)
}

func (w *World) editPlacement() (actor, text string) {
	user, space := w.tenant()
	switch w.Rand.IntN(8) {
	case 0:
		return w.write(operator, kindPlacements, "", "everywhere", placementSpecs)
	case 1, 2, 3:
		return w.write(user, kindPlacement, space, "all", placementSpecs)
	default:
		return w.write(user, kindPlacement, space, "some", placementSpecs)
	}
}

func (w *World) editOverride() (actor, text string) {
	user, space := w.tenant()
	if w.Rand.IntN(4) == 0 {
		return w.write(operator, kindOverrides, "", "global", overrideSpecs)
	}
	return w.write(user, kindOverride, space, "local", overrideSpecs)
}

func (w *World) editRolloutPolicy() (actor, text string) {
	user, space := w.tenant()
	switch w.Rand.IntN(6) {
	case 0:
		return w.write(operator, kindRollouts, "", "floor", floorSpecs)
	case 1:
		return w.setFloor(space)
	default:
		return w.write(user, kindRollout, space, "careful", rolloutSpecs)
	}
}

// setAnyFloor creates the floor, or sets or removes its label on a namespace. It is only an operation of worlds with a
// focus.
func (w *World) setAnyFloor() (actor, text string) {
	if w.Hub.Server.Peek(kindRollouts.GroupVersionResource, "", "floor") == nil {
		return w.write(operator, kindRollouts, "", "floor", floorSpecs)
	}
	_, space := w.tenant()
	return w.setFloor(space)
}

// setFloor adds or removes the label of a floor on a namespace.
func (w *World) setFloor(space string) (actor, text string) {
	h, value := w.hand(w.Hub, operator), ""
	err := h.edit(kindNamespace, "", space, func(o *unstructured.Unstructured) {
		if o.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel] == "" {
			value = "floor"
		}
		label(o, refractv1alpha1.ClusterRolloutPolicyLabel, value)
	})
	switch {
	case err != nil:
		return "", ""
	case value == "":
		return operator, "has Namespace " + space + " on the hub obey no ClusterRolloutPolicy any more"
	default:
		return operator, "has all objects of Namespace " + space + " on the hub obey ClusterRolloutPolicy floor"
	}
}

func (w *World) deletePolicy() (actor, text string) {
	user, space := w.tenant()
	all := []struct {
		kind
		space, name, user string
	}{
		{kindPlacement, space, "all", user}, {kindPlacement, space, "some", user}, {kindOverride, space, "local", user}, {kindRollout, space, "careful", user},
		{kindPlacements, "", "everywhere", operator}, {kindOverrides, "", "global", operator}, {kindRollouts, "", "floor", operator},
	}
	p := pick(w, all)
	if w.hand(w.Hub, p.user).delete(p.kind, p.space, p.name, metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return p.user, "deletes " + named(p.kind, p.space, p.name) + " on the hub"
}

// steering are annotations that the hub rejects unless the status of the object asks for them: see
// config/admission/rollouts.yaml and placements.yaml.
//
//nolint:gochecknoglobals // It is a constant.
var steering = []struct {
	annotation string
	resources  []string
	asks       []string
}{
	{refractv1alpha1.ApproveRolloutAnnotation, reportResources, []string{"status", "rollout", "awaits"}},
	{refractv1alpha1.ResumeAnnotation, reportResources, []string{"status", "rollout", "awaits"}},
	{refractv1alpha1.ApprovePlacementAnnotation, reportResources, []string{"status", "held", "token"}},
	{refractv1alpha1.ApprovePlacementAnnotation, []string{"propagationpolicies", "clusterpropagationpolicies"}, []string{"status", "placementHeld", "token"}},
}
