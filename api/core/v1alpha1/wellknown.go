package v1alpha1

// The kinds of this group, as they stand in a manifest.
const (
	KindOverridePolicy           = "OverridePolicy"
	KindClusterOverridePolicy    = "ClusterOverridePolicy"
	KindPropagationPolicy        = "PropagationPolicy"
	KindClusterPropagationPolicy = "ClusterPropagationPolicy"
	KindFederatedCluster         = "FederatedCluster"
)

// Prefix is what the labels and annotations of this group begin with. Those on
// a hub object speak to the hub and are not copied to members.
const Prefix = "kubeadmiral.io/"

// Labels on a hub object that name its policies.
const (
	// PropagationPolicyLabel names a PropagationPolicy in the object's namespace.
	// It wins over ClusterPropagationPolicyLabel.
	PropagationPolicyLabel = Prefix + "propagation-policy-name"
	// ClusterPropagationPolicyLabel names a ClusterPropagationPolicy.
	ClusterPropagationPolicyLabel = Prefix + "cluster-propagation-policy-name"
	// OverridePolicyLabel names an OverridePolicy in the object's namespace. It
	// has no meaning on a cluster-scoped object.
	OverridePolicyLabel = Prefix + "override-policy-name"
	// ClusterOverridePolicyLabel names a ClusterOverridePolicy. It takes effect
	// before the OverridePolicy.
	ClusterOverridePolicyLabel = Prefix + "cluster-override-policy-name"
)

// Annotations on a hub object that say how its copies are kept.
const (
	// NoSchedulingAnnotation "true" keeps the object where it is: it comes to no
	// cluster and leaves none. Its content is kept up to date there.
	NoSchedulingAnnotation = Prefix + "no-scheduling"
	// DryRunAnnotation "true" has nothing written and nothing removed; what would be
	// is reported.
	DryRunAnnotation = Prefix + "dry-run"
	// RetainReplicasAnnotation "true" leaves spec.replicas of copies that are there
	// to the cluster, for example to an autoscaler.
	RetainReplicasAnnotation = Prefix + "retain-replicas"
	// FollowersAnnotation lists objects of the namespace that travel with this one:
	// [{"group":"","kind":"ConfigMap","name":"…"}].
	FollowersAnnotation = Prefix + "followers"
	// DisableFollowingAnnotation "true", on a workload or on what it refers to,
	// has nothing travel with it.
	DisableFollowingAnnotation = Prefix + "disable-following"
	// ConflictResolutionAnnotation "adopt" makes objects that are there copies, on
	// the clusters that ClustersToAdoptAnnotation names.
	ConflictResolutionAnnotation = Prefix + "conflict-resolution"
	// ClustersToAdoptAnnotation names clusters: {"clusters":["…"],"regexp":"…"}.
	ClustersToAdoptAnnotation = Prefix + "clusters-to-adopt"
	// OrphanAnnotation "all" has copies stay when the object is deleted, "adopted" those
	// that were adopted.
	OrphanAnnotation = Prefix + "orphan"
)

// ManagedLabel is "true" on every copy that was placed on a member.
const ManagedLabel = Prefix + "managed"

// SystemNamespace is where the Secrets of FederatedClusters lie unless
// configured otherwise.
const SystemNamespace = "kube-admiral-system"

// Keys of the Secret that a FederatedCluster refers to.
const (
	SecretClientCertificate   = "client-certificate-data"
	SecretClientKey           = "client-key-data"
	SecretCertificateAuth     = "certificate-authority-data"
	SecretServiceAccountToken = "service-account-token-data"
	SecretBootstrapToken      = "bootstrap-token-data"
	// SecretKubeconfig holds a whole kubeconfig; it excludes the other keys. It
	// is an addition to KubeAdmiral's keys.
	SecretKubeconfig = "kubeconfig"
)
