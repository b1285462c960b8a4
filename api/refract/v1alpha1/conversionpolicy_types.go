package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConversionPolicy converts the objects of a CustomResourceDefinition between its versions, without code. It becomes
// effective when it has compiled against the schemas of all versions, verification has found no loss of data, and a
// probe has been answered. Only then does the definition's spec.conversion point to Refract.
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

	// Spec describes the conversion. It may have 2000 expressions.
	// +kubebuilder:validation:XValidation:rule="self.spokes.map(s, has(s.fields) ? s.fields.map(f, (has(f.toHub) ? 1 : 0) + (has(f.toSpoke) ? 1 : 0) + (has(f.equivalence) ? (has(f.equivalence.hub) ? 1 : 0) + (has(f.equivalence.spoke) ? 1 : 0) : 0)).sum() : 0).sum() <= 2000",message="the spokes may have 2000 expressions together: convert what contains several of the fields in one, or use the other ways, such as map and scale"
	Spec ConversionPolicySpec `json:"spec"`

	// Status reports whether objects are converted by the policy.
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

// ConversionPolicySpec describes how objects are converted between the hub, a version that all conversions go through,
// and each of the other versions, the spokes.
type ConversionPolicySpec struct {
	// CRD is the name of the CustomResourceDefinition: PLURAL.GROUP.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: delete the policy and create another one"
	CRD string `json:"crd"`

	// Hub is the version that all conversions go through. It need not be the stored version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Hub string `json:"hub"`

	// Spokes are all other versions that are served or stored.
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Spokes []ConversionSpoke `json:"spokes"`

	// Mode is Serve, or Shadow for a policy that is only compared with the serving policy: every converted object is
	// also converted by this policy, and its status counts the differences.
	// +optional
	// +kubebuilder:default=Serve
	Mode ConversionMode `json:"mode,omitempty"`

	// OnError is Fail, or Keep. With Keep, an object with a part that cannot be converted is returned without this
	// part, so that lists that contain the object do not fail. The omitted part is kept in an annotation of the object
	// and is restored later. The annotation refract.dev/unconverted names the part and the reason. Until the problem is
	// fixed, the object cannot be changed in the version that lacks the part.
	// +optional
	// +kubebuilder:default=Fail
	OnError ConversionOnError `json:"onError,omitempty"`
}

// ConversionOnError is the treatment of objects that cannot be converted.
//
// +kubebuilder:validation:Enum=Fail;Keep
type ConversionOnError string

// Treatments of objects that cannot be converted.
const (
	ConversionFail ConversionOnError = "Fail" // The request fails, and so does each list that contains the object.
	ConversionKeep ConversionOnError = "Keep" // The part that cannot be converted is kept in an annotation.
)

// ConversionMode is the use of the objects that a policy converts.
//
// +kubebuilder:validation:Enum=Serve;Shadow
type ConversionMode string

// Modes of a ConversionPolicy.
const (
	ConversionServe  ConversionMode = "Serve"  // Converted objects are returned to the API server.
	ConversionShadow ConversionMode = "Shadow" // Converted objects are compared with those that are returned to the API server.
)

// ConversionSpoke describes a version other than the hub, by its differences from the hub.
type ConversionSpoke struct {
	// Version is the name of the version.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`

	// Fields are the differences. A value with the same place and type in both versions needs no entry and is passed unchanged.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Fields []FieldConversion `json:"fields,omitempty"`

	// Lists gives the keys that identify the elements of a list, for lists without keys in the schema of the hub
	// (x-kubernetes-list-map-keys). Elements of other lists without keys are identified by position.
	// +optional
	// +listType=map
	// +listMapKey=hub
	// +kubebuilder:validation:MaxItems=64
	Lists []ListKeys `json:"lists,omitempty"`
}

// ListKeys are the keys of a list.
type ListKeys struct {
	// Hub is the place of the list in the hub, such as spec.containers or spec.containers[*].ports.
	// +kubebuilder:validation:MaxLength=1024
	Hub string `json:"hub"`

	// Keys are the fields of an element, in the hub, that identify it.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Keys []string `json:"keys"`
}

