package propagation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/rescue"
	"refract.dev/placement"
)

// record is a Propagation or a ClusterPropagation: the same but for its kind.
type record struct {
	client.Object

	spec   *refractv1alpha1.PropagationSpec
	status *refractv1alpha1.PropagationStatus
}

func newRecord(namespaced bool) record {
	if namespaced {
		p := &refractv1alpha1.Propagation{}
		return record{p, &p.Spec, &p.Status}
	}
	p := &refractv1alpha1.ClusterPropagation{}
	return record{p, &p.Spec, &p.Status}
}

// recordOf returns the record that an object is. One that has not the name of a record of
// what it says that it is about was written by somebody else, and is none: it would be taken
// for the one that has.
func recordOf(obj any) (record, bool) {
	var r record
	switch p := obj.(type) {
	case *refractv1alpha1.Propagation:
		r = record{p, &p.Spec, &p.Status}
	case *refractv1alpha1.ClusterPropagation:
		r = record{p, &p.Spec, &p.Status}
	default:
		return record{}, false
	}
	return r, r.GetName() == recordName(r.key())
}

// key returns the key of the object that the record is about.
func (r record) key() Key {
	gv, _ := schema.ParseGroupVersion(r.spec.Source.APIVersion) // A bad one leads to a key that no object has.
	return Key{
		GroupResource:  schema.GroupResource{Group: gv.Group, Resource: r.spec.Source.Resource},
		NamespacedName: types.NamespacedName{Namespace: r.GetNamespace(), Name: r.spec.Source.Name},
	}
}

// bound reports whether the record has a finalizer of Refract, or its object as an owner, as earlier versions wrote it. With the finalizer,
// nobody could delete a namespace while Refract does not run. With the owner alone, the record would go with its object, and what it
// says of the deletion would be lost. So it has neither: Refract deletes it after the last copy, and a namespace takes it along.
func (r record) bound() bool {
	return controllerutil.ContainsFinalizer(r.Object, refractv1alpha1.Finalizer) || slices.ContainsFunc(r.GetOwnerReferences(), r.isSource)
}

func (r record) isSource(o metav1.OwnerReference) bool {
	return o.Kind == r.spec.Source.Kind && o.Name == r.spec.Source.Name
}

// recordName is NAME.RESOURCE[.GROUP]; with a hash at its end where that is no
// name of an object, or too long for one.
func recordName(key Key) string {
	name := key.Name + "." + key.GroupResource.String()
	plain := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || ('a' <= r && r <= 'z') || ('0' <= r && r <= '9') {
			return r
		}
		return '-'
	}, name)
	const most = 253 - 1 - 8
	if plain == name && len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.Trim(plain[:min(len(plain), most)], "-.") + "-" + hex.EncodeToString(sum[:4])
}

// known is what is kept of a record. It has a status for each cluster, so it is
// read once and not kept.
type known struct {
	uid        types.UID
	version    string // resourceVersion
	source     types.UID
	deleting   bool
	bound      bool // See [record.bound].
	conditions []metav1.Condition
	digest     [sha256.Size]byte // Of the status.
	// status is what was reported before a restart, until it was taken up.
	status *refractv1alpha1.PropagationStatus
	// placed is where the replica that leads has placed the object, and hash on what
	// ground; for those that follow it.
	placed   []placement.Target
	foreign  foreignContent
	hash     string
	chosenBy *refractv1alpha1.PolicyReference
	// asked is what users were asked about a change of the placement; zero if none waits.
	asked placement.Question
	// rollout is how far a change has come: the same pointer for as long as it is the same.
	rollout *refractv1alpha1.RolloutStatus
	// readBack is a digest of what else is read of it after a restart.
	readBack uint64
	// stale are names of clusters that the hub has in it, and that were given up.
	stale []string
	// steering are the annotations by which people steer it.
	steering steering
}

