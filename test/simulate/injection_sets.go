package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func controls(uid types.UID, o *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOfNoCopy(o)
	return owner != nil && owner.UID == uid
}

// scaleSets scales one ReplicaSet of a Deployment by one pod:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/controller/deployment/rolling.go
func (in *injection) scaleSets(d, fresh *unstructured.Unstructured, old []*unstructured.Unstructured, key string, paused bool) string {
	if fresh == nil && !paused {
		return in.newSet(d, key)
	}
	want, surge := replicasOf(d), number(d, "spec", "strategy", "rollingUpdate", "maxSurge")
	least := want - number(d, "spec", "strategy", "rollingUpdate", "maxUnavailable")
	var total, serving, oldTotal int64
	for _, rs := range append(slices.Clone(old), fresh) {
		if rs == nil {
			continue
		}
		total += replicasOf(rs)
		serving += count(in.podsOf(rs.GetUID()), isServing)
		if rs != fresh {
			oldTotal += replicasOf(rs)
		}
	}
	if paused { // While the Deployment is paused, it is scaled, but no pod is replaced.
		for _, rs := range append([]*unstructured.Unstructured{fresh}, old...) {
			if rs != nil && replicasOf(rs) > 0 && total != want {
				return in.scale(rs, max(0, replicasOf(rs)+want-total))
			}
		}
		return ""
	}
	n := replicasOf(fresh)
	switch {
	case n > want:
		return in.scale(fresh, want)
	case n < want && total < want+surge:
		return in.scale(fresh, n+1)
	case oldTotal == 0:
		return in.forgetSet(old)
	}
	unserving := n - count(in.podsOf(fresh.GetUID()), isServing)
	for _, rs := range old {
		if sick := replicasOf(rs) - count(in.podsOf(rs.GetUID()), isServing); sick > 0 && total-least-unserving > 0 && replicasOf(rs) > 0 {
			return in.scale(rs, replicasOf(rs)-1)
		}
	}
	for _, rs := range old {
		if replicasOf(rs) > 0 && serving > least {
			return in.scale(rs, replicasOf(rs)-1)
		}
	}
	return ""
}

// newSet creates the ReplicaSet for the template of a Deployment.
func (in *injection) newSet(d *unstructured.Unstructured, key string) string {
	template := anything(part(d, "spec", "template"))
	rs := object(replicaSetKind, bakery, d.GetName()+"-"+key, nil)
	meta, _ := template["metadata"].(map[string]any)
	of, _ := meta["labels"].(map[string]any)
	if of == nil {
		of = map[string]any{}
	}
	of["pod-template-hash"] = key
	rs.SetLabels(stringMap(of))
	rs.Object["spec"] = map[string]any{
		"replicas": int64(0), "template": template,
		"selector": map[string]any{"matchLabels": map[string]any{"app": d.GetName(), "pod-template-hash": key}},
	}
	own(rs, kindDeployment, d)
	if in.user(kubernetesUser).create(rs) != nil {
		return ""
	}
	return "creates " + named(replicaSetKind, bakery, rs.GetName()) + " for the new template of Deployment " + d.GetName()
}

// forgetSet deletes the oldest empty ReplicaSet if there are more than two.
func (in *injection) forgetSet(old []*unstructured.Unstructured) string {
	if len(old) <= 2 {
		return ""
	}
	oldest := slices.MinFunc(old, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), strings.Compare(a.GetName(), b.GetName()))
	})
	if in.user(kubernetesUser).delete(replicaSetKind, bakery, oldest.GetName(), metav1.DeleteOptions{}) != nil {
		return ""
	}
	return "deletes " + named(replicaSetKind, bakery, oldest.GetName()) + ", which is of long ago"
}

func (in *injection) scale(rs *unstructured.Unstructured, to int64) string {
	if in.user(kubernetesUser).edit(replicaSetKind, bakery, rs.GetName(), func(o *unstructured.Unstructured) { put(o, to, "spec", "replicas") }) != nil {
		return ""
	}
	return fmt.Sprintf("scales %s from %d to %d pods", named(replicaSetKind, bakery, rs.GetName()), replicasOf(rs), to)
}

