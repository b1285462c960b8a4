package override

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// hubOnly are the members of metadata that belong to the hub object alone.
var hubOnly = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "selfLink", "managedFields", "ownerReferences", "finalizers",
}

// lastApplied is kubectl's record of what its user applied to the hub.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Template returns the object without what belongs to the hub: what a cluster
// gets for which no rule holds. It shares parts with obj and does not modify it.
func Template(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: newRendering(obj).finish()}
}

// noFinalizers is shared by all renderings: a Doc copies an array to write to it.
var noFinalizers any = []any{}

// newRendering begins with the template. Labels, annotations and finalizers
// always exist for the rules; finish takes them away again when they are empty.
func newRendering(obj *unstructured.Unstructured) *rendering {
	root := maps.Clone(obj.Object)
	delete(root, "status")
	from, _ := root["metadata"].(map[string]any)
	metadata := make(map[string]any, len(from)+2)
	maps.Copy(metadata, from)
	for _, key := range hubOnly {
		delete(metadata, key)
	}
	labels := withoutHubKeys(metadata["labels"])
	annotations := withoutHubKeys(metadata["annotations"])
	metadata["labels"] = labels
	metadata["annotations"] = annotations
	metadata["finalizers"] = noFinalizers
	root["metadata"] = metadata

	kind := obj.GetKind()
	group, _ := schema.ParseGroupVersion(obj.GetAPIVersion())
	return &rendering{
		doc:  tree.Edit(root, root, metadata, labels, annotations),
		kind: kind,
		pods: podtemplate.Of(schema.GroupKind{Group: group.Group, Kind: kind}),
	}
}

// finish returns the object without what was left empty.
func (r *rendering) finish() map[string]any {
	r.dropEmptied()
	root := r.doc.Root()
	metadata, _ := root["metadata"].(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		// The rendering made metadata itself, so it may write to it.
		if m, ok := metadata[key].(map[string]any); ok && len(m) == 0 {
			delete(metadata, key)
		}
	}
	if f, ok := metadata["finalizers"].([]any); ok && len(f) == 0 {
		delete(metadata, "finalizers")
	}
	return root
}

// dropEmptied takes away the lists of containers that an overrider emptied.
func (r *rendering) dropEmptied() {
	if !r.emptied {
		return
	}
	for _, list := range r.pods.Lists() {
		containers, _ := r.lookup(list).([]any)
		for i, c := range containers {
			container, _ := c.(map[string]any)
			for _, key := range []string{"command", "args", "env"} {
				if l, ok := container[key].([]any); ok && len(l) == 0 {
					_, _ = r.doc.Remove(list.At(i).Member(key)) // It is there: we have just read it.
				}
			}
		}
	}
}

// lookup returns the value at p, or nil.
func (r *rendering) lookup(p tree.Pointer) any {
	v, err := r.doc.Lookup(p)
	if err != nil {
		return nil
	}
	return v
}

func withoutHubKeys(v any) map[string]any {
	from, _ := v.(map[string]any)
	to := make(map[string]any, len(from)+2)
	for key, value := range from {
		if !speaksToHub(key) {
			to[key] = value
		}
	}
	return to
}

// speaksToHub reports whether a label or annotation is meant for the hub.
func speaksToHub(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	return key == lastApplied || ownDomain(domain) || strings.HasSuffix(domain, ".kubeadmiral.io")
}

func ownDomain(domain string) bool {
	return domain+"/" == corev1alpha1.Prefix || domain+"/" == refractv1alpha1.Prefix
}
