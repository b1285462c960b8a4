package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
)

// variantFor returns the intended object of a cluster, or nil if its rendering fails.
func variantFor(out *render.Outcome, at int) *unstructured.Unstructured {
	for i := range out.Variants {
		if slices.Contains(out.Variants[i].Clusters, at) {
			return out.Variants[i].Object
		}
	}
	return nil
}

// failureFor returns the rendering error of a cluster.
func failureFor(out *render.Outcome, at int) error {
	for i := range out.Variants {
		if slices.Contains(out.Variants[i].Clusters, at) {
			return out.Variants[i].Err
		}
	}
	return nil
}

// differs returns the first difference of a copy from the intended object, or "". It ignores fields that clusters decide.
func differs(want, copied, on *unstructured.Unstructured) string {
	skip := func(path string) bool {
		switch path {
		case "/status", "/metadata/namespace", "/metadata/name", "/apiVersion", "/kind",
			"/metadata/creationTimestamp", "/metadata/managedFields", "/metadata/resourceVersion", "/metadata/uid", "/metadata/generation",
			"/spec/replicas": // Shares of replicas, autoscalers, and retained replicas.
			return true
		}
		return leftToMembers(on, path)
	}
	return lacks(want.Object, copied.Object, "", skip)
}

// leftToMembers reports whether an object leaves a field to the clusters. The promise is "Afterwards the member's value
// stays" in docs/guide/what-travels-and-what-stays.md.
func leftToMembers(on *unstructured.Unstructured, path string) bool {
	var left []string
	if on == nil || json.Unmarshal([]byte(on.GetAnnotations()[refractv1alpha1.LeftToMembersAnnotation]), &left) != nil {
		return false // The annotation is absent or invalid, and leaves no field to the clusters.
	}
	field := strings.Split(path, "/")
	return slices.ContainsFunc(left, func(pointer string) bool {
		names := strings.Split(pointer, "/")
		if len(names) > len(field) {
			return false
		}
		for i, name := range names {
			if name != "*" && name != field[i] {
				return false
			}
		}
		return true
	})
}

// lacks returns the first wanted value that is missing or different, or "". The existing value may have more fields.
func lacks(want, have any, path string, skip func(string) bool) string {
	if skip(path) {
		return ""
	}
	switch want := want.(type) {
	case map[string]any:
		has, ok := have.(map[string]any)
		if !ok {
			if len(want) == 0 {
				return ""
			}
			return fmt.Sprintf("%s is %s, and not %s", path, encoded(have), encoded(want))
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if d := lacks(want[k], has[k], path+"/"+k, skip); d != "" {
				return d
			}
		}
		return ""
	case []any:
		has, _ := have.([]any)
		for i, v := range want {
			m, isMap := v.(map[string]any)
			j := i
			if isMap {
				for _, id := range []string{"name", "type", "key", "port", "mountPath"} {
					if m[id] != nil {
						j = slices.IndexFunc(has, func(h any) bool { h2, ok := h.(map[string]any); return ok && h2[id] == m[id] })
						break
					}
				}
			}
			if j < 0 || j >= len(has) {
				return fmt.Sprintf("%s/%d is missing", path, i)
			}
			if d := lacks(v, has[j], fmt.Sprintf("%s/%d", path, i), skip); d != "" {
				return d
			}
		}
		return ""
	default:
		if string(encoded(want)) != string(encoded(have)) {
			if have == nil && (want == nil || want == "" || want == false) {
				return ""
			}
			return fmt.Sprintf("%s is %s, and not %s", path, encoded(have), encoded(want))
		}
		return ""
	}
}

// atEnd checks the final state: all faults have ended, all events are delivered, and time has passed.
func (o *oracle) atEnd(w *World) {
	w.injectionAtEnd()
	o.seen = nil
	o.rests(w)
	o.ends(w)
	o.fleet(w)
	o.places(w)
	o.reports(w)
	o.policies(w)
}

// rests checks that no process writes when nothing changes (docs/performance.md). A renewal of a token that is due
// counts as a change caused by time: see [World.renews].
func (o *oracle) rests(w *World) {
	if since := w.Elapsed() - w.changed; since < w.calmAfter() && w.changed > 0 {
		w.Failf(tooManyRequests, "%s after the last fault and the last change by a person the processes write still; written most often: %s",
			longestRest, o.again(longestRest))
	}
	minutes := (w.Elapsed() - w.changed).Minutes()
	for _, what := range slices.Sorted(maps.Keys(o.repeated)) {
		if n := o.repeated[what]; float64(n) > mostRepeated*max(minutes, 1) {
			w.Failf(tooManyRequests, "%d requests in %.1f minutes while nothing changes: %s", n, minutes, what)
			return
		}
	}
}

