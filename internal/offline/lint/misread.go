package lint

import "refract.dev/internal/offline/manifest"

// checkMisread looks for keys and values that YAML 1.1 takes for something else than what is written.
func checkMisread(manifests []manifest.Object, out *report) {
	for i := range manifests {
		for _, m := range manifests[i].Misread() {
			s := subjectOf(&manifests[i])
			finding := s.finding(ReadOtherwise, m.Field, "%s", &m).hint("quote it: \"%s\"", m.Written)
			finding.Place = m.Place
			out.add(finding)
		}
	}
}
