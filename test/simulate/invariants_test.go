package simulate

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/leadership"
	"refract.dev/fleet/member"
)

// culprit is the process that the writes of these tests come from.
const culprit = "refract-a.1"

// bench is a world without processes. Tests write there what a process must not write.
type bench struct {
	*World
	c *Cluster
}

// onBench runs a test in a world without processes.
func onBench(t *testing.T, do func(b *bench)) *Broken {
	t.Helper()
	var found *Broken
	synctest.Test(t, func(*testing.T) {
		w := newWorld(7, nil)
		p := &Process{Name: culprit, Replica: "refract-a", cut: map[*Target]bool{}, done: make(chan struct{}), cancel: func() {}}
		w.Processes = append(w.Processes, p)
		b := &bench{w, w.Clusters[0]}
		for _, name := range []string{"shop", "team"} {
			if b.member("admin").get(kindNamespace, "", name) == nil {
				b.must(b.member("admin").create(object(kindNamespace, "", name, nil)))
			}
		}
		b.ready("True")
		do(b)
		found = w.failed
		close(p.done)
		w.end()
	})
	return found
}

// ready makes all clusters members, and sets the status of their condition Ready.
func (b *bench) ready(status string) {
	at := time.Now().UTC().Format(time.RFC3339)
	for _, name := range clusterNames {
		var all []any
		for _, is := range []struct{ kind, status string }{{string(corev1alpha1.ClusterJoined), "True"}, {string(corev1alpha1.ClusterReady), status}} {
			all = append(all, map[string]any{"type": is.kind, "status": is.status, "reason": "Yes", "message": "yes", "lastProbeTime": at, "lastTransitionTime": at})
		}
		b.must(b.hub(culprit).editStatus(kindCluster, "", name, func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"conditions": all} }))
	}
}

func (*bench) must(err error) {
	if err != nil {
		panic(err)
	}
}

func (b *bench) member(user string) hand { return b.hand(&b.c.Target, user) }

func (b *bench) hub(user string) hand { return b.hand(b.Hub, user) }

// has creates an object on the hub that is placed on all clusters, and returns it.
func (b *bench) has(k kind, name string, fields map[string]any, labels ...string) *unstructured.Unstructured {
	h := b.hub("alice")
	if h.get(k, "shop", name) != nil {
		b.must(h.delete(k, "shop", name, metav1.DeleteOptions{}))
		b.must(dropAll(h, k, name))
	}
	o := object(k, "shop", name, fields)
	label(o, corev1alpha1.PropagationPolicyLabel, "all")
	for i := 0; i+1 < len(labels); i += 2 {
		label(o, labels[i], labels[i+1])
	}
	b.must(h.create(o))
	time.Sleep(10 * outdated) // Earlier states are forgotten.
	return h.get(k, "shop", name)
}

// dropAll removes the finalizers of an object that is being deleted.
func dropAll(h hand, k kind, name string) error {
	if h.get(k, "shop", name) == nil {
		return nil
	}
	return h.edit(k, "shop", name, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
}

// copied writes a copy of an object as the culprit, with a hash of its content.
func (b *bench) copied(k kind, from *unstructured.Unstructured, hash string) {
	h := b.member(culprit)
	o := object(k, from.GetNamespace(), from.GetName(), map[string]any{})
	for _, field := range []string{"data", "spec"} {
		if v := from.Object[field]; v != nil {
			o.Object[field] = anything(v)
		}
	}
	o.SetLabels(from.GetLabels())
	label(o, corev1alpha1.ManagedLabel, "true")
	annotate(o, refractv1alpha1.SourceAnnotation, fmt.Sprintf("hub/%s/%s/%s/%s", from.GetUID(), k.GroupVersionResource.GroupResource(), from.GetNamespace(), from.GetName()))
	annotate(o, refractv1alpha1.AppliedAnnotation, hash)
	_, err := h.client.By(member.FieldManager).Apply(o, true)
	b.must(err)
}

// leads sets the leader in the Lease; "" is the culprit.
func (b *bench) leads(id string) {
	b.Processes[0].leading = leadership.Alone()
	h, name := b.hub(culprit), leadership.LeaseName
	if h.get(kindLease, systemNamespace, name) == nil {
		b.must(h.create(object(kindLease, systemNamespace, name, nil)))
	}
	b.must(h.edit(kindLease, systemNamespace, name, func(o *unstructured.Unstructured) {
		b.must(unstructured.SetNestedField(o.Object, id, "spec", "holderIdentity"))
	}))
}

func (b *bench) drop(k kind, name string) {
	b.must(b.member(culprit).delete(k, "shop", name, metav1.DeleteOptions{}))
}

// trial runs the check at the end of a history. A ConfigMap and a Deployment have a correct copy on each cluster, and
// no process writes the edits of the check. value is the value of the Deployment's annotation dry-run.
func (b *bench) trial(value string) {
	spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "template": template("web", "web:1", nil)}
	page, web := b.has(kindConfigMap, "page-1", level("1")), b.has(kindDeployment, "web", anything(map[string]any{"spec": spec}))
	for _, b.c = range b.Clusters {
		if b.member("admin").get(kindNamespace, "", "shop") == nil {
			b.must(b.member("admin").create(object(kindNamespace, "", "shop", nil)))
		}
		b.copied(kindConfigMap, page, "one")
		b.copied(kindDeployment, web, "one")
	}
	b.must(b.hub("alice").edit(kindDeployment, "shop", "web", func(o *unstructured.Unstructured) { annotate(o, corev1alpha1.DryRunAnnotation, value) }))
	b.try()
}

func level(of string) map[string]any {
	return map[string]any{"data": map[string]any{"level": of}}
}