func (in *injection) reportDeployment(d, fresh *unstructured.Unstructured, old []*unstructured.Unstructured) bool {
	var total, updated, serving int64
	for _, rs := range append(slices.Clone(old), fresh) {
		if rs == nil {
			continue
		}
		pods := in.podsOf(rs.GetUID())
		total += count(pods, alive)
		serving += count(pods, isServing)
		if rs == fresh {
			updated = count(pods, alive)
		}
	}
	want := replicasOf(d)
	p := in.progress[d.GetUID()]
	if seen := fmt.Sprint(d.GetGeneration(), total, updated, serving); seen != p.seen {
		p = progress{seen, time.Now()}
		in.progress[d.GetUID()] = p
	}
	status, reason, message := "True", "ReplicaSetUpdated", "is progressing"
	switch {
	case updated == want && total == want && serving == want:
		reason, message = "NewReplicaSetAvailable", "has successfully progressed"
	case isTrue(d, "spec", "paused"):
		status, reason, message = "Unknown", "DeploymentPaused", "is paused"
	case time.Since(p.since) >= rolloutDeadline:
		status, reason, message = "False", "ProgressDeadlineExceeded", "has timed out progressing"
	}
	return in.report(kindDeployment, d, map[string]any{
		"observedGeneration": d.GetGeneration(), "replicas": total, "updatedReplicas": updated, "readyReplicas": serving,
		"availableReplicas": serving, "unavailableReplicas": max(0, want-serving),
		"conditions": []any{map[string]any{
			"type": "Progressing", "status": status, "reason": reason, "message": "Deployment " + d.GetName() + " " + message,
		}},
	})
}

// moveReplicaSets creates or deletes one pod of a ReplicaSet.
func (in *injection) moveReplicaSets() string {
	for _, rs := range in.all(replicaSetKind) {
		if rs.GetDeletionTimestamp() != nil {
			continue
		}
		if did := in.keep(replicaSetKind, rs, replicasOf(rs)); did != "" {
			return did
		}
		pods := in.podsOf(rs.GetUID())
		if in.report(replicaSetKind, rs, map[string]any{
			"observedGeneration": rs.GetGeneration(), "replicas": count(pods, alive), "readyReplicas": count(pods, isServing),
			"availableReplicas": count(pods, isServing), "fullyLabeledReplicas": count(pods, alive),
		}) {
			return "reports the status of " + named(replicaSetKind, bakery, rs.GetName())
		}
	}
	return ""
}

// moveCloneSets is like moveReplicaSets, for a kind that Refract does not know.
func (in *injection) moveCloneSets() string {
	for _, o := range in.all(cloneSetKind) {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		if did := in.keep(cloneSetKind, o, replicasOf(o)); did != "" {
			return did
		}
	}
	return ""
}

// moveStatefulSets performs one step of a StatefulSet: pods are created in order, and replaced from the last:
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/controller/statefulset/stateful_set_control.go
func (in *injection) moveStatefulSets() string {
	for _, o := range in.all(statefulSetKind) {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		to := templateKey(part(o, "spec", "template"))
		if in.templates[o.GetUID()] == nil {
			in.templates[o.GetUID()] = map[string]map[string]any{}
		}
		in.templates[o.GetUID()][to] = anything(part(o, "spec", "template"))
		from := cmp.Or(textOf(o, "status", "currentRevision"), to)
		if did := in.moveOrdered(o, from, to); did != "" {
			return did
		}
		pods := in.podsOf(o.GetUID())
		revised := count(pods, func(p *unstructured.Unstructured) bool { return alive(p) && revisionOf(p) == to })
		if total := count(pods, alive); total == replicasOf(o) && revised == total && count(pods, isServing) == total && !isOnDelete(o) {
			from = to
		}
		if in.report(statefulSetKind, o, map[string]any{
			"observedGeneration": o.GetGeneration(), "replicas": count(pods, alive), "readyReplicas": count(pods, isServing),
			"availableReplicas": count(pods, isServing), "updatedReplicas": revised, "currentRevision": from, "updateRevision": to,
			"currentReplicas": count(pods, func(p *unstructured.Unstructured) bool { return alive(p) && revisionOf(p) == from }),
		}) {
			return "reports the status of " + named(statefulSetKind, bakery, o.GetName())
		}
	}
	return ""
}

