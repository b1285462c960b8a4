package propagation

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/tree"
)

// How often a copy that somebody else changes again and again is corrected.
const (
	promptCorrections    = 3 // At once.
	firstCorrectionDelay = time.Second
	lastCorrectionDelay  = time.Minute
	correctionReset      = 5 * time.Minute // After this long without a change it begins anew.
)

// correction counts how often a copy was corrected in a row.
type correction struct {
	count int
	last  time.Time
	next  time.Time // Not before.
}

// maxCorrections bounds what is remembered of corrections, in copies of a member.
const maxCorrections = 10_000

// corrections are those of the copies of one member.
type corrections struct {
	mu    sync.Mutex
	byKey map[Key]correction
}

// wait returns how long to leave a copy that drifted to who keeps changing it, and
// counts the correction when that is not at all.
func (c *corrections) wait(key Key, drift *refractv1alpha1.DriftStatus) time.Duration {
	if drift == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	f := c.byKey[key]
	if now.Sub(f.last) > correctionReset {
		f = correction{}
	}
	if f.count >= promptCorrections && now.Before(f.next) {
		return f.next.Sub(now)
	}
	f.count++
	f.last = now
	if over := f.count - promptCorrections; over >= 0 {
		f.next = now.Add(min(firstCorrectionDelay<<min(over, 10), lastCorrectionDelay))
	}
	if c.byKey == nil || len(c.byKey) > maxCorrections {
		c.byKey = map[Key]correction{}
	}
	c.byKey[key] = f
	return 0
}

// known reports whether the copy with the hash is known to be as it was written;
// after a restart in the wrong moment it is not.
func (r *clusterStatus) known(have member.Copy, hash string) bool {
	return r.asWritten(have) && (r.baseline() != "" || (r.state == refractv1alpha1.StateSynced && r.hash == hash))
}

// asWritten reports whether nobody has changed the copy, judged by who manages its fields. If
// the hashes differ the last write was not recorded before a restart: its time is unknown, so
// that only the set of fields is compared.
func (r *clusterStatus) asWritten(have member.Copy) bool {
	if r.hash == have.Hash {
		return have.Owned.Is(r.baseline())
	}
	return have.Owned.HasFieldsOf(r.baseline())
}

// whole reports whether a copy, of which nobody has reported that it was written, has all that it was
// written with, as it says itself. After a restart in the wrong moment that is all that is known; to
// write every such copy once more would cost as much as to write it at first.
func (a *applier) whole(key Key, p *desiredState, r clusterStatus, t *target, have member.Copy, left []tree.Pattern) bool {
	if r.hash == have.Hash || have.Doubted {
		return false
	}
	if seen := t.variant.covered.Load(); seen != nil && seen.SameFields(have.Owned) {
		return true // As all copies of a variant are.
	}
	b := a.renderer.bodyOf(key, p, t, a.member.Name)
	if b == nil {
		return false
	}
	var object map[string]any
	if err := utiljson.Unmarshal(b.forKnown(have.UID, have.Adopted), &object); err != nil {
		return false
	}
	object, _, err := withoutLeft(object, left)
	if err != nil {
		return false
	}
	kind := t.variant.gvr.GroupVersion().WithKind(p.kind)
	// What a ControllerRevision has as data is of any type, as all of a custom resource may be.
	builtin := scheme.Scheme.Recognizes(kind) && kind.Kind != "ControllerRevision"
	if !have.Owned.Covers(object, builtin) {
		return false
	}
	t.variant.covered.Store(&have.Owned)
	return true
}

// drift returns what somebody changed of a copy that has the right hash; nil if
// nobody did, or if it cannot be told.
func (a *applier) drift(key Key, r *clusterStatus, have member.Copy, left []tree.Pattern) *refractv1alpha1.DriftStatus {
	switch {
	case r.baseline() == "":
		return nil
	case r.asWritten(have) && have.Doubted && r.hash == have.Hash:
		return r.corrected(nil, a.member.Copies.ConflictingManager(key)) // It was another's meanwhile.
	case r.asWritten(have):
		return nil
	}
	lost := r.owned.Lost(have.Owned, left...)
	if len(left) > 0 && r.owned == (member.Ownership{}) {
		return nil // After a restart the lost fields are unknown: the copy is written once more, without those that are left.
	}
	if len(left) > 0 && have.Owned.AppliedWith(r.owned) && r.owned.LostWithin(have.Owned, left) {
		r.owned = have.Owned // The fields belong to the cluster now.
		return nil
	}
	if len(lost) == 0 && r.owned != (member.Ownership{}) {
		return r.corrected(nil, member.FieldManager)
	}
	return r.corrected(lost, a.member.Copies.ConflictingManager(key))
}

// corrected is the drift status after another correction.
func (r *clusterStatus) corrected(fields []string, manager string) *refractv1alpha1.DriftStatus {
	const most = 16
	d := &refractv1alpha1.DriftStatus{Count: 1, Time: metav1.Now().Rfc3339Copy(), Fields: fields[:min(len(fields), most)], Manager: manager}
	if r.drift != nil {
		d.Count += r.drift.Count
	}
	return d
}

func describeDrift(d *refractv1alpha1.DriftStatus) string {
	by := "somebody"
	if d.Manager != "" {
		by = d.Manager
	}
	switch {
	case d.Deleted:
		return "the copy had been deleted and was restored"
	case d.Manager == member.FieldManager:
		return "somebody who calls themselves " + member.FieldManager + " had changed the copy; it was corrected"
	case len(d.Fields) == 0:
		return fmt.Sprintf("%s had changed the copy; it was corrected", by)
	default:
		const most = 3
		fields := strings.Join(d.Fields[:min(len(d.Fields), most)], ", ")
		if more := len(d.Fields) - most; more > 0 {
			fields += fmt.Sprintf(" and %d more fields", more)
		}
		return fmt.Sprintf("%s had changed %s; it was corrected", by, fields)
	}
}

// leaveDrifted leaves the copy for a while to who keeps changing it. Lost are the JSON pointers of the fields, if they are known.
func (a *applier) leaveDrifted(
	key Key, r clusterStatus, drift *refractv1alpha1.DriftStatus, lost []string, left time.Duration,
) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateDrifted, reasonChangedAgain
	r.message = strings.Replace(describeDrift(drift), "; it was corrected", "", 1) +
		", again and again: it is corrected less often now. " + remedyOf(key, lost)
	return a.done(key, r, left)
}

// remedyOf says what ends a conflict between two writers of a copy about fields, given by their JSON pointers. Values of
// Secrets cannot sensibly be left to a cluster, and what is not to be left by placement.KeepingOf is not named.
func remedyOf(key Key, lost []string) string {
	const most = 8
	var fields []string
	for _, pointer := range lost {
		head, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		label := strings.HasPrefix(pointer, "/metadata/labels/") || strings.HasPrefix(pointer, "/metadata/annotations/")
		secret := key.GroupResource == (schema.GroupResource{Resource: "secrets"}) && (head == "data" || head == "stringData")
		if secret || head == "metadata" && !label || head == "status" || len(fields) == most {
			continue
		}
		fields = append(fields, strconv.Quote(pointer))
	}
	if len(fields) == 0 {
		return "Stop one of the two writers"
	}
	return fmt.Sprintf("Stop the other writer, or leave the fields to the members: annotate the object on the hub with %s='[%s]'",
		refractv1alpha1.LeftToMembersAnnotation, strings.Join(fields, ","))
}
