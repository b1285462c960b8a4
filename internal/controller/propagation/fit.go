package propagation

import (
	"encoding/json"
	"slices"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

const (
	// mostStatus is how many bytes of JSON a status has at most, if what is said of clusters can be said more briefly: etcd refuses a request
	// of 1.5 MiB. What is decided comes first. A rollout that cannot be written down is not stopped.
	mostStatus = 1 << 20
	// mostFollowed is how many objects a status names with which its object travels. A ConfigMap may travel with all Deployments of a namespace.
	mostFollowed = 1000
	// rowSize is about what a row has beside its texts.
	rowSize = 512
)

// briefer are ways to say less of a cluster, each less than the one before. What is read back after a restart stays, but for what the copy itself
// tells then: which fields Refract owns.
var briefer = []func(row *refractv1alpha1.ClusterStatus){
	func(row *refractv1alpha1.ClusterStatus) { cutTexts(row, 200) },
	func(row *refractv1alpha1.ClusterStatus) { cutTexts(row, 60) },
	func(row *refractv1alpha1.ClusterStatus) { cutTexts(row, 0) },
	func(row *refractv1alpha1.ClusterStatus) { row.Policies, row.Drift = nil, nil },
	func(row *refractv1alpha1.ClusterStatus) { row.Fields = "" },
}

func cutTexts(row *refractv1alpha1.ClusterStatus, most int) {
	row.Warnings = nil
	if most == 0 {
		row.Message, row.ReadinessMessage = "", ""
		return
	}
	row.Message, row.ReadinessMessage = output.Cut(row.Message, most), output.Cut(row.ReadinessMessage, most)
}

// fit makes a status compact, and says less of each cluster until it is small enough.
func fit(s *refractv1alpha1.PropagationStatus) {
	rows := s.Clusters
	s.Compact()
	if mayFit(s, rows) {
		return
	}
	for _, say := range briefer {
		if text, err := json.Marshal(s); err != nil || len(text) <= mostStatus {
			return // It has nothing that cannot be encoded.
		}
		rows = slices.Clone(rows)
		for i := range rows {
			say(&rows[i])
		}
		s.Clusters, s.Alike = rows, nil
		s.Compact()
	}
}

// mayFit reports whether a status is surely small enough, without that it is encoded.
func mayFit(s *refractv1alpha1.PropagationStatus, rows []refractv1alpha1.ClusterStatus) bool {
	n := 0
	for i := range rows {
		row := &rows[i]
		n += rowSize + len(row.Message) + len(row.ReadinessMessage)
		for _, w := range row.Warnings {
			n += len(w)
		}
	}
	for i := range s.Variants {
		n += sizeOf(s.Variants[i].Changes)
	}
	const escaped = 2 // Most of a text is written as it is.
	return escaped*n <= mostStatus/2
}
