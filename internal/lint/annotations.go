package lint

import (
	"strings"

	"refract.dev/placement"
)

// checkAnnotations looks for annotations that ask for what is not done, and for
// those that hold objects back.
func checkAnnotations(f *fleet, out *report) {
	for i := range f.set.Objects {
		o := &f.set.Objects[i]
		annotations := o.Content.GetAnnotations()
		s := subjectOf(o)
		on := []string{s.object.String()}
		for _, w := range placement.Ignored(annotations) {
			key, fact := annotationIn(w)
			out.once(key, s.finding(IgnoredAnnotation, "metadata.annotations["+key+"]", "%s", fact).on(on, nil))
		}
		if key := placement.Held(annotations); key != "" {
			out.once(key, s.finding(HeldObject, "metadata.annotations["+key+"]", "nothing is written to clusters while it is there").on(on, nil))
		}
	}
}

// annotationIn parts a warning of [placement.Ignored] into the annotation that it
// names and what it says of it.
func annotationIn(warning string) (key, fact string) {
	key, fact, _ = strings.Cut(strings.TrimPrefix(warning, "annotation "), " ")
	return key, fact
}
