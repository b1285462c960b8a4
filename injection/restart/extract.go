package restart

import (
	"encoding/json"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// class is the way in which a kind of owner treats its pods.
type class int

const (
	classOther      class = iota // An unknown controller. Its pods are evicted.
	classNone                    // No owner: bare pods.
	classTemplate                // The controller recreates the pods after a change of the template.
	classReplicas                // The controller replaces only deleted pods.
	classJob                     // The pods run to completion.
	classCronJob                 // The next run has new pods.
	classDeployment              // Like classTemplate, but a Deployment can be paused and reports its progress.
)

// classes are the known kinds, by group and kind.
var classes = map[schema.GroupKind]class{
	{Group: "apps", Kind: "Deployment"}:                     classDeployment,
	{Group: "apps", Kind: "StatefulSet"}:                    classTemplate,
	{Group: "apps", Kind: "DaemonSet"}:                      classTemplate,
	{Group: "apps", Kind: "ReplicaSet"}:                     classReplicas,
	{Kind: "ReplicationController"}:                         classReplicas,
	{Group: "batch", Kind: "Job"}:                           classJob,
	{Group: "batch", Kind: "CronJob"}:                       classCronJob,
	corev1.SchemeGroupVersion.WithKind(kindPod).GroupKind(): classNone,
}

const kindPod = "Pod"

// ref names an owner of pods in the same namespace.
type ref struct {
	apiVersion, kind, name string
	uid                    types.UID
}

// String returns KIND/NAME, as in the status of a policy.
func (r ref) String() string { return r.kind + "/" + r.name }

func (r ref) groupKind() schema.GroupKind {
	gv, err := schema.ParseGroupVersion(r.apiVersion)
	if err != nil {
		return schema.GroupKind{Group: r.apiVersion, Kind: r.kind} // Not a known kind.
	}
	return gv.WithKind(r.kind).GroupKind()
}

func (r ref) class() class { return classes[r.groupKind()] }

// refOf returns the ref of an object.
func refOf(u *unstructured.Unstructured) ref {
	return ref{apiVersion: u.GetAPIVersion(), kind: u.GetKind(), name: u.GetName(), uid: u.GetUID()}
}

// controllerOf returns the controller of an object, if it has one.
func controllerOf(o metav1.Object) (ref, bool) {
	c := metav1.GetControllerOfNoCopy(o)
	if c == nil {
		return ref{}, false
	}
	return ref{apiVersion: c.APIVersion, kind: c.Kind, name: c.Name, uid: c.UID}, true
}

// head is the metadata that is common to all extracts.
type head struct {
	namespace, name, version string
	uid                      types.UID
	created                  time.Time
	deleting                 bool
	owner                    ref // Zero without a controller.
}

func headOf(u *unstructured.Unstructured) head {
	owner, _ := controllerOf(u)
	return head{
		namespace: u.GetNamespace(), name: u.GetName(), version: u.GetResourceVersion(), uid: u.GetUID(),
		created: u.GetCreationTimestamp().Time, deleting: u.GetDeletionTimestamp() != nil, owner: owner,
	}
}

// GetObjectMeta lets the reflector derive the key of each item.
func (h *head) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: h.namespace, Name: h.name, ResourceVersion: h.version, UID: h.uid}
}

var _ metav1.ObjectMetaAccessor = (*head)(nil)

// pod is the extract of a pod: only the parts that the controller needs, because there may be very many pods.
type pod struct {
	head

	finished, failed bool // A failed pod is also finished.
	endless          bool // The restart policy is Always.
	ready            bool
	readySince       time.Time // When the pod became ready, by the clock of its kubelet.
	readySeen        time.Time // When the controller saw the pod become ready, by its own clock; zero if it did not see that.
	trouble          string    // The reason why a container does not run, if troubles has this reason.
	// troubleFrom is when the trouble begins to count: later than its beginning, because an image registry may have a
	// short outage. If it is zero, the trouble counts at once.
	troubleFrom  time.Time
	templateHash string // The value of the annotation that comes from the template.
	lean         []byte // The content that is relevant for injection, as JSON.
}

