package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConversionPolicy says how the objects of a CustomResourceDefinition are converted
// between its versions, without code. It becomes effective when it has compiled against
// the schemas of all versions, has been verified to lose nothing, and a probe was
// answered: then, and not before, the definition's spec.conversion points to Refract.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=convpol
// +kubebuilder:printcolumn:name="CRD",type=string,JSONPath=`.spec.crd`
// +kubebuilder:printcolumn:name="Hub",type=string,JSONPath=`.spec.hub`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ConversionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how objects are converted. It may have 2000 expressions.
	// +kubebuilder:validation:XValidation:rule="self.spokes.map(s, has(s.fields) ? s.fields.map(f, (has(f.toHub) ? 1 : 0) + (has(f.toSpoke) ? 1 : 0) + (has(f.equivalence) ? (has(f.equivalence.hub) ? 1 : 0) + (has(f.equivalence.spoke) ? 1 : 0) : 0)).sum() : 0).sum() <= 2000",message="the spokes may have 2000 expressions together: convert what contains several of the fields in one, or use the other ways, such as map and scale"
	Spec ConversionPolicySpec `json:"spec"`

	// Status says whether they are.
	// +optional
	Status ConversionPolicyStatus `json:"status,omitempty"`
}

// ConversionPolicyList is a list of ConversionPolicy.
//
// +kubebuilder:object:root=true
type ConversionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []ConversionPolicy `json:"items"`
}

// ConversionPolicySpec says how objects are converted between a version that all
// conversions go through, the hub, and each of the others, the spokes.
type ConversionPolicySpec struct {
	// CRD is the name of the CustomResourceDefinition: PLURAL.GROUP.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: delete the policy and create another one"
	CRD string `json:"crd"`

	// Hub is the version that all conversions go through. It need not be the one that
	// is stored.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Hub string `json:"hub"`

	// Spokes are the other versions, all of those that are served or stored.
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Spokes []ConversionSpoke `json:"spokes"`

	// Mode is Serve, or Shadow for a policy that is only compared with the one that
	// serves: every object that is converted is converted by it too, and differences are
	// counted in its status.
	// +optional
	// +kubebuilder:default=Serve
	Mode ConversionMode `json:"mode,omitempty"`

	// OnError is Fail, or Keep for objects of which something cannot be converted to be given
	// without that, instead of failing whole lists. What is missing is kept in the object's
	// annotation and comes back; the annotation refract.dev/unconverted says what it is and why,
	// and until it is mended the object cannot be changed in the version that lacks something.
	// +optional
	// +kubebuilder:default=Fail
	OnError ConversionOnError `json:"onError,omitempty"`
}

// ConversionOnError says what becomes of an object that cannot be converted.
//
// +kubebuilder:validation:Enum=Fail;Keep
type ConversionOnError string

// What becomes of an object that cannot be converted.
const (
	ConversionFail ConversionOnError = "Fail" // The request fails, and so does a list that the object is in.
	ConversionKeep ConversionOnError = "Keep" // What cannot be converted is kept.
)

// ConversionMode says what becomes of what a policy converts.
//
// +kubebuilder:validation:Enum=Serve;Shadow
type ConversionMode string

// Modes of a ConversionPolicy.
const (
	ConversionServe  ConversionMode = "Serve"  // It is given to the API server.
	ConversionShadow ConversionMode = "Shadow" // It is compared with what is given to the API server.
)

// ConversionSpoke is a version that is not the hub, and how it differs from the hub.
type ConversionSpoke struct {
	// Version is its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`

	// Fields are the differences. What both versions have at the same place, with the same
	// type, passes without being named.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Fields []FieldConversion `json:"fields,omitempty"`

	// Lists say what tells the elements of a list from each other where the schema of the
	// hub does not (x-kubernetes-list-map-keys). Lists without keys have their elements
	// told from each other by position.
	// +optional
	// +listType=map
	// +listMapKey=hub
	// +kubebuilder:validation:MaxItems=64
	Lists []ListKeys `json:"lists,omitempty"`
}

// ListKeys are the keys of a list.
type ListKeys struct {
	// Hub is the place of the list in the hub, such as spec.containers or
	// spec.containers[*].ports.
	// +kubebuilder:validation:MaxLength=1024
	Hub string `json:"hub"`

	// Keys are the fields of an element, in the hub, that name it.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Keys []string `json:"keys"`
}

