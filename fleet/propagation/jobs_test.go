package propagation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
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
		"New":               {"It has never run.", nil, nil, true, nil},
		"OtherUID":          {"A Job that was made again on the hub runs again.", &refractv1alpha1.RunStatus{Source: before, Outcome: "Complete", Time: &at}, nil, true, nil},
		"Ended":             {"The cluster has removed it.", running, &vanished{Ended: ended, Seen: true}, true, complete},
		"EndedUnseen":       {"A list shows that it is gone, and it had ended.", running, &vanished{Ended: ended}, true, complete},
		"EndedWithoutTTL":   {"A user has removed a Job that was over.", running, &vanished{Ended: ended, Seen: true}, false, complete},
		"Failed":            {"A Job that failed has run, too.", running, &vanished{Ended: -ended, Seen: true}, true, failed},
		"EndedUnreported":   {"It ended before anything was reported.", nil, &vanished{Ended: ended, Seen: true}, true, complete},
		"Deleted":           {"A user has deleted it while it ran.", running, &vanished{Seen: true}, true, nil},
		"DeletedWithoutTTL": {"The same.", running, &vanished{Seen: true}, false, nil},
		"Unseen":            {"It may have ended: to run twice is worse than not at all.", running, &vanished{}, true, unknown},
		"UnseenWithoutTTL":  {"Clusters do not remove it by themselves.", running, &vanished{}, false, nil},
		"UnseenUnreported":  {"Nothing was reported yet, and it was there.", nil, &vanished{}, true, unknown},
		"Restart":           {"The record says how it ended.", complete, nil, true, complete},
		"RestartUnseen":     {"It went while the controllers were away.", running, nil, true, unknown},
		"RestartDeleted":    {"Without a TTL it was a user.", running, nil, false, nil},
		"StaysUnknown":      {"Nothing new is known.", unknown, nil, true, unknown},
		"KnownLate":         {"The event tells more than the read before it.", unknown, &vanished{Ended: ended, Seen: true}, true, complete},
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
