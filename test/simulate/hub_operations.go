package simulate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
)

// withheld returns the API server's error if Refract lacks the right for a request to the hub: to list a type whose
// right is revoked, or to read credentials that no Role permits. It returns nil for other requests.
func (w *World) withheld(r *http.Request) *metav1.Status {
	if k := w.people.unlisted; k.name != "" && !writes(r.Method) && strings.HasSuffix(r.URL.Path, "/"+k.Resource) {
		return &missingRight(k, "list", "at the cluster scope").ErrStatus
	}
	const secrets = "/api/v1/namespaces/" + systemNamespace + "/secrets"
	name, ok := strings.CutPrefix(r.URL.Path, secrets)
	if !ok {
		return nil
	}
	if by, named := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); named {
		name = by
	}
	if name = strings.TrimPrefix(name, "/"); name == "" || name == keySecret {
		return nil
	}
	role := w.Hub.Server.Peek(kindRole.GroupVersionResource, systemNamespace, member.PermitRole)
	if role != nil {
		rules, _, _ := unstructured.NestedSlice(role.Object, "rules") // Without rules the list is empty.
		for _, rule := range rules {
			if rule, ok := rule.(map[string]any); ok && slices.Contains(anyStrings(rule["resourceNames"]), name) {
				return nil
			}
		}
	}
	return &missingRight(kindSecret, "list", fmt.Sprintf("in the namespace %q", systemNamespace)).ErrStatus
}

