package tree

import "fmt"

// Op says what a [Change] did to its place.
type Op string

// Operations, named as in RFC 6902.
const (
	OpAdd     Op = "add"     // There was nothing before; in an array, elements behind moved up.
	OpRemove  Op = "remove"  // There is nothing after; in an array, elements behind moved down.
	OpReplace Op = "replace" // There is something before and after.
)

// Change is one modification of an object, and who made it. It is the only
// description of a modification in this project: everything that shows or
// stores one is a rendering of a list of these.
type Change struct {
	// Path is the JSON pointer of the place at the moment of the change.
	Path string `json:"path"`
	// Op says whether Before, After or both mean something.
	Op Op `json:"op"`
	// Element is whether the place is an element of an array, and not a member of
	// an object.
	Element bool `json:"element,omitempty"`
	// Before is the value before; shared, not to be modified.
	Before any `json:"before,omitempty"`
	// After is the value after; shared, not to be modified.
	After any `json:"after,omitempty"`
	// By is who made the change; shared, not to be modified.
	By *Author `json:"by,omitempty"`
	// Shadows are the indexes, in the same list and ascending, of earlier changes that
	// this one hides and no change in between has hidden: those of the same value or of
	// something inside it. Where elements of an array have moved in between, so have the
	// places. [Hidden] tells of those that they hid in turn.
	Shadows []int `json:"shadows,omitempty"`
}

// Policy names a policy at one of its generations.
type Policy struct {
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Generation int64  `json:"generation,omitempty"`
}

// String returns KIND NAMESPACE/NAME, or KIND NAME for a cluster-scoped policy.
func (p Policy) String() string {
	if p.Namespace == "" {
		return p.Kind + " " + p.Name
	}
	return p.Kind + " " + p.Namespace + "/" + p.Name
}

// Author is the place in a policy that asked for something, or Refract itself, which
// leaves fields to each cluster.
type Author struct {
	// Policy is zero if Left is set.
	Policy Policy `json:"policy,omitzero"`
	// Left is why Refract leaves a field to each cluster, without a policy that asks for it;
	// empty for a policy.
	Left string `json:"left,omitempty"`
	// Rule is the index of the rule; [NoRule] when the policy as a whole is meant.
	Rule int `json:"rule"`
	// Overrider is the name of the list inside the rule, as in the manifest; empty
	// when the rule as a whole is meant.
	Overrider string `json:"overrider,omitempty"`
	// Item is the index in that list.
	Item int `json:"item"`
}

// NoRule is the rule of what a policy without rules did.
const NoRule = -1

// String returns for example "OverridePolicy default/web rule 0 jsonpatch[2]".
func (a Author) String() string {
	if a.Left != "" {
		return "left to the cluster: " + a.Left
	}
	if a.Rule == NoRule {
		return a.Policy.String()
	}
	rule := fmt.Sprintf("%s rule %d", a.Policy, a.Rule)
	if a.Overrider == "" {
		return rule
	}
	return fmt.Sprintf("%s %s[%d]", rule, a.Overrider, a.Item)
}
