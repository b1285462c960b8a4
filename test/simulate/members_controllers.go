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

	"refract.dev/test/apiserver"
)

// garbage returns the actions of the garbage collector: for objects whose owners are gone, and for objects with one of
// its finalizers.
func (w *World) garbage(t *Target) (all []move) {
	if t.Down {
		return nil
	}
	there := map[types.UID]bool{}
	for _, k := range slices.Concat(builtInKinds, []kind{kindCluster, kindNamespace, kindLease}) {
		for _, o := range t.Server.All(k.GroupVersionResource) {
			there[o.GetUID()] = true
		}
	}
	actor := t.Name + "'s garbage collector"
	h := w.hand(t, "garbage-collector")
	for _, k := range builtInKinds {
		for _, o := range t.Server.All(k.GroupVersionResource) {
			namespace, name, uid := o.GetNamespace(), o.GetName(), o.GetUID()
			what := named(k, namespace, name)
			if owners := o.GetOwnerReferences(); len(owners) > 0 && o.GetDeletionTimestamp() == nil &&
				!slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return there[r.UID] }) {
				how := metav1.DeletePropagationBackground
				all = append(all, move{actor, "deletes " + what + ", whose owner is gone", func() error {
					return h.delete(k, namespace, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &how})
				}})
			}
			if o.GetDeletionTimestamp() == nil {
				continue
			}
			finalizers := o.GetFinalizers()
			switch {
			case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
				all = append(all, move{actor, "lets what belongs to " + what + " stay, and then the object go", func() error {
					w.disown(h, uid)
					return dropFinalizer(h, k, o, metav1.FinalizerOrphanDependents)
				}})
			case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
				all = append(all, move{actor, "deletes what belongs to " + what + ", and then the object", func() error {
					if w.deleteOwned(h, uid) {
						return nil
					}
					return dropFinalizer(h, k, o, metav1.FinalizerDeleteDependents)
				}})
			}
		}
	}
	return all
}

func dropFinalizer(h hand, k kind, o *unstructured.Unstructured, finalizer string) error {
	return h.edit(k, o.GetNamespace(), o.GetName(), func(o *unstructured.Unstructured) {
		o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == finalizer }))
	})
}

// owned calls a function for each object that belongs to an owner.
func (h hand) owned(owner types.UID, each func(k kind, o *unstructured.Unstructured)) {
	for _, k := range builtInKinds {
		for _, o := range h.all(k, "") {
			if slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner }) {
				each(k, o)
			}
		}
	}
}

func (w *World) disown(h hand, owner types.UID) {
	h.owned(owner, func(k kind, o *unstructured.Unstructured) {
		_ = h.edit(k, o.GetNamespace(), o.GetName(), func(o *unstructured.Unstructured) { // A failure is retried later.
			o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner }))
		})
	})
}

// deleteOwned deletes the objects that belong to an owner, and reports whether there were any.
func (w *World) deleteOwned(h hand, owner types.UID) (deleted bool) {
	h.owned(owner, func(k kind, o *unstructured.Unstructured) {
		if o.GetDeletionTimestamp() == nil && h.delete(k, o.GetNamespace(), o.GetName(), metav1.DeleteOptions{}) == nil {
			deleted = true
		}
	})
	return deleted
}

