package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PropagationPolicy says on which member clusters the objects of its namespace
// that name it (label kubeadmiral.io/propagation-policy-name) are placed.
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

	// Spec says where.
	Spec PropagationPolicySpec `json:"spec"`

	// Status is what Refract observed of the policy.
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

// ClusterPropagationPolicy says on which member clusters the objects that name
// it (label kubeadmiral.io/cluster-propagation-policy-name) are placed,
// cluster-scoped ones and those of any namespace.
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

	// Spec says where.
	Spec PropagationPolicySpec `json:"spec"`

	// Status is what Refract observed of the policy.
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

// SchedulingMode says whether every cluster gets the whole object or a share
// of its replicas.
//
// +kubebuilder:validation:Enum=Duplicate;Divide
type SchedulingMode string

// Scheduling modes.
const (
	SchedulingModeDuplicate SchedulingMode = "Duplicate"
	SchedulingModeDivide    SchedulingMode = "Divide"
)

// ReplicasStrategy says how replicas are divided.
//
// +kubebuilder:validation:Enum=Binpack;Spread
type ReplicasStrategy string

// Strategies of dividing replicas.
const (
	ReplicasStrategyBinpack ReplicasStrategy = "Binpack"
	ReplicasStrategySpread  ReplicasStrategy = "Spread"
)

// PropagationPolicySpec is the specification of a PropagationPolicy and of a
// ClusterPropagationPolicy. A cluster is chosen when it satisfies the
// selector, the affinity, the tolerations and the placement list together.
type PropagationPolicySpec struct {
	// SchedulingProfile names a SchedulingProfile.
	// +optional
	SchedulingProfile string `json:"schedulingProfile,omitempty"`

	// SchedulingMode: with Duplicate every chosen cluster gets the whole object,
	// with Divide its replicas are divided among them.
	SchedulingMode SchedulingMode `json:"schedulingMode"`

	// ReplicasStrategy says how Divide divides. Empty means Spread.
	// +optional
	ReplicasStrategy *ReplicasStrategy `json:"replicasStrategy,omitempty"`

	// ClusterSelector are labels that a cluster must carry, all of them. Empty
	// means every cluster.
	// +optional
	ClusterSelector map[string]string `json:"clusterSelector,omitempty"`

	// ClusterAffinity are terms of which a cluster must satisfy at least one.
	// Empty means every cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ClusterAffinity []ClusterSelectorTerm `json:"clusterAffinity,omitempty"`

	// Tolerations are of the taints of clusters.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",message="value must be empty with operator Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="effect must be NoSchedule, PreferNoSchedule or NoExecute"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// MaxClusters is the most clusters that are chosen. Absent means no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxClusters *int64 `json:"maxClusters,omitempty"`

	// Placements, when not empty, are the only clusters that can be chosen.
	// +optional
	// +kubebuilder:validation:MaxItems=10000
	Placements []DesiredPlacement `json:"placement,omitempty"`

	// DisableFollowerScheduling keeps the ConfigMaps, Secrets and so on that a
	// workload refers to from travelling with it.
	// +optional
	DisableFollowerScheduling bool `json:"disableFollowerScheduling,omitempty"`

	// AutoMigration moves replicas away from clusters that cannot run them.
	// Absent means off.
	// +optional
	AutoMigration *AutoMigration `json:"autoMigration,omitempty"`

	// ReschedulePolicy says what makes the placement be decided anew. Absent means
	// everything that concerns it: the policy, and clusters that come, go, or change
	// their labels or taints.
	// +optional
	ReschedulePolicy *ReschedulePolicy `json:"reschedulePolicy,omitempty"`
}

// DesiredPlacement is a cluster that can be chosen.
type DesiredPlacement struct {
	// Cluster is the name of a FederatedCluster.
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`

	// Preferences of dividing replicas. They have no meaning with Duplicate.
	// +optional
	Preferences Preferences `json:"preferences,omitempty"`
}

// Preferences of a cluster when replicas are divided.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
type Preferences struct {
	// MinReplicas is the least number of replicas. Absent means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReplicas int64 `json:"minReplicas,omitempty"`

	// MaxReplicas is the greatest number of replicas. Absent means no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxReplicas *int64 `json:"maxReplicas,omitempty"`

	// Weight is the cluster's share relative to the other weights (Spread).
	// +optional
	// +kubebuilder:validation:Minimum=0
	Weight *int64 `json:"weight,omitempty"`

	// Priority: clusters of greater priority are filled first (Binpack).
	// +optional
	// +kubebuilder:validation:Minimum=0
	Priority *int64 `json:"priority,omitempty"`
}

// AutoMigration moves replicas that cannot be scheduled.
type AutoMigration struct {
	// Trigger says when.
	// +kubebuilder:default={podUnschedulableFor: "1m"}
	Trigger AutoMigrationTrigger `json:"when"`

	// KeepUnschedulableReplicas keeps the replicas that are moved away also where
	// they could not be scheduled.
	// +optional
	// +kubebuilder:default=false
	KeepUnschedulableReplicas bool `json:"keepUnschedulableReplicas,omitempty"`
}

// AutoMigrationTrigger says when replicas are moved.
//
// +kubebuilder:validation:MinProperties=1
type AutoMigrationTrigger struct {
	// PodUnschedulableDuration is how long a pod must have been unschedulable.
	// +optional
	PodUnschedulableDuration *metav1.Duration `json:"podUnschedulableFor,omitempty"`
}

// ReschedulePolicy says what makes a placement be decided anew.
type ReschedulePolicy struct {
	// DisableRescheduling keeps a placement once decided.
	// +optional
	DisableRescheduling bool `json:"disableRescheduling,omitempty"`

	// Trigger says which changes count.
	// +optional
	Trigger *RescheduleTrigger `json:"rescheduleWhen,omitempty"`

	// ReplicaRescheduling says how replicas are divided anew.
	// +optional
	// +kubebuilder:default={avoidDisruption: true}
	ReplicaRescheduling *ReplicaRescheduling `json:"replicaRescheduling,omitempty"`
}

// RescheduleTrigger are the changes that make a placement be decided anew.
type RescheduleTrigger struct {
	// PolicyContentChanged: the policy was changed.
	// +optional
	// +kubebuilder:default=true
	PolicyContentChanged bool `json:"policyContentChanged,omitempty"`

	// ClusterJoined: a cluster joined.
	// +optional
	// +kubebuilder:default=false
	ClusterJoined bool `json:"clusterJoined,omitempty"`

	// ClusterLabelsChanged: labels of a cluster were changed.
	// +optional
	// +kubebuilder:default=false
	ClusterLabelsChanged bool `json:"clusterLabelsChanged,omitempty"`

	// ClusterAPIResourcesChanged: a cluster serves other types.
	// +optional
	// +kubebuilder:default=false
	ClusterAPIResourcesChanged bool `json:"clusterAPIResourcesChanged,omitempty"`
}

// ReplicaRescheduling says how replicas are divided anew.
type ReplicaRescheduling struct {
	// AvoidDisruption keeps replicas where they are as far as possible.
	// +optional
	// +kubebuilder:default=true
	AvoidDisruption bool `json:"avoidDisruption,omitempty"`
}
