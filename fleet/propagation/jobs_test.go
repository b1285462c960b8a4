package propagation

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

func TestLastRun(t *testing.T) {
	const now, before = types.UID("now"), types.UID("before")
	at := metav1.NewTime(time.Unix(1_772_600_767, 0).UTC())
	ended := member.Ended(at.Unix())
	running := &refractv1alpha1.RunStatus{Source: now}
	complete := &refractv1alpha1.RunStatus{Source: now, Outcome: "Complete", Time: &at}
	failed := &refractv1alpha1.RunStatus{Source: now, Outcome: "Failed", Time: &at}
	unknown := &refractv1alpha1.RunStatus{Source: now, Outcome: "Unknown"}
	type vanished = member.Vanished
	cases := map[string]struct {
		reason  string
		before  *refractv1alpha1.RunStatus
		last    *vanished // Nil if the last state is unknown.
		expires bool
		want    *refractv1alpha1.RunStatus // Nil if the Job is to run.
	}{
		"New":               {"The Job has never run.", nil, nil, true, nil},
		"OtherUID":          {"A Job that was recreated on the hub runs again.", &refractv1alpha1.RunStatus{Source: before, Outcome: "Complete", Time: &at}, nil, true, nil},
		"Ended":             {"The cluster has removed the Job.", running, &vanished{Ended: ended, Seen: true}, true, complete},
		"EndedUnseen":       {"A list shows that the Job is gone. It had ended.", running, &vanished{Ended: ended}, true, complete},
		"EndedWithoutTTL":   {"A user has removed a Job that had ended.", running, &vanished{Ended: ended, Seen: true}, false, complete},
		"Failed":            {"A Job that failed has run, too.", running, &vanished{Ended: -ended, Seen: true}, true, failed},
		"EndedUnreported":   {"The Job ended before anything was reported.", nil, &vanished{Ended: ended, Seen: true}, true, complete},
		"Deleted":           {"A user has deleted the running Job.", running, &vanished{Seen: true}, true, nil},
		"DeletedWithoutTTL": {"The same.", running, &vanished{Seen: true}, false, nil},
		"Unseen":            {"The Job may have ended: a second run is worse than none.", running, &vanished{}, true, unknown},
		"UnseenWithoutTTL":  {"Without a TTL, a cluster does not remove a Job by itself.", running, &vanished{}, false, nil},
		"UnseenUnreported":  {"The Job existed, but was not reported yet.", nil, &vanished{}, true, unknown},
		"Restart":           {"The Propagation has the outcome.", complete, nil, true, complete},
		"RestartUnseen":     {"The Job disappeared while the controllers were down.", running, nil, true, unknown},
		"RestartDeleted":    {"Without a TTL, a user has deleted the Job.", running, nil, false, nil},
		"StaysUnknown":      {"There is no new evidence.", unknown, nil, true, unknown},
		"KnownLate":         {"The event shows more than the read before it.", unknown, &vanished{Ended: ended, Seen: true}, true, complete},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var last vanished
			if tc.last != nil {
				last = *tc.last
			}
			got := lastRun(tc.before, now, last, tc.last != nil, tc.expires)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nlastRun(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRerun: the copy of an earlier Job is deleted so that the new Job of its name runs, unless the deletion would lose
// data: the earlier Job may have been deleted with its namespace, which is unknown by now.
func TestRerun(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		copy     member.Copy
		p        desiredState
		kinds    []string
		all      bool
		approved bool
		want     string
		sent     bool
	}{
		"Plain":    {reason: "A user deleted the Job on the hub and created it again.", want: "Pending BeingDeleted", sent: true},
		"Marked":   {reason: "The earlier Job had the annotation keep.", copy: member.Copy{Keep: true}, want: "Pending AwaitingApproval"},
		"ByObject": {reason: "The copy does not show the annotation yet.", p: desiredState{keeping: placement.Keeping{Keep: true}}, want: "Pending AwaitingApproval"},
		"ByKind":   {reason: "--keep-kinds protects the kind.", kinds: []string{"ConfigMap"}, want: "Pending AwaitingApproval"},
		"Approved": {reason: "A user has approved the deletion.", copy: member.Copy{Keep: true}, approved: true, want: "Pending BeingDeleted", sent: true},
		"All":      {reason: "The guard judges all deletions. It waits for others first.", all: true, want: "Pending BeingDeleted"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			d.put(d.copyOf("load", "h"))
			a, _ := applierOf(t, d, 0)
			var err error
			if a.keptKinds, err = ParseKeptKinds(tc.kinds); err != nil {
				t.Fatal(err)
			}
			key := keyOf("configmaps", "load") // The member of this test serves no Jobs.
			a.state.setDesired(key, &tc.p, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: a.member.Name, State: refractv1alpha1.StateSynced}}}, nil)
			a.guard.all = tc.all
			if tc.approved {
				a.guard.approved[key] = "u-load"
			}
			tc.copy.UID = "u-load"
			if _, err := a.rerun(t.Context(), key, &tc.p, tc.copy); err != nil {
				t.Fatal(err)
			}
			if got := statusOf(a.state, key); got != tc.want {
				t.Errorf("%s\nrerun(): want %q, got %q", tc.reason, tc.want, got)
			}
			if got := d.sent(); slices.Contains(got, "DELETE load") != tc.sent {
				t.Errorf("%s\nrerun(): want the copy deleted: %t, got requests %v", tc.reason, tc.sent, got)
			}
		})
	}
}
