package simulate

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// bakeryNodes is the number of nodes of eu-1 for DaemonSets.
const bakeryNodes = 2

// rolloutDeadline is the default progress deadline of Deployments.
const rolloutDeadline = 10 * time.Minute

// progress is the last progress of the rollout of a Deployment.
type progress struct {
	seen  string
	since time.Time
}

// mover is a model of a controller. move performs one action and describes it; it returns "" if there is nothing to do.
type mover struct {
	name string
	move func(*injection) string
}

// movers are the models of all controllers. Each reads the present stored objects.
//
//nolint:gochecknoglobals // It is a constant.
var movers = []mover{
	{"eu-1's garbage collector", (*injection).collect},
	{"eu-1's Deployment controller", (*injection).moveDeployments},
	{"eu-1's ReplicaSet controller", (*injection).moveReplicaSets},
	{"eu-1's StatefulSet controller", (*injection).moveStatefulSets},
	{"eu-1's DaemonSet controller", (*injection).moveDaemonSets},
	{"eu-1's CloneSet controller", (*injection).moveCloneSets},
	{"eu-1's kubelet", (*injection).moveKubelets},
	{"eu-1's disruption controller", (*injection).moveBudgets},
}

// injectionControllers runs all controllers and kubelets of the bakery until none has anything to do.
func (w *World) injectionControllers() {
	in := w.injection
	if in == nil || in.at.Down {
		return
	}
	last := ""
	for range 500 {
		moved := false
		for _, m := range movers {
			if did := m.move(in); did != "" {
				moved, last = true, m.name+" "+did
			}
		}
		if !moved {
			return
		}
	}
	panic("the models of the controllers of " + bakery + " do not come to rest; the last: " + last)
}

// alive reports whether a controller counts a pod as one of its replicas.
func alive(pod *unstructured.Unstructured) bool {
	phase := textOf(pod, "status", "phase")
	return pod.GetDeletionTimestamp() == nil && phase != "Failed" && phase != "Succeeded"
}

// stateOf returns a condition of an object, or nil.
func stateOf(o *unstructured.Unstructured, kind string) map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	all, _ := v.([]any)
	for _, item := range all {
		if c, _ := item.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}

func isReady(pod *unstructured.Unstructured) bool { return stateOf(pod, "Ready")["status"] == "True" }

// trouble returns the reason why a container of a pod waits, or "".
func trouble(pod *unstructured.Unstructured) string {
	v, _, _ := unstructured.NestedFieldNoCopy(pod.Object, "status", "containerStatuses")
	all, _ := v.([]any)
	for _, item := range all {
		status, _ := item.(map[string]any)
		reason, _, _ := unstructured.NestedString(status, "state", "waiting", "reason")
		if reason != "" {
			return reason
		}
	}
	return ""
}

// podsOf returns the pods that an object controls, by name.
func (in *injection) podsOf(uid types.UID) (pods []*unstructured.Unstructured) {
	for _, p := range in.all(podKind) {
		if controls(uid, p) {
			pods = append(pods, p)
		}
	}
	return pods
}

func count(pods []*unstructured.Unstructured, is func(*unstructured.Unstructured) bool) (n int64) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}

func isServing(pod *unstructured.Unstructured) bool { return alive(pod) && isReady(pod) }

// templateKey returns a hash of a template.
func templateKey(template map[string]any) string {
	h := fnv.New32a()
	_, _ = h.Write(encoded(template)) // It never fails.
	return fmt.Sprintf("%08x", h.Sum32())
}

// lastReport is the last status that a controller wrote, and its stored form.
type lastReport struct{ said, stored string }

// report stores the status of an object if it has changed, and returns true in that case.
func (in *injection) report(k kind, o *unstructured.Unstructured, status map[string]any) bool {
	said := string(encoded(status))
	if last := in.reported[o.GetUID()]; last.said == said && last.stored == string(encoded(part(o, "status"))) {
		return false
	}
	by, before := in.user(kubernetesUser), in.at.Server.Version()
	if by.editStatus(k, bakery, o.GetName(), func(o *unstructured.Unstructured) { o.Object["status"] = anything(status) }) != nil {
		return false
	}
	if now := in.at.Server.Peek(k.GroupVersionResource, bakery, o.GetName()); now != nil {
		in.reported[o.GetUID()] = lastReport{said, string(encoded(part(now, "status")))}
	}
	return in.at.Server.Version() != before
}

