package placement

import (
	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Contests reports whether a FederatedCluster prevents the cluster of a deleted FederatedCluster from leaving. It does
// if it is not being deleted itself and has the same cluster UID. It also does if its own cluster UID is not known yet,
// and it would replace the deleted one or has the same address, because it may be the same cluster.
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
