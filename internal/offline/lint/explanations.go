package lint

// Explanation is what there is to know about a [Code].
type Explanation struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	// Title is a short sentence without an end mark.
	Title string `json:"title"`
	// Text says what happens because of it, and what to do.
	Text string `json:"text"`
}

// Codes explains every code, in the order in which they are documented. It is
// not to be modified.
var Codes = []Explanation{
	{
		SyntaxError, Error, "A document is not valid YAML or JSON",
		"Nothing of the document can be read. A template of Helm has to be rendered first; pipe the result in with -f -.",
	},
	{
		UnknownField, Error, "A field does not exist",
		"The API server refuses the manifest, or drops the field silently. Names of fields are case-sensitive.",
	},
	{
		DuplicateField, Error, "A field is set twice",
		"Which of the two is meant nobody can say. Leave one.",
	},
	{
		DuplicateObject, Error, "Two manifests are the same object",
		"The one that is applied last would win. Both are left out of what is checked.",
	},
	{
		InvalidManifest, Error, "A manifest is not one of an object",
		"It lacks what every object has, or its metadata is not valid. It is left out of what is checked.",
	},
	{
		InvalidPolicy, Error, "A policy is not valid",
		"The API server refuses the policy. It is left out of what is checked.",
	},
	{
		ProtectedField, Error, "A policy overrides what it may not",
		"What an object is (group, kind, name, namespace), what API servers keep in its metadata, and Refract's own label and " +
			"annotations stay as they are on every copy. Finalizers, and what a role or a binding of one permits, are for a " +
			"ClusterOverridePolicy to change, not for an OverridePolicy.",
	},
	{
		InvalidImage, Error, "An image is not a valid reference",
		"The value, or what would become of an image, does not follow the grammar of image references, or would be read as " +
			"something else than intended.",
	},
	{
		InvalidObject, Error, "An object is not what its type wants",
		"Before any policy: a field does not exist, a value has the wrong type, or something required is missing. API servers refuse the object.",
	},
	{
		ReadOtherwise, Warning, "YAML reads a word or number as another value",
		"API servers and kubectl read YAML 1.1: on, yes and y are true, 010 is 8, and 1.10 is 1.1. Quotes keep what is written.",
	},

	{
		MissingPolicy, Error, "An object names a policy that is not there",
		"The object waits: nothing is sent anywhere until the policy exists; of a rollout policy, no change of what is there already. " +
			"Policies of the namespaced kinds are looked for in the object's namespace.",
	},
	{
		EmptyPolicyLabel, Error, "A label that names a policy is empty",
		"The object is sent nowhere. Name the policy, or take the label away.",
	},
	{
		UnknownPolicyLabel, Warning, "A label is nearly one that names a policy",
		"The label means nothing, so the object goes without the policy.",
	},
	{
		MisplacedPolicyLabel, Warning, "A label that names a policy stands in the wrong place",
		"Policies are named by labels in the object's own metadata, neither by annotations nor by labels of the pod template.",
	},
	{
		BothPropagationLabels, Warning, "An object names two propagation policies",
		"The PropagationPolicy alone decides; the ClusterPropagationPolicy is not asked. Leave one of the labels.",
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
		IgnoredAnnotation, Warning, "An annotation asks for what is not done",
		"KubeAdmiral acts on the annotation; Refract does not.",
	},
	{
		InvalidAnnotation, Warning, "An annotation cannot be made sense of",
		"What it asks for is not done, or not all of it: its value is no JSON of the form that it has, no regular expression, " +
			"or none of the values that there are.",
	},
	{
		HeldObject, Warning, "An object is held as it is",
		"While annotation dry-run is there, nothing is written to clusters and nothing removed from them. While no-scheduling is " +
			"there, the object comes to no cluster and leaves none.",
	},
	{
		MadeByClusters, Error, "An object that each cluster makes for itself asks to be placed",
		"It goes nowhere, and what clusters have stays as it is: the Service kubernetes, for example, the ConfigMap kube-root-ca.crt, " +
			"the ServiceAccount default, the Namespace kube-system, or what carries the label by which Kubernetes marks its own roles. " +
			"Take the label off that names the propagation policy.",
	},
	{
		AssignedFields, Warning, "An exported object has fields that its cluster assigned",
		"The API server or a controller of the cluster that the object comes from has assigned these fields, for example the clusterIP of a Service. " +
			"They are left out: each cluster assigns its own. Remove them from the file. A field that all clusters should have is requested by an override.",
	},
	{
		PolicyNotUsed, Warning, "No object names a policy",
		"The policy does nothing. Objects name policies by label; a label may be missing.",
	},
	{
		ForeignPolicy, Warning, "A policy of another system has no effect",
		"Refract reads the policies of core.kubeadmiral.io/v1alpha1. To it, a policy of Karmada or KubeFleet is an object as any other.",
	},

	{
		NoClusters, Warning, "No cluster is known",
		"Without FederatedClusters in the input nothing can be said about how policies choose clusters. What does not depend on them is checked.",
	},
	{
		UnknownCluster, Warning, "A policy names a cluster that is not there",
		"The cluster may have been renamed, removed, or misspelt.",
	},
	{
		UnknownClusterLabel, Warning, "A policy asks for a label, or a value, that no cluster has",
		"Keys and values of labels are case-sensitive.",
	},
	{
		LabelNotInteger, Warning, "Gt or Lt compares a label that is no integer",
		"The operators match only clusters whose label is an integer.",
	},
	{
		DuplicateName, Warning, "A name stands in a list twice",
		"Most likely another one was meant.",
	},
	{
		RuleMatchesNoCluster, Warning, "A rule is for no cluster",
		"Each of its conditions may hold for some cluster, and no cluster satisfies them together.",
	},
	{
		RuleReachesNoObject, Warning, "A rule is for clusters on which no object is",
		"The objects that name the policy are placed on other clusters than those of the rule.",
	},
	{
		PropagationChoosesNoCluster, Warning, "A propagation policy chooses no cluster",
		"Objects that name it are placed nowhere.",
	},
	{
		TaintNotTolerated, Warning, "A taint keeps out what was meant for a cluster",
		"A taint with the effect NoSchedule or NoExecute keeps away all objects whose propagation policy does not tolerate it.",
	},
	{
		DivideWithoutReplicas, Warning, "An object has no replicas that could be divided",
		"Its propagation policy divides spec.replicas, which the object does not have: each cluster gets all of the object.",
	},
	{
		MinReplicasTooGreat, Warning, "The minReplicas of clusters add up to more than an object has",
		"Those that come first, by weight or priority and then by name, get theirs; the others get less, or nothing.",
	},
	{
		ReplicasWithoutRoom, Warning, "Not all replicas of an object have a place",
		"The clusters that are chosen are full: maxReplicas, weights of 0, or clusters that get nothing new leave no room.",
	},
	{
		DividedAndScaled, Warning, "An autoscaler scales a workload whose replicas are divided",
		"On each cluster the autoscaler decides on the replicas once the copy is there, so that they do not add up to what was divided. " +
			"Set schedulingMode to Duplicate, and minReplicas and maxReplicas of the autoscaler for each cluster by an override policy; " +
			"or remove the autoscaler.",
	},
	{
		AutoscalerNotPlaced, Warning, "An autoscaler stays on the hub, and its workload goes to clusters",
		"The autoscaler finds no pods on the hub and scales nothing on the clusters. With a propagation policy it goes to the clusters, and " +
			"spec.replicas is left to it there.",
	},
	{
		InertField, Warning, "A field is accepted and not acted on",
		"It is there for manifests written for KubeAdmiral, or another field of the same item leaves it without a meaning.",
	},
	{
		WaveTakesNoCluster, Warning, "A wave of a rollout policy takes no cluster",
		"A cluster is in the first wave that takes it, and those that no wave takes come last. What was meant to be tried on few clusters " +
			"at first may reach many of them at once.",
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
		EmptyOverrider, Warning, "An overrider has nothing to do",
		"Its list of values or operations is empty.",
	},
	{
		DuplicateRule, Warning, "A rule is the same as an earlier one",
		"Most likely one of them was meant for other clusters.",
	},
	{
		NoPodTemplate, Error, "A rule is about containers of an object that has none",
		"Containers are known of Pod, CronJob, Deployment, StatefulSet, DaemonSet and Job. For images elsewhere there is " +
			"imagePath, for the rest jsonpatch.",
	},
	{
		AlreadyPresent, Error, "addIfAbsent finds something there",
		"The rule fails, and the object is not written to the cluster: that is the point of addIfAbsent. To replace what is there, use overwrite.",
	},
	{
		IndexOutOfRange, Error, "A JSON pointer names an element that is not there",
		"The rule fails, and the object is not written to the cluster.",
	},
	{
		PathNotFound, Error, "A JSON pointer leads nowhere",
		"The rule fails, and the object is not written to the cluster. add and replace need the parent to be there, remove the member itself.",
	},
	{
		PathWrongType, Error, "A rule finds a value of another type than it can change",
		"The rule fails, and the object is not written to the cluster.",
	},
	{
		RuleFails, Error, "A rule cannot be applied",
		"The object is not written to the cluster.",
	},
	{
		InvalidValue, Error, "A policy makes of an object what its type does not allow",
		"A field that does not exist, a value of the wrong type, or something required that is taken away: the cluster's API " +
			"server refuses the object.",
	},
	{
		ContainerNotFound, Warning, "A policy names a container that no object has",
		"The override is skipped.",
	},
	{
		EnvNotFound, Warning, "A policy names an environment variable that no container has",
		"overwrite changes only variables that are there, and delete takes away only those.",
	},
	{
		ArgumentNotFound, Warning, "A policy deletes an argument that no container has",
		"delete takes away items that are equal, letter by letter.",
	},
	{
		LabelNotFound, Warning, "A policy names a label that no object has",
		"overwrite changes only labels that are there, and delete takes away only those. They are the labels of the object, not of its pods.",
	},
	{
		AnnotationNotFound, Warning, "A policy names an annotation that no object has",
		"overwrite changes only annotations that are there, and delete takes away only those. They are the annotations of the " +
			"object, not of its pods.",
	},
	{
		JSONPatchReplaceCreates, Warning, "A replace adds what is not there",
		"By RFC 6902 it would fail; here it adds the member, as KubeAdmiral does. If that is meant, say add.",
	},
	{
		JSONPatchByIndex, Warning, "A JSON pointer gives a number for what has a name",
		"When the list changes, the override changes another element. The overriders image, command, args and envs go by the name of the container.",
	},
	{
		ValueAlreadySet, Warning, "An override changes nothing",
		"What it sets is there already, on every object and cluster that it is for.",
	},
	{
		ShadowedRule, Warning, "Later rules overwrite all that a rule does",
		"Without the rule every cluster would get the same.",
	},
	{
		ShadowedOverrider, Warning, "Later overriders overwrite all that one does",
		"Without it every cluster would get the same.",
	},
	{
		BothPoliciesSetField, Warning, "Both override policies of an object set a field",
		"The OverridePolicy takes effect after the ClusterOverridePolicy, so its value wins.",
	},
	{
		DividedReplicasSet, Warning, "An override sets the replicas that a propagation policy divides",
		"Overrides take effect after the replicas were divided: each of the clusters gets that number, and not its share.",
	},

	{
		FormerVersion, Warning, "A policy has the API version of the proposal",
		"ServiceInjectionPolicy was proposed in extensions/v1beta1, which no API server takes. It is read as refract.dev/v1beta1; " +
			"write that.",
	},
	{
		SelectsEveryPod, Warning, "A policy selects every pod of its namespace",
		"An empty selector chooses all pods, of today and of tomorrow. If that is meant, nothing is wrong.",
	},
	{
		SelectsNoPod, Warning, "A policy selects no pod",
		"There are pods or workloads in its namespace, and the selector matches the labels of none of them. The labels that count " +
			"are those of the pods, as they stand in the template of a workload.",
	},
	{
		MountWithoutVolume, Warning, "A mount names a volume that the policy does not have",
		"It may be one of the pods. The policy is left out for those that do not have it.",
	},
	{
		VolumeWithoutMount, Warning, "No mount of the policy uses a volume",
		"Pods get the volume, and their containers see nothing of it unless they mount it themselves.",
	},
	{
		DoubtfulInjection, Warning, "What a policy injects may do harm to pods",
		"The message says which pods, and what becomes of them.",
	},
	{
		ServiceNotFound, Warning, "The Service that completes a policy is not there",
		"With implicit: true the annotations of the Service say what is injected. Without it only what stands in the policy itself is.",
	},
	{
		InvalidServiceAnnotation, Error, "An annotation of a Service does not say what to inject",
		"What it says is not injected. The other annotations are heeded all the same.",
	},
	{
		ServiceNotAsked, Warning, "The annotations of a Service are of no effect",
		"They say what its consumers need, and no policy with implicit: true asks for that.",
	},
	{
		ReferenceNotFound, Warning, "A policy refers to what is not there",
		"Containers do not start until the Secret or ConfigMap is there with the keys that are named, and pods that are there are not " +
			"recreated before. It is looked for where the input has others of its kind in the namespace.",
	},
	{
		PoliciesConflict, Warning, "Two policies cannot both hold for a pod",
		"They may select the same pod, and say different things by the same name. The older policy is applied, and the other is left " +
			"out for the pod as a whole.",
	},
	{
		PodConflicts, Warning, "A pod says something else than a policy that selects it",
		"The policy is left out for the pod as a whole, so that it does not get half of it. Rename one of the two, or take one away.",
	},
	{
		PodRefused, Error, "A pod is refused because of a policy",
		"It says something else than a policy with onConflict: Reject. The workload gets no pods.",
	},
	{
		VariableTooLate, Warning, "A variable uses one that is injected behind it",
		"$(NAME) stands for a variable that comes before. What comes later stays as it is written.",
	},
}

// explain returns what there is to know about a code.
func explain(code Code) *Explanation {
	for i := range Codes {
		if Codes[i].Code == code {
			return &Codes[i]
		}
	}
	return &Explanation{Code: code, Severity: Error}
}
