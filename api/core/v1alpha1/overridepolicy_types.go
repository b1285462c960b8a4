package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OverridePolicy changes, for single clusters, the objects of its namespace that name it in the label
// kubeadmiral.io/override-policy-name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=op
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: objects name the policy in a label value"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.refCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec contains the rules.
	Spec OverridePolicySpec `json:"spec"`

	// Status is the observed state of the policy.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// OverridePolicyList is a list of OverridePolicy.
//
// +kubebuilder:object:root=true
type OverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []OverridePolicy `json:"items"`
}

// ClusterOverridePolicy changes, for single clusters, the objects that name it in the label
// kubeadmiral.io/cluster-override-policy-name: cluster-scoped objects and objects of any namespace. It takes effect
// before the OverridePolicy of the object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cop
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: objects name the policy in a label value"
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.refCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterOverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec contains the rules.
	Spec OverridePolicySpec `json:"spec"`

	// Status is the observed state of the policy.
	// +optional
	Status PolicyStatus `json:"status,omitempty"`
}

// ClusterOverridePolicyList is a list of ClusterOverridePolicy.
//
// +kubebuilder:object:root=true
type ClusterOverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []ClusterOverridePolicy `json:"items"`
}

// OverridePolicySpec is the specification of an OverridePolicy and of a
// ClusterOverridePolicy.
//
// +kubebuilder:validation:XValidation:rule="!has(self.overrideRules) || self.overrideRules.map(r, has(r.overriders) ? (has(r.overriders.image) ? size(r.overriders.image) : 0) + (has(r.overriders.command) ? size(r.overriders.command) : 0) + (has(r.overriders.args) ? size(r.overriders.args) : 0) + (has(r.overriders.envs) ? size(r.overriders.envs) : 0) + (has(r.overriders.annotations) ? size(r.overriders.annotations) : 0) + (has(r.overriders.labels) ? size(r.overriders.labels) : 0) + (has(r.overriders.jsonpatch) ? size(r.overriders.jsonpatch) : 0) : 0).sum() <= 5000",message="the rules may have 5000 items together: make several policies of it"
type OverridePolicySpec struct {
	// OverrideRules take effect in the given order. Each sees the results of the previous ones.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	OverrideRules []OverrideRule `json:"overrideRules,omitempty"`
}

// OverrideRule is a set of overriders for some clusters.
type OverrideRule struct {
	// TargetClusters selects the clusters of the rule. If it is absent or empty, the rule applies to every cluster.
	// +optional
	TargetClusters *TargetClusters `json:"targetClusters,omitempty"`

	// Overriders are the changes. If they are absent, the rule does nothing.
	// +optional
	Overriders *Overriders `json:"overriders,omitempty"`
}

// TargetClusters selects clusters. A cluster must satisfy all fields that are not empty.
type TargetClusters struct {
	// Clusters are names of clusters.
	// +optional
	Clusters []string `json:"clusters,omitempty"`

	// ClusterSelector is a set of labels. A cluster must have all of them.
	// +optional
	ClusterSelector map[string]string `json:"clusterSelector,omitempty"`

	// ClusterAffinity is a list of terms. A cluster must satisfy at least one.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ClusterAffinity []ClusterSelectorTerm `json:"clusterAffinity,omitempty"`
}

// Overriders are the changes of one rule. They take effect in the order of the fields: image, command, args, envs,
// annotations, labels, jsonpatch. Items of a field take effect in the given order.
//
// +kubebuilder:validation:XValidation:rule="(has(self.image) ? size(self.image) : 0) + (has(self.command) ? size(self.command) : 0) + (has(self.args) ? size(self.args) : 0) + (has(self.envs) ? size(self.envs) : 0) + (has(self.annotations) ? size(self.annotations) : 0) + (has(self.labels) ? size(self.labels) : 0) + (has(self.jsonpatch) ? size(self.jsonpatch) : 0) <= 1000",message="a rule may have 1000 items: make several rules of it, or several policies"
type Overriders struct {
	// Image changes components of container images.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Image []ImageOverrider `json:"image,omitempty"`

	// Command changes the command of a container.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Command []EntrypointOverrider `json:"command,omitempty"`

	// Args changes the arguments of a container.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Args []EntrypointOverrider `json:"args,omitempty"`

	// Envs changes the environment variables of a container.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Envs []EnvOverrider `json:"envs,omitempty"`

	// Annotations changes the annotations of the object (not those of its pod template).
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Annotations []StringMapOverrider `json:"annotations,omitempty"`

	// Labels changes the labels of the object (not those of its pod template).
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Labels []StringMapOverrider `json:"labels,omitempty"`

	// JSONPatch changes any field, like a JSON patch (RFC 6902).
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	JSONPatch []JSONPatchOverrider `json:"jsonpatch,omitempty"`
}

