package simulate

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/podtemplate"
)

// leftOver checks that a cluster has no other copies.
func (o *oracle) leftOver(w *World, c *Cluster) {
	names, _ := o.namesNow(c)
	if len(names) == 0 {
		return
	}
	now := o.now()
	for _, k := range ofHub {
		for _, object := range c.Server.All(k.GroupVersionResource) {
			key := copyKey{k.GroupVersionResource.GroupResource(), object.GetNamespace(), object.GetName()}
			if !isCopy(object) || now.wanted(key, names) || object.GetDeletionTimestamp() != nil {
				continue
			}
			report, told := o.report(key), false
			if on := o.onHubNow(key); on != nil && report != nil && (o.blocked(report, on) || now.outcomes[key] != nil && o.waitsForLeader(now.outcomes[key])) {
				continue
			}
			for _, name := range names {
				row := rowFor(report, name)
				told = told || heldOn(report, name)
				told = told || row != nil && (row.State == refractv1alpha1.StateDeleting || o.goesWithOlder(c, key, name) || o.staysWith(report, name))
			}
			for _, fc := range w.namesOf(c) {
				told = told || fc.Status.DeletionsHeld != nil || slices.ContainsFunc(fc.Status.PendingDeletions, func(d corev1alpha1.PendingDeletion) bool { return d.Name == key.name })
			}
			if !told {
				w.Failf(differsFromRender, "cluster %s has a copy of %s, which is not to be there, and nothing says that it waits", c.Name, key)
			}
		}
	}
}

// heldOn reports whether, according to the Propagation, the removal of an object from a cluster waits for an approval.
// The condition Synced may name another problem with a higher priority.
func heldOn(report *unstructured.Unstructured, name string) bool {
	if report == nil {
		return false
	}
	leaves, _, _ := unstructured.NestedStringSlice(report.Object, "status", "held", "leaves") // Without a waiting change the list is empty.
	return slices.Contains(leaves, name)
}

// goesWithOlder reports whether a copy stays on a cluster because another copy with older content refers to it. The
// rollout has not reached the cluster, and a former follower is deleted together with the content that refers to it
// (docs/design/rollouts.md#followers-of-a-governed-object). refract render shows only the newest content. Objects that
// are deleted on the hub do not stay.
func (o *oracle) goesWithOlder(c *Cluster, key copyKey, name string) bool {
	if on := o.onHubNow(key); on == nil || on.GetDeletionTimestamp() != nil {
		return false
	}
	for _, k := range ofHub {
		for _, object := range c.Server.All(k.GroupVersionResource) {
			refers := slices.ContainsFunc(podtemplate.References(object), func(r podtemplate.Reference) bool {
				return schema.GroupResource{Group: r.Group, Resource: r.Resource} == key.GroupResource && r.Name == key.name
			})
			if !refers || object.GetNamespace() != key.namespace || !isCopy(object) {
				continue
			}
			leader := copyKey{k.GroupVersionResource.GroupResource(), object.GetNamespace(), object.GetName()}
			report := o.report(leader)
			if report == nil || o.onHubNow(leader) == nil {
				continue
			}
			if r := rolloutOf(report); r != nil && r.Phase != refractv1alpha1.RolloutComplete && !hasTarget(r, name) {
				return true
			}
		}
	}
	return false
}

