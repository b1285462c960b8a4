// Package explain says of one object why each cluster gets what it gets: which
// policy places it there or does not, which rules hold and which do not and why,
// and for every field the chain of values from the object on the hub to the one
// that arrives, each with its author. It renders nothing itself: it reads what
// [render.Evaluate] found.
package explain

import (
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/offline/render"
	"refract.dev/tree"
)

// Kind and version of an [Explanation].
const kind = "Explanation"

var apiVersion = refractv1alpha1.GroupVersion.String()

// Explanation is why each cluster gets what it gets of one object. What the values
// of a Secret say is replaced by stand-ins, and so is what its annotations say, in
// which tools repeat it; ours and what a policy writes excepted. It shares parts with the evaluation it
// was made of and may not be modified.
type Explanation struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Object     render.Object `json:"object"`
	// Path is the place that was asked about, a JSON pointer; empty for all fields
	// that a policy changes.
	Path string `json:"path,omitempty"`
	// Propagation is the policy that places the object; absent when the object names
	// none, or when the one it names is not there.
	Propagation *render.Policy `json:"propagation,omitempty"`
	// Held is the annotation that keeps copies as they are; empty if none does.
	Held string `json:"held,omitempty"`
	// Follows are the objects that the object travels with.
	Follows []refractv1alpha1.FollowedObject `json:"follows,omitempty"`
	// Left are the fields that are left to clusters once the copy exists.
	Left []render.Left `json:"left,omitempty"`
	// Groups are the clusters that the object is placed on, by the rules that hold
	// for them, in the order of their first cluster.
	Groups []Group `json:"groups"`
	// Elsewhere are the clusters that the object is not placed on. There are none
	// where an error leaves open where the object goes.
	Elsewhere []Reason `json:"elsewhere"`
	// Errors are about clusters that do not get what they should, or all of them.
	Errors []render.Finding `json:"errors"`
	// Warnings are about what had no effect.
	Warnings []render.Finding `json:"warnings"`
}

// Group is clusters for which the same rules hold.
type Group struct {
	// Clusters are by name.
	Clusters []string `json:"clusters"`
	// Failed is whether a rule failed. Nothing is then written to the clusters:
	// they keep what they have.
	Failed bool `json:"failed"`
	// Refused is whether an API server refuses what the clusters are to get, by its type: a warning says why.
	Refused bool `json:"refused,omitempty"`
	// Policies are the override policies of the object in their order of effect.
	Policies []Policy `json:"policies"`
	// Fields are the places that were changed, in the order of their first change;
	// those that were asked about. There are none if a rule failed.
	Fields []Field `json:"fields"`
}

// Policy is what an override policy does for a group.
type Policy struct {
	render.Policy

	// Rules are all of its rules, in their order of effect.
	Rules []Rule `json:"rules"`
}

// State is what became of a rule.
type State string

// States of a rule.
const (
	Applied    State = "Applied"    // It holds for the clusters and was applied.
	NotMatched State = "NotMatched" // It is not for the clusters.
	Failed     State = "Failed"     // It holds for the clusters and could not be applied.
	NotReached State = "NotReached" // It holds for the clusters, and one before it failed.
)

// Rule is what a rule does for a group.
type Rule struct {
	// Rule is its index in the policy.
	Rule  int   `json:"rule"`
	State State `json:"state"`
	// Why are the reasons for which it is not for the clusters.
	Why []Reason `json:"why,omitempty"`
	// Changes is how many places it wrote to; not known if a rule failed.
	Changes int `json:"changes,omitempty"`
	// Warnings are about what had nothing to act on, and about what API servers refuse.
	Warnings []Remark `json:"warnings,omitempty"`
	// Refused is whether an API server refuses what the rule wrote.
	Refused bool `json:"refused,omitempty"`
	// Error is why it could not be applied.
	Error *Remark `json:"error,omitempty"`
}

// Reason is a reason and the clusters that it is the reason for.
type Reason struct {
	// Clusters are by name; none where it is the reason for all of a group.
	Clusters []string `json:"clusters,omitempty"`
	// Reason is one sentence without an end mark, which calls a cluster "it".
	Reason string `json:"reason"`
}

// Remark is what there is to say about an item of a rule.
type Remark struct {
	// Overrider is the name of the list in the rule; empty when the rule as a whole
	// is meant.
	Overrider string `json:"overrider,omitempty"`
	// Item is the index in that list.
	Item int `json:"item"`
	// Path is the JSON pointer of the place in the object; it may be empty.
	Path string `json:"path,omitempty"`
	// Message is one sentence without an end mark.
	Message string `json:"message"`
}

// Field is the chain of values of one place. It follows the value: where elements
// of an array have moved because others were inserted or removed before them, the
// chain is that of one and the same element.
type Field struct {
	// Path is the JSON pointer of the place in what the clusters get. Of an element
	// that was removed from its array it is where the element was then, which may
	// since be the place of another.
	Path string `json:"path"`
	// From is where the value was in the object on the hub, if it was elsewhere.
	From string `json:"from,omitempty"`
	// HubOnly is whether the place belongs to the hub: no cluster gets it.
	HubOnly bool `json:"hubOnly,omitempty"`
	// Initial is the value in the object on the hub, which may be null; absent if
	// there was none.
	Initial *any `json:"initial,omitempty"`
	// Writes are in their order of effect; none if no policy touched the place.
	Writes []Write `json:"writes"`
	// Final is the value that the clusters get, which may be null; absent if they get
	// none, also where what the last write left is left out because it is empty.
	Final *any `json:"final,omitempty"`
	// Inside is whether Final is not what the last write left, as something inside
	// was changed later.
	Inside bool `json:"inside,omitempty"`
}

// exists reports whether there is, or ever was, something at the place.
func (f *Field) exists() bool { return f.Initial != nil || f.Final != nil || len(f.Writes) > 0 }

// Write is one change of a field.
type Write struct {
	// Change is the index among all changes made for the group, in their order.
	Change int `json:"change"`
	// Path is the JSON pointer of the place that was written, at that moment: that
	// of the field, or of something around it.
	Path string `json:"path"`
	// Around is whether Path is around the field, which changed with it.
	Around bool `json:"around,omitempty"`
	// Element is whether Path is an element of an array.
	Element bool `json:"element,omitempty"`
	// Op is what was done to the field.
	Op tree.Op `json:"op"`
	// Before and After are values of the field.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
	// By is who made the change.
	By *tree.Author `json:"by"`
	// Shadowed is whether a later change hides what this one left.
	Shadowed bool `json:"shadowed,omitempty"`
	// Refused is whether an API server refuses the value.
	Refused bool `json:"refused,omitempty"`
}