// FieldConversion is one difference between two versions. It has the place of the value in both versions, and at most
// one operation for values that differ: map, scale, cast, keyed, wrap, or the pair toHub and toSpoke. Without an
// operation the value is moved. A value of one version only has one place, and is added or removed.
//
// A place consists of the keys from the root, separated by dots, such as spec.size. [*] after a list or a map stands
// for each element, as in spec.containers[*].image; both places have the same number of them. spec.{host,port} stands
// for several fields of one object, which are converted together as one object. A key with characters other than
// letters, digits, - and _ is quoted: spec["a.b"].
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

	// Map lists pairs of corresponding values. The first pair with the value is used. A value without a pair is passed
	// unchanged if both versions have the same type at this place, and is an error otherwise.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Map []ValuePair `json:"map,omitempty"`

	// Scale converts between different units of the two versions.
	// +optional
	Scale *ScaleConversion `json:"scale,omitempty"`

	// Cast converts between a string in one version and a number or a boolean in the other, or between an integer and a
	// number. The schemas show the direction.
	// +optional
	Cast *CastConversion `json:"cast,omitempty"`

	// Keyed converts between a list of objects in one version and a map in the other, whose keys are values of one of
	// their fields. The schemas show the direction.
	// +optional
	Keyed *KeyedConversion `json:"keyed,omitempty"`

	// Wrap converts between a value in one version and a list of such values in the other. The schemas show the direction.
	// +optional
	Wrap *WrapConversion `json:"wrap,omitempty"`

	// Added is for a value that only the hub has. Objects of the spoke keep it in an annotation.
	// +optional
	Added *OneSided `json:"added,omitempty"`

	// Removed is for a value that only the spoke has. Objects of the hub keep it in an annotation.
	// +optional
	Removed *OneSided `json:"removed,omitempty"`

	// ToHub is a CEL expression for the value of the hub. The variable value is the value of the spoke.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ToHub string `json:"toHub,omitempty"`

	// ToSpoke is a CEL expression for the value of the spoke. The variable value is the value of the hub.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ToSpoke string `json:"toSpoke,omitempty"`

	// Lossy allows that ToHub and ToSpoke are not inverses. A value that does not come back is kept in the annotation.
	// Without Lossy, verification rejects such a pair.
	// +optional
	Lossy bool `json:"lossy,omitempty"`

	// Limits bound the evaluation of ToHub and ToSpoke.
	// +optional
	Limits *ExpressionLimits `json:"limits,omitempty"`

	// Equivalence defines which values have the same meaning.
	// +optional
	Equivalence *Equivalence `json:"equivalence,omitempty"`
}

// ValuePair is a pair of corresponding values of the two versions.
type ValuePair struct {
	// Hub is the value of the hub: a string, a number or a boolean.
	Hub apiextensionsv1.JSON `json:"hub"`
	// Spoke is the value of the spoke.
	Spoke apiextensionsv1.JSON `json:"spoke"`
}

// ScaleConversion converts between units: hub value = spoke value × hub / spoke. For example, with hub 1024 and spoke
// 1, a value of 2 in the spoke is 2048 in the hub. If the target is an integer, a fraction is cut off toward zero, and
// the original value is kept in the annotation.
type ScaleConversion struct {
	// Hub is the number of the hub's units that equal Spoke units of the spoke.
	// +kubebuilder:validation:Minimum=1
	Hub int64 `json:"hub"`
	// Spoke is the number of the spoke's units that equal Hub units of the hub.
	// +kubebuilder:validation:Minimum=1
	Spoke int64 `json:"spoke"`
}

// CastConversion converts a string to a number or a boolean, and back.
type CastConversion struct {
	// Otherwise replaces a value that has no counterpart, such as a string that is not a number. The original value is
	// kept in the annotation. Without Otherwise, an object with such a value is not converted.
	// +optional
	Otherwise *apiextensionsv1.JSON `json:"otherwise,omitempty"`
}

// KeyedConversion assigns the keys and values of a map to fields of list elements.
type KeyedConversion struct {
	// Key is the field of a list element that contains the key of the map.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Value is the field of a list element that contains the value of the map. If it is empty, the value of the map is
	// an object with all fields except Key.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Value string `json:"value,omitempty"`
}

