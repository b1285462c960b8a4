package propagation

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

// TestMissingAtTheStart: the guard judges all objects that are missing at the start together, even if most of their
// copies are found later than the first. No copy is deleted before all are approved.
func TestMissingAtTheStart(t *testing.T) {
	s := &shop{}
	a := shopkeeper(t, s, 0, onHub(nil))
	now := time.Now()
	a.guard = newGuard(DefaultGuard, func() time.Time { return now })
	a.state.complete.Store(false)
	remove := func(i int) {
		t.Helper()
		key := keyOf("secrets", strconv.Itoa(i))
		p := &desiredState{gone: true, cause: causeMissing}
		a.state.setDesired(key, p, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: a.member.Name, State: refractv1alpha1.StateSynced}}}, nil)
		have := member.Copy{UID: types.UID(key.Name), Source: sourceOf(theHub, "u", key.GroupResource, key.Namespace, key.Name)}
		if _, err := a.remove(t.Context(), key, p, false, have, member.Present); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		now = now.Add(guardSettles)
		remove(i)
	}
	a.state.complete.Store(true)
	for range 3 {
		remove(0)
		now = now.Add(guardSettles)
	}
	if message := message(a.guard); !strings.HasPrefix(message, "40 of 40 copies wait for approval of their deletion") || len(s.requests) > 0 {
		t.Errorf("want all deletions pending and none done, got %q and requests %v", message, s.requests)
	}
}