// anyStrings returns the strings of a list, or nil for other values.
func anyStrings(v any) (all []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if text, ok := e.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

func (w *World) deleteSpace() (actor, text string) {
	_, space := w.tenant()
	if w.hand(w.Hub, operator).delete(kindNamespace, "", space, metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return operator, "deletes Namespace " + space + " on the hub"
}

func (w *World) createMissingSpace() (actor, text string) {
	h := w.hand(w.Hub, operator)
	for _, space := range tenantSpaces {
		if h.get(kindNamespace, "", space) == nil {
			return w.createSpace(space)
		}
	}
	return "", ""
}

// editSpace changes a label of a namespace, possibly the one that propagates the namespace.
func (w *World) editSpace() (actor, text string) {
	_, space := w.tenant()
	key, value := "stage", pick(w, []string{"test", "live", ""})
	if w.Rand.IntN(3) == 0 {
		key, value = corev1alpha1.ClusterPropagationPolicyLabel, pick(w, []string{"everywhere", ""})
	}
	was := ""
	err := w.hand(w.Hub, operator).edit(kindNamespace, "", space, func(o *unstructured.Unstructured) {
		was = o.GetLabels()[key]
		label(o, key, value)
	})
	switch {
	case err != nil || was == value:
		return "", ""
	case value == "":
		return operator, fmt.Sprintf("removes the label %s=%s from Namespace %s on the hub", key, was, space)
	default:
		return operator, fmt.Sprintf("labels Namespace %s on the hub: %s %s → %s", space, key, cmp.Or(was, "none"), value)
	}
}

// deleteReport deletes a Propagation, as an administrator may.
func (w *World) deleteReport() (actor, text string) {
	h := w.hand(w.Hub, operator)
	o := pick(w, slices.Concat(h.all(kindReport, ""), h.all(kindReportGlobe, "")))
	if o == nil {
		return "", ""
	}
	k := kindReport
	if o.GetNamespace() == "" {
		k = kindReportGlobe
	}
	text = "deletes the Propagation of " + subjectOf(o)
	if h.delete(k, o.GetNamespace(), o.GetName(), metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return operator, text
}

// deleteRevision deletes a ControllerRevision of Refract. A finalizer may keep it.
func (w *World) deleteRevision() (actor, text string) {
	if w.Rand.IntN(2) == 0 && w.holdRevision() {
		return operator, "takes the finalizer off a ControllerRevision of Refract, which is deleted then"
	}
	h := w.hand(w.Hub, operator)
	o := pick(w, h.all(kindRevision, ""))
	if o == nil {
		return "", ""
	}
	space, kept := o.GetNamespace(), ""
	if w.Rand.IntN(3) == 0 && h.edit(kindRevision, space, o.GetName(), func(o *unstructured.Unstructured) {
		o.SetFinalizers([]string{holdFinalizer})
	}) == nil {
		kept = ", which a finalizer keeps"
	}
	if h.delete(kindRevision, space, o.GetName(), metav1.DeleteOptions{}) != nil {
		return "", ""
	}
	return operator, "deletes a ControllerRevision of Refract in Namespace " + space + " on the hub" + kept
}

// holdRevision removes the finalizer of a ControllerRevision, and reports whether there was one.
func (w *World) holdRevision() bool {
	h := w.hand(w.Hub, operator)
	for _, o := range h.all(kindRevision, "") {
		if slices.Contains(o.GetFinalizers(), holdFinalizer) {
			return dropFinalizer(h, kindRevision, o, holdFinalizer) == nil
		}
	}
	return false
}

// changeKey replaces the key that encrypts revisions of Secrets.
func (w *World) changeKey() (actor, text string) {
	w.people.tokens++
	key := fmt.Sprintf("%032d", w.people.tokens)
	if w.hand(w.Hub, operator).edit(kindSecret, systemNamespace, keySecret, func(o *unstructured.Unstructured) {
		o.Object["data"] = map[string]any{keyName: base64.StdEncoding.EncodeToString([]byte(key))}
	}) != nil {
		return "", ""
	}
	return operator, "replaces the key in Secret " + systemNamespace + "/" + keySecret
}

// refuseRevisions makes a policy engine on the hub reject or change new ControllerRevisions, or stops this.
func (w *World) refuseRevisions() (actor, text string) {
	if w.people.strict != allows {
		w.people.strict = allows
		return operator, "has the policy engine on the hub allow ControllerRevisions again"
	}
	if w.Rand.IntN(3) == 0 {
		w.people.strict = changes
		return operator, "has a policy engine on the hub change new ControllerRevisions"
	}
	w.people.strict = refuses
	return operator, "has a policy engine on the hub refuse new ControllerRevisions"
}

// crdFinalizer keeps a CustomResourceDefinition until its objects are deleted.
const crdFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// changeHubType deletes the CustomResourceDefinition of Widgets from the hub, or creates it again.
func (w *World) changeHubType() (actor, text string) {
	if w.Hub.Down {
		return "", ""
	}
	h, name := w.hand(w.Hub, operator), widgetCRD(widgetVersions).Name
	switch has, n := w.hubWidgets(), 1+w.Rand.IntN(widgetVersions); {
	case has == 0:
		w.Hub.Server.SetTypes(hubTypes(n))
		h.must(w.defineWidgets(n))
		return operator, fmt.Sprintf("creates the CustomResourceDefinition of Widgets on the hub again, with %d of its versions", n)
	case has != n:
		h.must(h.edit(kindCRD, "", name, func(o *unstructured.Unstructured) {
			spec, _ := anything(widgetCRD(n))["spec"].(map[string]any)
			o.Object["spec"] = spec
		}))
		w.Hub.Server.SetTypes(hubTypes(n))
		return operator, fmt.Sprintf("has the CustomResourceDefinition of Widgets on the hub serve %d of its versions", n)
	}
	h.must(h.delete(kindCRD, "", name, metav1.DeleteOptions{}))
	machinery := w.hand(w.Hub, "kube-apiserver")
	for _, o := range slices.Clone(machinery.all(kindWidget, "")) {
		_ = machinery.delete(kindWidget, o.GetNamespace(), o.GetName(), metav1.DeleteOptions{}) // The API server deletes the objects with their type.
	}
	w.Hub.Server.SetTypes(hubTypes(0))
	machinery.must(dropFinalizer(machinery, kindCRD, h.get(kindCRD, "", name), crdFinalizer))
	return operator, "deletes the CustomResourceDefinition of Widgets on the hub, and with it all Widgets there"
}

// hubWidgets returns the number of versions of Widgets on the hub.
func (w *World) hubWidgets() int {
	o := w.hand(w.Hub, operator).get(kindCRD, "", widgetCRD(widgetVersions).Name)
	if o == nil {
		return 0
	}
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions") // Without versions the list is empty.
	return len(versions)
}

func (w *World) defineWidgets(versions int) error {
	o := &unstructured.Unstructured{Object: anything(widgetCRD(versions))}
	delete(o.Object, "status")
	o.SetFinalizers([]string{crdFinalizer})
	return w.hand(w.Hub, operator).create(o)
}

// changeVolume creates, edits or deletes a PersistentVolume that Refract propagates.
func (w *World) changeVolume() (actor, text string) {
	h := w.hand(w.Hub, operator)
	if h.get(kindVolume, "", "disk") == nil {
		o := object(kindVolume, "", "disk", anything(fields{"spec": fields{
			"capacity": fields{"storage": "10Gi"}, "accessModes": []any{"ReadWriteMany"}, "persistentVolumeReclaimPolicy": "Retain",
			"storageClassName": "nfs", "nfs": fields{"server": "nfs.sim", "path": "/disk"},
		}}))
		label(o, corev1alpha1.ClusterPropagationPolicyLabel, "everywhere")
		if h.create(o) != nil {
			return "", ""
		}
		return operator, "creates PersistentVolume disk on the hub, with ClusterPropagationPolicy everywhere"
	}
	if w.Rand.IntN(4) == 0 {
		if h.delete(kindVolume, "", "disk", metav1.DeleteOptions{}) != nil {
			return "", ""
		}
		return operator, "deletes PersistentVolume disk on the hub"
	}
	value := pick(w, []string{"everywhere", ""})
	what := h.changed(kindVolume, "", "disk", func(o *unstructured.Unstructured) bool {
		if w.Rand.IntN(2) == 0 {
			return changeLabel(w, o)
		}
		was := o.GetLabels()[corev1alpha1.ClusterPropagationPolicyLabel]
		label(o, corev1alpha1.ClusterPropagationPolicyLabel, value)
		return was != value
	})
	if what == "" {
		return "", ""
	}
	return operator, "edits PersistentVolume disk on the hub: " + what
}

// ownSomething gives an object an owner. The garbage collector deletes the object when the owner is deleted.
func (w *World) ownSomething() (actor, text string) {
	user, space := w.tenant()
	h := w.hand(w.Hub, user)
	owner := h.get(kindConfigMap, space, pick(w, []string{"settings", "page-1"}))
	page := fmt.Sprintf("page-%d", 2+w.Rand.IntN(8))
	if owner == nil || h.edit(kindConfigMap, space, page, func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.GetName(), UID: owner.GetUID(),
			BlockOwnerDeletion: new(true)}})
	}) != nil {
		return "", ""
	}
	return user, fmt.Sprintf("has %s on the hub be owned by %s", named(kindConfigMap, space, page), named(kindConfigMap, space, owner.GetName()))
}