// WrapConversion describes the elements of the list that contains the value.
type WrapConversion struct {
	// Key is the field of a list element that contains the value. If it is empty, the elements are the values.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// OneSided describes a value that only one version has.
type OneSided struct {
	// Default is the value of the version that has the field, when an object is converted to that version and no value
	// is kept. It must be the default of the schema, unless the schema requires the field. A value equal to Default is
	// not kept.
	// +optional
	Default *apiextensionsv1.JSON `json:"default,omitempty"`
}

// ExpressionLimits bound one evaluation. An object that exceeds them is not converted.
type ExpressionLimits struct {
	// MaxOutputItems is the maximum number of elements and members of the result, including nested ones. The default is
	// 100,000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxOutputItems int32 `json:"maxOutputItems,omitempty"`

	// MaxCost is the maximum cost of an evaluation, in CEL cost units. The default is 1,000,000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxCost int64 `json:"maxCost,omitempty"`
}

// Equivalence has a CEL expression for each version that computes a normal form of the value. Two values with equal
// results have the same meaning: one may replace the other, and is then not kept.
type Equivalence struct {
	// Hub is the expression for values of the hub.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Hub string `json:"hub,omitempty"`
	// Spoke is the expression for values of the spoke.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Spoke string `json:"spoke,omitempty"`
}

// Condition types of a ConversionPolicy.
const (
	// ConversionCompiled is True if the policy fits the schemas.
	ConversionCompiled = "Compiled"
	// ConversionVerified is True if verification found no violation of a law.
	ConversionVerified = "Verified"
	// ConversionReady is True if the API server converts by the policy or, for a shadow, if Refract compares its results.
	ConversionReady = "Ready"
)

// ConversionPolicyStatus reports whether objects are converted by the policy.
type ConversionPolicyStatus struct {
	// ObservedGeneration is the generation of the policy that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Compiled, Verified and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Served is the spec that converts objects: the last one that compiled and was verified. It stays if a later spec fails.
	// +optional
	Served *ServedConversion `json:"served,omitempty"`

	// Verification describes the verification of the policy.
	// +optional
	Verification *ConversionVerification `json:"verification,omitempty"`

	// Shadow is the result of the comparison.
	// +optional
	Shadow *ConversionShadowing `json:"shadow,omitempty"`

	// Unconverted lists the first 20 objects that were read with a part that cannot be converted and is kept. An object
	// is removed from the list after a read that converted it, or after a day without a read.
	// +optional
	// +listType=atomic
	Unconverted []UnconvertedObject `json:"unconverted,omitempty"`
}

// UnconvertedObject is an object with a part that cannot be converted.
type UnconvertedObject struct {
	// Namespace of the object; empty for a cluster-scoped object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
	// From is the version of the object before the conversion.
	From string `json:"from"`
	// To is the version that lacks the part.
	To string `json:"to"`
	// Message names the part and the reason.
	Message string `json:"message"`
	// Read is the time of the last read that found this.
	Read metav1.Time `json:"read"`
}

// ServedConversion is a spec in use.
type ServedConversion struct {
	// Generation of the policy with this spec.
	Generation int64 `json:"generation"`
	// Spec is the spec of that generation, with an entry for each place in Kept at the end of its spokes.
	Spec ConversionPolicySpec `json:"spec"`
	// Kept lists the places that exist in one version only since the definition changed, and that the policy does not
	// mention yet. Their values are kept in the annotation refract.dev/complement in versions without the place, until
	// the policy has an entry for them.
	// +optional
	// +listType=atomic
	Kept []KeptField `json:"kept,omitempty"`
	// Definition contains the names and the schemas of the CustomResourceDefinition that the spec was compiled and
	// verified against, as JSON compressed by gzip. So the conversion does not change when the schemas change and the
	// spec no longer fits.
	Definition []byte `json:"definition"`
}

// KeptField is a place that only the hub or only one of the spokes has. Either Hub or Spoke is set.
type KeptField struct {
	// Version of the spoke whose list of fields has the entry.
	Version string `json:"version"`
	// Hub is the place in the hub, if the spoke does not have it.
	// +optional
	Hub string `json:"hub,omitempty"`
	// Spoke is the place in the spoke, if the hub does not have it.
	// +optional
	Spoke string `json:"spoke,omitempty"`
}

// ConversionVerification describes the verification of a policy.
type ConversionVerification struct {
	// Seed is the seed of the generated objects.
	Seed int64 `json:"seed"`
	// Objects is the number of objects that were generated or read.
	Objects int64 `json:"objects"`
	// Checks is the number of checks of a law.
	Checks int64 `json:"checks"`
}

// ConversionShadowing is the result of the comparison of a shadow with the serving policy, since this generation of the
// shadow was first seen.
type ConversionShadowing struct {
	// Generation of the policy that was compared.
	Generation int64 `json:"generation"`
	// Compared is the number of compared conversions.
	Compared int64 `json:"compared"`
	// Different is the number of compared conversions with a different result.
	Different int64 `json:"different"`
	// LastDifference describes the most recent difference.
	// +optional
	LastDifference string `json:"lastDifference,omitempty"`
}

// ConversionFinalizer keeps a ConversionPolicy while conversions between stored or served versions need it.
const ConversionFinalizer = Prefix + "conversion"

// TakeOverAnnotation "true" on a ConversionPolicy lets Refract replace another conversion webhook in spec.conversion of
// the definition.
const TakeOverAnnotation = Prefix + "take-over"
