// Package explain explains the content of one object on each cluster. It returns the policy that places the object
// there, or the reason why none does. It returns the rules that apply, and the reasons why others do not. For every
// field, it returns the chain of values from the object on the hub to the cluster, each with its author. It renders
// nothing itself: it uses the result of [render.Evaluate].
package explain

import (
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// The kind and version of an [Explanation].
const kind = "Explanation"

var apiVersion = refractv1alpha1.GroupVersion.String()

// Explanation explains the content of one object on each cluster. The values of a Secret are masked, and so are its
// annotations, because tools store copies of the values there. Refract's own annotations and values set by a policy are
// not masked. An Explanation shares parts with the evaluation and must not be modified.
type Explanation struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Object     render.Object `json:"object"`
	// Path is the place of interest, a JSON pointer; empty for all fields that a policy changes.
	Path string `json:"path,omitempty"`
	// Propagation is the policy that places the object. It is absent if the object names no policy or the policy does
	// not exist.
	Propagation *render.Policy `json:"propagation,omitempty"`
	// Held is the annotation that keeps the controllers from changing or removing copies; empty without one.
	Held string `json:"held,omitempty"`
	// Follows are the leaders of the object: the objects that it travels with.
	Follows []refractv1alpha1.FollowedObject `json:"follows,omitempty"`
	// Left are the fields that the controllers leave to clusters once the copy exists.
	Left []render.Left `json:"left,omitempty"`
	// Groups are the clusters of the object, grouped by the rules that apply to them, in the order of their first
	// cluster.
	Groups []Group `json:"groups"`
	// Elsewhere are the clusters without the object. It is empty if the clusters of the object are not known, because
	// of an error.
	Elsewhere []Reason `json:"elsewhere"`
	// Errors concern all clusters or single clusters that do not get the intended content.
	Errors []render.Finding `json:"errors"`
	// Warnings concern policies and settings without effect.
	Warnings []render.Finding `json:"warnings"`
}

// Group is a group of clusters to which the same rules apply.
type Group struct {
	// Clusters are sorted by name.
	Clusters []string `json:"clusters"`
	// Failed reports whether a rule failed. Then nothing is written to the clusters, and they keep their content.
	Failed bool `json:"failed"`
	// Refused reports whether an API server rejects the new content by its type. A warning has the reason.
	Refused bool `json:"refused,omitempty"`
	// Policies are the override policies of the object in their order of effect.
	Policies []Policy `json:"policies"`
	// Fields are the changed places, in the order of their first change, or the places of interest. The list is empty if a
	// rule failed.
	Fields []Field `json:"fields"`
}

// Policy is the effect of an override policy on a group.
type Policy struct {
	render.Policy

	// Rules are all rules of the policy, in their order of effect.
	Rules []Rule `json:"rules"`
}

// State is the result of a rule.
type State string

// States of a rule.
const (
	Applied    State = "Applied"    // It selects the clusters and was applied.
	NotMatched State = "NotMatched" // It does not select the clusters.
	Failed     State = "Failed"     // It selects the clusters and could not be applied.
	NotReached State = "NotReached" // It selects the clusters, and an earlier rule failed.
)

// Rule is the effect of a rule on a group.
type Rule struct {
	// Rule is the index of the rule in the policy.
	Rule  int   `json:"rule"`
	State State `json:"state"`
	// Why are the reasons for which the rule does not select the clusters.
	Why []Reason `json:"why,omitempty"`
	// Changes is the number of changed places. It is not known if a rule failed.
	Changes int `json:"changes,omitempty"`
	// Warnings concern items without effect, and values that API servers reject.
	Warnings []Remark `json:"warnings,omitempty"`
	// Refused reports whether an API server rejects a value of the rule.
	Refused bool `json:"refused,omitempty"`
	// Error is the reason for which the rule could not be applied.
	Error *Remark `json:"error,omitempty"`
}

// Reason is a reason with its clusters.
type Reason struct {
	// Clusters are sorted by name; empty if the reason applies to a whole group.
	Clusters []string `json:"clusters,omitempty"`
	// Reason is one sentence without a final period. It calls a cluster "it".
	Reason string `json:"reason"`
}

// Remark is an error or a warning about an item of a rule.
type Remark struct {
	// Overrider is the name of the list in the rule; empty if the remark concerns the rule as a whole.
	Overrider string `json:"overrider,omitempty"`
	// Item is the index in that list.
	Item int `json:"item"`
	// Path is the JSON pointer of the place in the object; it may be empty.
	Path string `json:"path,omitempty"`
	// Message is one sentence without a final period.
	Message string `json:"message"`
}

// Field is the chain of values of one place. It follows the value: if elements of an array move because others are
// inserted or removed before them, the chain stays with its element.
type Field struct {
	// Path is the JSON pointer of the place in the content of the clusters. For an element that was removed from its
	// array, it is the last place of the element, which may now be the place of another.
	Path string `json:"path"`
	// From is the place of the value in the object on the hub, if the value has moved.
	From string `json:"from,omitempty"`
	// HubOnly reports whether the field exists on the hub only: no cluster gets it.
	HubOnly bool `json:"hubOnly,omitempty"`
	// Initial is the value in the object on the hub, which may be null; absent if the hub has no value.
	Initial *any `json:"initial,omitempty"`
	// Writes are in their order of effect; empty if no policy changes the place.
	Writes []Write `json:"writes"`
	// Final is the value on the clusters, which may be null. It is absent if they get no value, including the case that
	// the last write leaves an empty value, which is dropped.
	Final *any `json:"final,omitempty"`
	// Inside reports whether Final differs from the value of the last write, because a later change has changed a part
	// inside it.
	Inside bool `json:"inside,omitempty"`
}

// exists reports whether the place has or ever had a value.
func (f *Field) exists() bool { return f.Initial != nil || f.Final != nil || len(f.Writes) > 0 }

// Write is one change of a field.
type Write struct {
	// Change is the index of the change among all changes for the group, in their order.
	Change int `json:"change"`
	// Path is the JSON pointer of the written place at that moment: the place of the field or a place around it.
	Path string `json:"path"`
	// Around reports whether Path is a place that contains the field, so that the field changed only as a part of it.
	Around bool `json:"around,omitempty"`
	// Element reports whether Path is an element of an array.
	Element bool `json:"element,omitempty"`
	// Op is the operation on the field.
	Op tree.Op `json:"op"`
	// Before and After are values of the field.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
	// By is the author of the change.
	By *tree.Author `json:"by"`
	// Shadowed reports whether a later change overwrites this value.
	Shadowed bool `json:"shadowed,omitempty"`
	// Refused reports whether an API server rejects the value.
	Refused bool `json:"refused,omitempty"`
}
