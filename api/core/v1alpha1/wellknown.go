package v1alpha1

// Kinds of this group, as in the kind field of a manifest.
const (
	KindOverridePolicy           = "OverridePolicy"
	KindClusterOverridePolicy    = "ClusterOverridePolicy"
	KindPropagationPolicy        = "PropagationPolicy"
	KindClusterPropagationPolicy = "ClusterPropagationPolicy"
	KindFederatedCluster         = "FederatedCluster"
)

// Prefix is the prefix of the labels and annotations of this group. Those of an object on the hub control Refract, and
// are not copied to members.
const Prefix = "kubeadmiral.io/"

// Labels on a hub object that name its policies.
const (
	// PropagationPolicyLabel names a PropagationPolicy in the namespace of the object. It takes precedence over
	// ClusterPropagationPolicyLabel.
	PropagationPolicyLabel = Prefix + "propagation-policy-name"
	// ClusterPropagationPolicyLabel names a ClusterPropagationPolicy.
	ClusterPropagationPolicyLabel = Prefix + "cluster-propagation-policy-name"
	// OverridePolicyLabel names an OverridePolicy in the namespace of the object. It has no effect on a cluster-scoped object.
	OverridePolicyLabel = Prefix + "override-policy-name"
	// ClusterOverridePolicyLabel names a ClusterOverridePolicy. That policy takes effect before the OverridePolicy.
	ClusterOverridePolicyLabel = Prefix + "cluster-override-policy-name"
)

// Annotations on an object of the hub that control its copies.
const (
	// NoSchedulingAnnotation "true" freezes the placement of the object: it stays on its clusters and comes to no
	// others. Its copies are still updated.
	NoSchedulingAnnotation = Prefix + "no-scheduling"
	// DryRunAnnotation "true" prevents all writes and deletions of copies. The Propagation reports the intended ones.
	DryRunAnnotation = Prefix + "dry-run"
	// RetainReplicasAnnotation "true" leaves spec.replicas of existing copies to the cluster, for example to an autoscaler.
	RetainReplicasAnnotation = Prefix + "retain-replicas"
	// FollowersAnnotation lists objects of the namespace that are propagated with this object:
	// [{"group":"","kind":"ConfigMap","name":"…"}].
	FollowersAnnotation = Prefix + "followers"
	// DisableFollowingAnnotation "true" disables following. On a workload, its references are not propagated with it;
	// on a referenced object, the object is not propagated with any workload.
	DisableFollowingAnnotation = Prefix + "disable-following"
	// ConflictResolutionAnnotation "adopt" turns existing objects of the same name into copies, on the clusters that
	// ClustersToAdoptAnnotation selects.
	ConflictResolutionAnnotation = Prefix + "conflict-resolution"
	// ClustersToAdoptAnnotation selects clusters: {"clusters":["…"],"regexp":"…"}.
	ClustersToAdoptAnnotation = Prefix + "clusters-to-adopt"
	// OrphanAnnotation keeps copies after the deletion of the object: "all" keeps all copies, "adopted" only adopted ones.
	OrphanAnnotation = Prefix + "orphan"
)

// ManagedLabel is "true" on every copy on a member.
const ManagedLabel = Prefix + "managed"

// SystemNamespace is the default namespace of the Secrets that FederatedClusters refer to.
const SystemNamespace = "kube-admiral-system"

// Keys of the Secret that a FederatedCluster refers to.
const (
	SecretClientCertificate   = "client-certificate-data"
	SecretClientKey           = "client-key-data"
	SecretCertificateAuth     = "certificate-authority-data"
	SecretServiceAccountToken = "service-account-token-data"
	SecretBootstrapToken      = "bootstrap-token-data"
	// SecretKubeconfig contains a complete kubeconfig, and excludes the other keys. KubeAdmiral does not have this key.
	SecretKubeconfig = "kubeconfig"
)
