package propagation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/internal/output"
	"refract.dev/release"
	"refract.dev/tree"
)

// A report waits a moment for what else there is to say; longer while clusters
// are still being written to.
const (
	settledDelay   = 100 * time.Millisecond
	unsettledDelay = 2 * time.Second
	// perCluster is how much longer for each of the object's clusters: a report has a status for each, and
	// writing it again and again would cost more than the copies.
	perCluster = 20 * time.Millisecond
	// mostShared is how long a report waits at most as others write the record, too.
	mostShared = time.Minute
	// recreated is for how long after the last copy of a governed object that is gone its record stays: an object that is made again until
	// then is a change of the one before.
	recreated = time.Minute
	// oneIn is which part of its clusters is not waited for.
	oneIn = 10
	// readinessDelay is how long a workload's status may change before that is
	// reported; driftDelay the same for what was corrected.
	readinessDelay = 500 * time.Millisecond
	driftDelay     = time.Second
)

// What a report holds at most, so that it stays a small object.
const (
	maxReadiness = 200 // Bytes.
)

// StatusOf reads what is reported on an object of the hub; nil if nothing is. The
// client must know the types of the hub.
func StatusOf(ctx context.Context, hub client.Client, obj client.Object) (*refractv1alpha1.PropagationStatus, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	mapping, err := hub.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("looking up kind %s: %w", gvk.Kind, err)
	}
	key := Key{GroupResource: mapping.Resource.GroupResource(), NamespacedName: client.ObjectKeyFromObject(obj)}
	r := newRecord(key.Namespace != "")
	err = hub.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Nothing is reported, and nothing is wrong.
	}
	if err != nil {
		return nil, fmt.Errorf("reading the report on %s %s: %w", gvk.Kind, key.NamespacedName, err)
	}
	r.status.Expand()
	return r.status, nil
}

// reporter is the last station. It takes the key of an object, and writes what the state says
// of it into its record, a Propagation of the hub, and into events.
type reporter struct {
	client   client.Client // Reads from caches.
	live     client.Reader
	recorder events.EventRecorder
	shards   Shards
	members  *member.Set
	records  *records
	state    *state

	// decider is asked about what is to be decided again, reviewer about what policies
	// have come to.
	decider  *decider
	reviewer *reviewer
	// revisions keeps what rollouts name.
	revisions *revisions
	// judge has a copy asked whether it is healthy.
	judge func(m *member.Member, key Key)
	// pend has a cluster say soon what is still to be deleted on it.
	pend func(cluster string)
	now  func() time.Time
	// yielding says which reports wait while many copies are being written.
	yielding *yielding

	queue *workQueue[Key]
}

func newReporter(rep *reporter, log logr.Logger) (*reporter, error) {
	var err error
	rep.queue, err = newWorkQueue("report", reporters, log, rep.reportOne)
	return rep, err
}

// after has the record of an object written after the time, or earlier.
func (rep *reporter) after(key Key, d time.Duration) { rep.queue.addAfter(key, d) }

// later has it written when there is likely to be more to say of the clusters that this replica writes to. Those who share an object out
// take their time as they are many, so that together they write its record as often as one would; but not where a rollout waits for what they say.
func (rep *reporter) later(key Key) {
	delay := unsettledDelay
	if is := rep.state.underway(key); !is.few {
		alone := time.Duration(is.of) * perCluster
		delay = max(delay, alone)
		if !rep.governed(key) {
			delay = max(delay, min(time.Duration(float64(alone)/is.share()), mostShared))
		}
	}
	rep.after(key, delay)
}

// summedUp is when what others have written into a record is summed up: as long as most clusters are being written to, there will be more of it.
func (rep *reporter) summedUp(key Key) time.Duration {
	if is := rep.state.underway(key); !is.fewOfAll {
		return max(unsettledDelay, time.Duration(is.of)*perCluster)
	}
	return unsettledDelay
}