// claims returns the actions of the volume controllers: they bind claims, and delay the deletion of claims that pods
// use.
func (w *World) claims(c *Cluster) (all []move) {
	h := w.hand(&c.Target, "persistentvolume-binder")
	actor := c.Name + "'s volume controller"
	for _, o := range c.Server.All(kindClaim.GroupVersionResource) {
		namespace, name := o.GetNamespace(), o.GetName()
		what := named(kindClaim, namespace, name)
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase") // Empty for a new claim.
		protected := slices.Contains(o.GetFinalizers(), claimFinalizer)
		switch {
		case o.GetDeletionTimestamp() != nil && protected && !c.uses(namespace, name):
			all = append(all, move{actor, "lets " + what + " go, which no pod uses", func() error { return dropFinalizer(h, kindClaim, o, claimFinalizer) }})
		case o.GetDeletionTimestamp() != nil:
		case phase != "Bound":
			all = append(all, move{actor, "binds " + what + " to a new volume", func() error { return c.bind(h, o) }})
		default:
			asked, _, _ := unstructured.NestedString(o.Object, "spec", "resources", "requests", "storage") // Empty without a request.
			has, _, _ := unstructured.NestedString(o.Object, "status", "capacity", "storage")              // Empty for a new claim.
			if asked != has {
				all = append(all, move{actor, "grows the volume of " + what + " to " + asked, func() error {
					return h.editStatus(kindClaim, namespace, name, func(o *unstructured.Unstructured) {
						_ = unstructured.SetNestedField(o.Object, asked, "status", "capacity", "storage") // The status is a map.
					})
				}})
			}
		}
	}
	return all
}

const claimFinalizer = "kubernetes.io/pvc-protection"

// uses reports whether pods of a cluster use a claim.
func (c *Cluster) uses(namespace, claim string) bool {
	if !c.Lab.Workloads {
		return false
	}
	return slices.ContainsFunc(c.Server.All(kindDeployment.GroupVersionResource), func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() == namespace && strings.Contains(string(encoded(o.Object["spec"])), `"claimName":"`+claim+`"`)
	})
}

// bind sets the fields of a claim that the binder assigns on the cluster.
func (c *Cluster) bind(h hand, o *unstructured.Unstructured) error {
	volume := "pvc-" + string(o.GetUID())
	err := h.edit(kindClaim, o.GetNamespace(), o.GetName(), func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(o.Object, volume, "spec", "volumeName") // The object has a spec.
		annotate(o, "pv.kubernetes.io/bind-completed", "yes")
		annotate(o, "volume.kubernetes.io/storage-provisioner", c.Lab.StorageClass+".example.com")
		if !slices.Contains(o.GetFinalizers(), claimFinalizer) {
			o.SetFinalizers(append(o.GetFinalizers(), claimFinalizer))
		}
	})
	if err != nil {
		return err
	}
	return h.editStatus(kindClaim, o.GetNamespace(), o.GetName(), func(o *unstructured.Unstructured) {
		size, _, _ := unstructured.NestedString(o.Object, "spec", "resources", "requests", "storage") // Empty without a request.
		o.Object["status"] = map[string]any{"phase": "Bound", "accessModes": []any{"ReadWriteOnce"}, "capacity": map[string]any{"storage": size}}
	})
}

// mutateOnMember installs the mutating admission of a cluster: it sets the storage class of claims, and a webhook adds
// a container, a label and an annotation to workloads.
func (w *World) mutateOnMember(c *Cluster) {
	c.Server.Mutate(func(write apiserver.Write) {
		o := write.After
		if o == nil || write.Subresource != "" {
			return
		}
		switch write.GVR {
		case kindClaim.GroupVersionResource:
			if class, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName"); class == "" && write.Before == nil {
				_ = unstructured.SetNestedField(o.Object, c.Lab.StorageClass, "spec", "storageClassName") // The object has a spec.
			}
		case kindDeployment.GroupVersionResource:
			has := slices.ContainsFunc(containers(o), func(v any) bool { m, ok := v.(map[string]any); return ok && m["name"] == "sidecar" })
			if !c.Lab.Sidecar || has || !slices.Contains(tenantSpaces, write.Namespace) {
				return
			}
			sidecar := map[string]any{"name": "sidecar", "image": "mesh:1"}
			_ = unstructured.SetNestedSlice(o.Object, append(containers(o), sidecar), "spec", "template", "spec", "containers") // It has containers.
			label(o, "mesh", "on")
			annotate(o, "mesh.example.com/injected", "true")
		}
	})
}

func numberAt(o *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...) // 0 without the field.
	return n
}

