package simulate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/revision"
	"refract.dev/test/apiserver"
)

// releases are the rollouts of the hub's objects, by the RolloutStatus in each Propagation, and the approvals by users.
type releases struct {
	records map[copyKey][]record
	// approved are the values of status.rollout.awaits that users approved.
	approved map[string]bool
	// got has for each copy the target that its cluster got, with the hash of the target.
	got map[placeKey]received
	// good has the name of the revision that all clusters of an object may have: the target of its last Complete
	// RolloutStatus.
	good map[copyKey]string
	// changed is the time of the last change of governed objects or their rollout policies, by namespace. The key ""
	// stands for changes that affect all namespaces.
	changed map[string]time.Time
	// stored are the ControllerRevisions that were created, by name.
	stored map[string]storedPart
}

// record is a RolloutStatus that was stored on the hub, with the time of the write.
type record struct {
	at time.Time
	is *refractv1alpha1.RolloutStatus
}

// received is a target that a cluster got.
type received struct{ target, hash string }

func newReleases() releases {
	return releases{
		records: map[copyKey][]record{}, approved: map[string]bool{}, got: map[placeKey]received{}, good: map[copyKey]string{},
		changed: map[string]time.Time{}, stored: map[string]storedPart{},
	}
}

// recorded stores the RolloutStatus of a written Propagation, and checks its rollout.
func (r *releases) recorded(o *oracle, p *Process, w apiserver.Write) {
	if w.After == nil {
		delete(r.records, reportKey(w.Before))
		delete(r.good, reportKey(w.Before))
		return
	}
	key, is := reportKey(w.After), rolloutOf(w.After)
	if p == nil { // Not Refract but a user wrote it: users approve a step by an annotation.
		if is != nil && is.Awaits != "" {
			for _, annotation := range []string{refractv1alpha1.ApproveRolloutAnnotation, refractv1alpha1.ResumeAnnotation} {
				if w.After.GetAnnotations()[annotation] == is.Awaits {
					r.approved[is.Awaits] = true
				}
			}
		}
		return
	}
	if slices.Contains(w.After.GetFinalizers(), refractv1alpha1.Finalizer) && (w.Before == nil || !slices.Contains(w.Before.GetFinalizers(), refractv1alpha1.Finalizer)) {
		o.w.Failf(stuck, "%s gives the Propagation of %s a finalizer: its namespace cannot be deleted while Refract does not run", p.Name, key)
		return
	}
	if is == nil {
		delete(r.records, key)
		delete(r.good, key)
		return
	}
	var was *refractv1alpha1.RolloutStatus
	if w.Before != nil {
		was = rolloutOf(w.Before)
	}
	r.settle(key, was, is)
	all := slices.Concat(r.records[key], []record{{time.Now(), is}})
	for len(all) > 1 && time.Since(all[1].at) > outdated { // The newest RolloutStatus from before this period is still valid at its beginning.
		all = all[1:]
	}
	r.records[key] = all
	if was != nil && !o.wasReset(o.w.Hub) {
		r.judgeRecord(o, p, key, was, is, w.After)
	}
}

// onRevision records the creation of a ControllerRevision, and checks its deletion: Refract keeps each revision that a
// RolloutStatus names (docs/design/rollouts.md#stored-revisions).
func (r *releases) onRevision(o *oracle, p *Process, w apiserver.Write) {
	if w.Before == nil {
		r.store(w.Name, o.partOf(w.After))
		return
	}
	deleted := w.Before.GetDeletionTimestamp() == nil && (w.Verb == "delete" || w.Verb == "removed")
	if p == nil || !deleted || o.wasReset(o.w.Hub) || revision.IsSealed(w.Name) { // With a new key, encrypted content gets another name.
		return
	}
	for key, records := range r.records {
		if on := o.onHubNow(key); on == nil || on.GetDeletionTimestamp() != nil || key.namespace != w.Namespace && w.Namespace != systemNamespace {
			continue
		}
		if !slices.ContainsFunc(records, func(e record) bool { return !names(e.is, w.Name) }) {
			o.w.Failf(haltedOrReverted, "%s deletes the ControllerRevision %s/%s, which the rollout of %s names", p.Name, w.Namespace, w.Name, key)
			return
		}
	}
}