// reports checks the other statements of Propagations: docs/guide/see-your-fleet.md.
func (o *oracle) reports(w *World) {
	members := map[string]bool{}
	for _, fc := range w.members() {
		members[fc.Name] = true
	}
	for _, k := range []kind{kindReport, kindReportGlobe} {
		for _, report := range w.Hub.Server.All(k.GroupVersionResource) {
			key := reportKey(report)
			on, rows := o.onHubNow(key), rowsOf(report)
			for i := range rows {
				if !members[rows[i].Name] {
					w.Failf(wrongStatus, "the Propagation of %s has a row for cluster %s, which is no member any more", key, rows[i].Name)
				}
			}
			if on == nil && len(rows) == 0 && rolloutOf(report) == nil {
				w.Failf(wrongStatus, "there is a Propagation of %s, which is neither on the hub nor on any cluster", key)
			}
			observed, _, _ := unstructured.NestedInt64(report.Object, "status", "observedGeneration") // 0 for a report without a generation.
			if on != nil && on.GetDeletionTimestamp() == nil && asksForPlace(on) && observed != on.GetGeneration() {
				w.Failf(wrongStatus, "the Propagation of %s is about generation %d, and the object has %d", key, observed, on.GetGeneration())
			}
			synced, placed := int64(0), numberAt(report, "status", "placed")
			for i := range rows {
				if rows[i].State == refractv1alpha1.StateSynced {
					synced++
				}
			}
			if got := numberAt(report, "status", "synced"); got != synced || got > placed && saidCondition(report, refractv1alpha1.ConditionSynced)["status"] == string(metav1.ConditionTrue) {
				w.Failf(wrongStatus, "the Propagation of %s counts %d of %d clusters as synced, and %d rows say so", key, got, placed, synced)
			}
			o.reverted(w, key, report)
		}
	}
}

// reverted checks that no cluster has the reverted content: Revert restores the former content on all clusters
// (docs/guide/release-safely.md). At the end all clusters answer, including those that were unreachable. While the
// object is blocked or in a dry run, Refract writes no copies, so a cluster may keep the content.
func (o *oracle) reverted(w *World, key copyKey, report *unstructured.Unstructured) {
	r := rolloutOf(report)
	if r == nil || r.Phase != refractv1alpha1.RolloutReverted {
		return
	}
	for _, c := range w.Clusters {
		got, there := o.releases.got[placeKey{c, key}], o.copyOf(c, key)
		names, _ := o.namesNow(c)
		if got.target != r.Target.Name || there == nil || !o.isPlaced(c, key) || there.GetAnnotations()[refractv1alpha1.AppliedAnnotation] != got.hash ||
			o.isBack(c, key, r, there) {
			continue
		}
		on := o.onHubNow(key)
		waits := o.blocked(report, on) || on.GetAnnotations()[corev1alpha1.DryRunAnnotation] == "true"
		if !waits || !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(r.Reverting, name) }) {
			w.Failf(haltedOrReverted, "the rollout of %s is Reverted, and cluster %s has the content still that was taken back", key, c.Name)
		}
	}
}

// policies checks that the status of rollout policies counts their objects by phase (docs/guide/release-safely.md).
func (o *oracle) policies(w *World) {
	for _, k := range []kind{kindRollout, kindRollouts} {
		for _, policy := range w.Hub.Server.All(k.GroupVersionResource) {
			what := named(k, policy.GetNamespace(), policy.GetName())
			if observed := numberAt(policy, "status", "observedGeneration"); observed != policy.GetGeneration() {
				w.Failf(wrongStatus, "the status of %s is about generation %d, and the policy has %d", what, observed, policy.GetGeneration())
				continue
			}
			progressing := int64(0)
			for _, reports := range []kind{kindReport, kindReportGlobe} {
				for _, report := range w.Hub.Server.All(reports.GroupVersionResource) {
					if r := rolloutOf(report); r != nil && r.Phase == refractv1alpha1.RolloutProgressing && slices.ContainsFunc(r.Policies, func(p refractv1alpha1.ObeyedPolicy) bool {
						return p.Kind == k.name && p.Name == policy.GetName() && (!k.namespaced || report.GetNamespace() == policy.GetNamespace())
					}) {
						progressing++
					}
				}
			}
			if got := numberAt(policy, "status", "phases", "progressing"); got > progressing {
				w.Failf(wrongStatus, "the status of %s counts %d rollouts as Progressing, and the Propagations tell of %d", what, got, progressing)
			}
		}
	}
}