// mostRepeated is the maximum number of requests per minute for objects of one type in one namespace while nothing
// changes. If objects of a type cannot be written, Refract retries one copy every five seconds.
const mostRepeated = 15

// repeats counts a request for an object of a cluster, or a failed write of a Propagation, at the end of a history. It
// does not count periodic requests: those for Leases, and checks of servers.
func (o *oracle) repeats(c *call, code int) {
	m := pathOf.FindStringSubmatch(c.request.URL.Path)
	if o.repeated == nil || m == nil || m[2] == "" || m[3] == "leases" {
		return
	}
	who := fmt.Sprintf("%s sends %s for %s in Namespace %s to %s", c.process.Name, c.request.Method, m[3], m[2], c.target.Name)
	switch {
	case c.target != o.w.Hub:
		o.repeated[who]++
	case m[3] == kindReport.Resource && writes(c.request.Method) && code >= http.StatusBadRequest:
		o.repeated[fmt.Sprintf("%s, and gets %d", who, code)] += failsOnHub
	}
}

// failsOnHub is the weight of a failed write of a Propagation. It exceeds mostRepeated, because no such failure is
// allowed.
const failsOnHub = 1000

// longestRest is the maximum duration of the end of a run.
const longestRest = 20 * time.Minute

// ends checks that deletions are completed. For example, Propagations do not block their namespace
// (docs/design/deletions.md#propagations-without-finalizer).
func (o *oracle) ends(w *World) {
	for _, t := range w.everyTarget() {
		for _, ns := range t.Server.All(kindNamespace.GroupVersionResource) {
			if ns.GetDeletionTimestamp() == nil {
				continue
			}
			if names, others := inNamespace(t, ns.GetName()); !others || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, refractv1alpha1.Finalizer) }) {
				w.Failf(stuck, "Namespace %s of %s is being deleted still; there is in it: %s", ns.GetName(), t.Name, cmp.Or(list(names), "nothing that is known"))
			}
		}
	}
	for _, k := range ofHub {
		for _, object := range w.Hub.Server.All(k.GroupVersionResource) {
			_, held, _ := unstructured.NestedMap(object.Object, "status", "deletionsHeld")
			if held { // A leaving cluster may wait for the approval of deletions, which its status reports.
				continue
			}
			if k == kindCluster && o.waitsForFinalizers(object) {
				continue
			}
			if object.GetDeletionTimestamp() != nil && slices.Contains(object.GetFinalizers(), refractv1alpha1.Finalizer) {
				w.Failf(stuck, "%s is being deleted on the hub still, and waits for the finalizer %s", named(k, object.GetNamespace(), object.GetName()), refractv1alpha1.Finalizer)
			}
		}
	}
	for _, c := range w.gates.waiting() {
		w.Failf(stuck, "the request %s has no end", c.key)
	}
}

// waitsForFinalizers reports whether all copies on the cluster of a FederatedCluster are being deleted and wait for
// finalizers of other owners, and the status of the FederatedCluster names one of them. The promise is "until then the
// cluster cannot leave the hub either" in docs/guide/override-policies.md.
func (o *oracle) waitsForFinalizers(object *unstructured.Unstructured) bool {
	fc := &corev1alpha1.FederatedCluster{}
	if mustDecode(object.DeepCopy().Object, fc) != nil || o.w.clusterAt(fc) == nil {
		return false
	}
	at := slices.IndexFunc(fc.Status.Conditions, func(c corev1alpha1.ClusterCondition) bool {
		return c.Type == corev1alpha1.ClusterJoined && c.Reason == "Leaving"
	})
	if at < 0 {
		return false
	}
	said := false
	for _, k := range ofHub {
		for _, copied := range o.w.clusterAt(fc).Server.All(k.GroupVersionResource) {
			if !isCopy(copied) {
				continue
			}
			if copied.GetDeletionTimestamp() == nil || len(copied.GetFinalizers()) == 0 {
				return false
			}
			name := strings.TrimPrefix(copied.GetNamespace()+"/"+copied.GetName(), "/")
			said = said || strings.Contains(fc.Status.Conditions[at].Message, k.Resource+" "+name)
		}
	}
	return said
}