// names reports whether a rollout needs a ControllerRevision of its object.
func names(is *refractv1alpha1.RolloutStatus, revision string) bool {
	return is.Target.Object == revision || is.LastGood.Object == revision || is.Superseded != nil && is.Superseded.Object == revision
}

// judgeStored checks that the new content of an object was stored on the hub before a cluster gets it. Otherwise no
// later rollout could return to it.
func (r *releases) judgeStored(o *oracle, p *Process, c *Cluster, key copyKey, is *refractv1alpha1.RolloutStatus) {
	if _, stored := r.stored[is.Target.Object]; !stored {
		o.w.Failf(unreleased, "%s writes the newest content of %s to cluster %s, and no ControllerRevision of the hub has it: %s", p.Name, key, c.Name, is.Target.Object)
	}
}

// policiesOf returns the specs of the rollout policies that a RolloutStatus names. It returns nil unless all of them
// exist with the generation in the RolloutStatus.
func (r *releases) policiesOf(o *oracle, is *refractv1alpha1.RolloutStatus) (specs []*refractv1alpha1.RolloutPolicySpec) {
	for i := range is.Policies {
		ref := &is.Policies[i]
		k, namespace := kindRollout, ref.Namespace
		if ref.Kind == kindRollouts.name {
			k, namespace = kindRollouts, ""
		}
		object := o.w.Hub.Server.Peek(k.GroupVersionResource, namespace, ref.Name)
		if object == nil || object.GetGeneration() != ref.Generation {
			return nil
		}
		spec, _, _ := unstructured.NestedMap(object.Object, "spec") // Without a spec the map is empty.
		s := &refractv1alpha1.RolloutPolicySpec{}
		if mustDecode(spec, s) != nil {
			return nil
		}
		specs = append(specs, s)
	}
	return specs
}

// judgeRecord checks a step of a rollout: the waves that begin, and the clusters that are done.
func (r *releases) judgeRecord(o *oracle, p *Process, key copyKey, was, is *refractv1alpha1.RolloutStatus, report *unstructured.Unstructured) {
	if was.UID != is.UID || was.Target.Name != is.Target.Name || was.Attempt != is.Attempt {
		return
	}
	specs := r.policiesOf(o, is)
	if len(specs) == 0 {
		return
	}
	begun := func(s *refractv1alpha1.RolloutStatus, name string) bool {
		return slices.ContainsFunc(s.Waves, func(w refractv1alpha1.WaveStatus) bool { return w.Name == name && w.Since != nil })
	}
	for i := range is.Waves {
		name := is.Waves[i].Name
		if is.Opened <= was.Opened || !begun(is, name) || begun(was, name) ||
			!needsApproval(specs, name, func(name string) bool { return begun(was, name) }) {
			continue
		}
		if !r.answered(key, was) {
			// A Manual wave begins after an approval (docs/guide/release-safely.md).
			o.w.Failf(unreleased, "%s begins the wave %q of the rollout of %s, whose strategy is Manual, and nobody has approved it for this change",
				p.Name, name, key)
			return
		}
	}
	o.tooManyFailed(p, key, was, is, specs)
	o.endsReverted(p, key, was, is)
	o.bakes(p, key, was, is, specs, report)
}

// answered reports whether a user approved the step that the rollout waits for. An approval of the same step in a
// recent RolloutStatus also counts, because a restore of the hub brings an older RolloutStatus back.
func (r *releases) answered(key copyKey, was *refractv1alpha1.RolloutStatus) bool {
	return was.Awaits != "" && r.approved[was.Awaits] || slices.ContainsFunc(r.records[key], func(e record) bool { return e.is.Awaits != "" && r.approved[e.is.Awaits] })
}

// waveOf returns the wave of a policy by name, or nil. A wave of two policies has the name FLOOR/OWN.
func waveOf(spec *refractv1alpha1.RolloutPolicySpec, name string) *refractv1alpha1.RolloutWave {
	for i := range spec.Waves {
		if spec.Waves[i].Name == name {
			return &spec.Waves[i]
		}
	}
	return nil
}

