package member

import (
	"slices"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// What is said of a copy whose status was not seen yet, and of one that is going.
const (
	notSeenYet = "the cluster has not acted on it yet"
	isGoing    = "it is being deleted"
)

// builtinGroups are those of Kubernetes' own types. All others are custom
// resources, or served by an API server that was added.
var builtinGroups = []string{
	"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch",
	"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io",
	"node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
}

// acting are the types of these groups whose status says whether the object has
// become what it asks for. The others are ready when they are there: their
// metadata suffices.
var acting = []schema.GroupResource{
	{Resource: "persistentvolumeclaims"},
	{Resource: "pods"},
	{Resource: "replicationcontrollers"},
	{Resource: "services"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Group: "apps", Resource: "daemonsets"},
	{Group: "apps", Resource: "deployments"},
	{Group: "apps", Resource: "replicasets"},
	{Group: "apps", Resource: "statefulsets"},
	{Group: "batch", Resource: "jobs"},
	{Group: "policy", Resource: "poddisruptionbudgets"},
}

// hasStatus reports whether the status of objects of a type must be seen.
func hasStatus(r schema.GroupResource) bool {
	return !slices.Contains(builtinGroups, r.Group) || slices.Contains(acting, r)
}

// readinessOf reads the object's status.
func readinessOf(u *unstructured.Unstructured) (refractv1alpha1.Readiness, string) {
	if u.GetDeletionTimestamp() != nil {
		return refractv1alpha1.ReadinessInProgress, isGoing
	}
	result, err := status.Compute(u)
	if err != nil {
		return refractv1alpha1.ReadinessUnknown, err.Error()
	}
	switch result.Status {
	case status.CurrentStatus:
		return refractv1alpha1.ReadinessReady, ""
	case status.InProgressStatus, status.TerminatingStatus:
		return refractv1alpha1.ReadinessInProgress, result.Message
	case status.FailedStatus:
		return refractv1alpha1.ReadinessFailed, result.Message
	default:
		return refractv1alpha1.ReadinessUnknown, result.Message
	}
}
