package diff

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// fixed are places at which an API server refuses another value.
//
// Source: the update validation of Kubernetes, pkg/apis/*/validation.
type fixed struct {
	kinds []schema.GroupKind
	paths []string
	// absent is the value where there is none.
	absent any
	// when limits it to some edits.
	when func(e *edit, path string) bool
}

var fixedPlaces = []fixed{
	{kinds: []schema.GroupKind{deployment, statefulSet, daemonSet, replicaSet}, paths: []string{"/spec/selector"}},
	{kinds: []schema.GroupKind{statefulSet}, paths: []string{"/spec/volumeClaimTemplates", "/spec/serviceName"}},
	{kinds: []schema.GroupKind{statefulSet}, paths: []string{"/spec/podManagementPolicy"}, absent: "OrderedReady"},
	{kinds: []schema.GroupKind{job}, paths: []string{"/spec/selector", "/spec/template"}},
	{kinds: []schema.GroupKind{job}, paths: []string{"/spec/completionMode"}, absent: "NonIndexed"},
	{
		kinds: []schema.GroupKind{job}, paths: []string{"/spec/completions"},
		when: func(e *edit, _ string) bool { return textAt(e.before, "/spec/completionMode") != "Indexed" },
	},
	{
		kinds: []schema.GroupKind{{Kind: "Service"}}, paths: []string{"/spec/clusterIP"},
		when: func(e *edit, path string) bool { // The address that the cluster gave it is kept where it is not named.
			return valueAt(e.after, path) != nil && textAt(e.before, "/spec/type") != "ExternalName"
		},
	},
	{
		kinds: []schema.GroupKind{{Kind: "ConfigMap"}, {Kind: "Secret"}}, paths: []string{"/data", "/binaryData", "/stringData", "/immutable"},
		when: func(e *edit, _ string) bool { return valueAt(e.before, "/immutable") == true },
	},
	{kinds: []schema.GroupKind{{Kind: "Secret"}}, paths: []string{"/type"}, absent: "Opaque"},
	{
		kinds: []schema.GroupKind{{Kind: "PersistentVolumeClaim"}},
		paths: []string{"/spec/accessModes", "/spec/selector", "/spec/storageClassName", "/spec/dataSource", "/spec/dataSourceRef"},
	},
	{kinds: []schema.GroupKind{{Kind: "PersistentVolumeClaim"}}, paths: []string{"/spec/volumeMode"}, absent: "Filesystem"},
	{
		kinds: []schema.GroupKind{{Group: rbac, Kind: "RoleBinding"}, {Group: rbac, Kind: "ClusterRoleBinding"}},
		paths: []string{"/roleRef"},
	},
	{kinds: []schema.GroupKind{storageClass}, paths: []string{"/provisioner", "/parameters"}},
	{kinds: []schema.GroupKind{storageClass}, paths: []string{"/reclaimPolicy"}, absent: "Delete"},
	{kinds: []schema.GroupKind{storageClass}, paths: []string{"/volumeBindingMode"}, absent: "Immediate"},
}

const rbac = "rbac.authorization.k8s.io"

var storageClass = schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}

// refusals returns what the API server refuses of the edit.
func (e *edit) refusals() []Impact {
	var refused []Impact
	for i := range fixedPlaces {
		f := &fixedPlaces[i]
		if !slices.Contains(f.kinds, e.kind) {
			continue
		}
		for _, path := range f.paths {
			was, is := f.valueAt(e.before, path), f.valueAt(e.after, path)
			if !tree.Equal(was, is) && (f.when == nil || f.when(e, path)) {
				refused = append(refused, refusal(path))
			}
		}
	}
	return refused
}

func (f *fixed) valueAt(object map[string]any, path string) any {
	if v := valueAt(object, path); v != nil {
		return v
	}
	return f.absent
}

func refusal(path string) Impact {
	return Impact{
		Effect: Refused, Path: path,
		Message: fmt.Sprintf("%s cannot be changed in place: the API server refuses it, and the cluster keeps what it has", path),
	}
}

// What may change of a pod.
//
// Source: https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
var (
	podImage = regexp.MustCompile(`^/spec/(initContainers|containers)/\d+/image$`)
	podOther = regexp.MustCompile(`^/spec/(activeDeadlineSeconds|terminationGracePeriodSeconds|tolerations(/.*)?)$`)
	podSpec  = regexp.MustCompile(`^/spec(/|$)`)
)

// impactsOfPod returns what becomes of a pod, of which hardly anything may change.
func (e *edit) impactsOfPod() []Impact {
	restarts := false
	for i := range e.steps {
		s := &e.steps[i]
		switch {
		case !podSpec.MatchString(s.Path), podOther.MatchString(s.Path):
		case podImage.MatchString(s.Path) && s.Op == tree.OpReplace:
			restarts = true
		default:
			return []Impact{refusal(s.Path)}
		}
	}
	if restarts {
		return []Impact{{Effect: Restarting, Message: "containers restart in place: their image changes"}}
	}
	return nil
}
