package tree

import "fmt"

// Op is the kind of modification that a [Change] made.
type Op string

// Operations, named as in RFC 6902.
const (
	OpAdd     Op = "add"     // A member was added to an object, or an element was inserted into an array; the indexes of later elements grew by 1.
	OpRemove  Op = "remove"  // A member or an element was removed; in an array, the indexes of later elements fell by 1.
	OpReplace Op = "replace" // The value of an existing member or element was replaced.
)

// Change is one modification of an object, and its author. All reports and all stored data about modifications are
// derived from Changes.
type Change struct {
	// Path is the JSON pointer of the changed place. Its array indexes are those at the time of the change.
	Path string `json:"path"`
	// Op is the operation. OpAdd sets only After, OpRemove only Before, OpReplace both.
	Op Op `json:"op"`
	// Element is true for an element of an array, and false for a member of an object.
	Element bool `json:"element,omitempty"`
	// Before is the value before the change. It is shared and must not be modified.
	Before any `json:"before,omitempty"`
	// After is the value after the change. It is shared and must not be modified.
	After any `json:"after,omitempty"`
	// By is the author of the change. It is shared and must not be modified.
	By *Author `json:"by,omitempty"`
	// Shadows are the indexes, in the same list, of the earlier changes that this change hides, ascending. A change
	// hides the earlier changes of the same value and of the values inside it, even if insertions or removals have
	// moved the value in an array. A change that an earlier change already hides is not in the list; [Hidden] also
	// yields those.
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

// Author is the part of a policy that made a change. For a field that Refract itself leaves to each cluster, only Left
// is set.
type Author struct {
	// Policy is the policy; zero if Left is set.
	Policy Policy `json:"policy,omitzero"`
	// Left is the reason why Refract leaves a field to each cluster without a request by a policy. It is empty for a
	// change by a policy.
	Left string `json:"left,omitempty"`
	// Rule is the index of the rule; [NoRule] stands for the policy as a whole.
	Rule int `json:"rule"`
	// Overrider is the name of the list inside the rule, as in the manifest. It is empty if the author is the rule as a
	// whole.
	Overrider string `json:"overrider,omitempty"`
	// Item is the index in the list that Overrider names.
	Item int `json:"item"`
}

// NoRule is the value of Rule for policies that have no rules.
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
