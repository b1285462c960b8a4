package propagation

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/revision"
)

// TestRevertIsRefused: a cluster that rejects the last good content still has the change. The Propagation says so, and
// the rollout is Reverted only when the cluster has the former content.
func TestRevertIsRefused(t *testing.T) {
	key := keyOf("configmaps", "web")
	for reason, want := range map[string]refractv1alpha1.RolloutPhase{
		reasonRejected:       refractv1alpha1.RolloutStalled,
		reasonOverrideFailed: refractv1alpha1.RolloutStalled,
		reasonWebhookFailed:  refractv1alpha1.RolloutStalled,
		reasonWriteFailed:    refractv1alpha1.RolloutReverting, // A temporary failure.
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
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, r)
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
				t.Errorf("want the rollout to go on when the cluster accepts the content, got %s: %s", is.Phase, is.Message)
			}
		})
	}
}

// obeysCanary returns the policy of [canaryOn] as a Propagation names it.
func obeysCanary() refractv1alpha1.ObeyedPolicy {
	return refractv1alpha1.ObeyedPolicy{
		PolicyReference: refractv1alpha1.PolicyReference{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: "shop", Name: "careful", Generation: 1}, UID: "c",
	}
}

// TestRefusalStays: a Propagation names the revision that a cluster has refused until the cluster has another result or
// the decision changes. If each decision cleared the refusal until the applier has tried again, the Propagation would
// be written twice for each decision, forever.
func TestRefusalStays(t *testing.T) {
	key := keyOf("configmaps", "web")
	obj := governedObject("new")
	target, err := revision.ObjectPart(obj)
	if err != nil {
		t.Fatal(err)
	}
	good, err := revision.ObjectPart(governedObject("good"))
	if err != nil {
		t.Fatal(err)
	}
	targetName, goodName := revision.Of(target.Name, 0, nil).Name, revision.Of(good.Name, 0, nil).Name
	unserved := clusterStatus{state: refractv1alpha1.StateFailed, reason: reasonTypeNotServed, message: "it does not serve configmaps"}
	rejected := clusterStatus{state: refractv1alpha1.StateFailed, reason: reasonRejected, message: "no more pods"}
	unreachable := clusterStatus{state: refractv1alpha1.StateFailed, reason: reasonUnreachable, message: "no answer"}
	obeyed := []refractv1alpha1.ObeyedPolicy{obeysCanary()}
	type step struct {
		reason  string
		is      *clusterStatus // The new result on eu-1 since the last step; nil if no write was tried.
		decides bool           // Whether the object is decided again before this result.
		phase   refractv1alpha1.RolloutPhase
		row     string // The revision that eu-1 has refused according to the Propagation.
		writes  int
	}
	again := step{"Nothing has changed, and there was no other attempt.", nil, true, refractv1alpha1.RolloutStalled, goodName, 0}
	tried := step{"The content is refused as before.", &unserved, false, refractv1alpha1.RolloutStalled, goodName, 0}
	for name, tc := range map[string]struct {
		reason string
		phase  refractv1alpha1.RolloutPhase
		was    refractv1alpha1.ClusterStatus // The row of eu-1 before a restart.
		steps  []step
	}{
		"Decided": {"Each decision is the same.", refractv1alpha1.RolloutReverting, refractv1alpha1.ClusterStatus{State: refractv1alpha1.StateSynced}, []step{
			{"The content is refused.", &unserved, true, refractv1alpha1.RolloutStalled, goodName, 1}, again, tried, again, tried,
		}},
		"Restart": {"The former process has tried.", refractv1alpha1.RolloutStalled, refractv1alpha1.ClusterStatus{
			State: refractv1alpha1.StateFailed, Reason: reasonTypeNotServed, Message: unserved.message, Hash: "bad", Revision: goodName,
		}, []step{{"There was no other attempt.", nil, true, refractv1alpha1.RolloutStalled, goodName, 1}, again}},
		"Other": {"The content of the revert is not the refused one.", refractv1alpha1.RolloutReverting, refractv1alpha1.ClusterStatus{
			State: refractv1alpha1.StateFailed, Reason: reasonRejected, Message: "no more pods", Hash: "bad", Revision: targetName,
		}, []step{
			{"The revert has not been tried yet.", nil, true, refractv1alpha1.RolloutReverting, "", 1},
			{"The revert is refused as well.", &unserved, true, refractv1alpha1.RolloutStalled, goodName, 1}, again, tried,
		}},
		"Attempt": {"A new attempt is not refused before it was made.", refractv1alpha1.RolloutProgressing, refractv1alpha1.ClusterStatus{State: refractv1alpha1.StateSynced}, []step{
			{"The change is refused, and a changed policy starts a new attempt.", &rejected, true, refractv1alpha1.RolloutProgressing, "", 1},
			{"The new attempt is due.", nil, true, refractv1alpha1.RolloutProgressing, "", 0},
			{"The change is refused again.", &rejected, false, refractv1alpha1.RolloutHalted, targetName, 1},
			{"The refusal has halted the rollout.", nil, true, refractv1alpha1.RolloutHalted, targetName, 0},
		}},
		"Unreachable": {"The answer of the cluster is unknown.", refractv1alpha1.RolloutReverting, refractv1alpha1.ClusterStatus{State: refractv1alpha1.StateSynced}, []step{
			{"The content is refused.", &unserved, true, refractv1alpha1.RolloutStalled, goodName, 1},
			{"The cluster does not answer.", &unreachable, true, refractv1alpha1.RolloutStalled, "", 1},
			{"The cluster still does not answer.", nil, true, refractv1alpha1.RolloutStalled, "", 0},
		}},
		"Taken": {"The refusal is over.", refractv1alpha1.RolloutReverting, refractv1alpha1.ClusterStatus{State: refractv1alpha1.StateSynced}, []step{
			{"The content is refused.", &unserved, true, refractv1alpha1.RolloutStalled, goodName, 1}, again, tried,
			{"The cluster has the content.", &clusterStatus{state: refractv1alpha1.StateSynced}, false, refractv1alpha1.RolloutReverted, "", 1},
			{"The cluster still has the content.", nil, true, refractv1alpha1.RolloutReverted, "", 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.was.Name = "eu-1"
			r := recordOn("1", tc.was, refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced})
			r.Status.Rollout = &refractv1alpha1.RolloutStatus{
				UID: "1", Attempt: 1, Phase: tc.phase, Target: revision.Of(target.Name, 0, nil), LastGood: revision.Of(good.Name, 0, nil),
			}
			if tc.phase != refractv1alpha1.RolloutProgressing {
				r.Status.Rollout.Policies = obeyed
				r.Status.Rollout.Reverting, r.Status.Rollout.Failed = []string{"eu-1"}, []refractv1alpha1.FailedCluster{{Name: "eu-1", Message: "it is not ready"}}
			} else {
				r.Status.Rollout.Opened, r.Status.Rollout.Current = 1, []refractv1alpha1.ReleasedCluster{{Name: "eu-1"}}
			}
			s, _ := hubOf(t, obj)
			writes := 0
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{SubResourceUpdate: func(
				ctx context.Context, c client.Client, sub string, obj client.Object, o ...client.SubResourceUpdateOption,
			) error {
				if _, is := obj.(*refractv1alpha1.Propagation); is {
					writes++
				}
				return c.SubResource(sub).Update(ctx, obj, o...)
			}}, r)
			duplicated(c)
			canaryOn(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			if err := c.reporter.revisions.store(t.Context(), types.NamespacedName{Namespace: "shop", Name: good.Name}, &good, false); err != nil {
				t.Fatal(err)
			}
			before := newRecord(true)
			if err := c.reporter.live.Get(t.Context(), client.ObjectKeyFromObject(r), before.Object); err != nil {
				t.Fatal(err)
			}
			c.reporter.records.update(before, firstListed)
			for i, step := range tc.steps {
				if step.decides {
					if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
						t.Fatal(err)
					}
				}
				p := c.state.desired(key)
				if step.is != nil {
					is := *step.is
					is.seq, is.hash = p.seq, "bad"
					if is.state == refractv1alpha1.StateSynced {
						is.hash = p.targets["eu-1"].variant.hash
					}
					c.state.report(key, "eu-1", is)
				}
				c.state.report(key, "us-1", clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: p.targets["us-1"].variant.hash})
				writes = 0
				if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				see(t, c, key)
				rec := newRecord(true)
				if err := c.reporter.live.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, rec.Object); err != nil {
					t.Fatal(err)
				}
				rec.status.Expand()
				got := step
				got.phase, got.row, got.writes = rec.status.Rollout.Phase, rec.status.Clusters[0].Revision, writes
				if got != step {
					t.Errorf("%s\nstep %d: %s\nwant %s, refused %q, %d writes; got %s, refused %q, %d writes (%s)", tc.reason, i, step.reason,
						step.phase, step.row, step.writes, got.phase, got.row, got.writes, rec.status.Rollout.Message)
				}
			}
		})
	}
}