// counts reports whether the pod matters for policies: it neither has finished nor is being deleted.
func (p *pod) counts() bool { return !p.finished && !p.deleting }

// succeed sets readySeen, with the help of the previous extract. It uses the controller's clock, because the clock of
// the node may differ.
func (p *pod) succeed(was *pod, now time.Time) {
	switch {
	case p.uid != was.uid || !p.ready:
	case was.ready && was.readySince.Equal(p.readySince):
		p.readySeen = was.readySeen
	default:
		p.readySeen = now
	}
}

// readyFrom returns the time when a ready pod became ready: by the controller's clock if it saw that, or else by the
// clock of the kubelet.
func (p *pod) readyFrom() time.Time {
	if p.readySeen.IsZero() {
		return p.readySince
	}
	return p.readySeen
}

// readPod extracts a pod.
func readPod(u *unstructured.Unstructured) (*pod, error) {
	lean, err := json.Marshal(leanPod(u.Object, u.GetNamespace(), u.GetName()))
	if err != nil {
		return nil, err
	}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	restart, _, _ := unstructured.NestedString(u.Object, "spec", "restartPolicy")
	p := &pod{
		head:         headOf(u),
		finished:     phase == string(corev1.PodFailed) || phase == string(corev1.PodSucceeded),
		failed:       phase == string(corev1.PodFailed),
		endless:      restart == "" || restart == string(corev1.RestartPolicyAlways),
		templateHash: u.GetAnnotations()[refractv1beta1.HashAnnotation],
		lean:         lean,
	}
	ready, readySince := podCondition(u.Object, corev1.PodReady)
	scheduled, scheduledSince := podCondition(u.Object, corev1.PodScheduled)
	p.ready, p.readySince = ready, readySince
	begun := p.created
	if scheduled && scheduledSince.After(begun) {
		begun = scheduledSince
	}
	p.trouble, p.troubleFrom = troubleOf(u.Object, begun)
	return p, nil
}

// podCondition returns whether a condition of a pod is true, and the time of its last transition. The time is zero if
// it is missing, and then counts as long ago.
func podCondition(pod map[string]any, kind corev1.PodConditionType) (is bool, since time.Time) {
	items, _, _ := unstructured.NestedFieldNoCopy(pod, "status", "conditions")
	conditions, _ := items.([]any)
	for _, item := range conditions {
		c, ok := item.(map[string]any)
		if !ok || c["type"] != string(kind) {
			continue
		}
		text, _ := c["lastTransitionTime"].(string)
		since, _ = time.Parse(time.RFC3339, text) // An invalid time results in zero, which counts as long ago.
		return c["status"] == string(metav1.ConditionTrue), since
	}
	return false, time.Time{}
}

// Limits for the problems of containers.
const (
	// crashes is the number of restarts from which a crashing container counts as failed. Many containers crash a few
	// times until their dependencies are available.
	crashes = 3
	// pulling is how long an image may fail to be pulled, because registries have short outages.
	pulling = time.Minute
)

const crashing = "CrashLoopBackOff"

// troubles has the waiting reasons of containers that usually need an action of a user. The value is the time for which
// each reason is tolerated.
var troubles = map[string]time.Duration{
	crashing: 0, "CreateContainerConfigError": 0, "CreateContainerError": 0, "RunContainerError": 0, "InvalidImageName": 0, "ErrImageNeverPull": 0,
	"ErrImagePull": pulling, "ImagePullBackOff": pulling, "ImageInspectError": pulling, "RegistryUnavailable": pulling,
}

