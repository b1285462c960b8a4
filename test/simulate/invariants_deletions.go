package simulate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/test/apiserver"
)

const (
	// guardedCopies and guardedShare are the bounds of the deletion guard (docs/design/deletions.md#deletion-guard).
	// Deletions at once need an approval if they exceed both this number of a namespace's copies on a cluster and this
	// share of them.
	guardedCopies, guardedShare = 10, 0.3
	// onePass is the duration within which deletions belong to one pass.
	onePass = 20 * time.Second
	// grace is the time for which a follower stays after the deletion of its leader, the object that refers to it: a
	// minute (docs/design/deletions.md#delay-for-followers), minus an allowance for delays.
	grace = 50 * time.Second
)

// onFederatedCluster records the approved deletions, changes of the right to write, and clusters that were not Ready.
func (o *oracle) onFederatedCluster(p *Process, w apiserver.Write) {
	if w.Before == nil || w.After == nil || conditionsOf(w.Before) != conditionsOf(w.After) || p == nil {
		o.handovers++
		o.conditions = time.Now()
	}
	o.noteAway(w)
	if w.After == nil {
		return
	}
	for _, field := range []string{"token", "othersToken"} {
		token, _, _ := unstructured.NestedString(w.After.Object, "status", "deletionsHeld", field) // Without waiting deletions the token is empty.
		if token == "" || o.issued[token] != nil {
			continue
		}
		data := field == "token"
		o.issued[token] = o.asked(w.Name, data)
	}
	value := w.After.GetAnnotations()[refractv1alpha1.ApproveAnnotation]
	if p != nil || value == "" || w.Before != nil && w.Before.GetAnnotations()[refractv1alpha1.ApproveAnnotation] == value {
		return
	}
	for uid := range o.issued[value] {
		o.approved[uid] = true
	}
}

// noteAway records the time of a write before or after which no FederatedCluster of a cluster was Ready.
func (o *oracle) noteAway(w apiserver.Write) {
	served := func(object *unstructured.Unstructured) bool {
		fc := &corev1alpha1.FederatedCluster{}
		return object != nil && mustDecode(object.DeepCopy().Object, fc) == nil && isServed(fc)
	}
	if served(w.Before) && served(w.After) {
		return
	}
	for _, c := range o.w.Clusters {
		if !slices.ContainsFunc(o.w.namesOf(c), func(fc *corev1alpha1.FederatedCluster) bool { return fc.Name != w.Name && isServed(fc) }) {
			o.away[c] = time.Now()
		}
	}
}

// wasAway reports whether a cluster had no Ready FederatedCluster at some moment that processes may act on.
func (o *oracle) wasAway(c *Cluster) bool {
	at, ever := o.away[c]
	return !slices.ContainsFunc(o.w.namesOf(c), isServed) || ever && time.Since(at) <= outdated
}

// asked returns the copies on a cluster whose deletion a request for an approval may cover. If data is false, it
// excludes copies with data.
func (o *oracle) asked(name string, data bool) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, fc := range o.w.members() {
		c := o.w.clusterAt(fc)
		if fc.Name != name || c == nil {
			continue
		}
		names, _ := o.namesNow(c)
		for _, k := range ofHub {
			for _, object := range c.Server.All(k.GroupVersionResource) {
				key := copyKey{k.GroupVersionResource.GroupResource(), object.GetNamespace(), object.GetName()}
				if !isCopy(object) && o.copies[object.GetUID()] == nil || !data && o.holdsData(key, object) {
					continue
				}
				if fc.DeletionTimestamp != nil || o.gone(key, object) || o.unwanted(key, names) || o.unused(c, key, names) {
					all[object.GetUID()] = true
				}
			}
		}
	}
	return all
}

// unused reports whether an object is placed on a cluster only because of leaders that wait and have no copy there, for
// example because their RolloutPolicy never existed. refract render already shows such leaders on their future
// clusters, together with their followers. So unused renders the hub once more without these leaders: the object may be
// placed on the cluster by itself, or by other leaders.
func (o *oracle) unused(c *Cluster, key copyKey, names []string) bool {
	out, report := o.now().outcomes[key], o.report(key)
	if out == nil {
		return false
	}
	if report != nil && slices.ContainsFunc(names, func(name string) bool { return o.staysWith(report, name) }) {
		return false // It travelled with a leader that waits, so it stays.
	}
	absent := map[copyKey]bool{}
	for _, leader := range out.Leaders {
		r, known := resourceOf[leader.ID.GroupKind]
		if at := (copyKey{r, leader.ID.Namespace, leader.ID.Name}); known && o.waits(leader) && o.copyOf(c, at) == nil {
			absent[at] = true
		}
	}
	if len(absent) == 0 {
		return false
	}
	without := slices.DeleteFunc(o.hubObjects(), func(object *unstructured.Unstructured) bool {
		return absent[copyKey{resourceOf[object.GroupVersionKind().GroupKind()], object.GetNamespace(), object.GetName()}]
	})
	return !o.evaluate(without).wanted(key, names)
}

