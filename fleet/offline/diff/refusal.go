package diff

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// fixed describes fields that an API server does not allow to change.
//
// Source: the update validation of Kubernetes, pkg/apis/*/validation.
type fixed struct {
	kinds []schema.GroupKind
	paths []string
	// absent is the default value, for an object without the field.
	absent any
	// when limits the rule to some edits; nil applies to all.
	when func(e *edit, path string) bool
	// A nested field that matches this pattern is an exception: it may change.
	but *regexp.Regexp
}

// suspendedJob matches the fields of a Job's pod template that may change while the Job is suspended.
//
// Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#mutable-scheduling-directives
var suspendedJob = regexp.MustCompile(`^/spec/template/(metadata/(labels|annotations)|` +
	`spec/(nodeSelector|tolerations|schedulingGates|affinity/nodeAffinity))(/|$)`)

func suspended(e *edit, _ string) bool { return valueAt(e.before, "/spec/suspend") == true }

func notSuspended(e *edit, path string) bool { return !suspended(e, path) }

func wasSet(e *edit, path string) bool { return valueAt(e.before, path) != nil }

var fixedPlaces = []fixed{
	{kinds: []schema.GroupKind{deployment, statefulSet, daemonSet, replicaSet}, paths: []string{"/spec/selector"}},
	{kinds: []schema.GroupKind{statefulSet}, paths: []string{"/spec/volumeClaimTemplates", "/spec/serviceName"}},
	{kinds: []schema.GroupKind{statefulSet}, paths: []string{"/spec/podManagementPolicy"}, absent: "OrderedReady"},
	{
		kinds: []schema.GroupKind{job},
		paths: []string{"/spec/selector", "/spec/podFailurePolicy", "/spec/backoffLimitPerIndex", "/spec/successPolicy", "/spec/managedBy"},
	},
	{kinds: []schema.GroupKind{job}, paths: []string{"/spec/template"}, when: notSuspended},
	{kinds: []schema.GroupKind{job}, paths: []string{"/spec/template"}, when: suspended, but: suspendedJob},
	{kinds: []schema.GroupKind{job}, paths: []string{"/spec/completionMode"}, absent: "NonIndexed"},
	{
		kinds: []schema.GroupKind{job}, paths: []string{"/spec/completions"},
		when: func(e *edit, _ string) bool { return textAt(e.before, "/spec/completionMode") != "Indexed" },
	},
	{
		kinds: []schema.GroupKind{{Kind: "Service"}}, paths: []string{"/spec/clusterIP"},
		when: func(e *edit, path string) bool { // Without a value in the object, the Service keeps its address.
			return valueAt(e.after, path) != nil && textAt(e.before, "/spec/type") != "ExternalName"
		},
	},
	{
		kinds: []schema.GroupKind{{Kind: "ConfigMap"}, {Kind: "Secret"}}, paths: []string{"/data", "/binaryData", "/stringData", "/immutable"},
		when: func(e *edit, _ string) bool { return valueAt(e.before, "/immutable") == true },
	},
	{kinds: []schema.GroupKind{{Kind: "Secret"}}, paths: []string{"/type"}, absent: "Opaque"},
	{
		kinds: []schema.GroupKind{claim},
		paths: []string{
			"/spec/accessModes", "/spec/selector", "/spec/storageClassName", "/spec/dataSource", "/spec/dataSourceRef", "/spec/resources/limits",
		},
	},
	{kinds: []schema.GroupKind{claim}, paths: []string{"/spec/volumeMode"}, absent: "Filesystem"},
	{kinds: []schema.GroupKind{claim}, paths: []string{"/spec/volumeName"}, when: wasSet},
	{
		kinds: []schema.GroupKind{volume}, paths: volumeSources,
		but: regexp.MustCompile(`^/spec/csi/controllerExpandSecretRef(/|$)`),
	},
	{kinds: []schema.GroupKind{volume}, paths: []string{"/spec/volumeMode"}, absent: "Filesystem"},
	{
		kinds: []schema.GroupKind{{Group: rbac, Kind: "RoleBinding"}, {Group: rbac, Kind: "ClusterRoleBinding"}},
		paths: []string{"/roleRef"},
	},
	{kinds: []schema.GroupKind{storageClass}, paths: []string{"/provisioner", "/parameters"}},
	{kinds: []schema.GroupKind{storageClass}, paths: []string{"/reclaimPolicy"}, absent: "Delete"},
	{kinds: []schema.GroupKind{storageClass}, paths: []string{"/volumeBindingMode"}, absent: "Immediate"},
	{kinds: []schema.GroupKind{priorityClass}, paths: []string{"/value"}, absent: int64(0)},
	{kinds: []schema.GroupKind{priorityClass}, paths: []string{"/preemptionPolicy"}, absent: "PreemptLowerPriority"},
	{kinds: []schema.GroupKind{{Group: "networking.k8s.io", Kind: "IngressClass"}}, paths: []string{"/spec/controller"}},
	{kinds: []schema.GroupKind{{Group: "node.k8s.io", Kind: "RuntimeClass"}}, paths: []string{"/handler"}},
	{
		kinds: []schema.GroupKind{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}},
		paths: []string{"/spec/group", "/spec/scope", "/spec/names/kind"},
	},
}

