package propagation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
)

// TestFollowerFound: a follower keeps the content that it was found with until the wave of its cluster, like its
// leader, the object that it travels with. The leader also waits on a cluster where the follower was found with other
// content.
func TestFollowerFound(t *testing.T) {
	web, key := keyOf("deployments", "web"), keyOf("configmaps", "settings")
	follower := refractv1alpha1.FollowerRevision{Resource: "configmaps", Name: "settings", Object: "s-2"}
	from := func(phase refractv1alpha1.RolloutPhase, attempt int32, current ...refractv1alpha1.ReleasedCluster) *refractv1alpha1.RolloutStatus {
		return &refractv1alpha1.RolloutStatus{
			Phase: phase, Attempt: attempt, Target: ledRevision("new", "web-2", follower), LastGood: revisionNamed(rollout.Found), Current: current,
		}
	}
	away := from(refractv1alpha1.RolloutComplete, 0)
	away.LastGood, away.Superseded, away.OnSuperseded = away.Target, &refractv1alpha1.Revision{Name: rollout.Found}, []string{"m"}
	for name, tc := range map[string]struct {
		reason  string
		from    *refractv1alpha1.RolloutStatus
		content string // Of the existing copy; empty if it does not exist, "newest" for the newest content.
		want    string
		keeps   bool
	}{
		"NoRecord":      {"Nothing is written before the rollout of the leader is recorded.", nil, "", "Pending AwaitsRollout", false},
		"NoRecordOther": {"An existing copy is not overwritten either.", nil, "old", "Pending KeepsContent", true},
		"Unbegun":       {"The contents are being determined.", from(refractv1alpha1.RolloutWaiting, 0), "old", "Pending KeepsContent", true},
		"Lost":          {"The former content is stored nowhere.", from(refractv1alpha1.RolloutProgressing, 1), "", "Pending AwaitsRollout", false},
		"Begun":         {"The turn of the cluster has not come.", from(refractv1alpha1.RolloutProgressing, 1), "old", "Pending KeepsContent", true},
		"Same":          {"The newest content is untried there.", from(refractv1alpha1.RolloutWaiting, 0), "newest", "Pending AwaitsRollout", false},
		"Away":          {"The cluster was unreachable when the contents were determined.", away, "old", "Pending KeepsContent", true},
		"Turn":          {"The turn of the cluster has come.", from(refractv1alpha1.RolloutProgressing, 1, refractv1alpha1.ReleasedCluster{Name: "m"}), "old", "Synced PATCH settings", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			a, _ := applierOf(t, d, 0)
			p := wanted(t, "settings", "m")
			p.governed = &governance{led: &led{by: web, from: tc.from}, target: revision.Of("s-2", 0, nil)}
			if tc.from != nil {
				p.governed.recorded = rolloutOf(p.governed.led, key, &p.governed.target)
			}
			var there *metav1.PartialObjectMetadata
			switch tc.content {
			case "":
			case "newest":
				there = d.copyOf("settings", p.targets["m"].variant.hash)
			default:
				there = d.copyOf("settings", tc.content)
			}
			if there != nil {
				d.put(there)
				d.tell(t, a.member, key)
			}
			was := previous{uid: "1"}
			if name == "Turn" { // The cluster has already reported the content that it keeps.
				was.placed, was.statuses = on("m"), []refractv1alpha1.ClusterStatus{{Name: "m", Reason: reasonKeepsContent, Hash: tc.content}}
				p.governed.placed = was.placed
			}
			a.state.setDesired(key, p, was, nil)
			if _, err := a.applyOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			r, _ := a.state.clusterStatus(key, "m")
			got := strings.Join(strings.Fields(string(r.state)+" "+r.reason+" "+strings.Join(d.sent(), ", ")), " ")
			if got != tc.want {
				t.Errorf("%s\nwant %q, got %q: %s", tc.reason, tc.want, got, r.message)
			}
			rep := &reporter{state: a.state}
			row := refractv1alpha1.ClusterStatus{Name: "m", State: r.state, Reason: r.reason, Hash: r.hash}
			c := rollout.Cluster{Cluster: match.Cluster{Name: "m"}}
			rep.find(&c, p, &row, map[string]clusterStatus{"m": r})
			if c.Keeps != tc.keeps || c.Unseen {
				t.Errorf("%s\nwant the leader to see that the copy is kept: %t, got %t; unseen %t", tc.reason, tc.keeps, c.Keeps, c.Unseen)
			}
		})
	}
}
