package member

import (
	"fmt"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
)

// Messages for a copy whose status was not seen yet, and for one that is being deleted.
const (
	notSeenYet = "the cluster has not acted on it yet"
	isGoing    = "it is being deleted"
)

// builtinGroups are the groups of Kubernetes' own types. All other types are custom resources, or are served by an
// aggregated API server.
var builtinGroups = []string{
	"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "autoscaling", "batch",
	"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io",
	"node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
}

// acting are the types in builtinGroups whose status says whether the object has reached its desired state. Objects of
// the other types are ready as soon as they exist, so their metadata suffices.
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

// hasStatus reports whether the readiness of a type depends on the status.
func hasStatus(r schema.GroupResource) bool {
	return !slices.Contains(builtinGroups, r.Group) || slices.Contains(acting, r)
}

// readinessOf judges the status of an object. The authors of other types may use the terms of Kubernetes differently,
// so an unreadable status is a failure only for Kubernetes' own types.
func (d decoder) readinessOf(r *received) (refractv1alpha1.Readiness, string) {
	if r.DeletionTimestamp != nil {
		return refractv1alpha1.ReadinessInProgress, isGoing
	}
	result, u, err := d.compute(r)
	switch {
	case err != nil && (rescue.Is(err) || r.builtin()):
		return refractv1alpha1.ReadinessFailed, output.Cut("its status on the cluster cannot be read: "+err.Error(), mostMessage)
	case err != nil:
		return refractv1alpha1.ReadinessUnknown, output.Cut(err.Error(), mostMessage)
	}
	readiness, message := refractv1alpha1.ReadinessUnknown, result.Message
	switch result.Status {
	case status.CurrentStatus:
		readiness, message = refractv1alpha1.ReadinessReady, ""
	case status.InProgressStatus, status.TerminatingStatus:
		readiness = refractv1alpha1.ReadinessInProgress
	case status.FailedStatus:
		readiness = refractv1alpha1.ReadinessFailed
	case status.NotFoundStatus, status.UnknownStatus:
	}
	if r.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: Jobs.Group, Kind: "Job"}) {
		readiness, message = jobReadiness(u.Object, readiness, result.Message)
	}
	return readiness, output.Cut(message, mostMessage)
}

// compute checks whether kstatus can read the status of an object, and lets kstatus compute the readiness. It also
// returns the decoded parts of the object.
func (d decoder) compute(r *received) (result *status.Result, u *unstructured.Unstructured, err error) {
	defer rescue.To(&err, d.log, "reading the status of a copy", "kind", r.Kind, "namespace", r.Namespace, "name", r.Name)
	if u, err = r.withStatus(); err != nil {
		return nil, nil, err
	}
	if r.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		if err := checkContainers(u.Object); err != nil {
			return nil, nil, err
		}
	}
	result, err = status.Compute(u)
	return result, u, err
}

// mostContainers is the maximum number of containers in a Pod, because kstatus copies the status of each container.
const mostContainers = 1000

// checkContainers returns an error if a value in the status of a Pod's containers does not have the type that kstatus
// expects.
func checkContainers(pod map[string]any) error {
	const path = "status.containerStatuses"
	value, _, err := unstructured.NestedFieldNoCopy(pod, "status", "containerStatuses")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	list, ok := value.([]any)
	switch {
	case value == nil:
		return nil
	case !ok:
		return fmt.Errorf("%s: want a list, got %s", path, called(value))
	case len(list) > mostContainers:
		return fmt.Errorf("%s: want at most %d, got %d", path, mostContainers, len(list))
	}
	for i, item := range list {
		if err := checkContainer(fmt.Sprintf("%s[%d]", path, i), item); err != nil {
			return err
		}
	}
	return nil
}

func checkContainer(path string, value any) error {
	container, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want an object, got %s", path, called(value))
	}
	if name, there := container["name"]; there && !isText(name) {
		return fmt.Errorf("%s.name: want a string, got %s", path, called(name))
	}
	for _, key := range []string{"state", "waiting"} {
		inner, there := container[key]
		if !there {
			return nil
		}
		path += "." + key
		if container, ok = inner.(map[string]any); !ok {
			return fmt.Errorf("%s: want an object, got %s", path, called(inner))
		}
	}
	if reason, there := container["reason"]; there && !isText(reason) {
		return fmt.Errorf("%s.reason: want a string, got %s", path, called(reason))
	}
	return nil
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// called returns the JSON type of a value.
func called(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return "a number"
	}
}