// FieldConversion is one difference. It says where the value is in both versions, and at
// most one way in which the value differs: map, scale, cast, keyed, wrap, or the pair toHub
// and toSpoke. With none of them the value moves. A value that only one version has is
// named with one place, and added or removed.
//
// A place is the keys from the root on with dots between them, such as spec.size; [*]
// behind a list or a table stands for each of its elements, as in
// spec.containers[*].image, and both places have as many of them. spec.{host,port} are
// several fields of one object, which are converted together as an object of their own.
// A key with other characters than letters, digits, - and _ is quoted: spec["a.b"].
//
// +kubebuilder:validation:XValidation:rule="(has(self.map)?1:0)+(has(self.scale)?1:0)+(has(self.cast)?1:0)+(has(self.keyed)?1:0)+(has(self.wrap)?1:0)+(has(self.added)?1:0)+(has(self.removed)?1:0)+(has(self.toHub)||has(self.toSpoke)?1:0) <= 1",message="takes one of map, scale, cast, keyed, wrap, added, removed, and the pair toHub and toSpoke"
// +kubebuilder:validation:XValidation:rule="has(self.toHub) == has(self.toSpoke)",message="toHub and toSpoke go together"
// +kubebuilder:validation:XValidation:rule="has(self.added) ? has(self.hub) && !has(self.spoke) : has(self.removed) ? has(self.spoke) && !has(self.hub) : has(self.hub) && has(self.spoke)",message="needs both places, hub and spoke; added needs hub alone, and removed spoke alone"
type FieldConversion struct {
	// Hub is the place in the hub.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Hub string `json:"hub,omitempty"`

	// Spoke is the place in the spoke.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Spoke string `json:"spoke,omitempty"`

	// Map says which value of one version is which of the other. The first pair with a
	// value is taken; a value that is in none passes as it is, if both versions have the
	// same type there, and is an error otherwise.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Map []ValuePair `json:"map,omitempty"`

	// Scale says that the versions count in different units.
	// +optional
	Scale *ScaleConversion `json:"scale,omitempty"`

	// Cast says that the value is a text in one version, and a number or a boolean in the
	// other; or an integer in one and a number in the other. The schemas say which.
	// +optional
	Cast *CastConversion `json:"cast,omitempty"`

	// Keyed says that one version has a list of objects, and the other a table of them by
	// one of their fields. The schemas say which.
	// +optional
	Keyed *KeyedConversion `json:"keyed,omitempty"`

	// Wrap says that one version has a value, and the other a list of one or more of them.
	// The schemas say which.
	// +optional
	Wrap *WrapConversion `json:"wrap,omitempty"`

	// Added says that only the hub has the value: the spoke's objects keep it in an
	// annotation.
	// +optional
	Added *OneSided `json:"added,omitempty"`

	// Removed says that only the spoke has the value: the hub's objects keep it in an
	// annotation.
	// +optional
	Removed *OneSided `json:"removed,omitempty"`

	// ToHub is a CEL expression of what the hub has there; value is what the spoke has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ToHub string `json:"toHub,omitempty"`

	// ToSpoke is a CEL expression of what the spoke has there; value is what the hub has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ToSpoke string `json:"toSpoke,omitempty"`

	// Lossy says that ToHub and ToSpoke are no inverses of each other: what one does not
	// bring back is kept in the annotation. Without it, verification refuses such a pair.
	// +optional
	Lossy bool `json:"lossy,omitempty"`

	// Limits are those of ToHub and ToSpoke.
	// +optional
	Limits *ExpressionLimits `json:"limits,omitempty"`

	// Equivalence says which values mean the same.
	// +optional
	Equivalence *Equivalence `json:"equivalence,omitempty"`
}

// ValuePair is a value of both versions.
type ValuePair struct {
	// Hub is the hub's value: a text, a number or a boolean.
	Hub apiextensionsv1.JSON `json:"hub"`
	// Spoke is the spoke's value.
	Spoke apiextensionsv1.JSON `json:"spoke"`
}

// ScaleConversion says how many units of the hub are how many of the spoke: with spoke 1
// and hub 1024 the hub's number is 1024 times the spoke's. An integer that is none
// afterwards is cut off toward zero, and the whole one kept in the annotation.
type ScaleConversion struct {
	// Hub is how many units of the hub Spoke units of the spoke are.
	// +kubebuilder:validation:Minimum=1
	Hub int64 `json:"hub"`
	// Spoke is how many units of the spoke Hub units of the hub are.
	// +kubebuilder:validation:Minimum=1
	Spoke int64 `json:"spoke"`
}

// CastConversion says how a text becomes a number or a boolean.
type CastConversion struct {
	// Otherwise is what a value becomes that is no such text, or no such number: it is
	// itself kept in the annotation. Without it, an object with such a value is not
	// converted.
	// +optional
	Otherwise *apiextensionsv1.JSON `json:"otherwise,omitempty"`
}

// KeyedConversion says what the keys of a table are in a list.
type KeyedConversion struct {
	// Key is the field of the list's elements that has the table's key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Value is the field of the list's elements that has the table's value. Without it, the
	// value is an object with all fields but Key.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Value string `json:"value,omitempty"`
}

