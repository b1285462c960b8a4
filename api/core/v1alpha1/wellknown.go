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
