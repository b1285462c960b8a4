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
	"refract.dev/fleet/policy/local"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// noFinalizers is shared by all renderings: a Doc copies an array before it writes to it.
var noFinalizers any = []any{}

// begin returns a rendering of the template. Labels, annotations and finalizers always exist while rules are applied;
// finish removes them if they are empty.
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
		r.doc = tree.Edit(root, root) // The metadata are not an object. Rules that write to metadata return an error.
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

// leave removes the values that the hub assigned. It runs before all rules.
func (r *rendering) leave(object map[string]any) {
	for _, place := range local.Assigned(object) {
		c, err := r.doc.Remove(place)
		if err != nil {
			continue // The place is in a part of metadata that the template does not have.
		}
		r.note(c, local.ByHub)
		r.left = append(r.left, place.String())
	}
}

// wasLeft reports whether leave has removed a place, so that each cluster assigns its own value.
func (r *rendering) wasLeft(path string) bool {
	return slices.ContainsFunc(r.left, func(left string) bool { return tree.Covers(left, path) })
}

// finish returns the object without empty labels, annotations, finalizers and emptied lists of containers.
func (r *rendering) finish() map[string]any {
	r.dropEmptied()
	root := r.doc.Root()
	metadata, ok := root["metadata"].(map[string]any)
	if !ok {
		return root
	}
	for _, key := range []string{"labels", "annotations"} {
		// The rendering has created this metadata, so it may modify it.
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

// withoutHubKeys replaces a member of metadata by a copy without the keys that concern only the hub, and returns the
// copy. The member may be missing. A value that is not an object stays unchanged, so that the rules and API servers
// reject it.
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

// hubOnly reports whether a member of metadata concerns only the hub's object.
func hubOnly(key string) bool { return serverOwned(key) || key == "finalizers" }

// serverOwned reports whether an API server maintains a member of metadata.
func serverOwned(key string) bool {
	switch key {
	case "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "selfLink", "managedFields", "ownerReferences":
		return true
	}
	return false
}

// lastApplied is the annotation with the manifest that a user applied to the hub with kubectl.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// speaksToHub reports whether a label or annotation is meant for the hub. Annotations that control injection into pods
// are meant for the clusters, where the pods run.
func speaksToHub(key string) bool {
	if slices.Contains(speakToMembers, key) {
		return false
	}
	return strings.HasPrefix(key, corev1alpha1.Prefix) ||
		strings.HasPrefix(key, refractv1alpha1.Prefix) ||
		strings.Contains(key, "."+corev1alpha1.Prefix)
}

// speakToMembers are Refract's annotations that users write for the clusters: on pods, workloads,
// ServiceInjectionPolicies and Services. The annotation that lets a halted rollout continue is not in the list, because
// it is for one cluster and works once.
var speakToMembers = []string{
	refractv1beta1.InjectAnnotation, refractv1beta1.RolloutAnnotation,
	refractv1beta1.PausedAnnotation, refractv1beta1.ApproveRolloutAnnotation,
	refractv1beta1.EnvAnnotation, refractv1beta1.EnvFromAnnotation, refractv1beta1.MountAnnotation,
	refractv1beta1.PrefixAnnotation, refractv1beta1.DeriveAnnotation,
}