// TestTriedAgain: a user who resumes a halted rollout has fixed the cause. The former refusal does not halt the rollout
// again, because the write has not been tried again yet.
func TestTriedAgain(t *testing.T) {
	key := keyOf("configmaps", "web")
	obj := governedObject("new")
	part, err := revision.ObjectPart(obj)
	if err != nil {
		t.Fatal(err)
	}
	good, err := revision.ObjectPart(governedObject("good"))
	if err != nil {
		t.Fatal(err)
	}
	target := revision.Of(part.Name, 0, nil)
	eu := refractv1alpha1.ClusterStatus{
		Name: "eu-1", State: refractv1alpha1.StateFailed, Reason: reasonRejected, Message: "no more pods", Hash: "bad", Revision: target.Name,
	}
	r := recordOn("1", eu, refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced})
	r.Status.Rollout = &refractv1alpha1.RolloutStatus{
		UID: "1", Attempt: 1, Phase: refractv1alpha1.RolloutHalted, Target: target, LastGood: revision.Of(good.Name, 0, nil), Opened: 1,
		Policies: []refractv1alpha1.ObeyedPolicy{obeysCanary()}, Failed: []refractv1alpha1.FailedCluster{{Name: "eu-1", Message: "no more pods"}},
	}
	s, _ := hubOf(t, obj)
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, r)
	duplicated(c)
	canaryOn(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	if err := c.reporter.revisions.store(t.Context(), types.NamespacedName{Namespace: "shop", Name: good.Name}, &good, false); err != nil {
		t.Fatal(err)
	}
	read := func() record {
		t.Helper()
		is := newRecord(true)
		if err := c.reporter.live.Get(t.Context(), client.ObjectKeyFromObject(r), is.Object); err != nil {
			t.Fatal(err)
		}
		return is
	}
	refuses := false // Whether eu-1 has rejected the last write.
	look := func(want refractv1alpha1.RolloutPhase, refused string) (is record) {
		t.Helper()
		for range 2 { // The second decision uses the Propagation of the first.
			if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
				t.Fatal(err)
			}
			p := c.state.desired(key)
			c.state.report(key, "us-1", clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: p.targets["us-1"].variant.hash})
			if refuses {
				c.state.report(key, "eu-1", clusterStatus{seq: p.seq, state: eu.State, reason: eu.Reason, message: eu.Message})
			}
			if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			see(t, c, key)
			is = read()
			is.status.Expand()
			if got := is.status.Rollout; got.Phase != want || is.status.Clusters[0].Revision != refused {
				t.Errorf("want %s, and %q refused by eu-1, got %s, %q: %s", want, refused, got.Phase, is.status.Clusters[0].Revision, got.Message)
			}
		}
		return is
	}
	c.reporter.records.update(read(), firstListed)
	is := look(refractv1alpha1.RolloutHalted, target.Name)
	again := read()
	again.SetAnnotations(map[string]string{refractv1alpha1.ResumeAnnotation: is.status.Rollout.Awaits})
	if err := c.reporter.client.Update(t.Context(), again.Object); err != nil {
		t.Fatal(err)
	}
	see(t, c, key)
	look(refractv1alpha1.RolloutProgressing, "")
	refuses = true
	look(refractv1alpha1.RolloutHalted, target.Name)
}

// TestUntried: refusals of an earlier attempt are not reported until the object is decided with the new attempt.
func TestUntried(t *testing.T) {
	at := func(attempt int32) *refractv1alpha1.RolloutStatus {
		return &refractv1alpha1.RolloutStatus{Attempt: attempt}
	}
	for name, tc := range map[string]struct {
		reason          string
		decided, record *refractv1alpha1.RolloutStatus
		want            string
	}{
		"Same":  {"The refusal belongs to this attempt.", at(2), at(2), "eu-1: x; us-1: x"},
		"Other": {"The refusal belongs to an earlier attempt.", at(1), at(2), "eu-1: ; us-1: "},
		"Led":   {"The object travels with another, whose rollout counts.", at(2), nil, "eu-1: x; us-1: x"},
	} {
		t.Run(name, func(t *testing.T) {
			rows := []refractv1alpha1.ClusterStatus{{Name: "eu-1", Revision: "x"}, {Name: "us-1", Revision: "x"}}
			p := &desiredState{governed: &governance{recorded: tc.decided}}
			p.untried(tc.record, rows)
			if got := "eu-1: " + rows[0].Revision + "; us-1: " + rows[1].Revision; got != tc.want {
				t.Errorf("%s\nwant %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}