// TestInvariants breaks each promise, and performs a similar action that keeps it.
func TestInvariants(t *testing.T) {
	claim := func(b *bench) map[string]any { return claimFields(b.World) }
	// stored creates the ControllerRevision of the target of a rollout.
	stored := func(b *bench, status map[string]any) {
		name, _, err := unstructured.NestedString(status, "rollout", "target", "object")
		b.must(err)
		if name != "" && b.hub(culprit).get(kindRevision, "shop", name) == nil {
			b.must(b.hub(culprit).create(object(kindRevision, "shop", name, map[string]any{"revision": int64(1)})))
		}
	}
	report := func(b *bench, of *unstructured.Unstructured, status map[string]any) {
		stored(b, status)
		o := object(kindReport, "shop", of.GetName()+"-test", map[string]any{"spec": map[string]any{"source": map[string]any{
			"apiVersion": of.GetAPIVersion(), "kind": of.GetKind(), "resource": resourceOf[of.GroupVersionKind().GroupKind()].Resource, "name": of.GetName(),
		}}})
		b.must(b.hub(culprit).create(o))
		b.must(b.hub(culprit).editStatus(kindReport, "shop", o.GetName(), func(o *unstructured.Unstructured) { o.Object["status"] = status }))
	}
	governed := func(b *bench, labels ...string) *unstructured.Unstructured {
		h := b.hub("alice")
		b.must(b.hub(operator).edit(kindNamespace, "", "shop", func(o *unstructured.Unstructured) { label(o, refractv1alpha1.ClusterRolloutPolicyLabel, "") }))
		_ = h.delete(kindRollout, "shop", "careful", metav1.DeleteOptions{}) // It may not exist.
		b.must(h.create(object(kindRollout, "shop", "careful", map[string]any{"spec": rolloutSpecs[1].spec()})))
		of := b.has(kindConfigMap, "page-1", level("1"), append(labels, refractv1alpha1.RolloutPolicyLabel, "careful")...)
		b.copied(kindConfigMap, of, "one")
		b.must(h.edit(kindConfigMap, "shop", "page-1", func(o *unstructured.Unstructured) { o.Object["data"] = level("2")["data"] }))
		time.Sleep(10 * time.Second)
		return h.get(kindConfigMap, "shop", "page-1")
	}
	rollout := func(phase string, current ...any) map[string]any {
		revision := map[string]any{"name": "two", "object": "two"}
		r := map[string]any{"phase": phase, "target": revision, "lastGood": map[string]any{"name": "one", "object": "one"}, "current": current}
		return map[string]any{"placed": int64(1), "synced": int64(0), "variantCount": int64(1), "ready": int64(0), "rollout": r}
	}
	blocked := func(cluster string) map[string]any { // The object has no policy, and still has a copy.
		return map[string]any{
			"placed": int64(0), "synced": int64(1), "variantCount": int64(0), "ready": int64(1), "clusters": []any{map[string]any{"name": cluster, "state": "Synced"}},
			"conditions": []any{map[string]any{"type": "Synced", "status": "False", "reason": "PolicyNotFound", "message": "", "lastTransitionTime": "2000-01-01T00:00:00Z"}},
		}
	}
	const together = "it is another; it changes with deployments.apps/web, wave by wave"
	mounts := func(which int) map[string]any {
		return anything(map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "template": template("web", "web:1", references(which)),
		}})
	}
	// edited runs the check at the end of a history. A ConfigMap, and a Secret that a Deployment refers to, have a correct
	// copy on each cluster, and no process writes the edits of the check. The Deployment has the labels, and its report
	// names a reason for which nothing is released. Tried is the value of its annotation dry-run. Says is the message of
	// the Secret's report.
	edited := func(b *bench, says, reason, tried string, labels ...string) {
		condition := func(reason, message string) map[string]any {
			return map[string]any{"placed": int64(0), "synced": int64(0), "variantCount": int64(0), "ready": int64(0), "conditions": []any{map[string]any{
				"type": "Synced", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2000-01-01T00:00:00Z",
			}}}
		}
		page, keys := b.has(kindConfigMap, "page-1", level("1")), b.has(kindSecret, "keys", anything(level("MQ==")))
		report(b, b.has(kindDeployment, "web", mounts(2), labels...), condition(reason, ""))
		b.must(b.hub("alice").edit(kindDeployment, "shop", "web", func(o *unstructured.Unstructured) { annotate(o, corev1alpha1.DryRunAnnotation, tried) }))
		status := condition("RolloutProgressing", says)
		status["follows"] = []any{map[string]any{"resource": "deployments.apps", "name": "web"}}
		report(b, keys, status)
		for _, b.c = range b.Clusters {
			if b.member("admin").get(kindNamespace, "", "shop") == nil {
				b.must(b.member("admin").create(object(kindNamespace, "", "shop", nil)))
			}
			for _, at := range []struct {
				k  kind
				of *unstructured.Unstructured
			}{{kindConfigMap, page}, {kindSecret, keys}} {
				_ = b.member("carol").delete(at.k, "shop", at.of.GetName(), metav1.DeleteOptions{}) // The cluster may have its own object.
				b.copied(at.k, at.of, "one")
			}
		}
		b.try()
	}
	// released removes the reference to a claim from a Deployment. The cluster has copies of both; the copy of the
	// Deployment has the older content with the reference.
	released := func(b *bench, status map[string]any, follows ...any) {
		of := b.has(kindDeployment, "web", mounts(4), refractv1alpha1.RolloutPolicyLabel, "careful")
		b.copied(kindDeployment, of, "one")
		h := b.hub("alice")
		b.must(h.edit(kindDeployment, "shop", "web", func(o *unstructured.Unstructured) { o.Object["spec"] = mounts(0)["spec"] }))
		report(b, of, status)
		_ = h.delete(kindDeployment, "shop", "api", metav1.DeleteOptions{}) // It may not exist, or may also refer to the claim.
		_ = h.delete(kindClaim, "shop", "data", metav1.DeleteOptions{})     // It may not exist.
		b.must(dropAll(h, kindClaim, "data"))
		b.must(h.create(object(kindClaim, "shop", "data", claim(b))))
		data := h.get(kindClaim, "shop", "data")
		b.copied(kindClaim, data, "one")
		report(b, data, map[string]any{
			"placed": int64(1), "synced": int64(1), "variantCount": int64(1), "ready": int64(1), "clusters": []any{map[string]any{"name": b.c.Name, "state": "Synced"}},
			"follows": follows,
		})
		b.oracle.leftOver(b.World, b.c)
	}
	// overridden writes new content to a copy after its RolloutStatus is complete and an override policy has been
	// edited.
	overridden := func(b *bench, space string) {
		nothing := map[string]any{"spec": map[string]any{}}
		for _, in := range []string{"shop", "team"} {
			_ = b.hub("alice").delete(kindOverride, in, "local", metav1.DeleteOptions{}) // It may not exist.
			b.must(b.hub("alice").create(object(kindOverride, in, "local", nothing)))
		}
		of := governed(b, corev1alpha1.OverridePolicyLabel, "local")
		report(b, of, rollout("Complete"))
		time.Sleep(2 * outdated)
		b.must(b.hub("alice").edit(kindOverride, space, "local", func(o *unstructured.Unstructured) {
			o.Object["spec"] = anything(rules(rule(fields{"clusters": []any{"no-1"}}, "labels", fields{"value": fields{"zone": "no"}})))
		}))
		time.Sleep(time.Second)
		b.copied(kindConfigMap, of, "two")
	}
	// waits has a Deployment that waits for an override policy, and changes a ConfigMap that is released with it. Status
	// is that of the Deployment, which has the labels.
	waits := func(b *bench, says string, status map[string]any, labels ...string) {
		of := b.has(kindDeployment, "web", mounts(1), append(labels, corev1alpha1.OverridePolicyLabel, "gone")...)
		condition := func(reason, message string) []any {
			return []any{map[string]any{
				"type": refractv1alpha1.ConditionSynced, "status": "False", "reason": reason, "message": message,
				"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
			}}
		}
		status["conditions"] = condition("PolicyNotFound", "OverridePolicy shop/gone does not exist")
		report(b, of, status)
		h := b.hub("alice")
		_ = h.delete(kindConfigMap, "shop", "settings", metav1.DeleteOptions{}) // It may not exist.
		b.must(dropAll(h, kindConfigMap, "settings"))
		b.must(h.create(object(kindConfigMap, "shop", "settings", level("1"))))
		settings := h.get(kindConfigMap, "shop", "settings")
		_ = b.member("carol").delete(kindConfigMap, "shop", "settings", metav1.DeleteOptions{}) // The cluster may have its own object.
		b.copied(kindConfigMap, settings, "one")
		report(b, settings, map[string]any{
			"placed": int64(1), "synced": int64(1), "variantCount": int64(1), "ready": int64(1), "conditions": condition("AlreadyExists", says),
			"follows":  []any{map[string]any{"resource": "deployments.apps", "name": "web"}},
			"clusters": []any{map[string]any{"name": b.c.Name, "state": "Synced"}},
		})
		b.must(h.edit(kindConfigMap, "shop", "settings", func(o *unstructured.Unstructured) { o.Object["data"] = level("2")["data"] }))
		key := copyKey{kindConfigMap.GroupVersionResource.GroupResource(), "shop", "settings"}
		out, at := b.oracle.now().at(key, []string{b.c.Name})
		b.oracle.place(b.World, key, out, at, b.oracle.report(key))
	}
	// leaves lets the cluster leave, and wait for a finalizer of another owner on a copy.
	leaves := func(b *bench, says string) {
		b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
		b.must(b.member("carol").edit(kindConfigMap, "shop", "page-1", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{holdFinalizer}) }))
		b.must(b.hub(operator).delete(kindCluster, "", "eu-1", metav1.DeleteOptions{}))
		b.drop(kindConfigMap, "page-1")
		at := time.Now().UTC().Format(time.RFC3339)
		b.must(b.hub(culprit).editStatus(kindCluster, "", "eu-1", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"conditions": []any{map[string]any{
				"type": string(corev1alpha1.ClusterJoined), "status": "False", "reason": "Leaving", "message": says, "lastProbeTime": at, "lastTransitionTime": at,
			}}}
		}))
	}
	// bakes marks a cluster as done 310 seconds after it got content whose wave has minReadySeconds 300, and 110
	// seconds after the RolloutStatus has renamed the target. again is the time from a second write of the copy until
	// then; zero means no second write.
	bakes := func(b *bench, object, nonce string, again time.Duration) {
		of := governed(b)
		policy := b.hub("alice").get(kindRollout, "shop", "careful")
		b.must(b.hub("alice").edit(kindRollout, "shop", "careful", func(o *unstructured.Unstructured) {
			o.Object["spec"] = map[string]any{"waves": []any{map[string]any{"name": "all", "minReadySeconds": int64(300)}}}
		}))
		by := []any{map[string]any{"kind": kindRollout.name, "namespace": "shop", "name": "careful", "generation": policy.GetGeneration() + 1}}
		status := func(name, object, nonce string, more map[string]any) map[string]any {
			all := rollout("Progressing")
			is := all["rollout"].(map[string]any)
			is["policies"], is["nonce"], is["target"] = by, nonce, map[string]any{"name": name, "object": object}
			maps.Copy(is, more)
			return all
		}
		current := map[string]any{"current": []any{map[string]any{"name": b.c.Name, "since": time.Now().UTC().Format(metav1.RFC3339Micro)}}}
		report(b, of, status("none", "refract-none", "m", nil))
		say := func(status map[string]any) {
			stored(b, status)
			b.must(b.hub(culprit).editStatus(kindReport, "shop", of.GetName()+"-test", func(o *unstructured.Unstructured) { o.Object["status"] = status }))
		}
		say(status("first", "refract-sealed-1-a", "n", current))
		time.Sleep(200 * time.Second)
		say(status("second", object, nonce, current))
		time.Sleep(110*time.Second - again)
		if again > 0 {
			b.copied(kindConfigMap, of, "two")
		}
		time.Sleep(again)
		say(status("second", object, nonce, map[string]any{"current": nil, "done": []any{b.c.Name}}))
	}
	// reverts lets a cluster get new content, and ends the rollout as Reverted after an event. If named is true, the
	// RolloutStatus says that the cluster cannot be reached.
	reverts := func(b *bench, named bool, event func()) {
		of := governed(b)
		policy := b.hub("alice").get(kindRollout, "shop", "careful")
		status := func(phase string, more map[string]any) map[string]any {
			all := rollout(phase, map[string]any{"name": b.c.Name})
			is := all["rollout"].(map[string]any)
			is["policies"] = []any{map[string]any{
				"kind": kindRollout.name, "namespace": "shop", "name": "careful", "generation": policy.GetGeneration(),
			}}
			maps.Copy(is, more)
			all["clusters"] = []any{map[string]any{"name": b.c.Name, "state": "Synced"}} // A cluster that is not Ready keeps its copies.
			return all
		}
		report(b, of, status("Progressing", nil))
		b.copied(kindConfigMap, of, "two")
		event()
		more := map[string]any{}
		if named {
			more["reverting"], more["offline"] = []any{b.c.Name}, []any{b.c.Name}
		}
		last := status("Reverted", more)
		b.must(b.hub(culprit).editStatus(kindReport, "shop", of.GetName()+"-test", func(o *unstructured.Unstructured) { o.Object["status"] = last }))
	}
	// cut lets the culprit lose its connection to the cluster.
	cut := func(b *bench) func() { return func() { b.Processes[0].cut[&b.c.Target] = true } }
	// returned ends a rollout as Reverted while the cluster is unreachable, performs an event, and runs the check at
	// the end of a history. The copy still has the new content.
	returned := func(b *bench, event func(h hand)) {
		reverts(b, true, cut(b))
		event(b.hub("alice"))
		key := copyKey{kindConfigMap.GroupVersionResource.GroupResource(), "shop", "page-1"}
		b.oracle.reverted(b.World, key, b.hub(culprit).get(kindReport, "shop", "page-1-test"))
	}
	// floored sets a floor on the namespace of an object and edits the object, in the order of the arguments.
	floored := func(b *bench, first, second func(b *bench)) {
		if b.hub(operator).get(kindRollouts, "", "floor") == nil {
			b.must(b.hub(operator).create(object(kindRollouts, "", "floor", map[string]any{"spec": rolloutSpecs[1].spec()})))
		}
		b.must(b.hub(operator).edit(kindNamespace, "", "shop", func(o *unstructured.Unstructured) { label(o, refractv1alpha1.ClusterRolloutPolicyLabel, "") }))
		b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
		first(b)
		time.Sleep(time.Second)
		second(b)
		time.Sleep(time.Second)
		b.copied(kindConfigMap, b.hub("alice").get(kindConfigMap, "shop", "page-1"), "two")
	}
	floor := func(b *bench) {
		b.must(b.hub(operator).edit(kindNamespace, "", "shop", func(o *unstructured.Unstructured) { label(o, refractv1alpha1.ClusterRolloutPolicyLabel, "floor") }))
	}
	edit := func(b *bench) {
		b.must(b.hub("alice").edit(kindConfigMap, "shop", "page-1", func(o *unstructured.Unstructured) { o.Object["data"] = level("2")["data"] }))
	}
	// tried sets the annotation dry-run on a claim with an existing copy.
	tried := func(b *bench, then func(of *unstructured.Unstructured)) {
		b.copied(kindClaim, b.has(kindClaim, "data", claim(b)), "one")
		b.must(b.hub("alice").edit(kindClaim, "shop", "data", func(o *unstructured.Unstructured) { annotate(o, corev1alpha1.DryRunAnnotation, "true") }))
		time.Sleep(10 * outdated) // Now all processes know the annotation.
		then(b.hub("alice").get(kindClaim, "shop", "data"))
	}
	// lets removes Refract's labels and annotations from the copy of the claim, as the culprit.
	lets := func(b *bench) {
		b.must(b.member(culprit).edit(kindClaim, "shop", "data", func(o *unstructured.Unstructured) {
			label(o, corev1alpha1.ManagedLabel, "")
			for _, mark := range []string{refractv1alpha1.SourceAnnotation, refractv1alpha1.AppliedAnnotation} {
				annotate(o, mark, "")
			}
		}))
	}
	front := map[string]any{"spec": map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": "front"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "front"}},
			"spec": map[string]any{"containers": []any{map[string]any{
				"name": "front", "image": "front", "envFrom": []any{map[string]any{"secretRef": map[string]any{"name": "passwords"}}},
			}}},
		},
	}}
	// travels deletes a Deployment with a Secret as its follower, and some seconds later the copy of the Secret on
	// eu-1.
	travels := func(b *bench, state string, then func(h hand)) {
		h := b.hub("alice")
		if h.get(kindSecret, "shop", "passwords") == nil {
			b.must(h.create(object(kindSecret, "shop", "passwords", nil)))
		}
		of := b.has(kindDeployment, "front", front)
		b.copied(kindSecret, h.get(kindSecret, "shop", "passwords"), "one")
		b.must(b.hub(culprit).create(object(kindReport, "shop", "front-test", map[string]any{"spec": map[string]any{"source": map[string]any{
			"apiVersion": of.GetAPIVersion(), "kind": of.GetKind(), "resource": kindDeployment.Resource, "name": of.GetName(), "uid": string(of.GetUID()),
		}}})))
		b.must(b.hub(culprit).editStatus(kindReport, "shop", "front-test", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"placed": int64(1), "synced": int64(1), "variantCount": int64(1), "clusters": []any{map[string]any{"name": "eu-1", "state": state}}}
		}))
		b.must(h.delete(kindDeployment, "shop", "front", metav1.DeleteOptions{}))
		time.Sleep(10 * time.Second)
		then(h)
		b.drop(kindSecret, "passwords")
	}
	// unused has a claim with a policy of its own, or without one. Its copy is on the cluster, and a Deployment refers to
	// it that never went to a cluster, as its RolloutPolicy does not exist. After a further event the deletion of the copy
	// waits, the operator approves it, and the copy is deleted.
	unused := func(b *bench, policy string, event func(web, data *unstructured.Unstructured)) {
		h := b.hub("alice")
		_ = h.delete(kindDeployment, "shop", "api", metav1.DeleteOptions{}) // It may not exist, or may also refer to the claim.
		b.must(h.edit(kindPlacement, "shop", "some", func(o *unstructured.Unstructured) { o.Object["spec"] = placementSpecs[5].spec() }))
		b.copied(kindClaim, b.has(kindClaim, "data", claim(b)), "one")
		web := b.has(kindDeployment, "web", mounts(4), refractv1alpha1.RolloutPolicyLabel, "gone")
		report(b, web, map[string]any{
			"placed": int64(0), "synced": int64(0), "variantCount": int64(0), "ready": int64(0), "conditions": []any{map[string]any{
				"type": "Synced", "status": "False", "reason": "RolloutPolicyNotUsable", "message": "", "lastTransitionTime": "2000-01-01T00:00:00Z",
			}},
		})
		b.must(h.edit(kindClaim, "shop", "data", func(o *unstructured.Unstructured) { label(o, corev1alpha1.PropagationPolicyLabel, policy) }))
		event(web, h.get(kindClaim, "shop", "data"))
		time.Sleep(10 * outdated) // Earlier states are forgotten.
		b.must(b.hub(culprit).editStatus(kindCluster, "", b.c.Name, func(o *unstructured.Unstructured) {
			b.must(unstructured.SetNestedMap(o.Object, map[string]any{"token": "one", "copies": int64(1), "of": int64(1), "holdData": int64(1)}, "status", "deletionsHeld"))
		}))
		b.must(b.hub(operator).edit(kindCluster, "", b.c.Name, func(o *unstructured.Unstructured) { annotate(o, refractv1alpha1.ApproveAnnotation, "one") }))
		b.drop(kindClaim, "data")
	}
	for _, tc := range []struct {
		name, want string // Empty if no violation is expected.
		do         func(b *bench)
	}{
		{"an object is on the hub, and its copy is deleted", withoutCause, func(b *bench) {
			b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
			b.drop(kindConfigMap, "page-1")
		}},
		{"a user deletes an object, and its copy is deleted", "", func(b *bench) {
			b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
			b.must(b.hub("alice").delete(kindConfigMap, "shop", "page-1", metav1.DeleteOptions{}))
			b.drop(kindConfigMap, "page-1")
		}},
		{"an object loses its label, and its copy is deleted", "", func(b *bench) {
			b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
			b.must(b.hub("alice").edit(kindConfigMap, "shop", "page-1", func(o *unstructured.Unstructured) { label(o, corev1alpha1.PropagationPolicyLabel, "") }))
			b.drop(kindConfigMap, "page-1")
		}},
		{"an object that is no copy is deleted", withoutCause, func(b *bench) {
			b.must(b.member("carol").create(object(kindConfigMap, "shop", "page-9", level("1"))))
			b.drop(kindConfigMap, "page-9")
		}},
		{"an object that is no copy is overwritten", withoutCause, func(b *bench) {
			of := b.has(kindConfigMap, "page-9", level("1"))
			b.must(b.member("carol").create(object(kindConfigMap, "shop", "page-9", level("2"))))
			b.copied(kindConfigMap, of, "one")
		}},
		{"an object that is no copy is adopted", "", func(b *bench) {
			of := b.has(kindConfigMap, "page-9", level("1"))
			b.must(b.hub("alice").edit(kindConfigMap, "shop", "page-9", func(o *unstructured.Unstructured) { annotate(o, corev1alpha1.ConflictResolutionAnnotation, "adopt") }))
			b.must(b.member("carol").create(object(kindConfigMap, "shop", "page-9", level("2"))))
			b.copied(kindConfigMap, of, "one")
		}},
		{"a claim loses its label, and its copy is deleted", volumeDeleted, func(b *bench) {
			b.copied(kindClaim, b.has(kindClaim, "data", claim(b)), "one")
			b.must(b.hub("alice").edit(kindClaim, "shop", "data", func(o *unstructured.Unstructured) { label(o, corev1alpha1.PropagationPolicyLabel, "") }))
			b.drop(kindClaim, "data")
		}},
		{"a user deletes a claim, and its copy is deleted", "", func(b *bench) {
			b.copied(kindClaim, b.has(kindClaim, "data", claim(b)), "one")
			b.must(b.hub("alice").delete(kindClaim, "shop", "data", metav1.DeleteOptions{}))
			b.drop(kindClaim, "data")
		}},
		{"the garbage collector deletes a claim, and its copy is deleted", volumeDeleted, func(b *bench) {
			b.copied(kindClaim, b.has(kindClaim, "data", claim(b)), "one")
			b.must(b.hub("garbage-collector").delete(kindClaim, "shop", "data", metav1.DeleteOptions{}))
			b.drop(kindClaim, "data")
		}},
		{"a namespace is deleted, with a claim, and its copy is deleted", volumeDeleted, func(b *bench) {
			b.copied(kindClaim, b.has(kindClaim, "data", claim(b)), "one")
			b.must(b.hub(operator).delete(kindNamespace, "", "shop", metav1.DeleteOptions{}))
			b.Hub.Server.FinishNamespace("shop")
			b.drop(kindClaim, "data")
		}},
		{"the deletion of a claim is approved that a policy takes to another cluster, where its Deployment never came", "", func(b *bench) {
			unused(b, "some", func(_, _ *unstructured.Unstructured) {})
		}},
		{"the deletion of a claim without a policy is approved, where its Deployment never came", "", func(b *bench) {
			unused(b, "", func(_, _ *unstructured.Unstructured) {})
		}},
		{"the deletion of a claim is approved that its own policy keeps on the cluster", volumeDeleted, func(b *bench) {
			unused(b, "all", func(_, _ *unstructured.Unstructured) {})
		}},
		{"the deletion of a claim is approved, and its Deployment that waits is there", volumeDeleted, func(b *bench) {
			unused(b, "some", func(web, _ *unstructured.Unstructured) { b.copied(kindDeployment, web, "one") })
		}},
		{"the deletion of a claim is approved, and its Deployment does not wait", volumeDeleted, func(b *bench) {
			unused(b, "some", func(web, _ *unstructured.Unstructured) {
				b.must(b.hub(culprit).delete(kindReport, "shop", web.GetName()+"-test", metav1.DeleteOptions{}))
			})
		}},
		{"the deletion of a claim is approved, and it travelled with the Deployment that waits", volumeDeleted, func(b *bench) {
			unused(b, "some", func(_, data *unstructured.Unstructured) {
				report(b, data, map[string]any{
					"placed": int64(1), "synced": int64(1), "variantCount": int64(1), "ready": int64(1),
					"follows": []any{map[string]any{"resource": "deployments.apps", "name": "web"}},
				})
			})
		}},
		{"the deletion of a claim is approved, and another Deployment that does not wait refers to it", volumeDeleted, func(b *bench) {
			unused(b, "some", func(_, _ *unstructured.Unstructured) { b.has(kindDeployment, "api", mounts(4)) })
		}},
		{"a claim is only tried out, and its copy is changed", unreleased, func(b *bench) { tried(b, func(of *unstructured.Unstructured) { b.copied(kindClaim, of, "two") }) }},
		{"a claim is only tried out, and its copy is left to the cluster", unreleased, func(b *bench) {
			tried(b, func(*unstructured.Unstructured) { lets(b) })
		}},
		{"a claim is only tried out, and its copy is left to a cluster that leaves", "", func(b *bench) {
			tried(b, func(*unstructured.Unstructured) {
				b.must(b.hub(operator).delete(kindCluster, "", b.c.Name, metav1.DeleteOptions{}))
				lets(b)
			})
		}},
		{"a claim is only tried out, and its copy is changed on a cluster that leaves", unreleased, func(b *bench) {
			tried(b, func(of *unstructured.Unstructured) {
				b.must(b.hub(operator).delete(kindCluster, "", b.c.Name, metav1.DeleteOptions{}))
				b.copied(kindClaim, of, "two")
			})
		}},
		{"a Deployment is deleted, and its follower is deleted at once", withoutCause, func(b *bench) { travels(b, "Synced", func(hand) {}) }},
		{"a Deployment is deleted, and its follower is deleted a minute later", "", func(b *bench) {
			travels(b, "Synced", func(hand) { time.Sleep(time.Minute) })
		}},
		{"a Deployment is deleted that was about to leave the cluster with its follower", "", func(b *bench) {
			travels(b, "Deleting", func(hand) {})
		}},
		{"a Deployment is deleted and created again elsewhere, and its follower leaves the cluster", "", func(b *bench) {
			travels(b, "Synced", func(h hand) { b.must(h.create(object(kindDeployment, "shop", "front", front))) })
		}},
		{"a copy gets new content before its rollout is recorded", unreleased, func(b *bench) {
			b.copied(kindConfigMap, governed(b), "two")
		}},
		{"a copy gets older content that has all fields of the newest, and another", "", func(b *bench) {
			older := governed(b)
			b.must(unstructured.SetNestedField(older.Object, "5", "data", "mode"))
			b.copied(kindConfigMap, older, "two")
		}},
		{"a copy gets new content that the record releases to others", unreleased, func(b *bench) {
			of := governed(b)
			report(b, of, rollout("Progressing", map[string]any{"name": "us-1"}))
			b.copied(kindConfigMap, of, "two")
		}},
		{"a copy gets new content that the record releases to it", "", func(b *bench) {
			of := governed(b)
			report(b, of, rollout("Progressing", map[string]any{"name": "eu-1"}))
			b.copied(kindConfigMap, of, "two")
		}},
		{"a copy gets new content that the record releases to it, and that is not stored", unreleased, func(b *bench) {
			of := governed(b)
			report(b, of, rollout("Progressing", map[string]any{"name": "eu-1"}))
			clear(b.oracle.releases.stored)
			b.copied(kindConfigMap, of, "two")
		}},
		{"stored content is deleted that a rollout names", haltedOrReverted, func(b *bench) {
			report(b, governed(b), rollout("Progressing", map[string]any{"name": "eu-1"}))
			b.must(b.hub(culprit).delete(kindRevision, "shop", "two", metav1.DeleteOptions{}))
		}},
		{"stored content is deleted that no rollout names", "", func(b *bench) {
			report(b, governed(b), rollout("Progressing", map[string]any{"name": "eu-1"}))
			stored(b, map[string]any{"rollout": map[string]any{"target": map[string]any{"object": "three"}}})
			b.must(b.hub(culprit).delete(kindRevision, "shop", "three", metav1.DeleteOptions{}))
		}},
		{"a rollout is Reverted, and a copy has the new content", haltedOrReverted, func(b *bench) { reverts(b, false, func() {}) }},
		{"a rollout is Reverted, and a copy has its former content", "", func(b *bench) {
			reverts(b, false, func() { b.copied(kindConfigMap, object(kindConfigMap, "shop", "page-1", level("1")), "one") })
		}},
		{"a rollout is Reverted, and names an unreachable cluster that has the new content", "", func(b *bench) { reverts(b, true, cut(b)) }},
		{"a rollout is Reverted, and does not name an unreachable cluster that has the new content", haltedOrReverted, func(b *bench) { reverts(b, false, cut(b)) }},
		{"a rollout is Reverted, and does not name a stopped cluster that has the new content", haltedOrReverted, func(b *bench) {
			reverts(b, false, func() { b.c.Down = true })
		}},
		{"a rollout is Reverted, and names a cluster as unreachable that answers and has the new content", haltedOrReverted, func(b *bench) {
			reverts(b, true, func() {})
		}},
		{"a rollout is Reverted, and names a cluster that is not Ready and has the new content", "", func(b *bench) {
			reverts(b, true, func() { b.ready("False") })
		}},
		{"a rollout is Reverted, and names a cluster that has been Ready again for a second and has the new content", "", func(b *bench) {
			reverts(b, true, func() {
				b.ready("False")
				time.Sleep(time.Hour)
				b.ready("True")
				time.Sleep(time.Second)
			})
		}},
		{"a rollout is Reverted, and names a cluster that has been Ready again for long and has the new content", haltedOrReverted, func(b *bench) {
			reverts(b, true, func() {
				b.ready("False")
				b.ready("True")
				time.Sleep(2 * outdated)
			})
		}},
		{"a cluster is back after a revert, and has the new content still", haltedOrReverted, func(b *bench) { returned(b, func(hand) {}) }},
		{"a cluster is back after a revert, and the object is only tried out", "", func(b *bench) {
			returned(b, func(h hand) {
				b.must(h.edit(kindConfigMap, "shop", "page-1", func(o *unstructured.Unstructured) { annotate(o, corev1alpha1.DryRunAnnotation, "true") }))
			})
		}},
		{"a floor is set on a namespace, and a later edit reaches a cluster", unreleased, func(b *bench) { floored(b, floor, edit) }},
		{"an edit reaches a cluster, and a floor was set on the namespace after it", "", func(b *bench) { floored(b, edit, floor) }},
		{"a Propagation gets a finalizer", stuck, func(b *bench) {
			of := governed(b)
			report(b, of, rollout("Complete"))
			b.must(b.hub(culprit).edit(kindReport, "shop", of.GetName()+"-test", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{refractv1alpha1.Finalizer}) }))
		}},
		{"a copy gets new content after its rollout was halted", haltedOrReverted, func(b *bench) {
			of := governed(b)
			report(b, of, rollout("Halted", map[string]any{"name": "us-1"}))
			b.copied(kindConfigMap, of, "two")
		}},
		{"a copy gets new content after its rollout, and a policy of its name in another namespace has changed since", "", func(b *bench) { overridden(b, "team") }},
		{"a copy gets new content after its rollout, and its policy has changed since", unreleased, func(b *bench) { overridden(b, "shop") }},
		{"a cluster is done long after its revision has got another name by another key", "", func(b *bench) { bakes(b, "refract-sealed-2-b", "n", time.Minute) }},
		{"a cluster is done too soon after its copy was written again", unreleased, func(b *bench) { bakes(b, "refract-sealed-2-b", "n", 110*time.Second) }},
		{"a cluster is done soon after another target with the content that it has", "", func(b *bench) { bakes(b, "refract-sealed-1-b", "n", 0) }},
		{"a cluster is done too soon after another content", unreleased, func(b *bench) { bakes(b, "refract-sealed-1-b", "n", time.Minute) }},
		{"a cluster is done too soon after another content, named with another key", unreleased, func(b *bench) { bakes(b, "refract-sealed-2-b", "o", time.Minute) }},
		{"a process writes that was killed", twoWriters, func(b *bench) {
			of := b.has(kindConfigMap, "page-1", level("1"))
			b.Processes[0].killed = true
			b.copied(kindConfigMap, of, "one")
		}},
		{"a process writes to a cluster while another leads by the Lease", twoWriters, func(b *bench) {
			b.leads("")
			b.leads("another")
			b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
		}},
		{"a process writes to a cluster, and another led before the hub was restored", "", func(b *bench) {
			b.leads("")
			backup := b.Hub.Server.Snapshot()
			b.leads("another")
			b.Hub.Server.Restore(backup)
			b.copied(kindConfigMap, b.has(kindConfigMap, "page-1", level("1")), "one")
		}},
		{"a copy goes back to a content that it had", oldDecision, func(b *bench) {
			b.hub("alice").delete(kindConfigMap, "shop", "page-2", metav1.DeleteOptions{}) // It may not exist.
			b.must(b.hub(operator).edit(kindNamespace, "", "shop", func(o *unstructured.Unstructured) { label(o, refractv1alpha1.ClusterRolloutPolicyLabel, "") }))
			of := b.has(kindConfigMap, "page-1", level("1"))
			for _, hash := range []string{"one", "two", "one"} {
				b.copied(kindConfigMap, of, hash)
				time.Sleep(10 * outdated)
			}
		}},
		{"a copy has content that its report denies", wrongStatus, func(b *bench) {
			b.has(kindConfigMap, "page-1", level("1"))
			b.oracle.reports(b.World)
			b.oracle.places(b.World)
			report(b, b.hub("alice").get(kindConfigMap, "shop", "page-1"), map[string]any{"placed": int64(1), "synced": int64(1), "variantCount": int64(1)})
			b.oracle.reports(b.World)
		}},
		{"a copy is on a cluster that should not have it", differsFromRender, func(b *bench) {
			b.must(b.hub("alice").create(object(kindConfigMap, "shop", "unplaced", level("1"))))
			b.copied(kindConfigMap, b.hub("alice").get(kindConfigMap, "shop", "unplaced"), "one")
			b.oracle.leftOver(b.World, b.c)
		}},
		{"a claim stays for the older content of a Deployment, to which the rollout has not come", "", func(b *bench) {
			released(b, rollout("Waiting", map[string]any{"name": "us-1"}))
		}},
		{"a claim stays, and the Deployment is to have the newest content", differsFromRender, func(b *bench) {
			released(b, rollout("Waiting", map[string]any{"name": b.c.Name}))
		}},
		{"a claim stays, and the rollout of the Deployment is complete", differsFromRender, func(b *bench) {
			released(b, rollout("Complete"))
		}},
		{"a claim stays with a Deployment that waits for its policy", "", func(b *bench) {
			released(b, blocked(b.c.Name), map[string]any{"resource": "deployments.apps", "name": "web"})
		}},
		{"a claim stays, and is not said to follow the Deployment that waits", differsFromRender, func(b *bench) { released(b, blocked(b.c.Name)) }},
		{"a claim stays where the Deployment that waits is not", differsFromRender, func(b *bench) {
			released(b, blocked("us-1"), map[string]any{"resource": "deployments.apps", "name": "web"})
		}},
		{"a ConfigMap waits with a Deployment, and says so", "", func(b *bench) {
			waits(b, together, rollout("Complete"), refractv1alpha1.RolloutPolicyLabel, "careful")
		}},
		{"a ConfigMap waits with a Deployment, and does not say so", differsFromRender, func(b *bench) {
			waits(b, "it is another", rollout("Complete"), refractv1alpha1.RolloutPolicyLabel, "careful")
		}},
		{"a ConfigMap waits with a Deployment whose rollout has not begun, and says so", "", func(b *bench) {
			waits(b, together, blocked(b.c.Name), refractv1alpha1.RolloutPolicyLabel, "careful")
		}},
		{"a ConfigMap waits with a Deployment whose rollout has not begun, and does not say so", differsFromRender, func(b *bench) {
			waits(b, "it is another", blocked(b.c.Name), refractv1alpha1.RolloutPolicyLabel, "careful")
		}},
		{"a ConfigMap waits with a Deployment that names no rollout policy, and says so", differsFromRender, func(b *bench) {
			waits(b, together, blocked(b.c.Name))
		}},
		{"a FederatedCluster does not go", stuck, func(b *bench) {
			b.must(b.hub(operator).delete(kindCluster, "", "eu-1", metav1.DeleteOptions{}))
			b.oracle.ends(b.World)
		}},
		{"a FederatedCluster waits for the finalizer of another owner, and says so", "", func(b *bench) {
			leaves(b, "configmaps shop/page-1")
			b.oracle.ends(b.World)
		}},
		{"a FederatedCluster waits for the finalizer of another owner, and does not say so", stuck, func(b *bench) {
			leaves(b, "one copy")
			b.oracle.ends(b.World)
		}},
		{"a FederatedCluster waits for the finalizer of another owner, and for a copy", stuck, func(b *bench) {
			leaves(b, "configmaps shop/page-1")
			b.copied(kindConfigMap, b.has(kindConfigMap, "page-2", level("1")), "one")
			b.oracle.ends(b.World)
		}},
		{"a ConfigMap fails, and an edit of a Deployment does not reach the cluster", stuck, func(b *bench) { b.trial("") }},
		{"a ConfigMap fails, and an edit of a Deployment that is only tried out does not reach the cluster", "", func(b *bench) { b.trial("true") }},
		{"a ConfigMap fails, and an edit of a Deployment that is no longer tried out does not reach the cluster", stuck, func(b *bench) { b.trial("false") }},
		{"a ConfigMap fails, and an edit of a Secret waits with a Deployment whose rollout policy does not exist", "", func(b *bench) {
			edited(b, together, "RolloutPolicyNotUsable", "", refractv1alpha1.RolloutPolicyLabel, "gone")
		}},
		{"a ConfigMap fails, and an edit of a Secret waits with a Deployment whose rollout policy is invalid", "", func(b *bench) {
			b.must(b.hub(operator).create(object(kindRollouts, "", "misspelt", map[string]any{"spec": rolloutSpecs[9].spec()})))
			edited(b, together, "RolloutPolicyNotUsable", "", refractv1alpha1.ClusterRolloutPolicyLabel, "misspelt")
		}},
		{"a ConfigMap fails, and an edit of a Secret waits with a Deployment whose propagation policy does not exist", "", func(b *bench) {
			edited(b, together, "PolicyNotFound", "", refractv1alpha1.RolloutPolicyLabel, "careful")
		}},
		{"a ConfigMap fails, and an edit of a Secret waits with a Deployment whose rollout policy is valid", stuck, func(b *bench) {
			_ = b.hub(operator).delete(kindRollout, "shop", "careful", metav1.DeleteOptions{}) // It may not exist.
			b.must(b.hub(operator).create(object(kindRollout, "shop", "careful", map[string]any{"spec": rolloutSpecs[1].spec()})))
			edited(b, together, "RolloutPolicyNotUsable", "", refractv1alpha1.RolloutPolicyLabel, "careful")
		}},
		{"a ConfigMap fails, and an edit of a Secret waits with a Deployment that names no rollout policy", stuck, func(b *bench) {
			edited(b, together, "PolicyNotFound", "")
		}},
		{"a ConfigMap fails, and an edit of a Secret waits with a Deployment that is only tried out", stuck, func(b *bench) {
			edited(b, together, "RolloutPolicyNotUsable", "true", refractv1alpha1.RolloutPolicyLabel, "gone")
		}},
		{"a ConfigMap fails, and an edit of a Secret waits and does not say so", stuck, func(b *bench) {
			edited(b, "", "RolloutPolicyNotUsable", "", refractv1alpha1.RolloutPolicyLabel, "gone")
		}},
		{"the processes write all the time", tooManyRequests, func(b *bench) {
			time.Sleep(time.Hour)
			b.changed = b.Elapsed()
			b.oracle.rests(b.World)
		}},
		{"a request is repeated while nothing changes", tooManyRequests, func(b *bench) {
			b.changed = b.Elapsed()
			time.Sleep(10 * time.Minute)
			b.oracle.repeated = map[string]int{"a request for Secrets": 10*mostRepeated + 1}
			b.oracle.rests(b.World)
		}},
		{"a request is repeated every five seconds", "", func(b *bench) {
			b.changed = b.Elapsed()
			time.Sleep(10 * time.Minute)
			b.oracle.repeated = map[string]int{"a request for Secrets": 120}
			b.oracle.rests(b.World)
		}},
		{"there are more requests than there may be", tooManyRequests, func(b *bench) {
			time.Sleep(2 * time.Minute)
			b.stats.requests += 10 * mostRequests
			b.oracle.count(b.World)
		}},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			expect(t, tc.want, onBench(t, tc.do))
		})
	}
}

// expect fails the test unless this promise was broken; none if it is empty.
func expect(t *testing.T, want string, got *Broken) {
	t.Helper()
	switch {
	case want == "" && got != nil:
		t.Errorf("want nothing, got %v", got)
	case want != "" && got == nil:
		t.Errorf("want %s, got nothing", want)
	case want != "" && got.Invariant != want:
		t.Errorf("want %s, got %v", want, got)
	}
}