// needsApproval reports whether a wave begins only after an approval. A wave of a floor may have several parts: "all"
// has the parts all/test and all/prod. It is approved once, before its first part begins.
func needsApproval(specs []*refractv1alpha1.RolloutPolicySpec, name string, begun func(name string) bool) bool {
	parts := strings.Split(name, "/")
	if len(parts) != len(specs) {
		return false
	}
	for i, spec := range specs {
		w := waveOf(spec, parts[i])
		if w == nil || string(w.Strategy) != "Manual" {
			continue
		}
		if i > 0 || len(specs) == 1 || !slices.ContainsFunc(specs[1].Waves, func(own refractv1alpha1.RolloutWave) bool { return begun(parts[0] + "/" + own.Name) }) {
			return true
		}
	}
	return false
}

// tooManyFailed checks that no further cluster gets a change when more clusters have failed than the policy allows
// (Halt in docs/guide/release-safely.md).
func (o *oracle) tooManyFailed(p *Process, key copyKey, was, is *refractv1alpha1.RolloutStatus, specs []*refractv1alpha1.RolloutPolicySpec) {
	most := 0
	for _, spec := range specs {
		if spec.OnFailure != nil {
			most = max(most, int(spec.OnFailure.MaxFailures))
		}
	}
	if len(was.Failed) <= most {
		return
	}
	for _, c := range is.Current {
		if !slices.ContainsFunc(o.aliases(c.Name), func(name string) bool { return hasTarget(was, name) || slices.Contains(was.Offline, name) }) {
			o.w.Failf(haltedOrReverted, "%s releases %s to cluster %s, though %d clusters have failed, and the policy allows %d", p.Name, key, c.Name, len(was.Failed), most)
			return
		}
	}
}

// endsReverted checks that no cluster has the new content any more when a rollout ends as Reverted, except for clusters
// that go back on their return.
func (o *oracle) endsReverted(p *Process, key copyKey, was, is *refractv1alpha1.RolloutStatus) {
	if is.Phase != refractv1alpha1.RolloutReverted || was.Phase == refractv1alpha1.RolloutReverted {
		return
	}
	for _, c := range o.w.Clusters {
		have, got := o.copyOf(c, key), o.releases.got[placeKey{c, key}]
		if have != nil && o.isPlaced(c, key) && got.target == is.Target.Name && have.GetAnnotations()[refractv1alpha1.AppliedAnnotation] == got.hash &&
			!o.wasReset(&c.Target) && !o.goesBack(p, c, is) && !o.isBack(c, key, is, have) {
			o.w.Failf(haltedOrReverted, "%s says that the rollout of %s is Reverted, and cluster %s has the new content", p.Name, key, c.Name)
			return
		}
	}
}

// goesBack reports whether a process cannot reach a cluster, and the RolloutStatus says so. The promise is "an
// unreachable cluster is named, and goes back on its return" (P9 in docs/reliability.md). A process may write this
// RolloutStatus before it stores that the FederatedCluster is not Ready, so the state of its connection counts, too.
func (o *oracle) goesBack(p *Process, c *Cluster, is *refractv1alpha1.RolloutStatus) bool {
	names, _ := o.namesNow(c)
	named := slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains(is.Reverting, name) && slices.Contains(is.Offline, name)
	})
	return named && (c.Down || p.cut[&c.Target] || o.wasAway(c))
}

// isPlaced reports whether an object is placed on a cluster. The promise is "A copy that waits for its deletion keeps
// its content" in docs/guide/release-safely.md.
func (o *oracle) isPlaced(c *Cluster, key copyKey) bool {
	names, _ := o.namesNow(c)
	out, at := o.now().at(key, names)
	return out != nil && at >= 0
}

// aliases returns all names that a cluster may have.
func (o *oracle) aliases(name string) []string {
	for first, second := range secondNames {
		if name == first || name == second {
			return []string{first, second}
		}
	}
	return []string{name}
}