// volumeSources are the fields with the source of a PersistentVolume. A volume has exactly one of them.
//
// Source: PersistentVolumeSource of k8s.io/api/core/v1.
var volumeSources = []string{
	"/spec/awsElasticBlockStore", "/spec/azureDisk", "/spec/azureFile", "/spec/cephfs", "/spec/cinder", "/spec/csi", "/spec/fc",
	"/spec/flexVolume", "/spec/flocker", "/spec/gcePersistentDisk", "/spec/glusterfs", "/spec/hostPath", "/spec/iscsi", "/spec/local",
	"/spec/nfs", "/spec/photonPersistentDisk", "/spec/portworxVolume", "/spec/quobyte", "/spec/rbd", "/spec/scaleIO", "/spec/storageos",
	"/spec/vsphereVolume",
}

const rbac = "rbac.authorization.k8s.io"

var (
	claim         = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volume        = schema.GroupKind{Kind: "PersistentVolume"}
	storageClass  = schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
	priorityClass = schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}
)

// refusals returns the reasons for which the API server rejects the edit.
func (e *edit) refusals() []Impact {
	var refused []Impact
	for i := range fixedPlaces {
		f := &fixedPlaces[i]
		if !slices.Contains(f.kinds, e.kind) {
			continue
		}
		for _, path := range f.paths {
			if f.refuses(e, path) {
				refused = append(refused, refusal(path))
			}
		}
	}
	if e.shrinks() {
		refused = append(refused, refusalOf(storage, storage+" cannot be reduced"))
	}
	if e.losesPods() {
		refused = append(refused, refusalOf(podLabels, podLabels+" do not match /spec/selector"))
	}
	return refused
}

// refuses reports whether the edit changes the value at the place in more than its notation.
func (f *fixed) refuses(e *edit, path string) bool {
	if tree.Equal(f.valueAt(e.before, path), f.valueAt(e.after, path)) || (f.when != nil && !f.when(e, path)) {
		return false
	}
	return !e.only(path, func(s *step) bool { return s.respells() || (f.but != nil && s.within(f.but)) })
}

const (
	storage   = "/spec/resources/requests/storage"
	podLabels = "/spec/template/metadata/labels"
)

// shrinks reports whether a claim requests less storage.
func (e *edit) shrinks() bool {
	if e.kind != claim {
		return false
	}
	was, wasOne := quantityOf(valueAt(e.before, storage))
	is, isOne := quantityOf(valueAt(e.after, storage))
	return wasOne && isOne && is.Cmp(was) < 0
}

// losesPods reports whether the selector of a workload does not match the labels of its new pod template.
func (e *edit) losesPods() bool {
	switch e.kind {
	case deployment, statefulSet, daemonSet, replicaSet:
	default:
		return false
	}
	var pods struct {
		Selector *metav1.LabelSelector `json:"selector"`
		Template struct {
			Metadata struct {
				Labels labels.Set `json:"labels"`
			} `json:"metadata"`
		} `json:"template"`
	}
	spec, ok := valueAt(e.after, "/spec").(map[string]any)
	if !ok || spec["selector"] == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pods) != nil {
		return false // The API server rejects the object for other reasons.
	}
	selector, err := metav1.LabelSelectorAsSelector(pods.Selector)
	return err == nil && !selector.Matches(pods.Template.Metadata.Labels)
}

func (f *fixed) valueAt(object map[string]any, path string) any {
	if v := valueAt(object, path); v != nil {
		return v
	}
	return f.absent
}

func refusal(path string) Impact {
	return refusalOf(path, path+" cannot be changed in place")
}

func refusalOf(path, why string) Impact {
	return Impact{Effect: Refused, Path: path, Message: why + ": the API server rejects it, and the cluster keeps its copy"}
}

// The fields of a pod that may change.
//
// Source: https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
var (
	podImage = regexp.MustCompile(`^/spec/(initContainers|containers)/\d+/image$`)
	podOther = regexp.MustCompile(`^/spec/(activeDeadlineSeconds|terminationGracePeriodSeconds|tolerations(/.*)?)$`)
	podSpec  = regexp.MustCompile(`^/spec(/|$)`)
)

// impactsOfPod returns the effects of an edit of a pod. Almost all fields of a pod are immutable.
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
