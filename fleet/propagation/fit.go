package propagation

import (
	"encoding/json"
	"slices"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

const (
	// mostStatus is the target for the size of the JSON of a status, in bytes: etcd rejects requests of 1.5 MiB. To
	// reach it, only the descriptions of clusters are shortened. Decisions stay complete, because a rollout that cannot
	// be recorded cannot be stopped.
	mostStatus = 1 << 20
	// mostFollowed is the maximum number of leaders of an object, the objects that it travels with, in its status. A
	// ConfigMap may travel with all Deployments of a namespace.
	mostFollowed = 1000
	// rowSize is the approximate size of a row without its texts.
	rowSize = 512
)

// briefer are functions that shorten the row of a cluster; each shortens it more than the one before. They keep the
// fields that are read back after a restart. The only exception is the hash of the owned fields, which the copy itself
// shows then.
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

// fit makes a status compact, and shortens the rows of clusters until the status is small enough.
func fit(s *refractv1alpha1.PropagationStatus) {
	rows := s.Clusters
	s.Compact()
	if mayFit(s, rows) {
		return
	}
	for _, say := range briefer {
		if text, err := json.Marshal(s); err != nil || len(text) <= mostStatus {
			return // All statuses can be encoded.
		}
		rows = slices.Clone(rows)
		for i := range rows {
			say(&rows[i])
		}
		s.Clusters, s.Alike = rows, nil
		s.Compact()
	}
}

// mayFit reports whether a status is certainly small enough, from an estimate without encoding.
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
	const escaped = 2 // Most characters are not escaped.
	return escaped*n <= mostStatus/2
}