// wantedReplicas returns spec.replicas, by default 1.
func wantedReplicas(o *unstructured.Unstructured) int64 {
	if n, found, err := unstructured.NestedInt64(o.Object, "spec", "replicas"); found && err == nil {
		return n
	}
	return 1
}

// deploymentDeadline is the time after which an unavailable Deployment has failed.
const deploymentDeadline = 60 * time.Second

// deployments returns the actions of the Deployment controller and the kubelets: the controller first observes a new
// generation, and the pods become ready some time later.
func (w *World) deployments(c *Cluster) (all []move) {
	h := w.hand(&c.Target, "deployment-controller")
	for _, o := range c.Server.All(kindDeployment.GroupVersionResource) {
		if o.GetDeletionTimestamp() != nil || !slices.Contains(tenantSpaces, o.GetNamespace()) {
			continue
		}
		d := c.workload(o)
		if text, status := d.next(h.now()); status != nil {
			all = append(all, move{c.Name + "'s Deployment controller", text, func() error {
				return h.editStatus(kindDeployment, o.GetNamespace(), o.GetName(), func(o *unstructured.Unstructured) { o.Object["status"] = status })
			}})
		}
	}
	return all
}

// workload is a Deployment on its cluster.
type workload struct {
	*unstructured.Unstructured

	// replicas is the wanted number of pods. ready is the number of pods that can become ready. refused is true if the
	// cluster rejects all pods.
	replicas, ready int64
	refused         bool
}

func (c *Cluster) workload(o *unstructured.Unstructured) workload {
	image := imageOf(o)
	d := workload{o, wantedReplicas(o), wantedReplicas(o), c.Lab.Forbids != "" && strings.HasSuffix(image, ":"+c.Lab.Forbids)}
	if d.refused || c.Lab.Crashes || strings.HasSuffix(image, ":broken") {
		d.ready = 0
	}
	return d
}

// next returns the next status of the controller and its description. It returns nil if the status is up to date.
func (d *workload) next(now time.Time) (text string, status map[string]any) {
	what, has := named(kindDeployment, d.GetNamespace(), d.GetName()), numberAt(d.Unstructured, "status", "readyReplicas")
	condition := func(kind, status, reason, message string) any { return conditionAt(kind, status, reason, message, now) }
	available := condition("Available", "True", "MinimumReplicasAvailable", "")
	unavailable := condition("Available", "False", "MinimumReplicasUnavailable", "")
	updated := condition("Progressing", "True", "ReplicaSetUpdated", "")
	complete := condition("Progressing", "True", "NewReplicaSetAvailable", "")
	reason := reasonOf(d.Unstructured, "Progressing")
	switch {
	case numberAt(d.Unstructured, "status", "observedGeneration") != d.GetGeneration():
		conditions := []any{updated, unavailable}
		if has = min(has, d.ready); has >= d.replicas {
			conditions[1] = available
		}
		if d.refused {
			conditions = append(conditions, condition("ReplicaFailure", "True", "FailedCreate",
				"pods \"web\" is forbidden: violates PodSecurity \"restricted:latest\""))
		}
		return "begins to bring " + what + " to its new generation", d.status(has, conditions...)
	case has < d.ready:
		return "reports that all pods of " + what + " are ready", d.status(d.ready, complete, available)
	case has > d.ready:
		return "reports that pods of " + what + " are not ready any more", d.status(d.ready, updated, unavailable)
	case d.ready < d.replicas && reason != "ProgressDeadlineExceeded" && now.Sub(timeOf(d.Unstructured, "Progressing")) > deploymentDeadline:
		exceeded := condition("Progressing", "False", "ProgressDeadlineExceeded", "ReplicaSet \"web\" has timed out progressing.")
		return "reports that the progress deadline of " + what + " is exceeded", d.status(d.ready, exceeded, unavailable)
	case d.replicas == 0 && reason != "NewReplicaSetAvailable":
		return "reports that " + what + " is complete, with no pods", d.status(0, complete, available)
	default:
		return "", nil
	}
}