// guidesAs reports whether a replica that does not lead decides by the record as it did by the one before: it goes by where the object
// is placed, and by how its rollout stands, and not by what is said of its copies.
func (k *known) guidesAs(before *known) bool {
	return k.uid == before.uid && k.source == before.source && k.deleting == before.deleting && k.hash == before.hash &&
		k.rollout == before.rollout && k.steering == before.steering && causeIn(k.conditions) == causeIn(before.conditions) &&
		equality.Semantic.DeepEqual(k.chosenBy, before.chosenBy) && equality.Semantic.DeepEqual(k.placed, before.placed)
}

// question returns what users were asked about a change of the placement: what this replica remembers if it led, or else
// what the record says of the same object.
func (k *known) question(was *previous) placement.Question {
	switch {
	case was.led:
		return was.asked
	case was.uid == k.source:
		return k.asked
	default:
		return placement.Question{}
	}
}

// steering is what people say about a rollout, or about a change of the placement, by annotations of the record.
type steering struct {
	paused            bool
	approved, resumed string
	placement         string // The token that approves a change.
}

func steeringOf(r record) steering {
	a := r.GetAnnotations()
	return steering{
		paused:   a[refractv1alpha1.PausedAnnotation] == "true",
		approved: a[refractv1alpha1.ApproveRolloutAnnotation], resumed: a[refractv1alpha1.ResumeAnnotation],
		placement: a[refractv1alpha1.ApprovePlacementAnnotation],
	}
}

// records are the Propagations of the hub, as far as they have to be known.
type records struct {
	// found is called for each that was there at first, changed for one that
	// somebody else wrote, deleted for one that went.
	found, deleted func(Key)
	changed        func(key Key, status *refractv1alpha1.PropagationStatus, guides bool)
	live           client.Reader // Reads from the hub.
	log            logr.Logger
	// successor returns the name that a cluster has whose name was given up; empty for others. It may be nil.
	successor func(name string) string

	mu    sync.RWMutex
	items map[Key]*known
}

// watch follows the records until ctx ends, and returns when all that are there
// now are known.
func (r *records) watch(ctx context.Context, mgr ctrl.Manager, running *sync.WaitGroup) error {
	var synced []cache.InformerSynced
	for kind, resource := range map[string]string{
		refractv1alpha1.KindPropagation: "propagations", refractv1alpha1.KindClusterPropagation: "clusterpropagations",
	} {
		view := &recordView{records: r, cluster: kind == refractv1alpha1.KindClusterPropagation}
		if err := reflect(ctx, mgr, refractv1alpha1.GroupVersion.WithKind(kind), resource, newRecord(!view.cluster).Object, view, running); err != nil {
			return err
		}
		synced = append(synced, view.hasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	return nil
}

// get returns what is known of the record of the key; it is not to be modified.
func (r *records) get(key Key) (known, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.items[key]
	if !ok {
		return known{}, false
	}
	return *k, true
}

// rollouts returns the rollouts that are written down. They are not to be modified.
func (r *records) rollouts() map[Key]*refractv1alpha1.RolloutStatus {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := map[Key]*refractv1alpha1.RolloutStatus{}
	for key, k := range r.items {
		if k.rollout != nil {
			all[key] = k.rollout
		}
	}
	return all
}

// phase returns how far the rollout of an object has come; empty if it has none.
func (r *records) phase(key Key) refractv1alpha1.RolloutPhase {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if k := r.items[key]; k != nil && k.rollout != nil {
		return k.rollout.Phase
	}
	return ""
}

// phases counts the rollouts by how far they have come.
func (r *records) phases() map[refractv1alpha1.RolloutPhase]int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := map[refractv1alpha1.RolloutPhase]int{}
	for _, k := range r.items {
		if k.rollout != nil {
			n[k.rollout.Phase]++
		}
	}
	return n
}

// ask reports whether one of them asks what the token approves for all objects of a policy.
func (r *records) ask(token string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, k := range r.items {
		if k.asked.Shared == token {
			return true
		}
	}
	return false
}

// exists asks the hub whether it has a record of the key.
func (r *records) exists(ctx context.Context, key Key) (bool, error) {
	rec := newRecord(key.Namespace != "")
	err := r.live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, rec.Object)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading the report on %s %s: %w", key.GroupResource, key.NamespacedName, err)
	}
	return err == nil, nil
}