// WrapConversion says how a value stands in a list.
type WrapConversion struct {
	// Key is the field of the list's elements that has the value. Without it the elements
	// are the values.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// OneSided is about a value that only one version has.
type OneSided struct {
	// Default is what the version that has the value gets when it is converted to, and
	// nothing is kept. It must be the schema's own default, unless the schema requires
	// the field. A value equal to it is not kept.
	// +optional
	Default *apiextensionsv1.JSON `json:"default,omitempty"`
}

// ExpressionLimits are what one evaluation may take. An object that takes more is not
// converted.
type ExpressionLimits struct {
	// MaxOutputItems is how many elements and members the result may have, with all
	// that is inside: by default 100,000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxOutputItems int32 `json:"maxOutputItems,omitempty"`

	// MaxCost is how many units of cost it may take, as CEL counts them: by default
	// 1,000,000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxCost int64 `json:"maxCost,omitempty"`
}

// Equivalence has a CEL expression per version of what the value comes down to: two values
// with equal results mean the same, and one may take the other's place without being kept.
type Equivalence struct {
	// Hub is about the hub's value.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Hub string `json:"hub,omitempty"`
	// Spoke is about the spoke's value.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Spoke string `json:"spoke,omitempty"`
}

// Types of the conditions of a ConversionPolicy.
const (
	// ConversionCompiled says whether the policy fits the schemas.
	ConversionCompiled = "Compiled"
	// ConversionVerified says whether no law was seen broken.
	ConversionVerified = "Verified"
	// ConversionReady says whether the API server converts by the policy or, for a shadow,
	// whether it is being compared.
	ConversionReady = "Ready"
)

// ConversionPolicyStatus says whether objects are converted by the policy.
type ConversionPolicyStatus struct {
	// ObservedGeneration is the generation of the policy that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Compiled, Verified and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Served is what objects are converted by: the last spec that compiled and was
	// verified, which stays when a later one does not.
	// +optional
	Served *ServedConversion `json:"served,omitempty"`

	// Verification is what was done to verify the policy.
	// +optional
	Verification *ConversionVerification `json:"verification,omitempty"`

	// Shadow is what came of comparing.
	// +optional
	Shadow *ConversionShadowing `json:"shadow,omitempty"`

	// Unconverted are objects of which something was kept since it cannot be converted, the first 20
	// that were read. One goes when it was read and was converted, or was not read for a day.
	// +optional
	// +listType=atomic
	Unconverted []UnconvertedObject `json:"unconverted,omitempty"`
}

// UnconvertedObject is an object of which something cannot be converted.
type UnconvertedObject struct {
	// Namespace is the object's; empty if it has none.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name is the object's.
	Name string `json:"name"`
	// From is the version that it is in.
	From string `json:"from"`
	// To is the version that lacks something.
	To string `json:"to"`
	// Message says what that is, and why.
	Message string `json:"message"`
	// Read is when that was last found.
	Read metav1.Time `json:"read"`
}

// ServedConversion is a spec that is in use.
type ServedConversion struct {
	// Generation is the one that the spec is of.
	Generation int64 `json:"generation"`
	// Spec is the policy's spec at that time, with the entries for Kept at the end of its
	// spokes.
	Spec ConversionPolicySpec `json:"spec"`
	// Kept are places that one version got alone since then, and that the policy says
	// nothing of yet: what is there is kept in the annotation refract.dev/complement where a
	// version does not have it, until the policy says more.
	// +optional
	// +listType=atomic
	Kept []KeptField `json:"kept,omitempty"`
	// Definition is what the spec was compiled against and verified with: the names and
	// the schemas of the CustomResourceDefinition at that time, as JSON in gzip. So what is
	// converted stays the same when the schemas change and the spec no longer fits.
	Definition []byte `json:"definition"`
}

// KeptField is a place that the hub or one of the spokes has alone: Hub or Spoke.
type KeptField struct {
	// Version is that of the spoke whose entry it is.
	Version string `json:"version"`
	// Hub is the place, if the spoke does not have it.
	// +optional
	Hub string `json:"hub,omitempty"`
	// Spoke is the place, if the hub does not have it.
	// +optional
	Spoke string `json:"spoke,omitempty"`
}

// ConversionVerification is what was done to verify a policy.
type ConversionVerification struct {
	// Seed is what the objects were generated from.
	Seed int64 `json:"seed"`
	// Objects is how many objects were generated or read.
	Objects int64 `json:"objects"`
	// Checks is how many times a law was held against them.
	Checks int64 `json:"checks"`
}

// ConversionShadowing is what came of comparing a shadow with the policy that serves, since
// the shadow's generation was first seen.
type ConversionShadowing struct {
	// Generation is the one that was compared.
	Generation int64 `json:"generation"`
	// Compared is how many conversions were.
	Compared int64 `json:"compared"`
	// Different is how many of them came out differently.
	Different int64 `json:"different"`
	// LastDifference says what was different last.
	// +optional
	LastDifference string `json:"lastDifference,omitempty"`
}

// ConversionFinalizer keeps a ConversionPolicy for as long as versions that are stored
// or served need it.
const ConversionFinalizer = Prefix + "conversion"

// TakeOverAnnotation on a ConversionPolicy has the value "true" if its definition is to
// be converted by it although another webhook converts it now.
const TakeOverAnnotation = Prefix + "take-over"