// TestRemove: the applier removes a copy that no longer belongs on the member. A requested deletion takes place at
// once. Any other deletion waits until all deletions are known and the guard allows it. The annotation orphan of its
// object turns the copy into a plain object.
func TestRemove(t *testing.T) {
	key := keyOf("configmaps", "web")
	gone := func(c cause) *desiredState { return &desiredState{gone: true, cause: c, of: "1"} }
	many := func(a *applier) { // Half of the copies were due for deletion earlier.
		for i := range 40 {
			held := keyOf("configmaps", strconv.Itoa(i))
			a.state.setDesired(held, gone(causePlacement), previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "m"}}}, nil)
			a.guard.undecided[held] = removal{Key: held, uid: types.UID(held.Name), cause: causePlacement}
		}
	}
	collected := func(a *applier) { // An earlier request announced the removal, and no further removal came.
		a.guard.undecided[key] = removal{key, "u-web", causePlacement, false}
		a.guard.changed = a.guard.now().Add(-guardSettles)
		a.guard.since = a.guard.changed
	}
	keep := func(o *metav1.PartialObjectMetadata) { o.Annotations[refractv1alpha1.KeepAnnotation] = "true" }
	const settled, remove, release = "report web after 100ms", "DELETE web", "PATCH web"
	type want struct {
		Sent   []string
		Status string
		Said   []string
		Again  time.Duration
		Tidy   []string // Namespaces that may be empty now.
		Copy   member.Lookup
		Asked  int // Removals that the guard has not judged yet.
		Passes int // Removals that the guard allows.
		Lost   int // Unrequested removals that were carried out.
	}
	cases := map[string]struct {
		reason string
		p      *desiredState
		copy   func(*metav1.PartialObjectMetadata)
		absent bool
		before func(*applier, *neighbours)
		refuse map[string]metav1.Status
		want   want
	}{
		"Deleted": {
			reason: "A user deleted the object by a call.", p: gone(causeDeleted),
			want: want{Sent: []string{remove}, Status: "Deleting SourceGone", Tidy: []string{"m shop"}, Copy: member.Present, Said: []string{"report web later"}},
		},
		"DeletedAndAllIsJudged": {
			reason: "The guard is configured to judge requested deletions, too.", p: gone(causeDeleted), before: func(a *applier, _ *neighbours) { a.guard.all = true },
			want: want{Status: "Deleting SourceGone", Again: guardSettles, Copy: member.Present, Asked: 1, Said: []string{"report web later"}},
		},
		"NotPlaced": {
			reason: "The deletion was not requested, and more may follow.", p: &desiredState{},
			want: want{Status: "Deleting NoLongerPlaced", Again: guardSettles, Copy: member.Present, Asked: 1, Said: []string{settled}},
		},
		"NotPlacedAndNothingElse": {
			reason: "A single deletion is allowed, and counts as a loss.", p: &desiredState{}, before: func(a *applier, _ *neighbours) { collected(a) },
			want: want{Sent: []string{remove}, Status: "Deleting NoLongerPlaced", Tidy: []string{"m shop"}, Copy: member.Present, Lost: 1, Said: []string{settled}},
		},
		"Incomplete": {
			reason: "Not all objects are decided, so no time passes for the guard.", p: &desiredState{}, before: func(a *applier, _ *neighbours) {
				collected(a)
				a.state.complete.Store(false)
			},
			want: want{Status: "Deleting NoLongerPlaced", Again: guardSettles, Copy: member.Present, Asked: 1, Said: []string{settled}},
		},
		"Much": {
			reason: "The deletion waits for approval. The status of the cluster shows that.", p: &desiredState{}, before: func(a *applier, _ *neighbours) {
				many(a)
				collected(a)
			},
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"Approved": {
			reason: "A user has approved the deletion, so it is no loss.", p: &desiredState{}, before: func(a *applier, e *neighbours) {
				a.guard.pending.add(removal{key, "u-web", causePlacement, false})
				e.approved = token(t, a.guard)
			},
			want: want{Sent: []string{remove}, Status: "Deleting NoLongerPlaced", Tidy: []string{"m shop"}, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"Leaves": {
			reason: "The cluster is leaving the fleet, whatever the desired state of the object is.", p: &desiredState{blocked: reasonPolicyNotFound}, before: func(a *applier, e *neighbours) {
				e.leaves = true
				collected(a)
				a.guard.undecided[key] = removal{key, "u-web", causeLeaves, false}
			},
			want: want{Sent: []string{remove}, Status: "Deleting ClusterLeaves", Tidy: []string{"m shop"}, Copy: member.Present, Lost: 1, Said: []string{settled}},
		},
		"LeavesAndTriedOut": {
			reason: "A dry run of a user does not keep the cluster in the fleet.", p: &desiredState{dryRun: true}, copy: keep, before: func(_ *applier, e *neighbours) {
				e.leaves, e.releases = true, true
			},
			want: want{Sent: []string{release}, Status: "none", Copy: member.Absent, Said: []string{settled}},
		},
		"TriedOut": {
			reason: "Nothing is removed in a dry run.", p: &desiredState{dryRun: true}, before: func(a *applier, _ *neighbours) { collected(a) },
			want: want{Status: "Pending DryRun", Copy: member.Present, Said: []string{settled}},
		},
		"Refused": {
			reason: "The deletion failed. It is judged and tried again.", p: &desiredState{}, before: func(a *applier, _ *neighbours) { collected(a) },
			refuse: map[string]metav1.Status{http.MethodDelete: {Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}},
			want:   want{Sent: []string{remove}, Status: "Deleting DeletionFailed", Again: firstRetry, Copy: member.Present, Said: []string{settled}},
		},
		"GoneMeanwhile": {
			reason: "The copy does not exist, whatever a watch has reported.", p: gone(causeDeleted),
			refuse: map[string]metav1.Status{http.MethodDelete: {Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}},
			want:   want{Sent: []string{remove}, Status: "none", Tidy: []string{"m shop"}, Copy: member.Absent, Said: []string{settled}},
		},
		"Going": {
			reason: "The copy has finalizers. The watch will report its end.", p: gone(causeDeleted), copy: func(o *metav1.PartialObjectMetadata) {
				now := metav1.Now()
				o.DeletionTimestamp = &now
			},
			want: want{Status: "Deleting SourceGone", Copy: member.Present, Said: []string{"report web later"}},
		},
		"Orphaned": {
			reason: "The object has the annotation orphan.", p: gone(causeDeleted), copy: func(o *metav1.PartialObjectMetadata) {
				o.Annotations[refractv1alpha1.OrphanAnnotation] = placement.OrphanAll
			},
			want: want{Sent: []string{release}, Status: "none", Copy: member.Absent, Said: []string{settled}},
		},
		"Kept": {
			reason: "The annotation of its object protects the copy: it waits, although it is only one.", p: &desiredState{}, copy: keep,
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"KeptByKind": {
			reason: "An administrator protects all copies of the kind.", p: &desiredState{}, before: func(a *applier, _ *neighbours) {
				a.keptKinds = KeptKinds{{group: key.Group, names: []string{key.Resource}}}
			},
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"KeptAndDeleted": {
			reason: "A user deleted exactly this object.", p: gone(causeDeleted), copy: keep,
			want: want{Sent: []string{remove}, Status: "Deleting SourceGone", Tidy: []string{"m shop"}, Copy: member.Present, Said: []string{"report web later"}},
		},
		"KeptAndLeaderDeleted": {
			reason: "A user deleted the leader (the object that it travelled with).", p: gone(causeLeader), copy: keep,
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{"report web later", "pend m"}},
		},
		"LeaderDeleted": {
			reason: "A user deleted the leader, and no protection applies.", p: gone(causeLeader),
			want: want{Sent: []string{remove}, Status: "Deleting SourceGone", Tidy: []string{"m shop"}, Copy: member.Present, Said: []string{"report web later"}},
		},
		"KeptAndIncomplete": {
			reason: "The copy waits alone.", p: &desiredState{}, copy: keep, before: func(a *applier, _ *neighbours) { a.state.complete.Store(false) },
			want: want{Status: "Deleting NoLongerPlaced", Again: guardSettles, Copy: member.Present, Said: []string{settled}},
		},
		"KeptAndAllowedBefore": {
			reason: "The copy may have been protected after the guard allowed its deletion.", p: &desiredState{}, copy: keep, before: func(a *applier, _ *neighbours) {
				a.guard.allowed[key] = removal{key, "u-web", causePlacement, false}
			},
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"KeptAndApproved": {
			reason: "A user has approved the deletion.", p: &desiredState{}, copy: keep, before: func(a *applier, e *neighbours) {
				a.guard.pending.add(removal{key, "u-web", causePlacement, true})
				e.approved = token(t, a.guard)
			},
			want: want{Sent: []string{remove}, Status: "Deleting NoLongerPlaced", Tidy: []string{"m shop"}, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"AnotherWasApproved": {
			reason: "An approval is for a copy, not for its name.", p: &desiredState{}, copy: keep, before: func(a *applier, _ *neighbours) {
				a.guard.approved[key] = "u-other"
			},
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Passes: 1, Said: []string{settled, "pend m"}},
		},
		"KeptAndLeaves": {
			reason: "The cluster leaves, and the copy waits as well.", p: &desiredState{}, copy: keep, before: func(_ *applier, e *neighbours) { e.leaves = true },
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"KeptAndReleased": {
			reason: "The cluster leaves, and keeps the protected copy.", p: &desiredState{}, copy: keep, before: func(_ *applier, e *neighbours) {
				e.leaves, e.releases = true, true
			},
			want: want{Sent: []string{release}, Status: "none", Copy: member.Absent, Said: []string{settled}},
		},
		"KeptAndStays": {
			reason: "The setting is for leaving clusters.", p: &desiredState{}, copy: keep, before: func(_ *applier, e *neighbours) { e.releases = true },
			want: want{Status: "Deleting AwaitingApproval", Again: lastRetry, Copy: member.Present, Said: []string{settled, "pend m"}},
		},
		"DeletedBeforeRestart": {
			reason: "A user deleted the object by a call, before a restart.", p: &desiredState{gone: true, cause: causeDeleted, of: "1"},
			want: want{Sent: []string{remove}, Status: "Deleting SourceGone", Tidy: []string{"m shop"}, Copy: member.Present, Said: []string{"report web later"}},
		},
		"AnotherDeleted": {
			reason: "The copy belongs to another object of the name, as after a restore: its deletion was not requested.",
			p:      &desiredState{gone: true, cause: causeDeleted, of: "0"},
			want:   want{Status: "Deleting SourceGone", Again: guardSettles, Copy: member.Present, Asked: 1, Said: []string{"report web later"}},
		},
		"AnotherHubs": {
			reason: "The object on the member is no copy of this hub.", p: gone(causeDeleted), copy: func(o *metav1.PartialObjectMetadata) {
				o.Annotations[refractv1alpha1.SourceAnnotation] = "other-hub/1/configmaps/shop/web"
			},
			want: want{Status: "none", Copy: member.Present, Said: []string{settled}},
		},
		"NotThere": {
			reason: "There is no copy, and nothing to judge.", p: &desiredState{}, absent: true, before: func(a *applier, _ *neighbours) { collected(a) },
			want: want{Status: "none", Copy: member.Absent, Said: []string{settled}},
		},
		"HeldAndWent": {
			reason: "The deletion is no longer pending. The cluster shows that.", p: &desiredState{}, absent: true, before: func(a *applier, _ *neighbours) {
				a.guard.pending.add(removal{key, "u-web", causePlacement, false})
				a.guard.show()
			},
			want: want{Status: "none", Copy: member.Absent, Said: []string{settled, "pend m"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			if !tc.absent {
				o := d.copyOf("web", "h")
				if tc.copy != nil {
					tc.copy(o)
				}
				d.put(o)
			}
			a, e := applierOf(t, d, LeastEmpty)
			now := time.Now()
			a.guard = newGuard(DefaultGuard, func() time.Time { return now })
			a.state.setDesired(key, tc.p, previous{uid: "1", statuses: []refractv1alpha1.ClusterStatus{{Name: "m", State: refractv1alpha1.StateSynced}}}, nil)
			if tc.before != nil {
				tc.before(a, e)
			}
			d.change(func() { d.refuse = tc.refuse })
			a.namespaces.queue.queue = queue[string]{}
			result, err := a.applyOne(t.Context(), key)
			if err != nil {
				t.Fatalf("%s\napplyOne(): %v", tc.reason, err)
			}
			_, found := a.member.Copies.Get(key)
			got := want{
				Sent: d.sent(), Status: statusOf(a.state, key), Said: e.said, Again: result.RequeueAfter, Copy: found,
				Asked: len(a.guard.undecided), Passes: len(a.guard.allowed) + len(a.guard.approved), Lost: len(a.guard.lost),
			}
			for _, text := range waitingIn("m", a.namespaces.queue) {
				name, _, _ := strings.Cut(text, ": ") // The text ends with the delay, which is two seconds or slightly less.
				got.Tidy = append(got.Tidy, name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\napplyOne(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