// ImageComponent is a component of an image reference: [Registry '/'] Repository [':' Tag] ['@' Digest].
//
// +kubebuilder:validation:Enum=Registry;Repository;Tag;Digest
type ImageComponent string

// Components of an image reference.
const (
	ImageRegistry   ImageComponent = "Registry"
	ImageRepository ImageComponent = "Repository"
	ImageTag        ImageComponent = "Tag"
	ImageDigest     ImageComponent = "Digest"
)

// Operator selects the operation of an overrider. Each field of this type lists the operators that it allows.
type Operator string

// Operators of overriders.
const (
	OpAddIfAbsent Operator = "addIfAbsent"
	OpOverwrite   Operator = "overwrite"
	OpDelete      Operator = "delete"
	OpAppend      Operator = "append"
	OpAdd         Operator = "add"
	OpRemove      Operator = "remove"
	OpReplace     Operator = "replace"
)

// ImageOverrider changes components of the images of containers.
type ImageOverrider struct {
	// ContainerNames are the containers and init containers whose image is changed. Empty selects all. Ignored if
	// imagePath is set.
	// +optional
	ContainerNames []string `json:"containerNames,omitempty"`

	// ImagePath is the JSON pointer (RFC 6901) of the string that contains the image. Empty selects the containers of
	// the pod template; the object must then be a Pod, CronJob, Deployment, StatefulSet, DaemonSet or Job.
	// +optional
	ImagePath string `json:"imagePath,omitempty"`

	// Operations take effect in the given order.
	// +kubebuilder:validation:MaxItems=16
	Operations []ImageOperation `json:"operations"`
}

// ImageOperation changes one component of an image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.operator) && self.operator == 'delete') || (has(self.value) && size(self.value) > 0)",message="value must not be empty; to take the component away use operator delete"
type ImageOperation struct {
	// ImageComponent is the component to change.
	ImageComponent ImageComponent `json:"imageComponent"`

	// Operator: addIfAbsent sets the component and fails if it exists; overwrite sets it; delete removes it. Empty
	// means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=addIfAbsent;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value is the new value of the component. Required except for delete.
	// +optional
	Value string `json:"value,omitempty"`
}

// EntrypointOverrider changes the command or the arguments of one container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'append' || size(self.value) > 0",message="value must not be empty with operator append"
type EntrypointOverrider struct {
	// ContainerName is the name of the container or init container.
	ContainerName string `json:"containerName"`

	// Operator: append adds the items at the end; overwrite replaces the list; delete removes all items equal to one of
	// the given ones. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=append;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value is the list of items.
	Value []string `json:"value"`
}

// EnvOverrider changes the environment variables of one container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'addIfAbsent' || size(self.value) > 0",message="value must not be empty with operator addIfAbsent"
type EnvOverrider struct {
	// ContainerName is the name of the container or init container.
	ContainerName string `json:"containerName"`

	// Operator: addIfAbsent adds the variables and fails if one of the names exists; overwrite replaces existing
	// variables of these names; delete removes the variables of these names. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=addIfAbsent;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value is the list of variables. Only their names matter for delete.
	Value []corev1.EnvVar `json:"value"`
}