// status returns the status with this number of ready pods.
func (d *workload) status(ready int64, conditions ...any) map[string]any {
	s := map[string]any{"observedGeneration": d.GetGeneration(), "conditions": conditions}
	updated := d.replicas
	if d.refused {
		updated = 0
	}
	for key, n := range map[string]int64{
		"replicas": updated, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": d.replicas - ready,
	} {
		if n > 0 {
			s[key] = n
		}
	}
	return s
}

// now returns the time of the API server.
func (h hand) now() time.Time { return time.Now().Add(h.target.Skew).UTC().Truncate(time.Second) }

func conditionAt(kind, status, reason, message string, now time.Time) any {
	at := now.Format(time.RFC3339)
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "lastUpdateTime": at, "lastTransitionTime": at}
}

func saidCondition(o *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions") // Empty without conditions.
	for _, v := range all {
		if m, ok := v.(map[string]any); ok && m["type"] == kind {
			return m
		}
	}
	return nil
}

func reasonOf(o *unstructured.Unstructured, kind string) string {
	reason, _ := saidCondition(o, kind)["reason"].(string)
	return reason
}

func timeOf(o *unstructured.Unstructured, kind string) time.Time {
	text, _ := saidCondition(o, kind)["lastTransitionTime"].(string)
	at, _ := time.Parse(time.RFC3339, text) // The zero time without a condition.
	return at
}

// jobs returns the actions of the Job controller, and of the controller that deletes Jobs after their TTL.
func (w *World) jobs(c *Cluster) (all []move) {
	actor := c.Name + "'s Job controller"
	h := w.hand(&c.Target, "job-controller")
	for _, o := range c.Server.All(kindJob.GroupVersionResource) {
		if o.GetDeletionTimestamp() != nil {
			continue
		}
		namespace, name, uid := o.GetNamespace(), o.GetName(), o.GetUID()
		what := named(kindJob, namespace, name)
		now := h.now()
		started, _, _ := unstructured.NestedString(o.Object, "status", "startTime") // Empty for a new Job.
		suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")     // False without the field.
		failed, complete := saidCondition(o, "Failed") != nil, saidCondition(o, "Complete") != nil
		set := func(status map[string]any) func() error {
			return func() error {
				return h.editStatus(kindJob, namespace, name, func(o *unstructured.Unstructured) { o.Object["status"] = status })
			}
		}
		switch {
		case failed || complete:
			ttl, found, err := unstructured.NestedInt64(o.Object, "spec", "ttlSecondsAfterFinished")
			ended := timeOf(o, "Complete")
			if failed {
				ended = timeOf(o, "Failed")
			}
			if found && err == nil && now.Sub(ended) >= time.Duration(ttl)*time.Second {
				how := metav1.DeletePropagationBackground
				all = append(all, move{c.Name + "'s TTL controller", fmt.Sprintf("deletes %s, which ended more than %d s ago", what, ttl), func() error {
					return h.delete(kindJob, namespace, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &how})
				}})
			}
		case suspended && started != "":
			all = append(all, move{actor, "stops the pods of " + what, set(map[string]any{"conditions": []any{jobCondition("Suspended", now)}})})
		case suspended:
		case started == "":
			all = append(all, move{actor, "starts " + what, set(map[string]any{"startTime": now.Format(time.RFC3339), "active": int64(1)})})
		case strings.HasSuffix(imageOf(o), ":broken"):
			all = append(all, move{actor, "reports that " + what + " failed", set(map[string]any{
				"startTime": started, "failed": int64(1), "conditions": []any{jobCondition("FailureTarget", now), jobCondition("Failed", now)},
			})})
		default:
			all = append(all, move{actor, "reports that " + what + " is complete", set(map[string]any{
				"startTime": started, "completionTime": now.Format(time.RFC3339), "succeeded": int64(1),
				"conditions": []any{jobCondition("SuccessCriteriaMet", now), jobCondition("Complete", now)},
			})})
		}
	}
	return all
}