// governed reports whether a rollout goes by what is reported on an object: its own, or that of one that it travels with.
func (rep *reporter) governed(key Key) bool {
	p := rep.state.desired(key)
	return p != nil && p.governed != nil
}

// recordFound has an object decided about that there is a record of.
func (rep *reporter) recordFound(key Key) { rep.decider.add(key, priorityResync) }

// recordDeleted has a record that went written again, if there is something to report on.
func (rep *reporter) recordDeleted(key Key) { rep.queue.add(key, priorityResync) }

// recordChanged is called when somebody else wrote a record. Guides says whether that is something which a replica that does not lead
// decides by: were it to decide again whenever another has written what is on its members, what that costs would grow with the square of
// the number of replicas.
func (rep *reporter) recordChanged(key Key, status *refractv1alpha1.PropagationStatus, guides bool) {
	rep.learn(key, status)
	switch {
	case !guides:
	case rep.shards.Leads():
		if p := rep.state.desired(key); p != nil && p.held != nil {
			rep.decider.add(key, priorityChanged) // It may be approved.
		}
	default:
		rep.decider.add(key, priorityChanged)
		rep.decider.decideAgain(followersIn(status.Rollout, key))
		if status.Rollout != nil {
			rep.decider.decideAgain(rep.state.travellers(key))
		}
	}
	switch {
	case rep.state.settled(key):
		rep.after(key, settledDelay)
	case guides, rep.governed(key): // Somebody acts upon what is said.
		rep.after(key, unsettledDelay)
	default:
		rep.after(key, rep.summedUp(key)) // Those who answer each other write a record for each copy, and each of them has all others told.
	}
}

// learn takes up what others wrote into a record.
func (rep *reporter) learn(key Key, status *refractv1alpha1.PropagationStatus) {
	rep.state.learn(key, slices.DeleteFunc(slices.Clone(status.Clusters), func(s refractv1alpha1.ClusterStatus) bool {
		return !rep.members.Known(s.Name) // Nobody would ever take back what is said of it.
	}))
}

// reportOne writes the record of one object, or takes it away, unless that yields.
func (rep *reporter) reportOne(ctx context.Context, key Key) (reconcile.Result, error) {
	k, found := rep.records.get(key)
	if p := rep.state.desired(key); p != nil && rep.yielding.yields(key, p, &k, rep.state.underway(key).share(), rep.now()) {
		return reconcile.Result{RequeueAfter: yieldDelay}, nil // Before its statuses are copied, as it may have thousands, and comes again and again.
	}
	return rep.reportNow(ctx, key, k, found)
}