// StringMapOverrider changes labels or annotations.
//
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'addIfAbsent' || size(self.value) > 0",message="value must not be empty with operator addIfAbsent"
type StringMapOverrider struct {
	// Operator: addIfAbsent adds the keys and fails if one exists; overwrite changes only existing keys; delete removes
	// the keys. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=addIfAbsent;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value is the map of keys to values. Only the keys matter for delete.
	Value map[string]string `json:"value"`
}

// JSONPatchOverrider is one operation of RFC 6902.
type JSONPatchOverrider struct {
	// Operator is add, remove or replace. Empty means replace. Unlike in RFC 6902, replace adds a missing member to an
	// existing object.
	// +optional
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator Operator `json:"operator,omitempty"`

	// Path is a JSON pointer (RFC 6901): each segment follows a slash; ~0 stands for ~ and ~1 for /. As the last
	// segment, - is the end of an array (for add), and -1 is the last element (for replace and remove).
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`

	// Value is the new value, of any type except null. Required for add and replace.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// PolicyStatus is the observed state of a policy.
type PolicyStatus struct {
	// RefCount is the number of objects that name the policy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RefCount int64 `json:"refCount"`

	// TypedRefCount is the number of these objects for each type.
	// +optional
	TypedRefCount []TypedRefCount `json:"typedRefCount,omitempty"`

	// ClusterCount is the number of clusters that the policy selects or changes objects for.
	// +optional
	ClusterCount int64 `json:"clusterCount,omitempty"`

	// UnmatchedRules are the indices, from 0, of the rules of an override policy that apply to no cluster of any object
	// that names the policy.
	// +optional
	// +listType=atomic
	UnmatchedRules []int64 `json:"unmatchedRules,omitempty"`

	// References are the references that an override policy may add to objects. Objects do not get other references
	// that the policy adds: Refract does not send these Secrets and ConfigMaps to clusters. Only Refract may write this
	// field.
	// +optional
	References *CheckedReferences `json:"references,omitempty"`

	// PlacementHeld is a change of the placement of the policy's objects that waits for an approval. Only Refract may
	// write this field.
	// +optional
	PlacementHeld *PlacementHeld `json:"placementHeld,omitempty"`

	// Conditions: Accepted is True if every rule of the policy is valid; InEffect is True if every object that names
	// the policy has the content or placement of this generation on all of its clusters.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlacementHeld describes a change of the placement of a policy's objects that waits for an approval.
type PlacementHeld struct {
	// Token approves the change, as the value of the annotation refract.dev/approve-placement of the policy. It is
	// random and works once, for the objects whose Propagations have it as status.held.policyToken. Objects that begin
	// to wait later have another token, which appears here when this change is done.
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token"`

	// Objects is the number of objects that wait.
	Objects int64 `json:"objects"`
}

// CheckedReferences lists the references that the author or approver of a policy was allowed to read on the hub.
type CheckedReferences struct {
	// ObservedGeneration is the generation of the policy at the time of the check. The items are valid only for this
	// generation.
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration"`

	// Approval is the value of the annotation refract.dev/approve-references at the time of the check, or the SHA-256
	// of a long value; empty if the annotation was absent. For the same generation and approval, a later check never
	// permits more references.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Approval string `json:"approval,omitempty"`

	// Items are the permitted references.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Items []CheckedReference `json:"items,omitempty"`

	// Claimed are references that become items after a moment, unless another replica of Refract has permitted fewer
	// for the same write.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Claimed []CheckedReference `json:"claimed,omitempty"`
}

// CheckedReference names an object that an override policy may refer to.
type CheckedReference struct {
	// Kind is Secret or ConfigMap; or Service, for all objects that the annotations of the Service name.
	// +kubebuilder:validation:Enum=ConfigMap;Secret;Service
	Kind string `json:"kind"`

	// Namespace of the referenced object. Empty for an OverridePolicy, which refers to objects of its own namespace,
	// and for a ClusterOverridePolicy that may refer to the name in every namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the referenced object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// TypedRefCount counts the objects of one type that name a policy.
type TypedRefCount struct {
	// Group of the type; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`

	// Resource is the plural name of the type.
	Resource string `json:"resource"`

	// Count is the number of objects.
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count"`
}
