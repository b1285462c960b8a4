// Package diff answers what a change does before it is made: the blast radius.
// [Compare] evaluates two sets of manifests, the second as the controllers would
// that had acted on the first, and returns what becomes different on which
// clusters, and because of whom, as data. The Write functions show that.
package diff

import (
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/tree"
)

// Diff is what becomes different. A copy is an object on a cluster; those that
// stay as they are appear nowhere. The values of Secrets are in it; its JSON and
// all Write functions mask them.
type Diff struct {
	Totals Totals
	// Groups are copies that become different in the same way, what is most
	// dangerous first. No copy is in two of them.
	Groups []Group
	// Rollouts say how changes go out that do not reach every cluster at once.
	Rollouts []Rollout
	// Notes are about what does not become different and is worth knowing.
	Notes []Note
	// Unknown are objects that could not be compared, in the order of their names: a
	// note says so of each.
	Unknown []Unknown
}

// Unknown is an object of which nobody can tell what becomes of it: it fails as a
// whole, so that it is not known where it was and where it belongs.
type Unknown struct {
	Object render.Object
	// Reason is why it fails, Hint advice that comes from having looked; it may be
	// empty.
	Reason, Hint string
}

// Same reports whether nothing becomes different, and all objects could be compared.
func (d *Diff) Same() bool { return len(d.Groups) == 0 && len(d.Unknown) == 0 }

// Totals count what becomes different.
type Totals struct {
	Objects  int `json:"objects"`
	Clusters int `json:"clusters"`

	// These five count copies. An object that fails before it is known where it
	// goes counts as one.
	Changed   int `json:"changed"`
	Created   int `json:"created"`
	Deleted   int `json:"deleted"`
	Failing   int `json:"failing"`
	Recovered int `json:"recovered"`

	// Refused counts those of Changed that an API server will refuse.
	Refused int `json:"refused"`
	// ScaledUp and ScaledDown count those of Changed that get another number of
	// replicas, where no autoscaler decides on it.
	ScaledUp   int   `json:"scaledUp"`
	ScaledDown int   `json:"scaledDown"`
	Rolls      Rolls `json:"rolls"`

	// AwaitingApproval counts those of Created and Deleted that wait for approval.
	AwaitingApproval int `json:"awaitingApproval,omitempty"`

	// Unknown counts objects that could not be compared. They are not in Objects.
	Unknown int `json:"unknown"`
}

// Rolls counts what restarts.
type Rolls struct {
	// Workloads are copies whose pods are replaced.
	Workloads int `json:"workloads"`
	// Pods are theirs, without those of DaemonSets.
	Pods int64 `json:"pods"`
	// DaemonSets are those of Workloads that run a pod on every node: how many that
	// are is not known.
	DaemonSets int `json:"daemonSets"`
	// Autoscaled are those of Workloads whose number of pods an autoscaler decides
	// on: Pods counts the fewest.
	Autoscaled int `json:"autoscaled"`
}

// Status says what becomes of a copy.
type Status string

// What may become of a copy, what is most dangerous first.
const (
	// Deleted is a copy that is removed.
	Deleted Status = "deleted"
	// Failing is a copy that cannot be made any more, or one that was not there and
	// cannot be made. The cluster keeps what it has.
	Failing Status = "failing"
	// Changed is a copy that is there and becomes another.
	Changed Status = "changed"
	// Recovered is a copy that can be made and could not before, so that nobody can
	// tell what the cluster holds now.
	Recovered Status = "recovered"
	// Created is a copy that was not there.
	Created Status = "created"
)

// Group is each of some objects of one kind on each of some clusters.
type Group struct {
	Status Status `json:"status"`
	// Reason says why copies are created or deleted, what fails, or what failed
	// before they recovered.
	Reason string `json:"reason,omitempty"`
	// Objects are in the order of their names.
	Objects []Object `json:"objects"`
	// Clusters are in the order of their names. There are none when an object fails
	// before it is known where it goes.
	Clusters []string `json:"clusters"`
	// Changes lead from what is there to what comes, for copies that are Changed.
	Changes []Change `json:"changes,omitempty"`
	// Impacts are what the changes do besides.
	Impacts []Impact `json:"impacts,omitempty"`
	// Rolls counts what restarts in the group.
	Rolls Rolls `json:"rolls,omitzero"`
}

// Object names an object, and may hold it.
type Object struct {
	render.Object

	// Before is what the first cluster of the group is known to hold, nil if it is
	// not known to hold any. Shared, not to be modified.
	Before map[string]any `json:"before,omitempty"`
	// After is what the first cluster of the group gets, nil if it gets nothing.
	// Shared, not to be modified.
	After map[string]any `json:"after,omitempty"`
}

// Change is one step from the object before to the one after, by an operation of
// RFC 6902: made one after the other, the changes of a group turn one into the
// other. An element of an array that others precede or follow is inserted or
// removed, and does not change all those behind it.
type Change struct {
	// Change has in By who made the value after, or, where Cause is Withdrawn, who
	// made the value before; nil where Cause is Own.
	tree.Change

	Cause Cause `json:"cause"`
}

// Cause says why a value becomes another.
type Cause string

// Causes.
const (
	// ByPolicy is that a policy made the value after.
	ByPolicy Cause = "policy"
	// Withdrawn is that a policy made the value before, and none the one after,
	// which is that of the object.
	Withdrawn Cause = "withdrawn"
	// Own is that the object on the hub was changed, where no policy has a say.
	Own Cause = "object"
)

// Note is a remark. What does not apply is empty.
type Note struct {
	Objects  []render.Object `json:"objects,omitempty"`
	Clusters []string        `json:"clusters,omitempty"`
	// Message is one sentence without an end mark.
	Message string `json:"message"`
}

// Options say what to compare.
type Options struct {
	// Clusters are the names of those to show; none means all. Each must be in one
	// of the sets.
	Clusters []string
	// Select chooses the objects, nil all of them. One that is chosen on either side
	// is compared.
	Select func(*manifest.Object) bool
	// Each is as in [render.Options], for both sides; it is asked with nil before each object is compared. Nil
	// lets all go on.
	Each func(*render.Outcome) error
}