// reportNow is reportOne of what does not yield. What is known of the record is from before.
func (rep *reporter) reportNow(ctx context.Context, key Key, k known, found bool) (reconcile.Result, error) {
	p, statuses, was, ok := rep.state.snapshot(key)
	if !ok {
		if found { // A record that became known after its object was forgotten.
			rep.decider.add(key, priorityResync)
		}
		return reconcile.Result{}, nil
	}
	rep.tellLeader(p)
	if !rep.shards.Leads() {
		return rep.reportOwn(ctx, key, p, statuses, k, found)
	}
	r := newRecord(key.Namespace != "")
	r.SetNamespace(key.Namespace)
	r.SetName(recordName(key))
	r.SetResourceVersion(k.version)
	r.SetUID(k.uid)
	switch {
	case found && k.bound:
		if err := rep.unbind(ctx, r); err != nil {
			return again(err)
		}
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	case p.gone && !found:
		return rep.goOn(key, p, was), nil
	case p.gone && len(statuses)+len(was.placed) == 0:
		return rep.close(ctx, key, p, r, was, k)
	case !p.gone && found && k.deleting:
		return reconcile.Result{}, nil // Somebody deleted it, and somebody's finalizer holds it: when it is gone it is made again.
	case !found:
		r.SetResourceVersion("")
		r.SetUID("")
		describe(r, key, p)
		if err := rep.client.Create(ctx, r.Object); err != nil {
			return again(err)
		}
		rep.records.wrote(r)
	case !p.gone && k.source != p.uid:
		describe(r, key, p)
		if err := rep.client.Update(ctx, r.Object); err != nil {
			return again(err)
		}
		rep.records.wrote(r)
	}
	if !found || !k.steering.namesPlainly(key, k.rollout) {
		return rep.write(ctx, key, r, p, statuses, was, k)
	}
	said := rep.retell(ctx, key)
	if said == nil {
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	result, err := rep.write(ctx, key, r, p, statuses, was, k) // The report does not wait for that.
	return result, errors.Join(err, said)
}

// retell takes the plain hash of a revision out of what people said to an earlier version: users who may not read the object may read that. If the
// rollout waits for it, it is said with the present name.
func (rep *reporter) retell(ctx context.Context, key Key) error {
	r := newRecord(key.Namespace != "")
	if err := rep.live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, ok := r.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	said := r.GetAnnotations()
	for _, name := range []string{refractv1alpha1.ApproveRolloutAnnotation, refractv1alpha1.ResumeAnnotation} {
		if !isPlainly(said[name]) {
			continue
		}
		if now := release.Retold(r.status.Rollout, said[name]); now != "" {
			said[name] = now
			continue
		}
		delete(said, name)
	}
	r.SetAnnotations(said)
	err := rep.client.Patch(ctx, r.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return nil // Whoever wrote it has this done again.
	}
	return client.IgnoreNotFound(err)
}

// mayReturn returns for how long what is known of an object of which nothing is left stays: whoever replaces a governed object deletes it, and
// makes it again. With a namespace or a type, which are deleted as a whole, goes what is in it.
func (rep *reporter) mayReturn(key Key, p *desiredState, was previous, k known) time.Duration {
	if k.rollout == nil && was.rollout == nil || p.cause == causeNamespace || p.cause == causeType || p.cause == causeForgotten {
		return 0
	}
	now := rep.now()
	return recreated - now.Sub(rep.state.emptied(key, now))
}

// write writes what is to be said of an object into its record, and tells those who wait for that.
func (rep *reporter) write(
	ctx context.Context, key Key, r record, p *desiredState, statuses map[string]clusterStatus, was previous, k known,
) (reconcile.Result, error) {
	rollout, until, err := rep.advance(ctx, key, p, statuses, k)
	if errors.Is(err, errRevision) {
		rep.decider.add(key, priorityChanged)
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	// That a revision cannot be kept is tried again, later each time; the record says so meanwhile.
	status := rep.assemble(key, p, statuses, was, k.conditions, rollout)
	if digest(&status) == k.digest {
		return rep.lookAgainAt(until), err
	}
	if !p.gone {
		describe(r, key, p)
	}
	*r.status = status
	r.status.Rollout = rollout.DeepCopy() // The answer is read into it.
	if failed := rep.client.Status().Update(ctx, r.Object); failed != nil {
		return again(failed)
	}
	rep.records.wrote(r)
	rep.announce(key, p, k, was.warned, &status)
	if status.Rollout != k.rollout {
		rep.decider.add(key, priorityChanged) // Now it is acted upon.
		rep.decider.decideAgain(slices.Concat(followersIn(k.rollout, key), followersIn(status.Rollout, key)))
		if k.rollout == nil {
			rep.decider.decideAgain(rep.state.travellers(key)) // They have waited for it, whether it leads them or not.
		}
		rep.revisions.later(key)
		countRollouts(rep.records.phases())
	}
	rep.state.warned(key, status.Warnings)
	for _, ref := range rep.state.policiesOf(key) {
		rep.reviewer.later(ref)
	}
	return rep.lookAgainAt(until), err
}

// lookAgainAt has a record come again at a time, unless that is zero.
func (rep *reporter) lookAgainAt(until time.Time) reconcile.Result {
	if until.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(until.Sub(rep.now()), time.Millisecond)}
}

// reportOwn writes the statuses of the members that this replica writes to into the
// record, which belongs to the replica that leads. It is read as new as it is known to be, at least, which the hub has in its cache: to read the
// newest costs the hub more than to write it, and what is not the newest is not written.
func (rep *reporter) reportOwn(
	ctx context.Context, key Key, p *desiredState, statuses map[string]clusterStatus, k known, found bool,
) (reconcile.Result, error) {
	if !found {
		if p.gone && len(rep.remaining(key)) == 0 {
			rep.decider.forget(key, p)
		}
		return reconcile.Result{}, nil
	}
	r := newRecord(key.Namespace != "")
	name := types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}
	if err := rep.live.Get(ctx, name, r.Object, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: k.version}}); err != nil {
		return again(err)
	}
	before, read := digest(r.status), r.GetResourceVersion()
	r.status.Expand()
	stale := rep.records.translate(r.status)
	r.status.Clusters = rep.withOwn(key, p, statuses, r.status.Clusters)
	slices.SortFunc(r.status.Clusters, func(a, b refractv1alpha1.ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	rep.records.translateBack(r.status, stale)
	fit(r.status)
	if digest(r.status) == before {
		return reconcile.Result{}, nil
	}
	if err := rep.client.Status().Update(ctx, r.Object); err != nil {
		return again(err)
	}
	known, _ := rep.records.get(key)
	rep.records.wrote(r)
	if read != known.version {
		rep.learn(key, r.status) // It was read with it, and no event tells of it any more.
	}
	if now, _ := rep.records.get(key); !now.guidesAs(&known) {
		rep.decider.add(key, priorityChanged)
		rep.decider.decideAgain(slices.Concat(followersIn(known.rollout, key), followersIn(now.rollout, key)))
	}
	return reconcile.Result{}, nil
}

// withOwn returns the rows of a record with what is known of this replica's own members in the place of what was said of them. By the
// rows that there are, and are not Deleting, the replica that leads says where the object is placed. What was decided here may be
// older than the record: were a row left out for that, every replica would take it that the copy is to go, and this one would delete it.
func (rep *reporter) withOwn(
	key Key, p *desiredState, statuses map[string]clusterStatus, rows []refractv1alpha1.ClusterStatus,
) (with []refractv1alpha1.ClusterStatus) {
	own := map[string]bool{}
	for name := range statuses {
		own[name] = rep.shards.Owns(name)
	}
	for name := range p.targets {
		own[name] = rep.shards.Owns(name)
	}
	for i := range rows {
		row := &rows[i]
		switch {
		case own[row.Name]:
			now := rep.clusterStatusOf(key, p, row.Name, statuses)
			row = latest(row, &now)
		case rep.shards.Owns(row.Name) && !isPlaced(row):
			continue // Nothing is there any more.
		}
		with = append(with, *row)
		delete(own, row.Name)
	}
	for name, is := range own {
		if !is {
			continue
		}
		if now := rep.clusterStatusOf(key, p, name, statuses); !isPlaced(&now) {
			with = append(with, now)
		}
	}
	return with
}

// latest returns what is to be said of an own member of which row was said: now, unless that would change whether it is to have a copy.
// Of a copy that is to go it is said at least why it does not.
func latest(row, now *refractv1alpha1.ClusterStatus) *refractv1alpha1.ClusterStatus {
	switch {
	case isPlaced(row) == isPlaced(now):
		return now
	case isPlaced(now) && now.Reason != "":
		why := *row
		why.Reason, why.Message = now.Reason, now.Message
		return &why
	default:
		return row
	}
}

// again has a report come again after an error. That what is known of the record is
// behind is no error: it exists already, or has changed, or is deleted.
func again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	if apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: unsettledDelay}, nil
	}
	return reconcile.Result{}, err
}

