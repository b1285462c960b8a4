package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OverridePolicy says how the objects of its namespace that name it (label
// kubeadmiral.io/override-policy-name) differ from cluster to cluster.
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

	// Spec holds the rules.
	Spec OverridePolicySpec `json:"spec"`

	// Status is what Refract observed of the policy.
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

// ClusterOverridePolicy says how the objects that name it (label
// kubeadmiral.io/cluster-override-policy-name), cluster-scoped or in any
// namespace, differ from cluster to cluster. It takes effect before the
// object's OverridePolicy.
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

	// Spec holds the rules.
	Spec OverridePolicySpec `json:"spec"`

	// Status is what Refract observed of the policy.
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
	// OverrideRules take effect in the order given; each sees the result of the
	// ones before it.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	OverrideRules []OverrideRule `json:"overrideRules,omitempty"`
}

// OverrideRule is a set of overriders for some clusters.
type OverrideRule struct {
	// TargetClusters says for which clusters the rule holds. Absent or empty, it
	// holds for every cluster.
	// +optional
	TargetClusters *TargetClusters `json:"targetClusters,omitempty"`

	// Overriders are the changes. Absent, the rule does nothing.
	// +optional
	Overriders *Overriders `json:"overriders,omitempty"`
}

// TargetClusters selects clusters. A cluster must satisfy each of the three
// that is not empty.
type TargetClusters struct {
	// Clusters are names of clusters.
	// +optional
	Clusters []string `json:"clusters,omitempty"`

	// ClusterSelector are labels that a cluster must carry, all of them.
	// +optional
	ClusterSelector map[string]string `json:"clusterSelector,omitempty"`

	// ClusterAffinity are terms of which a cluster must satisfy at least one.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	ClusterAffinity []ClusterSelectorTerm `json:"clusterAffinity,omitempty"`
}

// Overriders are the changes of one rule. They take effect in the order of the
// fields: image, command, args, envs, annotations, labels, jsonpatch; and
// within a field in the order given.
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

	// Annotations changes the object's own annotations (not its pod template's).
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Annotations []StringMapOverrider `json:"annotations,omitempty"`

	// Labels changes the object's own labels (not its pod template's).
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Labels []StringMapOverrider `json:"labels,omitempty"`

	// JSONPatch changes any field, in the manner of RFC 6902.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	JSONPatch []JSONPatchOverrider `json:"jsonpatch,omitempty"`
}

// Items returns how many items all overriders have together; none if there are none.
func (o *Overriders) Items() int {
	if o == nil {
		return 0
	}
	return len(o.Image) + len(o.Command) + len(o.Args) + len(o.Envs) + len(o.Annotations) + len(o.Labels) + len(o.JSONPatch)
}

// ImageComponent is a part of an image reference
// [Registry '/'] Repository [':' Tag] ['@' Digest].
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

// Operator says what an overrider does with its value. Which operators an
// overrider knows stands at its field.
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
	// ContainerNames are the containers and init containers whose image is
	// changed. Empty means all of them. Ignored when imagePath is set.
	// +optional
	ContainerNames []string `json:"containerNames,omitempty"`

	// ImagePath is the JSON pointer (RFC 6901) of the string that holds the
	// image. Empty means the containers of the pod template; then the object must
	// be a Pod, CronJob, Deployment, StatefulSet, DaemonSet or Job.
	// +optional
	ImagePath string `json:"imagePath,omitempty"`

	// Operations take effect in the order given.
	// +kubebuilder:validation:MaxItems=16
	Operations []ImageOperation `json:"operations"`
}

// ImageOperation changes one component of an image.
//
// +kubebuilder:validation:XValidation:rule="(has(self.operator) && self.operator == 'delete') || (has(self.value) && size(self.value) > 0)",message="value must not be empty; to take the component away use operator delete"
type ImageOperation struct {
	// ImageComponent is the component to change.
	ImageComponent ImageComponent `json:"imageComponent"`

	// Operator: addIfAbsent fails when the component is there already, overwrite
	// sets it, delete takes it away. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=addIfAbsent;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value is the component's new value. Required but for delete.
	// +optional
	Value string `json:"value,omitempty"`
}

// EntrypointOverrider changes the command or the arguments of one container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'append' || size(self.value) > 0",message="value must not be empty with operator append"
type EntrypointOverrider struct {
	// ContainerName is the init container or container to change.
	ContainerName string `json:"containerName"`

	// Operator: append adds the items at the end, overwrite replaces the list,
	// delete takes every equal item away. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=append;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value are the items.
	Value []string `json:"value"`
}

