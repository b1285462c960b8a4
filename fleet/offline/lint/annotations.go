package lint

import (
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/placement"
)

// checkAnnotations finds annotations without effect, invalid ones, and those that keep the controllers from writing or
// moving objects.
func checkAnnotations(objects []manifest.Object, out *report) {
	for i := range objects {
		o := &objects[i]
		annotations := o.Content.GetAnnotations()
		s := subjectOf(o)
		on := []string{s.object.String()}
		note := func(code Code, key, fact string) {
			out.once(key+fact, s.finding(code, "metadata.annotations["+key+"]", "%s", fact).on(on, nil))
		}
		for _, w := range placement.Ignored(annotations) {
			key, fact := annotationIn(w)
			note(IgnoredAnnotation, key, fact)
		}
		keeping, doubts := placement.KeepingOf(annotations)
		for _, w := range doubts {
			key, fact := annotationIn(w)
			note(InvalidAnnotation, key, fact)
		}
		if keeping.DryRun {
			note(HeldObject, corev1alpha1.DryRunAnnotation, "nothing is written to clusters while it is set")
		}
		if keeping.Frozen {
			note(HeldObject, corev1alpha1.NoSchedulingAnnotation, "the object is added to no cluster and removed from none while it is set")
		}
	}
}

// annotationIn divides a warning of [placement.Ignored] or [placement.KeepingOf] into the annotation and the message.
func annotationIn(warning string) (key, fact string) {
	key, fact, _ = strings.Cut(strings.TrimPrefix(warning, "annotation "), " ")
	return key, fact
}