// collect deletes an object whose owner was deleted.
func (in *injection) collect() string {
	owners := map[types.UID]bool{}
	for _, k := range append([]kind{kindJob}, workloadKinds...) {
		for _, o := range in.all(k) {
			owners[o.GetUID()] = true
		}
	}
	for _, k := range []kind{replicaSetKind, podKind} {
		for _, o := range in.all(k) {
			owner := metav1.GetControllerOfNoCopy(o)
			if owner == nil || owners[owner.UID] || o.GetDeletionTimestamp() != nil {
				continue
			}
			if in.user(kubernetesUser).delete(k, bakery, o.GetName(), now(o)) == nil {
				return "deletes " + named(k, bakery, o.GetName()) + ", whose owner is deleted"
			}
		}
	}
	return ""
}

// now returns options to delete exactly this object, without a grace period.
func now(o *unstructured.Unstructured) metav1.DeleteOptions {
	zero, uid := int64(0), o.GetUID()
	return metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid}}
}

// moveDeployments performs one step of a Deployment's rolling update.
func (in *injection) moveDeployments() string {
	for _, d := range in.all(kindDeployment) {
		if d.GetDeletionTimestamp() != nil {
			continue
		}
		if did := in.rollDeployment(d); did != "" {
			return did
		}
	}
	return ""
}

func (in *injection) rollDeployment(d *unstructured.Unstructured) string {
	template := part(d, "spec", "template")
	key, paused := templateKey(template), isTrue(d, "spec", "paused")
	var fresh *unstructured.Unstructured
	var old []*unstructured.Unstructured
	for _, rs := range in.all(replicaSetKind) {
		switch {
		case !controls(d.GetUID(), rs):
		case rs.GetLabels()["pod-template-hash"] == key:
			fresh = rs
		default:
			old = append(old, rs)
		}
	}
	if did := in.scaleSets(d, fresh, old, key, paused); did != "" {
		return did
	}
	if in.reportDeployment(d, fresh, old) {
		return "reports the status of " + named(kindDeployment, bakery, d.GetName())
	}
	return ""
}

func isTrue(o *unstructured.Unstructured, path ...string) bool {
	v, _, _ := unstructured.NestedBool(o.Object, path...)
	return v
}

// keep changes the number of an object's pods by one toward the wanted number.
func (in *injection) keep(k kind, owner *unstructured.Unstructured, want int64) string {
	pods := slices.DeleteFunc(in.podsOf(owner.GetUID()), func(p *unstructured.Unstructured) bool { return !alive(p) })
	by := in.user(kubernetesUser)
	switch have := int64(len(pods)); {
	case have < want:
		in.made++
		pod := podFrom(part(owner, "spec", "template"), fmt.Sprintf("%s-%d", owner.GetName(), in.made))
		own(pod, k, owner)
		if by.create(pod) != nil {
			return ""
		}
		return "creates pod " + pod.GetName()
	case have > want:
		worst := slices.MinFunc(pods, func(a, b *unstructured.Unstructured) int {
			return cmp.Or(ready(a)-ready(b), b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), strings.Compare(b.GetName(), a.GetName()))
		})
		if by.delete(podKind, bakery, worst.GetName(), metav1.DeleteOptions{}) != nil {
			return ""
		}
		return "deletes pod " + worst.GetName()
	default:
		return ""
	}
}

// ready returns 1 for a ready pod, otherwise 0.
func ready(pod *unstructured.Unstructured) int {
	if isReady(pod) {
		return 1
	}
	return 0
}

// moveKubelets advances one pod: it becomes ready, crashes, or is removed.
func (in *injection) moveKubelets() string {
	for _, p := range in.all(podKind) {
		if did := in.moveKubelet(p); did != "" {
			return did
		}
	}
	return ""
}