// EnvOverrider changes the environment variables of one container.
//
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'addIfAbsent' || size(self.value) > 0",message="value must not be empty with operator addIfAbsent"
type EnvOverrider struct {
	// ContainerName is the init container or container to change.
	ContainerName string `json:"containerName"`

	// Operator: addIfAbsent fails when a name is there already, overwrite
	// replaces the variables of the same name that are there, delete takes the
	// variables of the same name away. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=addIfAbsent;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value are the variables. For delete only their names matter.
	Value []corev1.EnvVar `json:"value"`
}

// StringMapOverrider changes labels or annotations.
//
// +kubebuilder:validation:XValidation:rule="!has(self.operator) || self.operator != 'addIfAbsent' || size(self.value) > 0",message="value must not be empty with operator addIfAbsent"
type StringMapOverrider struct {
	// Operator: addIfAbsent fails when a key is there already, overwrite changes
	// only keys that are there, delete takes keys away. Empty means overwrite.
	// +optional
	// +kubebuilder:validation:Enum=addIfAbsent;overwrite;delete
	Operator Operator `json:"operator,omitempty"`

	// Value are the keys and their values. For delete only the keys matter.
	Value map[string]string `json:"value"`
}

// JSONPatchOverrider is one operation of RFC 6902.
type JSONPatchOverrider struct {
	// Operator is add, remove or replace. Empty means replace. Unlike RFC 6902,
	// replace sets a member that is missing of an object that is there.
	// +optional
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator Operator `json:"operator,omitempty"`

	// Path is a JSON pointer (RFC 6901): every segment follows a slash, with ~0
	// for ~ and ~1 for /. As the last segment, - is the end of an array for add,
	// and -1 the last element for replace and remove.
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`

	// Value is the new value, of any type but null. Required for add and replace.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// PolicyStatus is what was observed of a policy.
type PolicyStatus struct {
	// RefCount is the number of objects that name the policy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RefCount int64 `json:"refCount"`

	// TypedRefCount is the same number for each type of object.
	// +optional
	TypedRefCount []TypedRefCount `json:"typedRefCount,omitempty"`

	// ClusterCount is the number of clusters for which the policy chooses or changes
	// something.
	// +optional
	ClusterCount int64 `json:"clusterCount,omitempty"`

	// UnmatchedRules are the rules of an override policy, counted from 0, that hold
	// for no cluster of any object that names the policy.
	// +optional
	// +listType=atomic
	UnmatchedRules []int64 `json:"unmatchedRules,omitempty"`

	// References are what an override policy may have objects refer to. What it has
	// them refer to besides stays on the hub. Nobody but Refract may write this.
	// +optional
	References *CheckedReferences `json:"references,omitempty"`

	// PlacementHeld is a change of the placement of the policy's objects that waits for approval. Nobody
	// but Refract may write this.
	// +optional
	PlacementHeld *PlacementHeld `json:"placementHeld,omitempty"`

	// Conditions: Accepted says whether every rule of the policy is valid; InEffect
	// whether every object that names it is, on all its clusters, as this generation
	// of the policy says.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlacementHeld is a change of the placement of a policy's objects that waits for approval.
type PlacementHeld struct {
	// Token approves the change, as the value of the annotation refract.dev/approve-placement of the policy. It is
	// random, and approves once: for the objects whose Propagations have it as status.held.policyToken. Objects that
	// begin to wait later have another one, which is here when this change is done.
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token"`

	// Objects is how many objects wait.
	Objects int64 `json:"objects"`
}

// CheckedReferences are what the user who wrote or approved a policy was found to be
// allowed to read.
type CheckedReferences struct {
	// ObservedGeneration is that of the policy as it was then. Of another generation
	// nobody was asked about anything.
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration"`

	// Approval is the value that annotation refract.dev/approve-references had then, or the
	// SHA-256 of a longer one; empty for none. Of one generation and approval no more is
	// allowed later than was at first.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Approval string `json:"approval,omitempty"`

	// Items are the references.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Items []CheckedReference `json:"items,omitempty"`

	// Claimed are references that become items in a moment, unless another replica of
	// Refract was asked about less.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Claimed []CheckedReference `json:"claimed,omitempty"`
}

// CheckedReference names what an override policy may have objects refer to.
type CheckedReference struct {
	// Kind is Secret or ConfigMap; or Service, for all that the annotations of the
	// Service name.
	// +kubebuilder:validation:Enum=ConfigMap;Secret;Service
	Kind string `json:"kind"`

	// Namespace of the object; empty for a ClusterOverridePolicy that may have objects
	// of every namespace refer to one of the name there, and for an OverridePolicy, which is
	// about its own namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
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

	// Count of objects.
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count"`
}
