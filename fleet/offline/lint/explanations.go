package lint

// Explanation is the documentation of a [Code].
type Explanation struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Title is a short sentence without a final period.
	Title string `json:"title"`
	// Text describes the consequences and the remedy.
	Text string `json:"text"`
}

// Codes explains every code, in the order of the documentation. It must not be modified.
var Codes = []Explanation{
	{
		SyntaxError, Error, "A document is not valid YAML or JSON",
		"The whole document is unreadable. Render Helm templates first, and pipe the result in with -f -.",
	},
	{
		UnknownField, Error, "A field does not exist",
		"The API server rejects the manifest, or drops the field silently. Names of fields are case-sensitive.",
	},
	{
		DuplicateField, Error, "A field is set twice",
		"The intended value is unclear. Remove one of the two.",
	},
	{
		DuplicateObject, Error, "Two manifests describe the same object",
		"The manifest applied last would win. Neither is checked.",
	},
	{
		InvalidManifest, Error, "A manifest does not describe an object",
		"It lacks a field that every object needs, or its metadata is not valid. It is not checked.",
	},
	{
		InvalidPolicy, Error, "A policy is not valid",
		"The API server rejects the policy. It is not checked.",
	},
	{
		ProtectedField, Error, "A policy overrides a protected field",
		"No policy can change the identity of an object (group, kind, name, namespace), the metadata that API servers maintain, or " +
			"Refract's own label and annotations. A ClusterOverridePolicy can change finalizers, and the permissions of roles and of their " +
			"bindings; an OverridePolicy cannot.",
	},
	{
		InvalidImage, Error, "An image is not a valid reference",
		"The value, or the resulting image, does not follow the grammar of image references, or would be misread.",
	},
	{
		InvalidObject, Error, "An object does not match its type",
		"Before any policy applies, a field does not exist, a value has the wrong type, or a required field is missing. API servers " +
			"reject the object.",
	},
	{
		ReadOtherwise, Warning, "YAML reads a word or number as another value",
		"API servers and kubectl read YAML 1.1: on, yes and y are true, 010 is 8, and 1.10 is 1.1. Quotes keep the written value.",
	},

	{
		MissingPolicy, Error, "An object names a missing policy",
		"The object waits: Refract sends it to no cluster until the policy exists. If a rollout policy is missing, existing copies do " +
			"not change. Policies of namespaced kinds must be in the object's namespace.",
	},
	{
		EmptyPolicyLabel, Error, "A label that names a policy is empty",
		"The object is sent to no cluster. Name the policy, or remove the label.",
	},
	{
		UnknownPolicyLabel, Warning, "A label resembles a label that names a policy",
		"The label has no effect, so the object does without the policy.",
	},
	{
		MisplacedPolicyLabel, Warning, "A label that names a policy is in the wrong place",
		"Only labels in the object's own metadata name policies. Annotations and labels of the pod template do not.",
	},
	{
		BothPropagationLabels, Warning, "An object names two propagation policies",
		"Only the PropagationPolicy applies; the ClusterPropagationPolicy is ignored. Remove one of the labels.",
	},
	{
		NamespacedLabel, Error, "A cluster-scoped object names a namespaced policy",
		"Only ClusterPropagationPolicies, ClusterOverridePolicies and ClusterRolloutPolicies apply to objects without a namespace.",
	},
	{
		OverrideWithoutPropagation, Warning, "An object names an override policy and no propagation policy",
		"It is placed on no cluster, so there is nothing to override.",
	},
	{
		IgnoredAnnotation, Warning, "An annotation has no effect",
		"KubeAdmiral acts on the annotation; Refract does not.",
	},
	{
		InvalidAnnotation, Warning, "The value of an annotation is not valid",
		"The annotation has no effect, or only part of it has: its value is not JSON of the expected form, not a regular expression, " +
			"or not a known value.",
	},
	{
		HeldObject, Warning, "An annotation holds an object",
		"With annotation dry-run, Refract writes nothing to clusters and removes nothing from them. With no-scheduling, the object is " +
			"added to no cluster and removed from none.",
	},
	{
		MadeByClusters, Error, "An object that each cluster creates itself names a propagation policy",
		"It is placed on no cluster, and the objects of the clusters stay unchanged: for example the Service kubernetes, the ConfigMap " +
			"kube-root-ca.crt, the ServiceAccount default, the Namespace kube-system, or objects with the label of Kubernetes' own roles. " +
			"Remove the label that names the propagation policy.",
	},
	{
		AssignedFields, Warning, "An exported object has fields that its cluster assigned",
		"The API server or a controller of the cluster of origin has assigned these fields, for example the clusterIP of a Service. " +
			"They are left out: each cluster assigns its own. Remove them from the file. To set a field on all clusters, use an override.",
	},
	{
		PolicyNotUsed, Warning, "No object names a policy",
		"The policy has no effect. Objects name policies by label; a label may be missing.",
	},
	{
		ForeignPolicy, Warning, "A policy of another system has no effect",
		"Refract reads the policies of core.kubeadmiral.io/v1alpha1. It treats a policy of Karmada or KubeFleet as an ordinary object.",
	},

	{
		NoClusters, Warning, "The input has no clusters",
		"Without FederatedClusters in the input, the choice of clusters by policies cannot be checked. All other checks run.",
	},
	{
		UnknownCluster, Warning, "A policy names an unknown cluster",
		"The cluster may have been renamed, removed, or misspelt.",
	},
	{
		UnknownClusterLabel, Warning, "A policy requires a label, or a value, that no cluster has",
		"Keys and values of labels are case-sensitive.",
	},
	{
		LabelNotInteger, Warning, "Gt or Lt compares a label that is not an integer",
		"The operators match only clusters whose label is an integer.",
	},
	{
		DuplicateName, Warning, "A name is in a list twice",
		"Probably a different name was intended.",
	},
	{
		RuleMatchesNoCluster, Warning, "A rule matches no cluster",
		"Each condition may match some cluster, but no cluster satisfies all of them.",
	},
	{
		RuleReachesNoObject, Warning, "A rule matches only clusters without objects of the policy",
		"The objects that name the policy are placed on other clusters.",
	},
	{
		PropagationChoosesNoCluster, Warning, "A propagation policy chooses no cluster",
		"Objects that name it are placed on no cluster.",
	},
	{
		TaintNotTolerated, Warning, "A taint keeps objects off a chosen cluster",
		"A taint with the effect NoSchedule or NoExecute keeps away all objects whose propagation policy does not tolerate it.",
	},
	{
		DivideWithoutReplicas, Warning, "An object has no replicas to divide",
		"Its propagation policy divides spec.replicas, which the object does not have: each cluster gets the whole object.",
	},
	{
		MinReplicasTooGreat, Warning, "The minReplicas of clusters add up to more than the replicas of an object",
		"The first clusters, by weight or priority and then by name, get their minReplicas; the others get less, or nothing.",
	},
	{
		ReplicasWithoutRoom, Warning, "The clusters have no room for all replicas of an object",
		"The chosen clusters are full: maxReplicas, weights of 0, or clusters that get no new replicas leave no room.",
	},
	{
		DividedAndScaled, Warning, "An autoscaler scales a workload whose replicas are divided",
		"Once a copy exists, the autoscaler of its cluster sets the replicas, so that they do not add up to the divided number. Set " +
			"schedulingMode to Duplicate, and minReplicas and maxReplicas of the autoscaler for each cluster by an override policy; or " +
			"remove the autoscaler.",
	},
	{
		AutoscalerNotPlaced, Warning, "An autoscaler stays on the hub, and its workload goes to clusters",
		"The autoscaler finds no pods on the hub and scales nothing on the clusters. With a propagation policy it goes to the clusters, and " +
			"spec.replicas is left to it there.",
	},
	{
		InertField, Warning, "A field has no effect",
		"It is accepted for manifests written for KubeAdmiral, or another field of the same item makes it meaningless.",
	},
	{
		WaveTakesNoCluster, Warning, "A wave of a rollout policy contains no cluster",
		"A cluster is in the first wave that it satisfies; clusters without such a wave come last. A change that was meant for few " +
			"clusters at first may reach many of them at once.",
	},

	{
		TagBesideDigest, Warning, "An override changes the tag of an image with a digest",
		"Container runtimes pull by the digest and ignore the tag. The clusters run the former image.",
	},
	{
		EmptyPolicy, Warning, "A policy has no rules",
		"It changes nothing.",
	},
	{
		EmptyRule, Warning, "A rule has no overriders",
		"It changes nothing.",
	},
	{
		EmptyOverrider, Warning, "An overrider is empty",
		"Its list of values or operations has no item.",
	},
	{
		DuplicateRule, Warning, "A rule is the same as an earlier one",
		"Probably one of them was meant for other clusters.",
	},
	{
		NoPodTemplate, Error, "A rule changes containers of an object without containers",
		"Container overriders work for Pod, CronJob, Deployment, StatefulSet, DaemonSet and Job. For images in other places use " +
			"imagePath, for other fields jsonpatch.",
	},
	{
		AlreadyPresent, Error, "addIfAbsent finds an existing value",
		"The rule fails, and the object is not written to the cluster, as addIfAbsent intends. To replace the existing value, use " +
			"overwrite.",
	},
	{
		IndexOutOfRange, Error, "A JSON pointer names a missing element",
		"The rule fails, and the object is not written to the cluster.",
	},
	{
		PathNotFound, Error, "The target of a JSON pointer does not exist",
		"The rule fails, and the object is not written to the cluster. add and replace need the parent, remove needs the member " +
			"itself.",
	},
	{
		PathWrongType, Error, "A rule finds a value of the wrong type",
		"The rule fails, and the object is not written to the cluster.",
	},
	{
		RuleFails, Error, "A rule cannot be applied",
		"The object is not written to the cluster.",
	},
	{
		InvalidValue, Error, "A policy makes an object invalid for its type",
		"The result has an unknown field or a value of the wrong type, or lacks a required field: the cluster's API server rejects the " +
			"object.",
	},
	{
		ContainerNotFound, Warning, "A policy names a container that no object has",
		"The override is skipped.",
	},
	{
		EnvNotFound, Warning, "A policy names an environment variable that no container has",
		"overwrite and delete affect existing variables only.",
	},
	{
		ArgumentNotFound, Warning, "A policy deletes an argument that no container has",
		"delete removes only items that are exactly equal.",
	},
	{
		LabelNotFound, Warning, "A policy names a label that no object has",
		"overwrite and delete affect existing labels only: labels of the object, not of its pods.",
	},
	{
		AnnotationNotFound, Warning, "A policy names an annotation that no object has",
		"overwrite and delete affect existing annotations only: annotations of the object, not of its pods.",
	},
	{
		JSONPatchReplaceCreates, Warning, "A replace adds a missing member",
		"By RFC 6902 it would fail; Refract adds the member, as KubeAdmiral does. If this is intended, use add.",
	},
	{
		JSONPatchByIndex, Warning, "A JSON pointer uses the index of a named element",
		"When the list changes, the override changes another element. The overriders image, command, args and envs select containers " +
			"by name.",
	},
	{
		ValueAlreadySet, Warning, "An override changes nothing",
		"Its values are already set, on every object and cluster that it applies to.",
	},
	{
		ShadowedRule, Warning, "Later rules overwrite all changes of a rule",
		"Without the rule, the content of every cluster would be the same.",
	},
	{
		ShadowedOverrider, Warning, "Later overriders overwrite all changes of an overrider",
		"Without the overrider, the content of every cluster would be the same.",
	},
	{
		BothPoliciesSetField, Warning, "Both override policies of an object set a field",
		"The OverridePolicy takes effect after the ClusterOverridePolicy, so its value wins.",
	},
	{
		DividedReplicasSet, Warning, "An override sets the replicas that a propagation policy divides",
		"Overrides apply after the division of replicas: each of the clusters gets this number instead of its share.",
	},

	{
		FormerVersion, Warning, "A policy has the API version of the proposal",
		"ServiceInjectionPolicy was proposed in extensions/v1beta1, which no API server serves. Refract reads it as " +
			"refract.dev/v1beta1; use this version.",
	},
	{
		SelectsEveryPod, Warning, "A policy selects every pod of its namespace",
		"An empty selector matches all present and future pods. If this is intended, ignore the warning.",
	},
	{
		SelectsNoPod, Warning, "A policy selects no pod",
		"Its namespace has pods or workloads, but the selector matches none of them. For a workload, the labels of its pod template " +
			"count.",
	},
	{
		MountWithoutVolume, Warning, "A mount names a volume that the policy does not have",
		"The volume may be defined by the pods. The policy is skipped for pods without it.",
	},
	{
		VolumeWithoutMount, Warning, "No mount of the policy uses a volume",
		"Pods get the volume, but their containers do not see it unless they mount it themselves.",
	},
	{
		DoubtfulInjection, Warning, "An injection may harm pods",
		"The message names the pods and the effect.",
	},
	{
		ServiceNotFound, Warning, "The Service of a policy is missing",
		"With implicit: true the annotations of the Service complete the policy. Without the Service, Refract injects only the content " +
			"of the policy itself.",
	},
	{
		InvalidServiceAnnotation, Error, "An annotation of a Service is not valid",
		"Refract ignores the annotation and uses the others.",
	},
	{
		ServiceNotAsked, Warning, "The annotations of a Service have no effect",
		"They describe the needs of its consumers, but no policy with implicit: true uses them.",
	},
	{
		ReferenceNotFound, Warning, "A policy refers to a missing object or key",
		"Containers do not start until the Secret or ConfigMap exists with the named keys, and existing pods are not recreated before. " +
			"The check needs other objects of the same kind and namespace in the input.",
	},
	{
		PoliciesConflict, Warning, "Two policies conflict on a pod",
		"They may select the same pod, and define the same name differently. The older policy applies, and the pod gets nothing of the " +
			"other.",
	},
	{
		PodConflicts, Warning, "A pod conflicts with a policy that selects it",
		"The pod gets nothing of the policy, instead of half of it. Rename one of the two, or remove one.",
	},
	{
		PodRefused, Error, "A policy rejects a pod",
		"The pod conflicts with a policy with onConflict: Reject. The workload gets no pods.",
	},
	{
		VariableTooLate, Warning, "A variable uses a variable that is injected after it",
		"$(NAME) expands to an earlier variable only. A reference to a later one stays unexpanded.",
	},
}

// explain returns the explanation of a code.
func explain(code Code) *Explanation {
	for i := range Codes {
		if Codes[i].Code == code {
			return &Codes[i]
		}
	}
	return &Explanation{Code: code, Severity: Error}
}
