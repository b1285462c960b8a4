// Package diff shows the effect of a change before it is made: the blast radius. [Compare] evaluates two sets of
// manifests. For the second, it assumes that the controllers have already acted on the first. It returns the
// differences for each cluster as data, with the policy or object that causes each. The Write functions format this
// result.
package diff

import (
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// Diff is the result of a comparison. A copy is an object on a cluster; unchanged copies are left out. A Diff contains
// the values of Secrets. Its JSON and all Write functions mask them.
type Diff struct {
	Totals Totals
	// Groups are copies with the same difference, the most dangerous ones first. Each copy is in at most one group.
	Groups []Group
	// Rollouts describe the waves of changes that do not reach every cluster at once.
	Rollouts []Rollout
	// Notes are remarks that are no differences.
	Notes []Note
	// Unknown are objects that could not be compared, in the order of their names. Each also has a note.
	Unknown []Unknown
}

// Unknown is an object that could not be compared: it fails as a whole, so its clusters before or after the change are
// not known.
type Unknown struct {
	Object render.Object
	// Reason is the error of the object. Hint is advice that takes the rest of the input into account; it may be empty.
	Reason, Hint string
}

// Same reports whether there is no difference and all objects could be compared.
func (d *Diff) Same() bool { return len(d.Groups) == 0 && len(d.Unknown) == 0 }

// Totals count the differences.
type Totals struct {
	Objects  int `json:"objects"`
	Clusters int `json:"clusters"`

	// These five count copies. An object that fails before its clusters are known counts as one.
	Changed   int `json:"changed"`
	Created   int `json:"created"`
	Deleted   int `json:"deleted"`
	Failing   int `json:"failing"`
	Recovered int `json:"recovered"`

	// Refused counts the copies of Changed that an API server will reject.
	Refused int `json:"refused"`
	// ScaledUp and ScaledDown count the copies of Changed with a different number of replicas and without an
	// autoscaler.
	ScaledUp   int   `json:"scaledUp"`
	ScaledDown int   `json:"scaledDown"`
	Rolls      Rolls `json:"rolls"`

	// AwaitingApproval counts the copies of Created and Deleted that await approval.
	AwaitingApproval int `json:"awaitingApproval,omitempty"`

	// Unknown counts objects that could not be compared. They do not count in Objects.
	Unknown int `json:"unknown"`
}

// Rolls counts restarts.
type Rolls struct {
	// Workloads are copies whose pods are replaced.
	Workloads int `json:"workloads"`
	// Pods is the number of replaced pods, without those of DaemonSets.
	Pods int64 `json:"pods"`
	// DaemonSets counts the Workloads that run a pod on every node, so that their number of pods is not known.
	DaemonSets int `json:"daemonSets"`
	// Autoscaled counts the Workloads with an autoscaler. Pods includes the minimum number of pods of each.
	Autoscaled int `json:"autoscaled"`
}

// Status is the kind of difference of a copy.
type Status string

// The statuses, the most dangerous ones first.
const (
	// Deleted is a copy that is removed.
	Deleted Status = "deleted"
	// Failing is a copy that could be rendered before the change and cannot be after it, or a new copy that cannot be
	// rendered. The cluster keeps the present content.
	Failing Status = "failing"
	// Changed is an existing copy with new content.
	Changed Status = "changed"
	// Recovered is a copy that can be rendered only after the change, so that the present content is not known.
	Recovered Status = "recovered"
	// Created is a new copy.
	Created Status = "created"
)

// Group consists of the copies of some objects of one kind on some clusters: each of the objects on each of the
// clusters.
type Group struct {
	Status Status `json:"status"`
	// Reason is the reason why copies are created or deleted, the error of a failing copy, or the former error of a
	// recovered copy.
	Reason string `json:"reason,omitempty"`
	// Objects are sorted by name.
	Objects []Object `json:"objects"`
	// Clusters are sorted by name. The list is empty if an object fails before its clusters are known.
	Clusters []string `json:"clusters"`
	// Changes lead from the present content to the new one, for copies that are Changed.
	Changes []Change `json:"changes,omitempty"`
	// Impacts are further effects of the changes.
	Impacts []Impact `json:"impacts,omitempty"`
	// Rolls counts the restarts in the group.
	Rolls Rolls `json:"rolls,omitzero"`
}

// Object names an object. It may also have the object's content.
type Object struct {
	render.Object

	// Before is the present content on the first cluster of the group; nil if there is no copy or its content is not
	// known. It is shared and must not be modified.
	Before map[string]any `json:"before,omitempty"`
	// After is the new content on the first cluster of the group; nil without a copy. It is shared and must not be
	// modified.
	After map[string]any `json:"after,omitempty"`
}

// Change is one step from the content before the change to the content after it, as an operation of RFC 6902. All
// changes of a group, applied in order, turn one into the other. Inserting or removing an element of an array does not
// count as a change of the elements behind it.
type Change struct {
	// The field By of tree.Change is the author of the new value. If Cause is Withdrawn, it is the author of the former
	// value; if Cause is Own, it is nil.
	tree.Change

	Cause Cause `json:"cause"`
}

// Cause is the reason why a value changes.
type Cause string

// Causes.
const (
	// ByPolicy: a policy sets the new value.
	ByPolicy Cause = "policy"
	// Withdrawn: a policy set the former value, and no policy sets the new value, which comes from the object.
	Withdrawn Cause = "withdrawn"
	// Own: the object on the hub has changed at a place that no policy sets.
	Own Cause = "object"
)

// Note is a remark. Fields that do not apply are empty.
type Note struct {
	Objects  []render.Object `json:"objects,omitempty"`
	Clusters []string        `json:"clusters,omitempty"`
	// Message is one sentence without a final period.
	Message string `json:"message"`
}

// Options select the subject of a comparison.
type Options struct {
	// Clusters are the names of the clusters to show; without any, all are shown. Each must exist in one of the sets.
	Clusters []string
	// Select chooses the objects; nil chooses all. An object that is chosen on either side is compared.
	Select func(*manifest.Object) bool
	// Each is used for both sides as described in [render.Options]. Compare also calls Each with nil before it compares
	// an object. If Each is nil, nothing ends the comparison early.
	Each func(*render.Outcome) error
}