// hasTarget reports whether, according to a RolloutStatus, a cluster has the target or may have it.
func hasTarget(r *refractv1alpha1.RolloutStatus, name string) bool {
	back := r.Phase == refractv1alpha1.RolloutReverting || r.Phase == refractv1alpha1.RolloutReverted ||
		r.Phase == refractv1alpha1.RolloutStalled // A revert that waits for an administrator.
	return slices.Contains(r.Done, name) ||
		slices.ContainsFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return c.Name == name }) ||
		!back && slices.ContainsFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return c.Name == name })
}

// skewed is the maximum error of times. It has two parts: the minute of the promise "a skew of one minute changes a
// result by at most one minute", and the time between an event and its report.
const skewed = 75 * time.Second

// bakes checks that a cluster counts as done only after its copy has been ready for the minReadySeconds of its wave
// (docs/guide/release-safely.md).
func (o *oracle) bakes(p *Process, key copyKey, was, is *refractv1alpha1.RolloutStatus, specs []*refractv1alpha1.RolloutPolicySpec, _ *unstructured.Unstructured) {
	if len(specs) != 1 {
		return
	}
	for _, c := range was.Current {
		if c.Since == nil || !slices.Contains(is.Done, c.Name) {
			continue
		}
		spec := specs[0]
		wave := o.waveFor(spec, c.Name)
		if wave == nil || wave.MinReadySeconds == 0 {
			continue
		}
		first := time.Time{}
		for _, e := range o.releases.records[key] {
			if hasTarget(e.is, c.Name) && e.is.Attempt == is.Attempt && (e.is.Target.Name == is.Target.Name || renamed(e.is, is)) {
				first = e.at
				break
			}
		}
		held := o.heldSince(key, c.Name)
		if held.Before(first) {
			first = held // The copy got its content before the target was renamed.
		}
		least := time.Duration(wave.MinReadySeconds) * time.Second
		// After a copy was lost, deleted or changed, it is ready again only after its next write. A write within skewed
		// may be newer than the Propagation.
		if took := time.Since(held); took > skewed && took+skewed < least {
			o.w.Failf(unreleased, "%s says that cluster %s is done with the new content of %s, which was written there %s ago, and its wave has minReadySeconds: %d",
				p.Name, c.Name, key, took.Round(time.Second), wave.MinReadySeconds)
			return
		}
		if took := time.Since(first); !first.IsZero() && first != o.releases.records[key][0].at && took+skewed < least {
			o.w.Failf(unreleased, "%s says that cluster %s is done with the new content of %s %s after that was released to it, and its wave has minReadySeconds: %d",
				p.Name, c.Name, key, took.Round(time.Second), wave.MinReadySeconds)
			return
		}
		since, ready := o.ready[placeKey{o.clusterNamed(c.Name), key}]
		if took := time.Since(since); ready && took+skewed < least {
			o.w.Failf(unreleased, "%s says that cluster %s is done with the new content of %s, which has been ready there for %s, and its wave has minReadySeconds: %d",
				p.Name, c.Name, key, took.Round(time.Second), wave.MinReadySeconds)
			return
		}
	}
}

// heldSince returns the time of Refract's last write of the copy on a cluster, or the present time if it is unknown.
func (o *oracle) heldSince(key copyKey, name string) time.Time {
	if c := o.clusterNamed(name); c != nil {
		if there := o.copyOf(c, key); there != nil && o.copies[there.GetUID()] != nil {
			return o.copies[there.GetUID()].written
		}
	}
	return time.Now()
}

// renamed reports whether only the name of a rollout's target has changed, because the key that encrypts names was
// replaced. A target with other content has another nonce.
func renamed(was, is *refractv1alpha1.RolloutStatus) bool {
	before, now := sealedWith(&was.Target), sealedWith(&is.Target)
	return was.Nonce == is.Nonce && before != now && before != "" && now != ""
}

// sealedWith returns the part of a revision's names that identifies the key, or "" for names without a key.
func sealedWith(r *refractv1alpha1.Revision) string {
	parts := []string{r.Object}
	for i := range r.Followers {
		parts = append(parts, r.Followers[i].Object)
	}
	for _, name := range parts {
		if revision.IsSealed(name) {
			return name[:strings.LastIndex(name, "-")]
		}
	}
	return ""
}

