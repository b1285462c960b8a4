package explain

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

var secret = schema.GroupKind{Kind: "Secret"}

// annotations is the place where tools store the applied object with all its values: kubectl in
// kubectl.kubernetes.io/last-applied-configuration, kapp and Rancher in others. A list of such keys would never be
// complete.
const annotations = "/metadata/annotations"

// masked returns the value at a place after the first n changes, with the values of a Secret masked, also in
// annotations that may repeat them.
func (h *history) masked(place string, value any, n int) any {
	value = render.Mask(h.kind, tree.Change{Path: place, Op: tree.OpAdd, After: value}).After
	return h.withoutAnnotations(place, value, n)
}

// maskedWrite returns the write by the change with this index, with the values of a Secret before and after it masked.
func (h *history) maskedWrite(i int, write tree.Change) tree.Change {
	write = render.Mask(h.kind, write)
	write.Before = h.withoutAnnotations(write.Path, write.Before, i)
	write.After = h.withoutAnnotations(write.Path, write.After, i+1)
	return write
}

// withoutAnnotations returns the value at a place after the first n changes, with the annotations of a Secret masked,
// except for Refract's own ones and values set by a policy.
func (h *history) withoutAnnotations(place string, value any, n int) any {
	within := tree.Covers(annotations, place)
	members, isObject := value.(map[string]any)
	switch {
	case h.kind != secret, within && h.told(place, n):
		return value
	case isObject && (within || tree.Covers(place, annotations)):
		members = maps.Clone(members)
		for key, inside := range members {
			members[key] = h.withoutAnnotations(place+"/"+tree.Escape(key), inside, n)
		}
		return members
	case within:
		return render.Mask(secret, tree.Change{Path: "/data", Op: tree.OpAdd, After: value}).After
	default:
		return value
	}
}

// told reports whether a place of annotations may be shown after the first n changes: it is an annotation of Refract,
// or its value comes from a policy, which is public.
func (h *history) told(place string, n int) bool {
	if keys := tree.MustParse(place).Keys(); len(keys) > 2 &&
		(strings.HasPrefix(keys[2], corev1alpha1.Prefix) || strings.HasPrefix(keys[2], refractv1alpha1.Prefix)) {
		return true
	}
	return slices.ContainsFunc(h.changes[:n], func(c tree.Change) bool { return tree.Covers(c.Path, place) })
}