// inNamespace returns the objects of a namespace that concern Refract. others is true if other objects have finalizers,
// because these also keep the namespace.
func inNamespace(t *Target, namespace string) (names []string, others bool) {
	for _, k := range slices.Concat(ofHub, []kind{kindRevision, kindLease, podKind, replicaSetKind}) {
		for _, object := range t.Server.All(k.GroupVersionResource) {
			if object.GetNamespace() != namespace {
				continue
			}
			finalizers := object.GetFinalizers()
			if len(finalizers) > 0 && !slices.Contains(finalizers, refractv1alpha1.Finalizer) {
				others = true
				continue
			}
			names = append(names, fmt.Sprintf("%s %s (finalizers %v)", k.name, object.GetName(), finalizers))
		}
	}
	return names, others
}

// isServed reports whether Refract uses this FederatedCluster for its cluster.
func isServed(fc *corev1alpha1.FederatedCluster) bool {
	return conditionIs(fc, corev1alpha1.ClusterReady, metav1.ConditionTrue)
}

// fleet checks the statuses of clusters: docs/guide/see-your-fleet.md. At the end all clusters answer, and their
// credentials are valid.
func (o *oracle) fleet(w *World) {
	for _, c := range w.Clusters {
		names := w.namesOf(c)
		if len(names) == 0 {
			continue
		}
		if !slices.ContainsFunc(names, isServed) {
			fc := names[0]
			w.Failf(wrongStatus, "cluster %s answers, and the credentials of its FederatedCluster are right, and no name of it is Ready: %s says %s",
				c.Name, fc.Name, conditionsOf(&unstructured.Unstructured{Object: anything(fc)}))
		}
		for _, fc := range names {
			held := fc.Status.DeletionsHeld
			if held == nil || !isServed(fc) {
				continue
			}
			if held.Copies > int64(o.copiesOn(c)) {
				w.Failf(wrongStatus, "FederatedCluster %s says that the deletion of %d copies waits for approval, and the cluster has %d copies", fc.Name, held.Copies, o.copiesOn(c))
			}
		}
	}
}

func (o *oracle) copiesOn(c *Cluster) (n int) {
	for _, k := range slices.Concat(ofHub) {
		for _, object := range c.Server.All(k.GroupVersionResource) {
			if isCopy(object) {
				n++
			}
		}
	}
	return n
}

// excused reports whether the row of a cluster in the Propagation gives a correct reason why the copy differs from the
// intended object.
func (o *oracle) excused(c *Cluster, key copyKey, row *refractv1alpha1.ClusterStatus, there *unstructured.Unstructured) bool {
	if row == nil {
		return false
	}
	switch row.State {
	case refractv1alpha1.StateSynced, refractv1alpha1.StateOffline:
		return false
	case refractv1alpha1.StateFailed:
		return row.Message != "" && (row.Reason != "AlreadyExists" || there != nil) && (row.Reason != "TypeNotServed" || !c.serves(key))
	default:
		return row.Reason != "" || row.Message != ""
	}
}

// serves reports whether a cluster serves a type.
func (c *Cluster) serves(key copyKey) bool {
	for _, t := range c.Lab.types() {
		if t.GVR.GroupResource() == key.GroupResource {
			return true
		}
	}
	return false
}

// copyOf returns the object at the place of a copy on a cluster, in any version that the cluster serves.
func (o *oracle) copyOf(c *Cluster, key copyKey) *unstructured.Unstructured {
	for _, k := range ofHub {
		if k.GroupVersionResource.GroupResource() == key.GroupResource {
			return c.Server.Peek(k.GroupVersionResource, key.namespace, key.name)
		}
	}
	return nil
}

// places checks that each cluster has the objects of refract render, which decides like the controllers
// (docs/design/offline.md).
func (o *oracle) places(w *World) {
	now := o.now()
	for _, key := range slices.SortedFunc(maps.Keys(now.outcomes), compareKeys) {
		out := now.outcomes[key]
		if out.Held != "" || out.Gone != "" || out.Native != "" {
			continue
		}
		report := o.report(key)
		for at := range out.Clusters {
			o.place(w, key, out, at, report)
		}
	}
	for _, c := range w.Clusters {
		o.leftOver(w, c)
	}
}

func compareKeys(a, b copyKey) int { return strings.Compare(a.String(), b.String()) }

func rowFor(report *unstructured.Unstructured, name string) *refractv1alpha1.ClusterStatus {
	if report == nil {
		return nil
	}
	rows := rowsOf(report)
	for i := range rows {
		if rows[i].Name == name {
			return &rows[i]
		}
	}
	return nil
}

