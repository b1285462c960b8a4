package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PropagationPolicy selects the member clusters of the objects of its namespace that name it in the label
// kubeadmiral.io/propagation-policy-name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pp
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: objects name the policy in a label value"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.schedulingMode`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.refCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects the clusters.
	Spec PropagationPolicySpec `json:"spec"`

	// Status is the observed state of the policy.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// PropagationPolicyList is a list of PropagationPolicy.
//
// +kubebuilder:object:root=true
type PropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []PropagationPolicy `json:"items"`
}

// ClusterPropagationPolicy selects the member clusters of the objects that name it in the label
// kubeadmiral.io/cluster-propagation-policy-name: cluster-scoped objects and objects of any namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cpp
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: objects name the policy in a label value"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.schedulingMode`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.refCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects the clusters.
	Spec PropagationPolicySpec `json:"spec"`

	// Status is the observed state of the policy.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// ClusterPropagationPolicyList is a list of ClusterPropagationPolicy.
//
// +kubebuilder:object:root=true
type ClusterPropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []ClusterPropagationPolicy `json:"items"`
}

// SchedulingMode decides whether each cluster gets the whole object or a share of its replicas.
//
// +kubebuilder:validation:Enum=Duplicate;Divide
type SchedulingMode string

// Scheduling modes.
const (
	SchedulingModeDuplicate SchedulingMode = "Duplicate"
	SchedulingModeDivide    SchedulingMode = "Divide"
)

// ReplicasStrategy is the way to divide replicas.
//
// +kubebuilder:validation:Enum=Binpack;Spread
type ReplicasStrategy string

// Strategies to divide replicas.
const (
	ReplicasStrategyBinpack ReplicasStrategy = "Binpack"
	ReplicasStrategySpread  ReplicasStrategy = "Spread"
)

// PropagationPolicySpec is the specification of a PropagationPolicy and of a ClusterPropagationPolicy. A chosen cluster
// satisfies the selector, the affinity, the tolerations and the placement list together.
type PropagationPolicySpec struct {
	// SchedulingProfile names a SchedulingProfile. Refract accepts the field but ignores it.
	// +optional
	SchedulingProfile string `json:"schedulingProfile,omitempty"`

	// SchedulingMode: with Duplicate, each chosen cluster gets the whole object; with Divide, its replicas are divided
	// among the clusters.
	SchedulingMode SchedulingMode `json:"schedulingMode"`

	// ReplicasStrategy is the strategy of the mode Divide. Empty means Spread.
	// +optional
	ReplicasStrategy *ReplicasStrategy `json:"replicasStrategy,omitempty"`

	// ClusterSelector is a set of labels. A cluster must have all of them. Empty selects every cluster.
	// +optional
	ClusterSelector map[string]string `json:"clusterSelector,omitempty"`

	// ClusterAffinity is a list of terms. A cluster must satisfy at least one. Empty selects every cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ClusterAffinity []ClusterSelectorTerm `json:"clusterAffinity,omitempty"`

	// Tolerations allow clusters with matching taints. Refract ignores tolerationSeconds.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",message="value must be empty with operator Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect must be NoSchedule, PreferNoSchedule or NoExecute"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// MaxClusters is the maximum number of chosen clusters. Absent means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxClusters *int64 `json:"maxClusters,omitempty"`

	// Placements, if not empty, lists the only clusters that can be chosen.
	// +optional
	// +kubebuilder:validation:MaxItems=10000
	Placements []DesiredPlacement `json:"placement,omitempty"`

	// DisableFollowerScheduling disables followers: the ConfigMaps, Secrets and other objects that a workload refers to
	// are not propagated with it.
	// +optional
	DisableFollowerScheduling bool `json:"disableFollowerScheduling,omitempty"`

	// AutoMigration moves replicas away from clusters that cannot run them. Refract accepts the field but ignores it.
	// +optional
	AutoMigration *AutoMigration `json:"autoMigration,omitempty"`

	// ReschedulePolicy selects the changes after which Refract decides the placement again. Absent means all relevant
	// changes: of the policy, and clusters that join, leave, or change their labels or taints.
	// +optional
	ReschedulePolicy *ReschedulePolicy `json:"reschedulePolicy,omitempty"`
}