func (in *injection) moveKubelet(p *unstructured.Unstructured) string {
	if p.GetDeletionTimestamp() != nil {
		if in.user(kubernetesUser).delete(podKind, bakery, p.GetName(), now(p)) != nil {
			return ""
		}
		return "has ended pod " + p.GetName()
	}
	if !alive(p) {
		return ""
	}
	waits := in.waits(p)
	ok := waits == "" && !in.sick[p.GetLabels()["app"]]
	restarts := restartsOf(p)
	if waits == trouble(p) && ok == isReady(p) && textOf(p, "status", "phase") != "" && (waits != "CrashLoopBackOff" || restarts >= 3) {
		return ""
	}
	state := map[string]any{"running": map[string]any{}}
	if waits != "" {
		state = map[string]any{"waiting": map[string]any{"reason": waits}}
		if waits == "CrashLoopBackOff" {
			restarts++
		}
	}
	phase := "Running"
	if waits != "" && waits != "CrashLoopBackOff" {
		phase = "Pending"
	}
	conditions := []any{map[string]any{"type": "PodScheduled", "status": "True", "lastTransitionTime": in.transition(p, "PodScheduled", "True")}}
	status := map[bool]string{true: "True", false: "False"}[ok]
	conditions = append(conditions, map[string]any{"type": "Ready", "status": status, "lastTransitionTime": in.transition(p, "Ready", status)})
	if !in.report(podKind, p, map[string]any{
		"phase": phase, "conditions": conditions,
		"containerStatuses": []any{map[string]any{"name": "main", "ready": ok, "restartCount": restarts, "state": state}},
	}) {
		return ""
	}
	switch {
	case ok:
		return "has pod " + p.GetName() + " ready"
	case waits != "":
		return "has pod " + p.GetName() + " wait: " + waits
	default:
		return "has pod " + p.GetName() + " run, and it is not ready"
	}
}

// restartsOf returns the restart count of the container of a pod.
func restartsOf(p *unstructured.Unstructured) int64 {
	v, _, _ := unstructured.NestedFieldNoCopy(p.Object, "status", "containerStatuses")
	if all, _ := v.([]any); len(all) > 0 {
		status, _ := all[0].(map[string]any)
		return number(&unstructured.Unstructured{Object: status}, "restartCount")
	}
	return 0
}

// transition returns the time at which a pod's condition got this status, by the clock of the node.
func (in *injection) transition(p *unstructured.Unstructured, kind, status string) string {
	if c := stateOf(p, kind); c["status"] == status {
		at, _ := c["lastTransitionTime"].(string)
		return at
	}
	return time.Now().Add(in.at.Skew).UTC().Format(time.RFC3339)
}

// waits returns the reason why a container cannot run, or "".
func (in *injection) waits(p *unstructured.Unstructured) string {
	v, _, _ := unstructured.NestedFieldNoCopy(p.Object, "spec", "containers")
	all, _ := v.([]any)
	for _, item := range all {
		c, _ := item.(map[string]any)
		if image, _ := c["image"].(string); strings.HasSuffix(image, ":missing") {
			return "ImagePullBackOff"
		} else if strings.HasSuffix(image, ":broken") {
			return "CrashLoopBackOff"
		}
		env, _ := c["env"].([]any)
		for _, item := range env {
			e, _ := item.(map[string]any)
			if value, _ := e["value"].(string); strings.HasPrefix(value, "broken") {
				return "CrashLoopBackOff"
			}
			name, _, _ := unstructured.NestedString(e, "valueFrom", "secretKeyRef", "name")
			if key, _, _ := unstructured.NestedString(e, "valueFrom", "secretKeyRef", "key"); name != "" && !in.hasKey(name, key) {
				return "CreateContainerConfigError"
			}
		}
	}
	return ""
}

// hasKey reports whether a Secret of the bakery has a key.
func (in *injection) hasKey(name, key string) bool {
	for _, s := range in.all(kindSecret) {
		if s.GetName() == name {
			_, found := part(s, "data")[key]
			return found
		}
	}
	return false
}

// moveBudgets updates the numbers of allowed evictions.
func (in *injection) moveBudgets() string {
	for _, b := range in.all(budgetKind) {
		var expected, healthy int64
		for _, p := range in.all(podKind) {
			if alive(p) && selects(b, p) {
				expected++
				healthy += int64(ready(p))
			}
		}
		least := number(b, "spec", "minAvailable")
		if _, found, _ := unstructured.NestedFieldNoCopy(b.Object, "spec", "maxUnavailable"); found {
			least = max(0, expected-number(b, "spec", "maxUnavailable"))
		}
		if in.report(budgetKind, b, map[string]any{
			"observedGeneration": b.GetGeneration(), "expectedPods": expected, "currentHealthy": healthy, "desiredHealthy": least,
			"disruptionsAllowed": max(0, healthy-least),
		}) {
			return "reports the status of " + named(budgetKind, bakery, b.GetName())
		}
	}
	return ""
}
