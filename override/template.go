package override

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/local"
	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// noFinalizers is shared by all renderings: a Doc copies an array to write to it.
var noFinalizers any = []any{}

// begin begins with the template. Labels, annotations and finalizers always
// exist for the rules; finish takes them away again when they are empty.
func begin(obj *unstructured.Unstructured) *rendering {
	root := maps.Clone(obj.Object)
	if root == nil {
		root = map[string]any{}
	}
	delete(root, "status")
	r := &rendering{}
	r.kind.Kind, _ = root["kind"].(string)
	version, _ := root["apiVersion"].(string)
	if gv, err := schema.ParseGroupVersion(version); err == nil {
		r.kind.Group = gv.Group
		r.pods = podtemplate.Of(r.kind)
	}
	from, ok := root["metadata"].(map[string]any)
	if !ok && root["metadata"] != nil {
		r.doc = tree.Edit(root, root) // Not an object: a rule that needs it will say so.
		return r
	}
	metadata := make(map[string]any, len(from)+3)
	for key, v := range from {
		if !hubOnly(key) {
			metadata[key] = v
		}
	}
	labels := withoutHubKeys(metadata, "labels", speaksToHub)
	annotations := withoutHubKeys(metadata, "annotations", func(key string) bool {
		return key == lastApplied || speaksToHub(key)
	})
	metadata["finalizers"] = noFinalizers
	root["metadata"] = metadata
	r.doc = tree.Edit(root, root, metadata, labels, annotations)
	return r
}

// leave removes what the hub assigned: it precedes all rules.
func (r *rendering) leave(object map[string]any) {
	for _, place := range local.Assigned(object) {
		c, err := r.doc.Remove(place)
		if err != nil {
			continue // Of the metadata, what belongs to the hub alone is not in the template.
		}
		r.note(c, local.ByHub)
		r.left = append(r.left, place.String())
	}
}

// wasLeft reports whether a place was left to each cluster.
func (r *rendering) wasLeft(path string) bool {
	return slices.ContainsFunc(r.left, func(left string) bool { return tree.Covers(left, path) })
}

// finish returns the object without what was left empty.
func (r *rendering) finish() map[string]any {
	r.dropEmptied()
	root := r.doc.Root()
	metadata, ok := root["metadata"].(map[string]any)
	if !ok {
		return root
	}
	for _, key := range []string{"labels", "annotations"} {
		// The rendering made metadata itself, so it may write to it.
		if m, ok := metadata[key].(map[string]any); ok && len(m) == 0 {
			delete(metadata, key)
		}
	}
	if l, ok := metadata["finalizers"].([]any); ok && len(l) == 0 {
		delete(metadata, "finalizers")
	}
	if len(metadata) == 0 {
		delete(root, "metadata")
	}
	return root
}

// withoutHubKeys puts in the place of a member of metadata, which may be
// missing, a copy without the keys that belong to the hub, and returns it. What
// is not an object is left as it is, for the rules and API servers to refuse.
func withoutHubKeys(metadata map[string]any, member string, belongs func(string) bool) map[string]any {
	from, ok := metadata[member].(map[string]any)
	if !ok && metadata[member] != nil {
		return nil
	}
	to := make(map[string]any, len(from)+2)
	for key, v := range from {
		if !belongs(key) {
			to[key] = v
		}
	}
	metadata[member] = to
	return to
}

// hubOnly reports whether a member of metadata belongs to the hub object alone.
func hubOnly(key string) bool { return serverOwned(key) || key == "finalizers" }

// serverOwned reports whether a member of metadata is kept by an API server.
func serverOwned(key string) bool {
	switch key {
	case "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "selfLink", "managedFields", "ownerReferences":
		return true
	}
	return false
}

// lastApplied is the annotation in which kubectl keeps what its user applied to
// the hub.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// speaksToHub reports whether a label or annotation is meant for the hub. What
// steers the injection into pods is not: that is done where the pods are.
func speaksToHub(key string) bool {
	if slices.Contains(speakToMembers, key) {
		return false
	}
	return strings.HasPrefix(key, corev1alpha1.Prefix) ||
		strings.HasPrefix(key, refractv1alpha1.Prefix) ||
		strings.Contains(key, "."+corev1alpha1.Prefix)
}

// speakToMembers are the annotations of ours that people write for the clusters:
// on pods, workloads, ServiceInjectionPolicies and Services. The one that has a halted
// rollout go on is not among them: it is for one cluster, and once.
var speakToMembers = []string{
	refractv1beta1.InjectAnnotation, refractv1beta1.RolloutAnnotation,
	refractv1beta1.PausedAnnotation, refractv1beta1.ApproveRolloutAnnotation,
	refractv1beta1.EnvAnnotation, refractv1beta1.EnvFromAnnotation, refractv1beta1.MountAnnotation,
	refractv1beta1.PrefixAnnotation, refractv1beta1.DeriveAnnotation,
}