// DesiredPlacement is a cluster that the policy may choose.
type DesiredPlacement struct {
	// Cluster is the name of a FederatedCluster.
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`

	// Preferences for dividing replicas. Ignored with Duplicate.
	// +optional
	Preferences Preferences `json:"preferences,omitempty"`
}

// Preferences bound and weight the share of a cluster when replicas are divided.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
type Preferences struct {
	// MinReplicas is the minimum number of replicas. Absent means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReplicas int64 `json:"minReplicas,omitempty"`

	// MaxReplicas is the maximum number of replicas. Absent means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int64 `json:"maxReplicas,omitempty"`

	// Weight is the share of the cluster, relative to the other weights (Spread).
	// +optional
	// +kubebuilder:validation:Minimum=0
	Weight *int64 `json:"weight,omitempty"`

	// Priority: clusters with a higher priority are filled first (Binpack).
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority *int64 `json:"priority,omitempty"`
}

// AutoMigration moves replicas that cannot be scheduled. Refract ignores it.
type AutoMigration struct {
	// Trigger selects the replicas to move.
	// +kubebuilder:default={podUnschedulableFor: "1m"}
	Trigger AutoMigrationTrigger `json:"when"`

	// KeepUnschedulableReplicas also keeps the moved replicas on the clusters that could not schedule them.
	// +optional
	// +kubebuilder:default=false
	KeepUnschedulableReplicas bool `json:"keepUnschedulableReplicas,omitempty"`
}

// AutoMigrationTrigger selects the replicas to move.
//
// +kubebuilder:validation:MinProperties=1
type AutoMigrationTrigger struct {
	// PodUnschedulableDuration is the time for which a pod must have been unschedulable.
	// +optional
	PodUnschedulableDuration *metav1.Duration `json:"podUnschedulableFor,omitempty"`
}

// ReschedulePolicy selects the changes after which Refract decides a placement again.
type ReschedulePolicy struct {
	// DisableRescheduling keeps a placement after the first decision.
	// +optional
	DisableRescheduling bool `json:"disableRescheduling,omitempty"`

	// Trigger selects the changes.
	// +optional
	Trigger *RescheduleTrigger `json:"rescheduleWhen,omitempty"`

	// ReplicaRescheduling controls how replicas are divided again.
	// +optional
	// +kubebuilder:default={avoidDisruption: true}
	ReplicaRescheduling *ReplicaRescheduling `json:"replicaRescheduling,omitempty"`
}

// RescheduleTrigger lists the changes after which Refract decides a placement again.
type RescheduleTrigger struct {
	// PolicyContentChanged: the spec of the policy changed.
	// +optional
	// +kubebuilder:default=true
	PolicyContentChanged bool `json:"policyContentChanged,omitempty"`

	// ClusterJoined: a cluster joined.
	// +optional
	// +kubebuilder:default=false
	ClusterJoined bool `json:"clusterJoined,omitempty"`

	// ClusterLabelsChanged: the labels of a cluster changed.
	// +optional
	// +kubebuilder:default=false
	ClusterLabelsChanged bool `json:"clusterLabelsChanged,omitempty"`

	// ClusterAPIResourcesChanged: the types that a cluster serves changed. Refract accepts the field but ignores it.
	// +optional
	// +kubebuilder:default=false
	ClusterAPIResourcesChanged bool `json:"clusterAPIResourcesChanged,omitempty"`
}

// ReplicaRescheduling controls how replicas are divided again.
type ReplicaRescheduling struct {
	// AvoidDisruption keeps replicas on their present clusters as far as possible.
	// +optional
	// +kubebuilder:default=true
	AvoidDisruption bool `json:"avoidDisruption,omitempty"`
}
