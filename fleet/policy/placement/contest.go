package placement

import (
	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Contests reports whether a FederatedCluster keeps the cluster of a deleted FederatedCluster from leaving. It does so
// if it is not deleted itself and has the same cluster UID. It also does so if its own cluster UID is not known yet,
// and it claims to replace the deleted one or has the same address, because it may turn out to be the same cluster.
func Contests(fc, deleted *corev1alpha1.FederatedCluster) bool {
	known := fc.Status.ClusterUID != ""
	switch {
	case fc.Name == deleted.Name, !fc.DeletionTimestamp.IsZero():
		return false
	case known:
		return fc.Status.ClusterUID == deleted.Status.ClusterUID
	default:
		return fc.Annotations[refractv1alpha1.ReplacesAnnotation] == deleted.Name ||
			deleted.Status.ClusterUID != "" && fc.Spec.APIEndpoint == deleted.Spec.APIEndpoint
	}
}