func jobCondition(kind string, now time.Time) any {
	at := now.Format(time.RFC3339)
	return map[string]any{"type": kind, "status": "True", "lastProbeTime": at, "lastTransitionTime": at}
}

// services returns the actions of the cloud controller: it assigns addresses to load balancers.
func (w *World) services(c *Cluster) (all []move) {
	h := w.hand(&c.Target, "service-controller")
	for _, o := range c.Server.All(kindService.GroupVersionResource) {
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "type") // Empty without the field.
		has := len(string(encoded(o.Object["status"]))) > len(`{"loadBalancer":{}}`)
		wants := kind == "LoadBalancer"
		if o.GetDeletionTimestamp() != nil || has == wants {
			continue
		}
		namespace, name, balancer := o.GetNamespace(), o.GetName(), map[string]any{}
		text := "takes the address from " + named(kindService, namespace, name)
		if wants {
			address := fmt.Sprintf("192.0.2.%d", 10+c.Index)
			balancer["ingress"] = []any{map[string]any{"ip": address}}
			text = fmt.Sprintf("gives %s the address %s", named(kindService, namespace, name), address)
		}
		all = append(all, move{c.Name + "'s cloud controller", text, func() error {
			return h.editStatus(kindService, namespace, name,
				func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"loadBalancer": balancer} })
		}})
	}
	return all
}

// others returns the actions of the controllers of StatefulSets and Widgets, which write the status immediately.
func (w *World) others(c *Cluster) (all []move) {
	h := w.hand(&c.Target, "controller")
	for _, k := range []kind{kindStateful, kindWidget} {
		for _, o := range c.Server.All(k.GroupVersionResource) {
			generation, replicas := o.GetGeneration(), wantedReplicas(o)
			if o.GetDeletionTimestamp() != nil || numberAt(o, "status", "observedGeneration") == generation {
				continue
			}
			namespace, name := o.GetNamespace(), o.GetName()
			all = append(all, move{c.Name + "'s " + k.name + " controller", "brings " + named(k, namespace, name) + " to its new generation", func() error {
				return h.editStatus(k, namespace, name, func(o *unstructured.Unstructured) {
					s := map[string]any{"observedGeneration": generation}
					if k == kindStateful {
						for _, key := range []string{"replicas", "readyReplicas", "updatedReplicas", "currentReplicas", "availableReplicas"} {
							s[key] = replicas
						}
						s["currentRevision"], s["updateRevision"] = "db-1", "db-1"
					}
					o.Object["status"] = s
				})
			}})
		}
	}
	return all
}

// scalers returns the actions of the autoscaler, which sets the replicas by the subresource scale.
func (w *World) scalers(c *Cluster) (all []move) {
	if !c.Lab.Autoscaling {
		return nil
	}
	h := w.hand(&c.Target, "horizontal-pod-autoscaler")
	for _, o := range c.Server.All(kindScaler.GroupVersionResource) {
		target, _, _ := unstructured.NestedString(o.Object, "spec", "scaleTargetRef", "name") // Empty without a target.
		d := c.Server.Peek(kindDeployment.GroupVersionResource, o.GetNamespace(), target)
		if o.GetDeletionTimestamp() != nil || d == nil || d.GetDeletionTimestamp() != nil || wantedReplicas(d) == 0 { // Autoscalers ignore 0 replicas.
			continue
		}
		namespace := o.GetNamespace()
		want := min(max(c.Lab.Load, cmp.Or(numberAt(o, "spec", "minReplicas"), 1)), numberAt(o, "spec", "maxReplicas"))
		if has := wantedReplicas(d); has != want {
			all = append(all, move{c.Name + "'s autoscaler", fmt.Sprintf("scales %s from %d to %d replicas", named(kindDeployment, namespace, target), has,
				want), func() error {
				return h.patch(kindDeployment, namespace, target, "scale", map[string]any{"spec": map[string]any{"replicas": want}})
			}})
		}
	}
	return all
}