// troubleOf returns the reason why a container does not run, if troubles has this reason, and the value of troubleFrom.
// begun is the time when the pod was assigned to its node.
func troubleOf(pod map[string]any, begun time.Time) (trouble string, from time.Time) {
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		items, _, _ := unstructured.NestedFieldNoCopy(pod, "status", list)
		statuses, _ := items.([]any)
		for _, item := range statuses {
			status, ok := item.(map[string]any)
			if !ok {
				continue
			}
			reason, _, _ := unstructured.NestedString(status, "state", "waiting", "reason")
			passes, known := troubles[reason]
			restarts, _, _ := unstructured.NestedInt64(status, "restartCount")
			if !known || (reason == crashing && restarts < crashes) {
				continue
			}
			if passes == 0 {
				return reason, time.Time{}
			}
			trouble, from = reason, begun.Add(passes)
		}
	}
	return trouble, from
}

// containerLists are the lists of containers in the spec of a pod.
var containerLists = []string{"initContainers", "containers", "ephemeralContainers"}

// containerParts are the parts of a container that matter for policies.
var containerParts = []string{"name", "env", "envFrom", "volumeMounts", "volumeDevices"}

// leanPod returns the parts of a pod or pod template that are relevant for injection. They are usually a small part of
// the object.
func leanPod(object map[string]any, namespace, name string) map[string]any {
	spec := map[string]any{}
	whole, _, _ := unstructured.NestedFieldNoCopy(object, "spec")
	from, _ := whole.(map[string]any)
	for _, list := range containerLists {
		items, ok := from[list].([]any)
		if !ok {
			continue
		}
		containers := make([]any, 0, len(items))
		for _, item := range items {
			container, _ := item.(map[string]any)
			containers = append(containers, pick(container, containerParts))
		}
		spec[list] = containers
	}
	if volumes, ok := from["volumes"]; ok {
		spec["volumes"] = volumes
	}
	meta := map[string]any{"namespace": namespace, "name": name}
	if labels, ok, _ := unstructured.NestedFieldNoCopy(object, "metadata", "labels"); ok {
		meta["labels"] = labels
	}
	if annotations, _, _ := unstructured.NestedStringMap(object, "metadata", "annotations"); len(annotations) > 0 {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		meta["annotations"] = annotations
	}
	return map[string]any{"apiVersion": "v1", "kind": kindPod, "metadata": meta, "spec": spec}
}

// pick returns the members of an object with these keys.
func pick(from map[string]any, keys []string) map[string]any {
	to := make(map[string]any, len(keys))
	for _, key := range keys {
		if value, ok := from[key]; ok {
			to[key] = value
		}
	}
	return to
}

// workload is the extract of an object that creates pods.
type workload struct {
	head

	ref                  ref
	generation, observed int64
	optedOut             bool // An annotation says that the workload's owner recreates the pods.
	paused               bool
	onDelete             bool // A change of the template takes effect only when a user deletes the pods.
	partitioned          bool // Only some of the pods follow the template.
	templateHash         string
	// The numbers of pods: desired (replicas), existing (current), existing with the current template (updated), and
	// available. As in the status of the workload, available pods may have any template.
	replicas, current, updated, available int64
	revised                               bool   // For a StatefulSet: all pods have the same revision. For other kinds: true.
	stuck                                 string // The controller's message that the rollout of the workload makes no progress.
	lean                                  []byte // The parts of a new pod that are relevant for injection, as JSON; nil if it has a controller.
}

// complete reports whether all desired pods exist with the current template and are available, and no others exist.
// kubectl rollout status waits for the same state.
func (w *workload) complete() bool {
	return w.observed >= w.generation && w.revised && w.updated >= w.replicas && w.current <= w.updated && w.available >= w.updated
}

