package lint

import (
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/placement"
)

// checkAnnotations looks for annotations that ask for what is not done, and for
// those that hold objects back.
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
			note(HeldObject, corev1alpha1.DryRunAnnotation, "nothing is written to clusters while it is there")
		}
		if keeping.Frozen {
			note(HeldObject, corev1alpha1.NoSchedulingAnnotation, "the object comes to no cluster and leaves none while it is there")
		}
	}
}

// annotationIn parts a warning of [placement.Ignored] or [placement.KeepingOf] into the annotation that it
// names and what it says of it.
func annotationIn(warning string) (key, fact string) {
	key, fact, _ = strings.Cut(strings.TrimPrefix(warning, "annotation "), " ")
	return key, fact
}