// place checks a copy.
func (o *oracle) place(w *World, key copyKey, out *render.Outcome, at int, report *unstructured.Unstructured) {
	name := out.Clusters[at].Name
	c := o.clusterNamed(name)
	if c == nil {
		return
	}
	on := o.onHubNow(key)
	row := rowFor(report, name)
	want, there := variantFor(out, at), o.copyOf(c, key)
	if on.GetAnnotations()[corev1alpha1.DryRunAnnotation] == "true" {
		return
	}
	if report != nil && (o.blocked(report, on) || o.changesWith(report)) || o.waitsForLeader(out) {
		return
	}
	switch {
	case row == nil && o.withheld(key, out):
	case report == nil:
		w.Failf(wrongStatus, "%s is to be on cluster %s, and there is no Propagation that reports on it (it travels with %v)", key, name, out.Follows)
	case row == nil:
		w.Failf(wrongStatus, "%s is to be on cluster %s, and its Propagation has no row for that: it says %s", key, name, syncedOf(report))
	case want == nil: // An override fails.
		if row.State == refractv1alpha1.StateSynced && rolloutOf(report) == nil {
			w.Failf(wrongStatus, "an override of %s fails for cluster %s, and its Propagation says Synced (it travels with %v, revision %q): %v",
				key, name, out.Follows, row.Revision, failureFor(out, at))
		}
	case rolloutOf(report) != nil && rolloutOf(report).Phase != refractv1alpha1.RolloutComplete && !hasTarget(rolloutOf(report), name):
		// The cluster has other content until its wave begins.
	case row.State == refractv1alpha1.StateOffline:
		w.Failf(wrongStatus, "the Propagation of %s says that cluster %s is Offline, and it answers: %s", key, name, row.Message)
	case o.excused(c, key, row, there):
	case row.State != refractv1alpha1.StateSynced:
		w.Failf(wrongStatus, "the Propagation of %s says %s of cluster %s (reason %q: %s), which is no reason for anything", key, row.State, name, row.Reason, row.Message)
	case row.Run != nil && (there == nil || !isCopy(there)), there == nil && key.Resource == kindJob.Resource:
		// The Job has completed, and its cluster has removed it. A user may have created another Job with the same name
		// since.
	case there == nil:
		w.Failf(differsFromRender, "%s is to be on cluster %s, its Propagation says Synced, and it is not there", key, name)
	default:
		if d := differs(want, there, on); d != "" {
			w.Failf(differsFromRender, "%s on cluster %s is not what refract render says, and its Propagation says Synced: %s", key, name, d)
		}
	}
}

// syncedOf returns the condition Synced of a report as text.
func syncedOf(report *unstructured.Unstructured) string {
	c := saidCondition(report, refractv1alpha1.ConditionSynced)
	return fmt.Sprintf("Synced=%v (%v: %v)", c["status"], c["reason"], c["message"])
}

// blocked reports whether the Propagation of an object gives a correct reason why the object is not updated.
func (o *oracle) blocked(report, on *unstructured.Unstructured) bool {
	c := saidCondition(report, refractv1alpha1.ConditionSynced)
	if c["status"] != string(metav1.ConditionFalse) {
		return false
	}
	switch c["reason"] {
	case "RolloutPolicyNotUsable":
		name := on.GetLabels()[refractv1alpha1.RolloutPolicyLabel]
		policy := o.w.Hub.Server.Peek(kindRollout.GroupVersionResource, on.GetNamespace(), name)
		return name == "" || o.floorOf(on.GetNamespace()) != "" || policy == nil || strings.Contains(string(encoded(policy.Object["spec"])), misspelt) ||
			on.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel] != ""
	case "PolicyNotFound", "InvalidPolicy", "InvalidLabel", "RevisionTooLarge", refractv1alpha1.ReasonAwaitingApproval:
		return true
	default:
		return false
	}
}

// withheld reports whether an override adds a reference to the object, and the leader (the object with the reference)
// reports that the object does not follow it. The promise is "References without this permission do not travel, and the
// Propagation names them" in docs/guide/secure-the-hub.md. refract render propagates all references, because only the
// hub knows the rights of users.
func (o *oracle) withheld(key copyKey, out *render.Outcome) bool {
	return slices.ContainsFunc(out.Follows, func(f refractv1alpha1.FollowedObject) bool {
		leader := o.report(copyKey{schema.ParseGroupResource(f.Resource), key.namespace, f.Name})
		if leader == nil {
			return false
		}
		warnings, _, _ := unstructured.NestedStringSlice(leader.Object, "status", "warnings") // Without warnings the list is empty.
		return slices.ContainsFunc(warnings, func(text string) bool {
			return strings.HasPrefix(text, fmt.Sprintf("%s %s, which ", out.ID.Kind, key.name)) &&
				strings.Contains(text, "does not travel with the object to clusters without it")
		})
	})
}

