package lint

import (
	"strings"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/local"
)

// checkAssigned lists fields of exported objects that each cluster assigns itself. In the objects of a hub, and in a
// snapshot of a hub, such fields are correct.
func checkAssigned(set *manifest.Set, out *report) {
	if set.Live {
		return
	}
	for i := range set.Objects {
		o := &set.Objects[i]
		if _, recorded := o.Content.GetAnnotations()[refractv1alpha1.AssignedAnnotation]; recorded {
			continue
		}
		var paths []string
		if o.Content.GetUID() != "" {
			paths = append(paths, "/metadata/uid")
		}
		for _, place := range local.Assigned(o.Content.Object) {
			paths = append(paths, place.String())
		}
		if len(paths) == 0 {
			continue
		}
		s := subjectOf(o)
		out.add(s.finding(AssignedFields, "", "has fields that a cluster assigns, which are left to each cluster: %s", strings.Join(paths, ", ")).
			hint("remove them from the file").on([]string{s.object.String()}, nil))
	}
}
