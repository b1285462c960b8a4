package propagation

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/revision"
)

// TestRevertIsRefused: a cluster that does not take back what was good still has the change. The record says so, and is Reverted only when
// the cluster has it.
func TestRevertIsRefused(t *testing.T) {
	key := keyOf("configmaps", "web")
	for reason, want := range map[string]refractv1alpha1.RolloutPhase{
		reasonRejected:       refractv1alpha1.RolloutStalled,
		reasonOverrideFailed: refractv1alpha1.RolloutStalled,
		reasonWebhookFailed:  refractv1alpha1.RolloutStalled,
		reasonWriteFailed:    refractv1alpha1.RolloutReverting, // It is over soon.
		reasonUnreachable:    refractv1alpha1.RolloutReverting,
	} {
		t.Run(reason, func(t *testing.T) {
			obj := governedObject("new")
			part, err := revision.ObjectPart(obj)
			if err != nil {
				t.Fatal(err)
			}
			good, err := revision.ObjectPart(governedObject("good"))
			if err != nil {
				t.Fatal(err)
			}
			r := recordOn("1", refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced}, refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced})
			r.Status.Rollout = &refractv1alpha1.RolloutStatus{
				UID: "1", Attempt: 1, Phase: refractv1alpha1.RolloutReverting, Target: revision.Of(part.Name, 0, nil), LastGood: revision.Of(good.Name, 0, nil),
				Reverting: []string{"eu-1"}, Failed: []refractv1alpha1.FailedCluster{{Name: "eu-1", Message: "it is not ready"}},
			}
			s, _ := hubOf(t, obj)
			c := station(t, s, &replica{leads: true, owned: []string{"eu-1", "us-1"}}, interceptor.Funcs{}, r)
			duplicated(c)
			canaryOn(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			if err := c.reporter.revisions.store(t.Context(), types.NamespacedName{Namespace: "shop", Name: good.Name}, &good, false); err != nil {
				t.Fatal(err)
			}
			see(t, c, key)
			look := func(is clusterStatus) *refractv1alpha1.RolloutStatus {
				t.Helper()
				if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
					t.Fatal(err)
				}
				p := c.state.desired(key)
				is.seq = p.seq
				c.state.report(key, "eu-1", is)
				c.state.report(key, "us-1", clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: p.targets["us-1"].variant.hash})
				if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				see(t, c, key)
				k, _ := c.reporter.records.get(key)
				return k.rollout
			}
			is := look(clusterStatus{state: refractv1alpha1.StateFailed, reason: reason, message: "no more pods", hash: "bad"})
			if is.Phase != want || !strings.Contains(is.Message, "eu-1") || want == refractv1alpha1.RolloutStalled && !strings.Contains(is.Message, "no more pods") {
				t.Errorf("want %s, got %s: %s", want, is.Phase, is.Message)
			}
			is = look(clusterStatus{state: refractv1alpha1.StateSynced, hash: c.state.desired(key).targets["eu-1"].variant.hash})
			if is.Phase != refractv1alpha1.RolloutReverted {
				t.Errorf("want it to go on when the cluster takes it, got %s: %s", is.Phase, is.Message)
			}
		})
	}
}
