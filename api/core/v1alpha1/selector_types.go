package v1alpha1

// ClusterSelectorOperator compares the value of a key with the values of a requirement.
//
// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
type ClusterSelectorOperator string

// Operators of a ClusterSelectorRequirement.
const (
	ClusterSelectorOpIn           ClusterSelectorOperator = "In"
	ClusterSelectorOpNotIn        ClusterSelectorOperator = "NotIn"
	ClusterSelectorOpExists       ClusterSelectorOperator = "Exists"
	ClusterSelectorOpDoesNotExist ClusterSelectorOperator = "DoesNotExist"
	ClusterSelectorOpGt           ClusterSelectorOperator = "Gt"
	ClusterSelectorOpLt           ClusterSelectorOperator = "Lt"
)

// ClusterSelectorTerm is one alternative of a cluster affinity. A cluster must satisfy all requirements. A term without
// requirements matches no cluster.
type ClusterSelectorTerm struct {
	// MatchExpressions are requirements on the cluster's labels.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	MatchExpressions []ClusterSelectorRequirement `json:"matchExpressions,omitempty"`

	// MatchFields are requirements on the cluster's fields. The only field is
	// metadata.name, with the operators In and NotIn.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	MatchFields []ClusterSelectorRequirement `json:"matchFields,omitempty"`
}

// ClusterSelectorRequirement is a key, an operator and values.
type ClusterSelectorRequirement struct {
	// Key is a label key, or the path of a field.
	Key string `json:"key"`

	// Operator compares the value of the key with the values.
	Operator ClusterSelectorOperator `json:"operator"`

	// Values: at least one for In and NotIn, exactly one integer for Gt and Lt,
	// none for Exists and DoesNotExist.
	// +optional
	Values []string `json:"values,omitempty"`
}