// readWorkload extracts a workload.
func readWorkload(u *unstructured.Unstructured) (*workload, error) {
	w := &workload{head: headOf(u), ref: refOf(u), generation: u.GetGeneration(), revised: true}
	w.optedOut = optedOut(u)
	if w.ref.class() == classJob || (w.ref.class() == classReplicas && w.owner.uid != "") {
		return w, nil // Only the controller of this object matters. The full extract would need much memory, because there are many such objects.
	}
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(u.Object, path...)
		return n
	}
	w.observed = number("status", "observedGeneration")
	w.replicas = 1 // The default of the API server.
	if n, found, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); found {
		w.replicas = n
	}
	w.current, w.available = number("status", "replicas"), number("status", "availableReplicas")
	w.updated = number("status", "updatedReplicas")
	w.paused, _, _ = unstructured.NestedBool(u.Object, "spec", "paused")
	strategy, _, _ := unstructured.NestedString(u.Object, "spec", "updateStrategy", "type")
	w.onDelete = strategy == string(appsv1.OnDeleteStatefulSetStrategyType)
	switch w.ref.kind {
	case "Deployment":
		w.stuck = stuckOf(u.Object)
	case "DaemonSet":
		w.replicas, w.updated = number("status", "desiredNumberScheduled"), number("status", "updatedNumberScheduled")
		w.current, w.available = w.updated, number("status", "numberAvailable")
	case "StatefulSet":
		w.partitioned = number("spec", "updateStrategy", "rollingUpdate", "partition") > 0
		from, _, _ := unstructured.NestedString(u.Object, "status", "currentRevision")
		to, _, _ := unstructured.NestedString(u.Object, "status", "updateRevision")
		w.revised, w.updated = from == to, w.current
	default:
		w.updated = w.current
	}
	w.templateHash, _, _ = unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", refractv1beta1.HashAnnotation)
	lean, err := json.Marshal(leanPod(podOf(u), w.namespace, ""))
	w.lean = lean
	return w, err
}

func optedOut(o metav1.Object) bool {
	return o.GetAnnotations()[refractv1beta1.RolloutAnnotation] == "false"
}

// stuckOf returns the message of a Deployment that has exceeded its progress deadline; empty for others.
func stuckOf(deployment map[string]any) string {
	conditions, _, _ := unstructured.NestedSlice(deployment, "status", "conditions")
	for _, item := range conditions {
		c, ok := item.(map[string]any)
		if ok && c["type"] == string(appsv1.DeploymentProgressing) && c["status"] == string(corev1.ConditionFalse) &&
			c["reason"] == "ProgressDeadlineExceeded" {
			message, _ := c["message"].(string)
			return "ProgressDeadlineExceeded: " + message
		}
	}
	return ""
}

// podOf returns the pod that the workload's controller would create from the template. It shares memory with the
// workload.
func podOf(u *unstructured.Unstructured) map[string]any {
	whole, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template")
	template, _ := whole.(map[string]any)
	spec, _ := template["spec"].(map[string]any)
	claims, _, _ := unstructured.NestedSlice(u.Object, "spec", "volumeClaimTemplates")
	if len(claims) > 0 {
		spec = withClaims(spec, claims, u.GetName())
	}
	from, _ := template["metadata"].(map[string]any)
	return map[string]any{"apiVersion": "v1", "kind": kindPod, "metadata": pick(from, []string{"labels", "annotations"}), "spec": spec}
}

// withClaims returns the spec of a StatefulSet's first pod. Each volume claim template of the StatefulSet becomes a
// volume, and replaces a volume with the same name.
func withClaims(spec map[string]any, claims []any, set string) map[string]any {
	out := make(map[string]any, len(spec)+1)
	maps.Copy(out, spec)
	names := map[string]bool{}
	var volumes []any
	for _, item := range claims {
		claim, _ := item.(map[string]any)
		name, _, _ := unstructured.NestedString(claim, "metadata", "name")
		names[name] = true
		volumes = append(volumes, map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": name + "-" + set + "-0"}})
	}
	own, _ := spec["volumes"].([]any)
	for _, item := range own {
		volume, _ := item.(map[string]any)
		if name, _ := volume["name"].(string); !names[name] {
			volumes = append(volumes, item)
		}
	}
	out["volumes"] = volumes
	return out
}