// keys returns what there are records of.
func (r *records) keys() []Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Keys(r.items))
}

// taken is told that what was reported before a restart is in the state now.
func (r *records) taken(key Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.items[key]; k != nil {
		k.status = nil
	}
}

// wrote is told what the hub answered to our own write.
func (r *records) wrote(rec record) { r.update(rec, told) }

// readBack returns a digest of what the copies are rendered with, whatever its generation, and of what the object travels with.
func readBack(overrides, deleted []refractv1alpha1.PolicyReference, follows []refractv1alpha1.FollowedObject) uint64 {
	h := fnv.New64a()
	for _, refs := range [][]refractv1alpha1.PolicyReference{overrides, deleted} {
		for _, r := range refs {
			fmt.Fprintf(h, "%q %q %q,", r.Kind, r.Namespace, r.Name)
		}
		fmt.Fprint(h, ";")
	}
	for _, f := range follows {
		fmt.Fprintf(h, "%q %q,", f.Resource, f.Name)
	}
	return h.Sum64()
}

// telling says how a record came to be known.
type telling int

const (
	told        telling = iota // By an event, or the answer to a write: it may be late.
	listed                     // By a list, which is how things are: a hub may have been set back.
	firstListed                // By the first of all lists.
)

// update keeps what is newer, and reports whether anything changed, and whether that is something which a replica that does not lead
// decides by. A status that comes with it is kept only if it was there at first.
func (r *records) update(rec record, how telling) (changed, guides bool) {
	var err error // Whoever wrote what cannot be read is not told: it is as if there were nothing.
	defer rescue.To(&err, r.log, "reading a report", "namespace", rec.GetNamespace(), "name", rec.GetName())
	key, sum := rec.key(), digest(rec.status)
	rec.status.Expand()
	stale := r.translate(rec.status)
	k := &known{
		stale: stale,
		uid:   rec.GetUID(), version: rec.GetResourceVersion(), source: rec.spec.Source.UID,
		deleting: rec.GetDeletionTimestamp() != nil, bound: rec.bound(),
		conditions: rec.status.Conditions, digest: sum,
		placed: placedIn(rec.status), foreign: foreignIn(rec.status), hash: rec.status.PlacementHash, chosenBy: rec.status.ChosenBy,
		asked:    placement.QuestionOf(rec.status.Held),
		readBack: readBack(rec.status.OverridePolicies, rec.status.DeletedPolicies, rec.status.Follows),
		rollout:  rec.status.Rollout, steering: steeringOf(rec),
	}
	if how == firstListed {
		k.status = rec.status
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.items[key]
	if before != nil && before.uid == k.uid && (before.version == k.version || (how == told && numberOf(before.version) > numberOf(k.version))) {
		return false, false
	}
	if before != nil {
		k.status = before.status
		if equality.Semantic.DeepEqual(before.rollout, k.rollout) {
			k.rollout = before.rollout
		}
	}
	r.items[key] = k
	return true, before == nil || !k.guidesAs(before)
}

func (r *records) drop(rec record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := rec.key()
	if k := r.items[key]; k == nil || k.uid != rec.GetUID() {
		return false
	}
	delete(r.items, key)
	return true
}

func numberOf(version string) uint64 {
	v, _ := strconv.ParseUint(version, 10, 64) // Zero only if the server breaks its own contract.
	return v
}

// placedIn returns the clusters that are to have a copy, as a record says.
func placedIn(s *refractv1alpha1.PropagationStatus) []placement.Target {
	var placed []placement.Target
	for i := range s.Clusters {
		if row := &s.Clusters[i]; isPlaced(row) {
			placed = append(placed, placement.Target{Cluster: row.Name, Replicas: row.Replicas})
		}
	}
	slices.SortFunc(placed, func(a, b placement.Target) int { return strings.Compare(a.Cluster, b.Cluster) })
	return placed
}

// isPlaced reports whether a cluster is to have a copy, as its row of a record says.
func isPlaced(row *refractv1alpha1.ClusterStatus) bool {
	return row.State != refractv1alpha1.StateDeleting
}

// isTried reports whether a cluster has no copy as nothing is written: annotation dry-run.
func isTried(row *refractv1alpha1.ClusterStatus) bool {
	return row.Reason == reasonDryRun && row.Hash == ""
}

// foreignContent are clusters among those that are to have a copy where a copy may be there that is not as they were to have it, sorted.
type foreignContent struct {
	unseen  []string // Nothing is known of a copy.
	keeping []string // There is one.
}

// foreignIn returns what a record says of that.
func foreignIn(s *refractv1alpha1.PropagationStatus) (is foreignContent) {
	for i := range s.Clusters {
		switch row := &s.Clusters[i]; {
		case !isPlaced(row):
		case row.Reason == reasonKeepsContent:
			is.keeping = append(is.keeping, row.Name)
		case mayBeForeign(row.Reason, row.Hash):
			is.unseen = append(is.unseen, row.Name)
		}
	}
	slices.Sort(is.keeping)
	slices.Sort(is.unseen)
	return is
}

// mayBeForeign reports whether a copy on a cluster of which this is said may have any content.
func mayBeForeign(reason, hash string) bool {
	return hash == "" || reason == reasonKeepsContent || reason == reasonDryRun || reason == reasonAlreadyExists
}

// digest tells statuses apart.
func digest(s *refractv1alpha1.PropagationStatus) [sha256.Size]byte {
	text, err := json.Marshal(s)
	if err != nil {
		return [sha256.Size]byte{} // It has nothing that cannot be encoded.
	}
	return sha256.Sum256(text)
}

// retain forgets the records of one kind that are not there. It returns what they were about.
func (r *records) retain(there map[Key]bool, cluster bool) (gone []Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.items {
		if (key.Namespace == "") == cluster && !there[key] {
			delete(r.items, key)
			gone = append(gone, key)
		}
	}
	return gone
}

// recordView is what a reflector writes the records of one kind to.
type recordView struct {
	records *records
	cluster bool // Whether they have no namespace.
	synced  atomic.Bool
}

func (v *recordView) hasSynced() bool { return v.synced.Load() }

// Add is called by the reflector.
func (v *recordView) Add(obj any) error {
	rec, ok := recordOf(obj)
	if !ok {
		return nil
	}
	if changed, guides := v.records.update(rec, told); changed {
		v.records.changed(rec.key(), rec.status, guides)
	}
	return nil
}

// Update is called by the reflector.
func (v *recordView) Update(obj any) error { return v.Add(obj) }

// Delete is called by the reflector.
func (v *recordView) Delete(obj any) error {
	if rec, ok := recordOf(obj); ok && v.records.drop(rec) {
		v.records.deleted(rec.key())
	}
	return nil
}

// Replace is called by the reflector with the result of a list.
func (v *recordView) Replace(list []any, _ string) error {
	how := firstListed
	if v.synced.Load() {
		how = listed
	}
	there := make(map[Key]bool, len(list))
	for _, obj := range list {
		rec, ok := recordOf(obj)
		if !ok {
			continue
		}
		key := rec.key()
		there[key] = true
		switch changed, guides := v.records.update(rec, how); {
		case how == firstListed:
			v.records.found(key)
		case changed:
			v.records.changed(key, rec.status, guides)
		}
	}
	for _, key := range v.records.retain(there, v.cluster) {
		v.records.deleted(key)
	}
	v.synced.Store(true)
	return nil
}

// Resync is called by the reflector; there is nothing to do.
func (v *recordView) Resync() error { return nil }
