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
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/rescue"
)

// record is a Propagation or a ClusterPropagation, which differ only in their kind. Comments call both Propagation.
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

// recordOf returns the object as a record. The name of a Propagation follows from the object that it describes. A
// Propagation with another name was written by another client and is ignored; it could otherwise be mistaken for the
// real one.
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

// key returns the key of the object that the Propagation describes.
func (r record) key() Key {
	gv, _ := schema.ParseGroupVersion(r.spec.Source.APIVersion) // An invalid version leads to a key that no object has.
	return Key{
		GroupResource:  schema.GroupResource{Group: gv.Group, Resource: r.spec.Source.Resource},
		NamespacedName: types.NamespacedName{Namespace: r.GetNamespace(), Name: r.spec.Source.Name},
	}
}

// bound reports whether the Propagation has a finalizer of Refract, or its object as an owner, as in earlier versions.
// With the finalizer, a namespace could not be deleted while Refract is not running. With the owner alone, garbage
// collection would delete the Propagation with its object, and the recorded cause of the deletion would be lost. So
// Propagations have neither: Refract deletes a Propagation after the last copy, and a namespace deletes its
// Propagations.
func (r record) bound() bool {
	return controllerutil.ContainsFinalizer(r.Object, refractv1alpha1.Finalizer) || slices.ContainsFunc(r.GetOwnerReferences(), r.isSource)
}

func (r record) isSource(o metav1.OwnerReference) bool {
	return o.Kind == r.spec.Source.Kind && o.Name == r.spec.Source.Name
}

// recordName returns NAME.RESOURCE[.GROUP]. If this is no valid object name, or too long, the name ends with a hash.
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

// known is the part of a Propagation that stays in memory. The status is too large for that, because it has a row for
// each cluster.
type known struct {
	uid        types.UID
	version    string // resourceVersion
	source     types.UID
	deleting   bool
	bound      bool // See [record.bound].
	conditions []metav1.Condition
	digest     [sha256.Size]byte // Digest of the status.
	// spec and status are those of the Propagation, until the state takes over the status.
	spec    *refractv1alpha1.PropagationSpec
	status  *refractv1alpha1.PropagationStatus
	placed  []placement.Target
	foreign foreignContent
	hash    string // The digest of the inputs of the placement.
	// asked is the question about a change of the placement; zero if no change waits.
	asked placement.Question
	// rollout is the recorded rollout. The pointer changes only with its content.
	rollout *refractv1alpha1.RolloutStatus
	// follows are the leaders of the object: the objects that it travels with.
	follows []Key
	// readBack is a digest of the other fields that are read after a restart.
	readBack uint64
	// stale are the former names of renamed clusters that the Propagation on the hub still has.
	stale []string
	// steering has the annotations that steer the rollout and the placement.
	steering steering
}

// steersAs reports whether the Propagation steers the rollout and the placement as it did before.
func (k *known) steersAs(before *known) bool {
	return k.uid == before.uid && k.source == before.source && k.deleting == before.deleting && k.rollout == before.rollout &&
		k.steering == before.steering
}

// steering has the requests of users about a rollout or a change of the placement, from annotations of the Propagation.
type steering struct {
	paused            bool
	approved, resumed string
	placement         string // The token that approves a change of the placement.
}

func steeringOf(r record) steering {
	a := r.GetAnnotations()
	return steering{
		paused:   a[refractv1alpha1.PausedAnnotation] == "true",
		approved: a[refractv1alpha1.ApproveRolloutAnnotation], resumed: a[refractv1alpha1.ResumeAnnotation],
		placement: a[refractv1alpha1.ApprovePlacementAnnotation],
	}
}

// records holds the needed parts of the hub's Propagations.
type records struct {
	// found is called for each Propagation of the first list. deleted is called for a deleted Propagation. changed is
	// called for a Propagation that another client or replica wrote.
	found, deleted func(Key)
	changed        func(key Key, steers bool)
	live           client.Reader // Reads from the hub.
	log            logr.Logger
	// standsBy reports whether this replica has not led yet, so the state has taken over no Propagation.
	standsBy func() bool
	// successor returns the new name of a renamed cluster; empty for other clusters. It may be nil.
	successor func(name string) string

	mu    sync.RWMutex
	items map[Key]*known
}

// watch starts watches of the Propagations until ctx ends. It returns when all existing Propagations are known.
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

// get returns the known part of the Propagation of the key. It is read-only.
func (r *records) get(key Key) (known, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.items[key]
	if !ok {
		return known{}, false
	}
	return *k, true
}

// rollouts returns the recorded rollouts. They are read-only.
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

// phase returns the recorded phase of an object's rollout; empty if it has none.
func (r *records) phase(key Key) refractv1alpha1.RolloutPhase {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if k := r.items[key]; k != nil && k.rollout != nil {
		return k.rollout.Phase
	}
	return ""
}

// phases counts the recorded rollouts by phase.
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

// ask reports whether a Propagation still waits for an approval by this token, which is for all objects of a policy.
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