// gone reports whether the object of a copy no longer exists on the hub.
func (o *oracle) gone(key copyKey, object *unstructured.Unstructured) bool {
	on := o.onHubNow(key)
	return on == nil || on.GetDeletionTimestamp() != nil || on.GetUID() != sourceUID(o.sourceOf(object))
}

// sourceOf returns the source annotation of a copy, or its former value if a user has removed it.
func (o *oracle) sourceOf(object *unstructured.Unstructured) string {
	if source := object.GetAnnotations()[refractv1alpha1.SourceAnnotation]; source != "" {
		return source
	}
	if known := o.copies[object.GetUID()]; known != nil {
		return known.source
	}
	return ""
}

// holdsData reports whether a copy holds data: PersistentVolumeClaims, PersistentVolumes, and objects with the
// annotation refract.dev/keep (docs/design/deletions.md#copies-that-hold-data).
func (o *oracle) holdsData(key copyKey, object *unstructured.Unstructured) bool {
	if key.Group == "" && (key.Resource == kindClaim.Resource || key.Resource == kindVolume.Resource) {
		return true
	}
	return object.GetAnnotations()[refractv1alpha1.KeepAnnotation] == "true"
}

// deletes checks the deletion of an object on a cluster.
func (o *oracle) deletes(p *Process, c *Cluster, key copyKey, object *unstructured.Unstructured) {
	known := o.copies[object.GetUID()]
	what := key.String() + " on cluster " + c.Name
	if key.GroupResource == kindNamespace.GroupVersionResource.GroupResource() {
		o.deletesNamespace(p, c, object)
		return
	}
	if !isCopy(object) && known == nil {
		o.w.Failf(withoutCause, "%s deletes %s, which is no copy: somebody on the cluster made it", p.Name, what)
		return
	}
	if o.approved[object.GetUID()] {
		return
	}
	was, askedFor := o.deletions[sourceUID(o.sourceOf(object))]
	if askedFor && was.alone {
		o.orphaned(p, key, what, object)
		return
	}
	if o.holdsData(key, object) {
		o.w.Failf(volumeDeleted, "%s deletes %s, which holds data: nobody deleted this very object on the hub (%s), and nobody approved it", p.Name, what, o.fate(key, object))
		return
	}
	if askedFor && !was.around {
		o.orphaned(p, key, what, object)
		return
	}
	names, leaving := o.namesNow(c)
	if leaving || len(names) == 0 || o.wasReset(o.w.Hub) || o.wasReset(&c.Target) {
		return
	}
	if out := o.now().outcomes[key]; out != nil && o.waitsForLeader(out) {
		return // The leader's Propagation shows another content or placement than the newest one.
	}
	if !askedFor && !o.gone(key, object) && !o.unwanted(key, names) && !o.leftBehind(c, key, known) {
		o.w.Failf(withoutCause, "%s deletes %s, and there is no cause: the object is on the hub (%s), it was to be on this cluster in the last %s, and nobody approved its deletion",
			p.Name, what, o.fate(key, object), outdated)
		return
	}
	o.early(p, c, key, what)
	o.unasked(p, placeKey{c, key})
}

// leftBehind reports whether a copy is older than the membership of its cluster under the current name (refract unjoin
// --force leaves the copies), and its policy keeps objects on their present clusters. The Propagation may still name
// the cluster, so refract render shows the object there. The controllers know that the cluster was no member for a
// while, so they delete the copy.
func (o *oracle) leftBehind(c *Cluster, key copyKey, known *copyFacts) bool {
	on := o.onHubNow(key)
	if on == nil || known == nil {
		return false
	}
	kind, namespace, name := kindPlacement, key.namespace, on.GetLabels()[corev1alpha1.PropagationPolicyLabel]
	if name == "" {
		kind, namespace, name = kindPlacements, "", on.GetLabels()[corev1alpha1.ClusterPropagationPolicyLabel]
	}
	policy := o.w.Hub.Server.Peek(kind.GroupVersionResource, namespace, name)
	if policy == nil {
		return false
	}
	keeps, _, _ := unstructured.NestedBool(policy.Object, "spec", "reschedulePolicy", "disableRescheduling") // Without the field it is false.
	return keeps && !slices.ContainsFunc(o.w.namesOf(c), func(fc *corev1alpha1.FederatedCluster) bool { return !fc.CreationTimestamp.After(known.written) })
}