// waveFor returns the wave of a policy that selects a cluster, or nil.
func (o *oracle) waveFor(spec *refractv1alpha1.RolloutPolicySpec, name string) *refractv1alpha1.RolloutWave {
	var labels map[string]string
	for _, fc := range o.w.members() {
		if fc.Name == name {
			labels = fc.Labels
		}
	}
	for i := range spec.Waves {
		w := &spec.Waves[i]
		t := w.TargetClusters
		if t == nil {
			return w
		}
		in := len(t.Clusters) == 0 || slices.Contains(t.Clusters, name)
		for k, v := range t.ClusterSelector {
			in = in && labels[k] == v
		}
		if in {
			return w
		}
	}
	return nil
}

// obeys reports whether an object obeys a rollout policy, or did so earlier.
func (r *releases) obeys(o *oracle, key copyKey) bool {
	if len(r.records[key]) > 0 {
		return true
	}
	on := o.onHubNow(key)
	if on == nil {
		return false
	}
	return on.GetLabels()[refractv1alpha1.RolloutPolicyLabel] != "" || on.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel] != "" || o.floorOf(key.namespace) != "" || !asksForPlace(on)
}

func (o *oracle) floorOf(namespace string) string {
	ns := o.w.Hub.Server.Peek(kindNamespace.GroupVersionResource, "", namespace)
	if ns == nil {
		return ""
	}
	return ns.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel]
}

// governs reports whether an object obeys an existing rollout policy, and has done so for longer than a process may be
// outdated.
func (r *releases) governs(o *oracle, key copyKey, on *unstructured.Unstructured) bool {
	for _, e := range o.editsSince(outdated) {
		if e.kind == kindNamespace.GroupVersionResource.GroupResource() && e.at.Before(o.lastEdit(key, on)) {
			continue // "A floor applies to every later edit", docs/design/rollouts.md#content-found-on-clusters.
		}
		switch e.kind {
		case kindRollout.GroupVersionResource.GroupResource(), kindRollouts.GroupVersionResource.GroupResource(), kindCluster.GroupVersionResource.GroupResource(),
			kindNamespace.GroupVersionResource.GroupResource(), kindReport.GroupVersionResource.GroupResource():
			return false
		}
	}
	for _, s := range o.states { // The labels may have changed recently, and with them the policy.
		for _, was := range s.objects {
			if was.GetUID() == on.GetUID() && (was.GetLabels()[refractv1alpha1.RolloutPolicyLabel] != on.GetLabels()[refractv1alpha1.RolloutPolicyLabel] ||
				was.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel] != on.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel]) {
				return false
			}
		}
	}
	server := o.w.Hub.Server
	if name := o.floorOf(key.namespace); name != "" {
		return server.Peek(kindRollouts.GroupVersionResource, "", name) != nil
	}
	if name := on.GetLabels()[refractv1alpha1.ClusterRolloutPolicyLabel]; name != "" {
		return false // This check does not decide which of the two policies applies.
	}
	name := on.GetLabels()[refractv1alpha1.RolloutPolicyLabel]
	return name != "" && server.Peek(kindRollout.GroupVersionResource, key.namespace, name) != nil
}

// sentBeside reports whether Refract sent a field that the wanted object does not have: the last good content often has
// fields that the newest content lacks. Elements of lists and annotations are not compared.
func sentBeside(want, copied *unstructured.Unstructured) bool {
	for _, entry := range copied.GetManagedFields() {
		if entry.Manager != member.FieldManager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var sent map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &sent); err != nil {
			continue // The API server of the simulation writes valid fields.
		}
		if beside(sent, want.Object, "") {
			return true
		}
	}
	return false
}

// beside reports whether any of the fields, in the form of managedFields, is missing from a wanted value.
func beside(sent map[string]any, want any, path string) bool {
	has, isMap := want.(map[string]any)
	if !isMap {
		return false
	}
	for name, below := range sent {
		field, isField := strings.CutPrefix(name, "f:")
		at := path + "/" + field
		if !isField || at == "/metadata/annotations" || at == "/metadata/labels/"+corev1alpha1.ManagedLabel || at == "/spec/replicas" {
			continue
		}
		value, found := has[field]
		if fields, _ := below.(map[string]any); !found && len(fields) == 0 || beside(fields, value, at) {
			return true
		}
	}
	return false
}