// describe fills in what the record is about.
func describe(r record, key Key, p *desiredState) {
	api := p.gvr.GroupVersion().String()
	r.spec.Source = refractv1alpha1.SourceReference{APIVersion: api, Kind: p.kind, Resource: key.Resource, Name: key.Name, UID: p.uid}
}

// close takes the record away of an object of which nothing is left.
func (rep *reporter) close(ctx context.Context, key Key, p *desiredState, r record, was previous, k known) (reconcile.Result, error) {
	if left := rep.mayReturn(key, p, was, k); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if !k.deleting {
		if err := rep.client.Delete(ctx, r.Object, client.Preconditions{UID: &k.uid}); client.IgnoreNotFound(err) != nil {
			return again(err)
		}
	}
	if k.rollout != nil {
		rep.revisions.later(key)
	}
	rep.decider.forget(key, p)
	return reconcile.Result{}, nil
}

// goOn is for an object that is gone together with its record, as a namespace takes that along. Nobody is left to report to.
func (rep *reporter) goOn(key Key, p *desiredState, was previous) reconcile.Result {
	if len(rep.remaining(key)) > 0 {
		return reconcile.Result{}
	}
	if left := rep.mayReturn(key, p, was, known{}); left > 0 {
		return reconcile.Result{RequeueAfter: left}
	}
	rep.decider.forget(key, p)
	return reconcile.Result{}
}