// fate describes what happened to the object of a copy.
func (o *oracle) fate(key copyKey, object *unstructured.Unstructured) string {
	on := o.onHubNow(key)
	was, found := o.deletions[sourceUID(o.sourceOf(object))]
	switch {
	case found && was.around:
		return "it went with its namespace or its type"
	case found:
		return was.by + " deleted it, and it had an owner"
	case on == nil:
		return "it is not there, and nobody was seen to delete it"
	case on.GetUID() != sourceUID(o.sourceOf(object)):
		return "another object of this name is there"
	default:
		return "it is there"
	}
}

// orphaned checks that a copy stays if its object asked for this with the annotation kubeadmiral.io/orphan
// (docs/design/deletions.md).
func (o *oracle) orphaned(p *Process, key copyKey, what string, object *unstructured.Unstructured) {
	known := o.copies[object.GetUID()]
	if o.onHubNow(key) != nil || object.GetAnnotations()[refractv1alpha1.OrphanAnnotation] != placement.OrphanAll || known == nil || time.Since(known.written) < outdated {
		return
	}
	o.w.Failf(withoutCause, "%s deletes %s, though its object had the annotation %s: the copy is to stay when the object is deleted", p.Name, what, corev1alpha1.OrphanAnnotation)
}

// deletesNamespace checks that a namespace is deleted only if Refract created it and it is empty
// (docs/design/members.md#namespaces-on-members). An empty namespace contains only the objects that Kubernetes creates
// in every namespace (docs/guide/operate-clusters.md#namespaces-on-members).
func (o *oracle) deletesNamespace(p *Process, c *Cluster, ns *unstructured.Unstructured) {
	if ns.GetAnnotations()[refractv1alpha1.NamespaceAnnotation] == "" {
		o.w.Failf(withoutCause, "%s deletes Namespace %s on cluster %s, which it did not make", p.Name, ns.GetName(), c.Name)
		return
	}
	for _, k := range ofHub {
		resource := k.GroupVersionResource.GroupResource()
		for _, object := range c.Server.All(k.GroupVersionResource) {
			if placement.Native(resource, object) != "" && placement.Parent(resource, object) == "" {
				continue // The cluster creates this object in each namespace. Objects that a workload created are different.
			}
			if object.GetNamespace() != ns.GetName() || object.GetDeletionTimestamp() != nil || o.w.Now().Sub(object.GetCreationTimestamp().Add(-c.Skew)) < outdated {
				continue
			}
			o.w.Failf(withoutCause, "%s deletes Namespace %s on cluster %s, in which %s %s is", p.Name, ns.GetName(), c.Name, k.name, object.GetName())
			return
		}
	}
}

// reported returns the FederatedClusters on which an object was placed, according to its Propagation before the
// deletion of the object. The result is empty if the object was waiting, for example for a missing policy, because it
// has no followers then.
func (o *oracle) reported(key copyKey, object *unstructured.Unstructured) map[types.UID]bool {
	report := o.report(key)
	if report == nil {
		return nil
	}
	if uid, _, _ := unstructured.NestedString(report.Object, "spec", "source", "uid"); uid != string(object.GetUID()) { // Without a source the UID is empty.
		return nil
	}
	rows, on := rowsOf(report), map[types.UID]bool{}
	for _, fc := range o.w.members() {
		on[fc.UID] = slices.ContainsFunc(rows, func(row refractv1alpha1.ClusterStatus) bool {
			return row.Name == fc.Name && row.State != refractv1alpha1.StateDeleting
		})
	}
	return on
}

// early checks that a follower stays for a minute on the clusters of its deleted leader. If the leader was created
// again, the clusters of the new object determine those of the follower.
func (o *oracle) early(p *Process, c *Cluster, key copyKey, what string) {
	on := o.onHubNow(key)
	follows := []string{kindConfigMap.Resource, kindSecret.Resource, kindAccount.Resource}
	if on == nil || on.GetDeletionTimestamp() != nil || !slices.Contains(follows, key.Resource) || asksForPlace(on) {
		return
	}
	for _, uid := range sortedUIDs(o.deletions) {
		was := o.deletions[uid]
		if time.Since(was.at) >= grace || was.around || was.key.namespace != key.namespace || o.cameAgain(was) {
			continue
		}
		travelled := slices.ContainsFunc(o.w.namesOf(c), func(fc *corev1alpha1.FederatedCluster) bool {
			return was.reported[fc.UID] && o.travelled(was, key, fc.Name)
		})
		if !travelled {
			continue
		}
		o.w.Failf(withoutCause, "%s deletes %s, %s after %s %s was deleted, with which it travelled: it is to stay for a minute, as that may be created again",
			p.Name, what, time.Since(was.at).Round(time.Second), was.object.GetKind(), was.object.GetName())
		return
	}
}

