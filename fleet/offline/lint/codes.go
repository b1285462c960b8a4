package lint

// Code names a kind of mistake. Codes are stable: a code is never reused for another kind.
type Code string

// Codes for manifests that cannot be read or that an API server rejects, whatever the rest of the input.
const (
	SyntaxError     Code = "syntax-error"
	UnknownField    Code = "unknown-field"
	DuplicateField  Code = "duplicate-field"
	DuplicateObject Code = "duplicate-object"
	InvalidManifest Code = "invalid-manifest"
	InvalidPolicy   Code = "invalid-policy"
	ProtectedField  Code = "protected-field"
	InvalidImage    Code = "invalid-image"
	InvalidObject   Code = "invalid-object"
	ReadOtherwise   Code = "read-otherwise"
)

// Codes for the references of objects to policies, and for their annotations.
const (
	MissingPolicy              Code = "missing-policy"
	EmptyPolicyLabel           Code = "empty-policy-label"
	UnknownPolicyLabel         Code = "unknown-policy-label"
	MisplacedPolicyLabel       Code = "misplaced-policy-label"
	BothPropagationLabels      Code = "both-propagation-labels"
	NamespacedLabel            Code = "namespaced-label-on-cluster-object"
	OverrideWithoutPropagation Code = "override-without-propagation"
	IgnoredAnnotation          Code = "ignored-annotation"
	InvalidAnnotation          Code = "invalid-annotation"
	HeldObject                 Code = "held-object"
	MadeByClusters             Code = "made-by-each-cluster"
	AssignedFields             Code = "assigned-fields"
	PolicyNotUsed              Code = "policy-not-used"
	ForeignPolicy              Code = "policy-of-another-system"
)

// Codes for the choice of clusters by policies.
const (
	NoClusters                  Code = "no-clusters"
	UnknownCluster              Code = "unknown-cluster"
	UnknownClusterLabel         Code = "unknown-cluster-label"
	LabelNotInteger             Code = "label-not-integer"
	DuplicateName               Code = "duplicate-name"
	RuleMatchesNoCluster        Code = "rule-matches-no-cluster"
	RuleReachesNoObject         Code = "rule-reaches-no-object"
	PropagationChoosesNoCluster Code = "propagation-chooses-no-cluster"
	TaintNotTolerated           Code = "taint-not-tolerated"
	DivideWithoutReplicas       Code = "divide-without-replicas"
	MinReplicasTooGreat         Code = "min-replicas-too-great"
	ReplicasWithoutRoom         Code = "replicas-without-room"
	DividedAndScaled            Code = "divided-and-autoscaled"
	AutoscalerNotPlaced         Code = "autoscaler-not-placed"
	InertField                  Code = "inert-field"
	WaveTakesNoCluster          Code = "wave-takes-no-cluster"
)

// Codes for the effects of the rules of override policies.
const (
	EmptyPolicy             Code = "empty-policy"
	EmptyRule               Code = "empty-rule"
	EmptyOverrider          Code = "empty-overrider"
	DuplicateRule           Code = "duplicate-rule"
	NoPodTemplate           Code = "no-pod-template"
	AlreadyPresent          Code = "already-present"
	IndexOutOfRange         Code = "index-out-of-range"
	PathNotFound            Code = "path-not-found"
	PathWrongType           Code = "path-wrong-type"
	RuleFails               Code = "rule-fails"
	InvalidValue            Code = "invalid-value"
	ContainerNotFound       Code = "container-not-found"
	EnvNotFound             Code = "env-not-found"
	ArgumentNotFound        Code = "argument-not-found"
	LabelNotFound           Code = "label-not-found"
	AnnotationNotFound      Code = "annotation-not-found"
	JSONPatchReplaceCreates Code = "jsonpatch-replace-creates"
	JSONPatchByIndex        Code = "jsonpatch-by-index"
	ValueAlreadySet         Code = "value-already-set"
	TagBesideDigest         Code = "tag-beside-digest"
	ShadowedRule            Code = "shadowed-rule"
	ShadowedOverrider       Code = "shadowed-overrider"
	BothPoliciesSetField    Code = "both-policies-set-field"
	DividedReplicasSet      Code = "divided-replicas-set"
)

// Codes for the effects of ServiceInjectionPolicies on pods.
const (
	FormerVersion            Code = "former-api-version"
	SelectsEveryPod          Code = "selects-every-pod"
	SelectsNoPod             Code = "selects-no-pod"
	MountWithoutVolume       Code = "mount-without-volume"
	VolumeWithoutMount       Code = "volume-without-mount"
	DoubtfulInjection        Code = "doubtful-injection"
	ServiceNotFound          Code = "service-not-found"
	InvalidServiceAnnotation Code = "invalid-service-annotation"
	ServiceNotAsked          Code = "service-annotation-not-used"
	ReferenceNotFound        Code = "reference-not-found"
	PoliciesConflict         Code = "policies-conflict"
	PodConflicts             Code = "pod-conflicts"
	PodRefused               Code = "pod-refused"
	VariableTooLate          Code = "variable-too-late"
)