// remaining returns the clusters of this replica that have, or may have, a copy of an object that is gone together with its record. Nobody tells any
// more of the copies on the members of other replicas. Those of this replica are deleted all the same; until then, the FederatedClusters
// say that they are to be.
func (rep *reporter) remaining(key Key) []string {
	rep.state.learn(key, nil)
	left := rep.state.bereave(key)
	for _, name := range left {
		if m := rep.members.Get(name); m == nil || !m.Ready() {
			rep.pend(name)
		}
	}
	return left
}

// unbind takes off a record what an earlier version has put there: see [record.bound].
func (rep *reporter) unbind(ctx context.Context, r record) error {
	if err := rep.live.Get(ctx, client.ObjectKeyFromObject(r.Object), r.Object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, ok := r.DeepCopyObject().(client.Object)
	if !ok || !r.bound() {
		return nil
	}
	controllerutil.RemoveFinalizer(r.Object, refractv1alpha1.Finalizer)
	r.SetOwnerReferences(slices.DeleteFunc(r.GetOwnerReferences(), r.isSource))
	return client.IgnoreNotFound(rep.client.Patch(ctx, r.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// clusterStatusOf is the status of one cluster.
func (rep *reporter) clusterStatusOf(key Key, p *desiredState, name string, statuses map[string]clusterStatus) refractv1alpha1.ClusterStatus {
	r, reported := statuses[name]
	if r.foreign != nil && !rep.shards.Owns(name) {
		return rep.elsewhere(key, p, *r.foreign)
	}
	s := refractv1alpha1.ClusterStatus{Name: name, State: refractv1alpha1.StatePending}
	if reported {
		s.State, s.Reason, s.Message = r.state, r.reason, r.message
		s.Generation, s.Hash, s.Fields, s.Drift, s.Adopted = r.generation, r.hash, r.baseline(), r.drift, r.adopted
		s.Run = r.run
		if p.governed.awaits(name) {
			s.ReadySince = microTime(r.readySince)
		}
	}
	t := p.targets[name]
	if t != nil {
		s.Replicas, s.Policies, s.Warnings = t.replicas, t.policies, t.warnings
	}
	if p.blocked == "" && s.State == refractv1alpha1.StateSynced && (t == nil || t.variant == nil || t.variant.hash != r.hash) {
		s.State = refractv1alpha1.StatePending
	}
	rep.state.sayScaler(key, &s)
	if m := rep.members.Get(name); m != nil && s.State != refractv1alpha1.StateOffline {
		rep.sayReadiness(key, p, m, &s)
	}
	if reported && p.governed != nil && p.governed.recorded != nil && !p.governed.settled() && r.seq == p.seq && p.governed.refused(&s) {
		s.Revision = release.Assigned(p.governed.recorded, name).Name
	}
	if !rep.shards.Owns(name) {
		return rep.elsewhere(key, p, s) // It was this replica's, or nobody has said anything of it yet.
	}
	s.Hash = rep.state.digest(key, s.Hash)
	return s
}

// elsewhere is the status of a cluster that another replica writes to: what was said of it last, in the light of what has been decided
// since. It is to that replica the word of the one that leads: it removes the copy when that is Deleting, and only then.
func (rep *reporter) elsewhere(key Key, p *desiredState, s refractv1alpha1.ClusterStatus) refractv1alpha1.ClusterStatus {
	s.Hash = rep.state.digest(key, s.Hash)
	t := p.targets[s.Name]
	if t == nil {
		if s.State != refractv1alpha1.StateDeleting && p.blocked == "" && !p.dryRun {
			s.State, s.Reason, s.Message = refractv1alpha1.StateDeleting, reasonNoLongerPlaced, ""
		}
		return s
	}
	s.Replicas, s.Policies, s.Warnings = t.replicas, t.policies, t.warnings
	if s.State == refractv1alpha1.StateDeleting || s.Reason == reasonDryRun && !p.dryRun {
		s.State, s.Reason, s.Message = refractv1alpha1.StatePending, "", ""
		if p.governed != nil {
			s.Hash = "" // Its replica looks at the copy first.
		}
	}
	if t.variant == nil || rep.state.digest(key, t.variant.hash) != s.Hash {
		s.State = pendingUnlessBroken(s.State)
	}
	return s
}

// sayReadiness says of a copy on a member of this replica whether it is ready.
func (rep *reporter) sayReadiness(key Key, p *desiredState, m *member.Member, s *refractv1alpha1.ClusterStatus) {
	sayRun(s, p.uid, m.Copies, key)
	if have, found := m.Copies.Get(key); found == member.Present {
		s.Readiness, s.ReadinessMessage = have.Readiness, output.Cut(have.ReadinessMessage, maxReadiness)
		if s.Readiness == "" {
			s.Readiness = refractv1alpha1.ReadinessReady
		}
		if unjudged(p.governed.healthOn(m.Name), &have) && s.State == refractv1alpha1.StateSynced {
			s.Readiness, s.ReadinessMessage = "", ""
			rep.judge(m, key)
		}
		if p.governed != nil && have.Hash != s.Hash && s.Readiness == refractv1alpha1.ReadinessReady {
			s.Readiness = refractv1alpha1.ReadinessInProgress // What is known of it is from before the last write.
		}
	}
	if !p.governed.awaits(m.Name) {
		return
	}
	since, _ := rep.readied(m, key)
	s.ReadySince = microTime(since)
}

// microTime is a time as it comes back when it was written down; nil for the zero time.
func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.Truncate(time.Microsecond)}
}

func pendingUnlessBroken(s refractv1alpha1.ClusterState) refractv1alpha1.ClusterState {
	if s == refractv1alpha1.StateSynced {
		return refractv1alpha1.StatePending
	}
	return s
}

// assemble makes the status. It is deterministic, so that what did not change is
// not written.
func (rep *reporter) assemble(
	key Key, p *desiredState, statuses map[string]clusterStatus, was previous, conditions []metav1.Condition,
	rollout *refractv1alpha1.RolloutStatus,
) refractv1alpha1.PropagationStatus {
	s := refractv1alpha1.PropagationStatus{
		ObservedGeneration: p.generation,
		Placed:             int32(len(p.targets)),
		PropagationPolicy:  p.propagation,
		OverridePolicies:   p.overrides,
		DeletedPolicies:    p.deleted,
		Warnings:           p.warnings,
		PlacementHash:      was.hash,
		ChosenBy:           was.chosenBy,
		Held:               p.held.status(),
		Conditions:         slices.Clone(conditions),
		Rollout:            rollout,
		Follows:            p.followed(),
	}
	names := map[string]bool{}
	for name := range statuses {
		names[name] = true
	}
	for name := range p.targets {
		names[name] = true
	}
	for i := range was.placed {
		names[was.placed[i].Cluster] = true
	}
	holders := map[string]int32{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		status := rep.clusterStatusOf(key, p, name, statuses)
		if at, ok := find(was.placed, name); ok && p.blocked != "" {
			status.Replicas = was.placed[at].Replicas // It is so until it can be decided.
		}
		if t := p.targets[name]; t != nil && t.variant != nil {
			holders[t.variant.hash]++
		}
		if status.State == refractv1alpha1.StateSynced {
			s.Synced++
			if status.Readiness == refractv1alpha1.ReadinessReady {
				s.Ready++
			}
		}
		s.Clusters = append(s.Clusters, status)
	}
	s.VariantCount = int32(len(p.variants))
	for _, v := range p.variants[:min(len(p.variants), maxVariants)] {
		s.Variants = append(s.Variants, refractv1alpha1.VariantStatus{Hash: rep.state.digest(key, v.hash), Clusters: holders[v.hash], Changes: v.changes})
	}
	meta.SetStatusCondition(&s.Conditions, verdict(p, &s))
	meta.SetStatusCondition(&s.Conditions, readiness(p, &s))
	rolloutConditions(p, &s)
	if gone := sourceGone(p); gone != nil {
		meta.SetStatusCondition(&s.Conditions, *gone)
	} else {
		meta.RemoveStatusCondition(&s.Conditions, refractv1alpha1.ConditionSourceGone)
	}
	fit(&s)
	return s
}

// stays are reasons why a copy that is to go does not, which somebody has to know.
var stays = []string{reasonAwaitingApproval, reasonUnreadable, reasonClusterNotReady, reasonInternalError}

// verdict says in one condition how it stands.
func verdict(p *desiredState, s *refractv1alpha1.PropagationStatus) metav1.Condition {
	c := metav1.Condition{Type: refractv1alpha1.ConditionSynced, Status: metav1.ConditionFalse, ObservedGeneration: p.generation}
	var failed []string
	for i := range s.Clusters {
		r := &s.Clusters[i]
		switch {
		case r.State == refractv1alpha1.StateFailed, r.State == refractv1alpha1.StateOffline, r.State == refractv1alpha1.StateDrifted,
			r.State == refractv1alpha1.StateDeleting && slices.Contains(stays, r.Reason):
			failed = append(failed, fmt.Sprintf("%s: %s", r.Name, r.Message))
			if c.Reason == "" {
				c.Reason = r.Reason
			}
		}
	}
	rolling, why := underWay(p, s)
	switch {
	case p.blocked != "":
		c.Reason, c.Message = p.blocked, p.blockedMessage
	case rolling != "" && s.Rollout != nil && release.Stopped(s.Rollout):
		c.Reason, c.Message = rolling, why
	case p.gone && len(failed) == 0:
		c.Reason, c.Message = reasonSourceGone, "copies are being removed"
	case p.dryRun:
		c.Reason, c.Message = reasonDryRun, fmt.Sprintf("annotation %s: nothing is written and nothing removed", corev1alpha1.DryRunAnnotation)
	case len(failed) > 0:
		c.Message = few(failed)
	case p.held != nil:
		c.Reason, c.Message = reasonAwaitingApproval, p.held.message()
	case len(p.targets) == 0 && len(s.Clusters) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonNoClusterMatches, "the propagation policy chooses no cluster"
	case rolling != "":
		c.Reason, c.Message = rolling, why
	case int(s.Synced) < len(s.Clusters):
		c.Reason, c.Message = reasonProgressing, fmt.Sprintf("%d of %d clusters are as they should be", s.Synced, len(s.Clusters))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonSynced, fmt.Sprintf("all %d clusters hold what belongs there", s.Placed)
	}
	return c
}

// readiness says in one condition whether the object is what it asks to be.
func readiness(p *desiredState, s *refractv1alpha1.PropagationStatus) metav1.Condition {
	c := metav1.Condition{Type: refractv1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.generation}
	var failed []string
	for i := range s.Clusters {
		if r := &s.Clusters[i]; r.Readiness == refractv1alpha1.ReadinessFailed {
			failed = append(failed, fmt.Sprintf("%s: %s", r.Name, r.ReadinessMessage))
		}
	}
	switch {
	case len(failed) > 0:
		c.Reason, c.Message = "Failed", few(failed)
	case !meta.IsStatusConditionTrue(s.Conditions, refractv1alpha1.ConditionSynced):
		c.Reason, c.Message = "NotSynced", "not every cluster holds what belongs there"
	case s.Ready < s.Placed:
		c.Reason, c.Message = reasonProgressing, fmt.Sprintf("ready on %d of %d clusters", s.Ready, s.Placed)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Ready", fmt.Sprintf("ready on all %d clusters", s.Placed)
	}
	return c
}

// few joins the first of what is wrong.
func few(failed []string) string {
	const most = 3
	text := strings.Join(failed[:min(len(failed), most)], "; ")
	if more := len(failed) - most; more > 0 {
		text += fmt.Sprintf("; and %d more clusters", more)
	}
	return text
}

// announce records events on the source object: its arrival, failures, what was
// corrected, and new warnings.
func (rep *reporter) announce(key Key, p *desiredState, k known, warned []string, now *refractv1alpha1.PropagationStatus) {
	is := meta.FindStatusCondition(now.Conditions, refractv1alpha1.ConditionSynced)
	uid := p.uid
	switch {
	case !p.gone:
	case p.cause == causeWithdrawn || p.cause == causeLeader:
		if is.Reason != reasonAwaitingApproval {
			return // That its copies go is what somebody wanted.
		}
		uid = k.source // The object is there.
	default:
		return
	}
	source := &unstructured.Unstructured{}
	source.SetAPIVersion(p.gvr.GroupVersion().String())
	source.SetKind(p.kind)
	source.SetNamespace(key.Namespace)
	source.SetName(key.Name)
	source.SetUID(uid)
	rep.announceRollout(source, k.rollout, now.Rollout)
	was := meta.FindStatusCondition(k.conditions, refractv1alpha1.ConditionSynced)
	switch {
	case is.Status == metav1.ConditionTrue && (was == nil || was.Status != metav1.ConditionTrue):
		rep.recorder.Eventf(source, nil, corev1.EventTypeNormal, is.Reason, "Propagate", "%s", is.Message)
	case strings.HasPrefix(is.Reason, "Rollout"): // That has events of its own.
	case is.Status == metav1.ConditionFalse && is.Reason != reasonProgressing && (was == nil || was.Reason != is.Reason || was.Message != is.Message):
		rep.recorder.Eventf(source, nil, corev1.EventTypeWarning, is.Reason, "Propagate", "%s", output.Cut(is.Message, maxMessage))
	}
	for _, w := range now.Warnings {
		if !slices.Contains(warned, w) {
			rep.recorder.Eventf(source, nil, corev1.EventTypeWarning, "PropagationWarning", "Propagate", "%s", output.Cut(w, maxMessage))
		}
	}
	for _, text := range rep.state.corrections(key) {
		rep.recorder.Eventf(source, nil, corev1.EventTypeWarning, "DriftCorrected", "Propagate", "%s", output.Cut(text, maxMessage))
	}
}

// policyDeleted records an event on an override policy that was deleted while objects named it: each of them has
// another one, of what is taken back there.
func (rep *reporter) policyDeleted(ref tree.Policy, was client.Object) {
	if ref.Kind != corev1alpha1.KindOverridePolicy && ref.Kind != corev1alpha1.KindClusterOverridePolicy || !rep.shards.Leads() {
		return
	}
	u := rep.state.usage(ref, was.GetGeneration())
	if len(u.users) == 0 {
		return
	}
	rep.recorder.Eventf(was, nil, corev1.EventTypeWarning, reasonPolicyDeleted, "Propagate", "what it changed is taken back: %s on %s named it",
		output.Count(len(u.users), "object", "objects"), output.Count(len(u.clusters), "cluster", "clusters"))
}
