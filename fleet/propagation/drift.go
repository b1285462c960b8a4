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
	"refract.dev/fleet/member"
	"refract.dev/tree"
)

// The rate of corrections of a copy that another client changes again and again.
const (
	promptCorrections    = 3 // Made at once.
	firstCorrectionDelay = time.Second
	lastCorrectionDelay  = time.Minute
	correctionReset      = 5 * time.Minute // After this time without a change, the count starts again.
)

// correction counts the corrections of a copy in a row.
type correction struct {
	count int
	last  time.Time
	next  time.Time // The earliest time of the next correction.
}

// maxCorrections is the maximum number of copies of a member whose corrections are remembered.
const maxCorrections = 10_000

// corrections are the corrections of the copies of one member.
type corrections struct {
	mu    sync.Mutex
	byKey map[Key]correction
}

// wait returns the delay before the correction of a drifted copy. If the delay is zero, wait counts a correction.
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

// known reports whether the copy with the hash is certainly unchanged since its last write. This is uncertain after a
// restart between the write and its report.
func (r *clusterStatus) known(have member.Copy, hash string) bool {
	return r.asWritten(have) && (r.baseline() != "" || (r.state == refractv1alpha1.StateSynced && r.hash == hash))
}

// asWritten reports whether the managed fields of the copy show no change by another client. If the hashes differ, a
// restart came before the report of the last write. Then the time of the write is unknown, so only the set of fields is
// compared.
func (r *clusterStatus) asWritten(have member.Copy) bool {
	if r.hash == have.Hash {
		return have.Owned.Is(r.baseline())
	}
	return have.Owned.HasFieldsOf(r.baseline())
}

// whole reports whether the managed fields of a copy include all fields of a write that was never recorded. After a
// restart between a write and its report, this is the only evidence. A new write of all such copies would cost as much
// as the first writes.
func (a *applier) whole(key Key, p *desiredState, r clusterStatus, t *target, have member.Copy, left []tree.Pattern) bool {
	if r.hash == have.Hash || have.Doubted {
		return false
	}
	if seen := t.variant.covered.Load(); seen != nil && seen.SameFields(have.Owned) {
		return true // All copies of a variant have the same fields.
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
	// The data of a ControllerRevision may have any type, as may all fields of a custom resource.
	builtin := scheme.Scheme.Recognizes(kind) && kind.Kind != "ControllerRevision"
	if !have.Owned.Covers(object, builtin) {
		return false
	}
	t.variant.covered.Store(&have.Owned)
	return true
}

// drift returns the change of a copy that has the right hash; nil if it is unchanged or the change cannot be
// determined.
func (a *applier) drift(key Key, r *clusterStatus, have member.Copy, left []tree.Pattern) *refractv1alpha1.DriftStatus {
	switch {
	case r.baseline() == "":
		return nil
	case r.asWritten(have) && have.Doubted && r.hash == have.Hash:
		// Another client owned the fields meanwhile.
		return r.corrected(nil, a.member.Copies.ConflictingManager(key))
	case r.asWritten(have):
		return nil
	}
	lost := r.owned.Lost(have.Owned, left...)
	if len(left) > 0 && r.owned == (member.Ownership{}) {
		// After a restart the lost fields are unknown: the copy is written once more, without the fields that are left
		// to the cluster.
		return nil
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

// corrected returns the drift status after another correction.
func (r *clusterStatus) corrected(fields []string, manager string) *refractv1alpha1.DriftStatus {
	const most = 16
	d := &refractv1alpha1.DriftStatus{Count: 1, Time: metav1.Now().Rfc3339Copy(), Fields: fields[:min(len(fields), most)], Manager: manager}
	if r.drift != nil {
		d.Count += r.drift.Count
	}
	return d
}

func describeDrift(d *refractv1alpha1.DriftStatus) string {
	by := "another client"
	if d.Manager != "" {
		by = d.Manager
	}
	switch {
	case d.Deleted:
		return "the copy had been deleted and was restored"
	case d.Manager == member.FieldManager:
		return "a client that calls itself " + member.FieldManager + " had changed the copy; it was corrected"
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

// leaveDrifted leaves the change of another client in a copy for a while. lost are the JSON pointers of the fields, if
// known.
func (a *applier) leaveDrifted(
	key Key, r clusterStatus, drift *refractv1alpha1.DriftStatus, lost []string, left time.Duration,
) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateDrifted, reasonChangedAgain
	r.message = strings.Replace(describeDrift(drift), "; it was corrected", "", 1) +
		", again and again: it is corrected less often now. " + remedyOf(key, lost)
	return a.done(key, r, left)
}

// remedyOf returns advice for a conflict between Refract and another writer about fields of a copy. lost are their JSON
// pointers. The advice names no fields that should not be left to a cluster (values of Secrets), or that
// placement.KeepingOf rejects.
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
