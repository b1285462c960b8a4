package tree

import "fmt"

// Op is the kind of modification that a [Change] made.
type Op string

// Operations, named as in RFC 6902.
const (
	OpAdd     Op = "add"     // The place had no value before; in an array, later elements moved up.
	OpRemove  Op = "remove"  // The place has no value afterwards; in an array, later elements moved down.
	OpReplace Op = "replace" // The place has a value before and after.
)

// Change is one modification of an object, and its author. It is the only description of modifications in this project:
// all reports and stored forms are renderings of a list of Changes.
type Change struct {
	// Path is the JSON pointer of the place at the moment of the change.
	Path string `json:"path"`
	// Op determines whether Before, After or both are set.
	Op Op `json:"op"`
	// Element is true for an element of an array, and false for a member of an object.
	Element bool `json:"element,omitempty"`
	// Before is the value before the change. It is shared and must not be modified.
	Before any `json:"before,omitempty"`
	// After is the value after the change. It is shared and must not be modified.
	After any `json:"after,omitempty"`
	// By is the author of the change. It is shared and must not be modified.
	By *Author `json:"by,omitempty"`
	// Shadows are the indexes of earlier changes that this change hides and that no change in between has hidden, in
	// the same list, ascending. A change hides earlier changes of the same value or inside it. If elements of an array
	// moved in between, their places moved with them. [Hidden] also yields the changes that the Shadows hide in turn.
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

// Author is the place in a policy that made a change, or Refract itself, which leaves some fields to each cluster.
type Author struct {
	// Policy is zero if Left is set.
	Policy Policy `json:"policy,omitzero"`
	// Left is the reason why Refract leaves a field to each cluster although no policy requests it; empty for a policy.
	Left string `json:"left,omitempty"`
	// Rule is the index of the rule; [NoRule] stands for the policy as a whole.
	Rule int `json:"rule"`
	// Overrider is the name of the list inside the rule, as in the manifest. It is empty if the author is the rule as a
	// whole.
	Overrider string `json:"overrider,omitempty"`
	// Item is the index in that list.
	Item int `json:"item"`
}

// NoRule is the rule of changes by a policy without rules.
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