// judge checks a write of content. A cluster gets changed content only after its wave has begun
// (docs/design/rollouts.md). Content found on clusters counts as the last good content
// (docs/design/rollouts.md#content-found-on-clusters). The first copy on a cluster may be written at any time.
func (r *releases) judge(o *oracle, p *Process, c *Cluster, key copyKey, w apiserver.Write) {
	if w.Before == nil || !isCopy(w.Before) || o.wasReset(o.w.Hub) || o.wasReset(&c.Target) {
		return
	}
	hash := w.After.GetAnnotations()[refractv1alpha1.AppliedAnnotation]
	on := o.onHubNow(key)
	if hash == w.Before.GetAnnotations()[refractv1alpha1.AppliedAnnotation] || on == nil || on.GetDeletionTimestamp() != nil {
		return
	}
	if names, leaving := o.namesNow(c); !isCopy(w.After) && (leaving || len(names) == 0) {
		return // Refract leaves the copy on a leaving cluster: "it leaves when its copies are gone, whatever the hub says of them", docs/design/deletions.md.
	}
	if on.GetAnnotations()[corev1alpha1.DryRunAnnotation] == "true" && !o.editedWithin(key, outdated) {
		o.w.Failf(unreleased, "%s writes %s to cluster %s, though it has the annotation %s", p.Name, key, c.Name, corev1alpha1.DryRunAnnotation)
		return
	}
	if !asksForPlace(on) || !r.governs(o, key, on) {
		return
	}
	names, _ := o.namesNow(c)
	out, at := o.now().at(key, names)
	if out == nil || at < 0 {
		return
	}
	want := variantFor(out, at)
	if want == nil || differs(want, w.After, on) != "" || differs(want, w.Before, on) == "" || sentBeside(want, w.After) {
		return // The content is not the newest one, or is not new on the cluster.
	}
	edited := o.lastEdit(key, on)
	records := r.records[key]
	for _, r := range slices.Backward(records) {
		is := r.is
		if r.at.Before(edited) {
			break
		}
		if is.Phase == refractv1alpha1.RolloutComplete || slices.ContainsFunc(names, func(name string) bool { return hasTarget(is, name) }) {
			o.releases.got[placeKey{c, key}] = received{is.Target.Name, hash}
			o.releases.judgeStored(o, p, c, key, is)
			return
		}
	}
	if r.keeps(o, c, key, out.Clusters[at], w.After) {
		return
	}
	invariant, phase := unreleased, "there is no record of a rollout"
	if n := len(records); n > 0 {
		last := records[n-1].is
		phase = fmt.Sprintf("the record says %s, and names this cluster nowhere", last.Phase)
		if records[n-1].at.Before(edited) {
			phase = "the record of its rollout is from before the change"
		}
		switch last.Phase {
		case refractv1alpha1.RolloutHalted, refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutReverted, refractv1alpha1.RolloutStalled:
			invariant = haltedOrReverted
		case refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutWaiting, refractv1alpha1.RolloutComplete:
		}
	}
	o.w.Failf(invariant, "%s writes the newest content of %s to cluster %s, to which it is not released: %s", p.Name, key, c.Name, phase)
}

// lastEdit returns the time of the last known change of an object's content: a write of the object, or of an override
// policy that it names. Other policies do not change the content or the RolloutStatus.
func (o *oracle) lastEdit(key copyKey, on *unstructured.Unstructured) (at time.Time) {
	keys := []copyKey{key}
	named, _, _ := override.Named(on.GetLabels(), key.namespace) // An invalid label names no policies, and the object waits.
	for _, ref := range named {
		keys = append(keys, copyKey{resourceOf[schema.GroupKind{Group: kindOverride.Group, Kind: ref.Kind}], ref.Namespace, ref.Name})
	}
	for _, e := range o.edits {
		if slices.Contains(keys, e.key) {
			at = e.at
		}
	}
	return at
}

func (o *oracle) editedWithin(key copyKey, within time.Duration) bool {
	return slices.ContainsFunc(o.editsSince(within), func(e hubEdit) bool { return e.key == key })
}
