package lint

import "refract.dev/fleet/offline/manifest"

// checkMisread finds keys and values whose meaning in YAML 1.1 differs from their notation.
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