// exists reads whether the hub has a Propagation of the key.
func (r *records) exists(ctx context.Context, key Key) (bool, error) {
	rec := newRecord(key.Namespace != "")
	err := r.live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, rec.Object)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading the report on %s %s: %w", key.GroupResource, key.NamespacedName, err)
	}
	return err == nil, nil
}

// keys returns the keys of all Propagations.
func (r *records) keys() []Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Keys(r.items))
}

// taken drops the status of a Propagation after the state has taken it over.
func (r *records) taken(key Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.items[key]; k != nil {
		now := *k
		now.spec, now.status = nil, nil
		r.items[key] = &now // Others may read the item that this one replaces: see kept.
	}
}

// kept returns the Propagations that the state has not taken over. They are read-only.
func (r *records) kept() map[Key]*known {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := map[Key]*known{}
	for key, k := range r.items {
		if k.status != nil {
			all[key] = k
		}
	}
	return all
}

// wrote takes over the hub's answer to a write by this replica.
func (r *records) wrote(rec record) { r.update(rec, told) }

// readBack returns a digest of the override policies of the copies, without their generations.
func readBack(overrides, deleted []refractv1alpha1.PolicyReference) uint64 {
	h := fnv.New64a()
	for _, refs := range [][]refractv1alpha1.PolicyReference{overrides, deleted} {
		for _, r := range refs {
			fmt.Fprintf(h, "%q %q %q,", r.Kind, r.Namespace, r.Name)
		}
		fmt.Fprint(h, ";")
	}
	return h.Sum64()
}

// followedBy returns the leaders in the Propagation of an object. It reads at most mostFollowed, because Refract never
// writes more.
func followedBy(key Key, follows []refractv1alpha1.FollowedObject) (leaders []Key) {
	for _, f := range follows[:min(len(follows), mostFollowed)] {
		leaders = append(leaders, Key{
			GroupResource:  schema.ParseGroupResource(f.Resource),
			NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: f.Name},
		})
	}
	return leaders
}

// telling is the source of a version of a Propagation.
type telling int

const (
	told        telling = iota // An event, or the answer to a write: it may be late.
	listed                     // A list, which is the present state: a hub may have been restored.
	firstListed                // The first list.
)

// update stores a Propagation if it is newer. It reports whether the Propagation changed, and whether it steers the
// rollout or the placement in another way. It keeps the status until the state has taken it over.
func (r *records) update(rec record, how telling) (changed, steers bool) {
	var err error // The error is only logged: an unreadable record is skipped.
	defer rescue.To(&err, r.log, "reading a report", "namespace", rec.GetNamespace(), "name", rec.GetName())
	key, sum := rec.key(), digest(rec.status)
	rec.status.Expand()
	stale := r.translate(rec.status)
	k := &known{
		stale: stale,
		uid:   rec.GetUID(), version: rec.GetResourceVersion(), source: rec.spec.Source.UID,
		deleting: rec.GetDeletionTimestamp() != nil, bound: rec.bound(),
		conditions: rec.status.Conditions, digest: sum,
		placed: placedIn(rec.status), foreign: foreignIn(rec.status), hash: rec.status.PlacementHash,
		asked:    placement.QuestionOf(rec.status.Held),
		follows:  followedBy(key, rec.status.Follows),
		readBack: readBack(rec.status.OverridePolicies, rec.status.DeletedPolicies),
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
		if k.status = before.status; k.status != nil && before.uid == k.uid && before.digest != k.digest {
			k.status = rec.status // Status and other parts must be of the same version. A recreated Propagation has no status at first.
		}
		if equality.Semantic.DeepEqual(before.rollout, k.rollout) {
			k.rollout = before.rollout
		}
	}
	if r.standsBy() {
		k.status = rec.status
	}
	if k.status != nil {
		k.spec = rec.spec
	}
	r.items[key] = k
	return true, before == nil || !k.steersAs(before)
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

// placedIn returns the clusters that are to have a copy according to a Propagation, sorted by name.
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

// isPlaced reports whether a cluster is to have a copy according to its row.
func isPlaced(row *refractv1alpha1.ClusterStatus) bool {
	return row.State != refractv1alpha1.StateDeleting
}

// isTried reports whether a cluster has no copy because of the annotation dry-run.
func isTried(row *refractv1alpha1.ClusterStatus) bool {
	return row.Reason == reasonDryRun && row.Hash == ""
}

// foreignContent has the clusters whose copies may have other content than the decided one, sorted.
type foreignContent struct {
	unseen  []string // Clusters that may have a copy with any content.
	keeping []string // Clusters that have a copy with other content.
}

// foreignIn returns the foreign content according to a Propagation.
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

// mayBeForeign reports whether the copy of a row with this reason and hash may have any content.
func mayBeForeign(reason, hash string) bool {
	return hash == "" || reason == reasonKeepsContent || reason == reasonDryRun || reason == reasonAlreadyExists
}

// digest returns a digest of a status, for comparison.
func digest(s *refractv1alpha1.PropagationStatus) [sha256.Size]byte {
	text, err := json.Marshal(s)
	if err != nil {
		return [sha256.Size]byte{} // Every status can be encoded.
	}
	return sha256.Sum256(text)
}

// retain drops the Propagations of one kind that no longer exist, and returns their keys.
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