func revisionOf(pod *unstructured.Unstructured) string {
	return pod.GetLabels()["controller-revision-hash"]
}

func isOnDelete(o *unstructured.Unstructured) bool {
	return textOf(o, "spec", "updateStrategy", "type") == "OnDelete"
}

func (in *injection) moveOrdered(o *unstructured.Unstructured, from, to string) string {
	by, want := in.user(kubernetesUser), int(replicasOf(o))
	partition := int(number(o, "spec", "updateStrategy", "rollingUpdate", "partition"))
	pods := map[string]*unstructured.Unstructured{}
	for _, p := range in.podsOf(o.GetUID()) {
		pods[p.GetName()] = p
	}
	name := func(i int) string { return fmt.Sprintf("%s-%d", o.GetName(), i) }
	current := int(count(in.podsOf(o.GetUID()), func(p *unstructured.Unstructured) bool { return alive(p) && revisionOf(p) == from }))
	for i := range want {
		switch p := pods[name(i)]; {
		case p == nil:
			key := to
			if isOnDelete(o) || (partition == 0 && i < current) || i < partition {
				key = from
			}
			if isOnDelete(o) {
				key = to // With OnDelete, a pod gets the new template after a user has deleted the former pod.
			}
			template := in.templates[o.GetUID()][key]
			if template == nil {
				template, key = part(o, "spec", "template"), to
			}
			pod := podFrom(template, name(i))
			pod.SetLabels(with(pod.GetLabels(), "controller-revision-hash", key))
			own(pod, statefulSetKind, o)
			if by.create(pod) != nil {
				return ""
			}
			return "creates pod " + name(i)
		case !isServing(p):
			return "" // The next pod waits for this one.
		}
	}
	for i := len(pods) - 1; i >= 0; i-- {
		p := pods[name(i)]
		switch {
		case p == nil:
		case i >= want && alive(p), !isOnDelete(o) && i >= partition && i < want && revisionOf(p) != to && alive(p):
			if by.delete(podKind, bakery, name(i), metav1.DeleteOptions{}) != nil {
				return ""
			}
			return "deletes pod " + name(i)
		}
	}
	return ""
}

func with(labels map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	for k, v := range labels {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// moveDaemonSets performs one step of a DaemonSet: each node has one pod, and one pod may be missing.
func (in *injection) moveDaemonSets() string {
	for _, o := range in.all(daemonSetKind) {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		to, by := templateKey(part(o, "spec", "template")), in.user(kubernetesUser)
		pods := in.podsOf(o.GetUID())
		nodes := map[string]*unstructured.Unstructured{}
		for _, p := range pods {
			if alive(p) {
				nodes[textOf(p, "spec", "nodeName")] = p
			}
		}
		for i := range bakeryNodes {
			node := fmt.Sprintf("node-%d", i+1)
			if nodes[node] != nil {
				continue
			}
			in.made++
			pod := podFrom(part(o, "spec", "template"), fmt.Sprintf("%s-%d", o.GetName(), in.made))
			pod.SetLabels(with(pod.GetLabels(), "controller-revision-hash", to))
			put(pod, node, "spec", "nodeName")
			own(pod, daemonSetKind, o)
			if by.create(pod) == nil {
				return "creates pod " + pod.GetName() + " on " + node
			}
		}
		serving := count(pods, isServing)
		for i := range bakeryNodes {
			p := nodes[fmt.Sprintf("node-%d", i+1)]
			if p == nil || isOnDelete(o) || revisionOf(p) == to || (isServing(p) && serving < bakeryNodes) {
				continue
			}
			if by.delete(podKind, bakery, p.GetName(), metav1.DeleteOptions{}) == nil {
				return "deletes pod " + p.GetName()
			}
		}
		if in.report(daemonSetKind, o, map[string]any{
			"observedGeneration": o.GetGeneration(), "desiredNumberScheduled": int64(bakeryNodes), "currentNumberScheduled": count(pods, alive),
			"numberReady": serving, "numberAvailable": serving,
			"updatedNumberScheduled": count(pods, func(p *unstructured.Unstructured) bool { return alive(p) && revisionOf(p) == to }),
		}) {
			return "reports the status of " + named(daemonSetKind, bakery, o.GetName())
		}
	}
	return ""
}