// waitsForLeader reports whether an object has a leader whose newest content is not on all clusters yet: a new follower
// is written together with the content that refers to it (docs/design/rollouts.md#followers-of-a-governed-object).
func (o *oracle) waitsForLeader(out *render.Outcome) bool {
	return slices.ContainsFunc(out.Leaders, o.waits)
}

// waits reports whether the newest content of a leader is not on all clusters yet.
func (o *oracle) waits(leader *render.Outcome) bool {
	r, known := resourceOf[leader.ID.GroupKind]
	key := copyKey{r, leader.ID.Namespace, leader.ID.Name}
	report, on := o.report(key), o.onHubNow(key)
	if !known || on == nil || report == nil {
		return false
	}
	is := rolloutOf(report)
	return is != nil && is.Phase != refractv1alpha1.RolloutComplete || o.blocked(report, on) || leader.Held != ""
}

// changesWith reports whether an object changes together with a leader whose rollout has not begun, is not complete or
// waits, and whether the object's Propagation names that leader. The promise is "a cluster has both or neither" in
// docs/guide/release-safely.md. refract render may not show this leader, because its newest content may no longer refer
// to the object, or may be placed nowhere.
func (o *oracle) changesWith(report *unstructured.Unstructured) bool {
	said := syncedOf(report)
	return o.follows(report, func(key copyKey, leader, on *unstructured.Unstructured) bool {
		is := rolloutOf(leader)
		return strings.Contains(said, fmt.Sprintf("it changes with %s/%s", key.GroupResource, key.name)) &&
			(is == nil && o.notBegun(leader, on) || is != nil && (is.Phase != refractv1alpha1.RolloutComplete || o.blocked(leader, on)))
	})
}

// notBegun reports whether an object without a RolloutStatus names a rollout policy itself, and has a true reason for
// not beginning its rollout: "Without a record nothing is written", docs/design/rollouts.md#content-found-on-clusters.
// In a namespace with a floor it leads nothing. A dry run gets no rollout, and leads nothing either.
func (o *oracle) notBegun(leader, on *unstructured.Unstructured) bool {
	k, namespace, name := kindRollout, on.GetNamespace(), on.GetLabels()[refractv1alpha1.RolloutPolicyLabel]
	if name == "" {
		k, namespace, name = kindRollouts, "", on.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel]
	}
	if name == "" || o.floorOf(on.GetNamespace()) != "" || on.GetAnnotations()[corev1alpha1.DryRunAnnotation] == "true" || !o.blocked(leader, on) {
		return false
	}
	policy := o.w.Hub.Server.Peek(k.GroupVersionResource, namespace, name)
	return saidCondition(leader, refractv1alpha1.ConditionSynced)["reason"] != "RolloutPolicyNotUsable" || policy == nil ||
		strings.Contains(string(encoded(policy.Object["spec"])), misspelt)
}

// staysWith reports whether the Propagation of an object names a leader that stays on a cluster, for a reason that is
// correct according to the leader's own Propagation. The promise is "Objects that travel with a waiting object stay
// with it" in docs/guide/approve-deletions-and-moves.md. While a leader without rows waits, its clusters are unknown.
// refract render may not show this leader, because it may no longer be placed anywhere.
func (o *oracle) staysWith(report *unstructured.Unstructured, name string) bool {
	return o.follows(report, func(_ copyKey, leader, on *unstructured.Unstructured) bool {
		return o.blocked(leader, on) && (rowFor(leader, name) != nil || len(rowsOf(leader)) == 0)
	})
}

// follows reports whether the Propagation of an object names a leader that exists on the hub, has a Propagation itself,
// and satisfies the function of.
func (o *oracle) follows(report *unstructured.Unstructured, of func(key copyKey, leader, on *unstructured.Unstructured) bool) bool {
	follows, _, _ := unstructured.NestedSlice(report.Object, "status", "follows") // Without leaders the list is empty.
	return slices.ContainsFunc(follows, func(f any) bool {
		follow, _ := f.(map[string]any)
		resource, _, _ := unstructured.NestedString(follow, "resource")
		name, _, _ := unstructured.NestedString(follow, "name")
		key := copyKey{schema.ParseGroupResource(resource), report.GetNamespace(), name}
		leader, on := o.report(key), o.onHubNow(key)
		return leader != nil && on != nil && of(key, leader, on)
	})
}

// clusterNamed returns the cluster of a FederatedCluster that Refract uses. It returns nil for an unknown name, or if
// the cluster is leaving.
func (o *oracle) clusterNamed(name string) *Cluster {
	for _, fc := range o.w.members() {
		if fc.Name == name && fc.DeletionTimestamp == nil && isServed(fc) {
			return o.w.clusterAt(fc)
		}
	}
	return nil
}
