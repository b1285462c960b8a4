package placement

import (
	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Contests reports whether the FederatedCluster fc prevents the cluster of a deleted FederatedCluster from leaving the
// fleet. This is the case if fc is not being deleted, and both are, or may be, the same cluster: they have the same
// cluster UID, or the UID of fc is not known yet and fc has the same address or is declared as the replacement.
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