// travelled reports whether an object followed the deleted leader to a cluster in every state that processes may have
// acted on. Otherwise, for example on a cluster that has just joined, no copy has to stay.
func (o *oracle) travelled(with deletion, key copyKey, cluster string) (did bool) {
	for i := range o.states {
		s := &o.states[i]
		if s.until.After(with.at) {
			break
		}
		if s.seen == nil {
			s.seen = o.evaluate(s.objects)
		}
		leader, at := s.seen.at(with.key, []string{cluster})
		if leader == nil || leader.Gone != "" {
			continue // The leader did not exist yet.
		}
		out := s.seen.outcomes[key]
		if at < 0 || out == nil || !slices.ContainsFunc(out.Leaders, func(l *render.Outcome) bool { return l.ID == leader.ID }) {
			return false
		}
		did = true
	}
	return did
}

// cameAgain reports whether a deleted object was created again.
func (o *oracle) cameAgain(was deletion) bool {
	if on := o.onHubNow(was.key); on != nil && on.GetUID() != was.object.GetUID() {
		return true
	}
	for _, other := range o.deletions {
		if other.key == was.key && other.at.After(was.at) {
			return true
		}
	}
	return false
}

func asksForPlace(object *unstructured.Unstructured) bool {
	return object.GetLabels()[corev1alpha1.PropagationPolicyLabel] != "" || object.GetLabels()[corev1alpha1.ClusterPropagationPolicyLabel] != ""
}

func sortedUIDs[V any](of map[types.UID]V) (uids []types.UID) {
	for uid := range of {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// unasked checks the bounds of deletions that no user requested.
func (o *oracle) unasked(p *Process, place placeKey) {
	now := time.Now()
	o.lost = append(slices.DeleteFunc(o.lost, func(l loss) bool { return now.Sub(l.at) > outdated }), loss{now, p, place, false})
	if len(o.editsSince(outdated)) > 1 {
		return // Each change of the policy may cause as many deletions.
	}
	n := 0
	var clusters []string
	for _, l := range o.lost {
		if l.place.cluster == place.cluster && l.place.namespace == place.namespace && l.process == p && now.Sub(l.at) <= onePass {
			n++
		}
		if l.place.copyKey == place.copyKey && !slices.Contains(clusters, l.place.cluster.Name) {
			clusters = append(clusters, l.place.cluster.Name)
		}
	}
	had := n - 1
	for _, k := range ofHub {
		for _, object := range place.cluster.Server.All(k.GroupVersionResource) {
			if object.GetNamespace() == place.namespace && isCopy(object) {
				had++
			}
		}
	}
	if n > guardedCopies && float64(n) > guardedShare*float64(had) {
		o.w.Failf(withoutCause, "%s has deleted %d copies in Namespace %s on cluster %s within %s, of %d, after a single change, and nobody approved that",
			p.Name, n, place.namespace, place.cluster.Name, onePass, had)
		return
	}
	on := o.onHubNow(place.copyKey)
	if len(clusters) == len(clusterNames) && on != nil && on.GetDeletionTimestamp() == nil && asksForPlace(on) {
		slices.Sort(clusters)
		o.w.Failf(withoutCause, "%s was deleted from all its clusters (%s) by a single change of policies or labels, and nobody approved that: a placement that leaves more than two clusters waits",
			place.copyKey, list(clusters))
	}
}

// takesOver checks that no object of a cluster is overwritten: adoption needs annotations of the hub's object that name
// the cluster (docs/design/deletions.md#adoption-and-objects-of-the-cluster).
func (o *oracle) takesOver(p *Process, c *Cluster, key copyKey, w apiserver.Write) {
	if w.Before == nil || isCopy(w.Before) || o.copies[w.Before.GetUID()] != nil || key.GroupResource == kindNamespace.GroupVersionResource.GroupResource() {
		return
	}
	if w.Before.GetAnnotations()[refractv1alpha1.SourceAnnotation] != "" {
		return // It is a copy: a user has removed only its label.
	}
	if o.adopts(key) {
		return
	}
	o.w.Failf(withoutCause, "%s overwrites %s on cluster %s, which is no copy: somebody on the cluster made it, and the object on the hub has no annotation %s: adopt",
		p.Name, key, c.Name, corev1alpha1.ConflictResolutionAnnotation)
}

// adopts reports whether the object asks for the adoption of existing objects, or asked shortly before.
func (o *oracle) adopts(key copyKey) bool {
	asks := func(object *unstructured.Unstructured) bool {
		return object != nil && object.GetAnnotations()[corev1alpha1.ConflictResolutionAnnotation] == "adopt"
	}
	if asks(o.onHubNow(key)) {
		return true
	}
	for _, s := range o.states {
		for _, object := range s.objects {
			if r := resourceOf[object.GroupVersionKind().GroupKind()]; r == key.GroupResource && object.GetNamespace() == key.namespace && object.GetName() == key.name && asks(object) {
				return true
			}
		}
	}
	return false
}
