package rollout

import (
	"strings"
	"testing"
	"time"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// foundFleet is a fleet of three clusters: a canary, and two clusters that get a change after the canary.
type foundFleet struct {
	t      *testing.T
	in     *Input
	status *refractv1alpha1.RolloutStatus
}

func newFoundFleet(t *testing.T, action refractv1alpha1.FailureAction) *foundFleet {
	t.Helper()
	policy, errs := Compile(&refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{
		Waves:     []refractv1alpha1.RolloutWave{{Name: "canary", TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"a"}}, MinReadySeconds: 600}},
		OnFailure: &refractv1alpha1.RolloutOnFailure{Action: action},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	f := &foundFleet{t: t, in: &Input{Policy: policy, Target: revision(1), Now: start}}
	for _, name := range []string{"a", "b", "c"} {
		f.in.Clusters = append(f.in.Clusters, Cluster{Cluster: match.Cluster{Name: name}})
	}
	return f
}

// each changes the state of the clusters with these names.
func (f *foundFleet) each(names string, change func(*Cluster)) {
	for i := range f.in.Clusters {
		if strings.Contains(names, f.in.Clusters[i].Name) {
			change(&f.in.Clusters[i])
		}
	}
}

// want calls Next, and compares the phase and the assigned revision of each cluster: f for Found, g for the last good
// revision, t for the target.
func (f *foundFleet) want(phase refractv1alpha1.RolloutPhase, assigned string) {
	f.t.Helper()
	if f.status != nil && f.status.Target.Name != f.in.Target.Name {
		f.each("abc", func(c *Cluster) { c.Changes, c.Differs, c.Holds = true, true, true })
	}
	f.status, _ = Next(f.status, f.in)
	got := ""
	for i := range f.in.Clusters {
		c := &f.in.Clusters[i]
		is := Assigned(f.status, c.Name).Name
		switch is {
		case Found:
			got += "f"
		case f.status.Target.Name:
			got += "t"
		default:
			got += "g"
		}
		// The comparisons in the input depend on the assigned revision.
		c.Changes, c.Differs = f.status.LastGood.Name != f.status.Target.Name, is != f.status.Target.Name
		if is != Found {
			c.Keeps = false
		}
	}
	if f.status.Phase != phase || got != assigned {
		f.t.Fatalf("want %s and %s, got %s and %s: %s", phase, assigned, f.status.Phase, got, f.status.Message)
	}
}

func keeps(c *Cluster) { c.Unseen, c.Keeps = false, true }

func holds(c *Cluster) {
	c.Unseen, c.Keeps, c.Offline, c.Holds, c.Ready = false, false, false, true, true
}

func unseen(c *Cluster) { c.Unseen = true }

func offline(c *Cluster) { c.Offline = true }

// TestFound verifies that without a RolloutStatus, the contents of the clusters count as good, and that the newest
// content is rolled out from there.
func TestFound(t *testing.T) {
	const waiting, progressing, complete = refractv1alpha1.RolloutWaiting, refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutComplete
	t.Run("new", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.want(complete, "ttt")
	})
	t.Run("another content", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.each("abc", unseen)
		f.want(waiting, "fff")
		f.each("a", holds)
		f.want(waiting, "fff") // The contents of the others are unknown.
		f.each("bc", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff")
		f.each("a", holds)
		f.in.Now = f.in.Now.Add(599 * time.Second)
		f.want(progressing, "tff")
		f.in.Now = f.in.Now.Add(601 * time.Second)
		f.want(progressing, "ttt")
		f.each("bc", holds)
		f.want(complete, "ttt")
		if f.status.LastGood.Name != f.status.Target.Name {
			t.Errorf("want the target to be good, got %s", f.status.LastGood.Name)
		}
	})
	t.Run("an edit before the contents are read", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.each("abc", unseen)
		f.want(waiting, "fff")
		f.in.Target = revision(2)
		f.want(waiting, "fff")
		f.each("abc", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff")
	})
	t.Run("no cluster is reachable", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.each("abc", offline)
		f.want(waiting, "fff")
		f.each("abc", holds)
		f.want(complete, "ttt")
	})
	t.Run("a cluster returns with the same content", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.each("c", offline)
		f.want(complete, "ttf")
		f.each("c", func(c *Cluster) { c.Offline, c.Unseen = false, true })
		f.want(complete, "ttf")
		f.each("c", holds)
		f.want(complete, "ttt")
	})
	t.Run("a cluster returns with other content", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.each("ab", holds)
		f.each("c", offline)
		f.want(complete, "ttf")
		f.each("c", func(c *Cluster) { c.Offline, c.Keeps = false, true })
		f.want(progressing, "fff")
		f.want(progressing, "tff") // The canary must stay ready for a while.
	})
	t.Run("a cluster returns during the next change", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.each("c", offline)
		f.want(complete, "ttf")
		f.in.Target = revision(2)
		f.want(progressing, "tgf")
		f.each("c", func(c *Cluster) { c.Offline, c.Keeps = false, true })
		f.want(progressing, "tgf")
		f.each("c", holds)
		f.want(progressing, "tgg")
	})
	t.Run("held", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.status = Hold(nil, f.in.Target, f.in.Clusters, "no room")
		if !Unbegun(f.status) || f.status.Message != "no room" || f.status.Phase != waiting {
			t.Errorf("want the rollout to wait, got %+v", f.status)
		}
		f.want(complete, "ttt")
		f.in.Target = revision(2)
		f.status = Hold(f.status, f.in.Target, f.in.Clusters, "no room")
		if f.status.Phase != waiting || Assigned(f.status, "a").Name != revision(1).Name {
			t.Errorf("want no change on the clusters, got %+v", f.status)
		}
		f.want(progressing, "tgg")
	})
}

// TestStalled verifies the message about clusters whose former content is lost. Until a user acts, it names the
// clusters and the necessary action.
func TestStalled(t *testing.T) {
	const progressing, stalled = refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutStalled
	fails := func(c *Cluster) { c.Refused = "no such image" }
	t.Run("found", func(t *testing.T) {
		f := newFoundFleet(t, refractv1alpha1.ActionRevert)
		f.each("abc", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff")
		f.each("a", func(c *Cluster) { holds(c); fails(c) })
		f.want(refractv1alpha1.RolloutReverting, "fff")
		f.each("a", func(c *Cluster) { c.Refused = "" }) // The cluster still holds the newest content, instead of the content that was found on it.
		f.want(stalled, "fff")
		if !Stopped(f.status) || !strings.Contains(f.status.Message, "a keeps the change, as the content before it is not stored on the hub") || f.status.Awaits == "" {
			t.Errorf("want a message with the necessary action of the user, got %q", f.status.Message)
		}
		f.each("a", func(c *Cluster) { c.Holds = false })
		f.in.Target = revision(2)
		f.each("abc", keeps)
		f.want(progressing, "tff")
	})
	t.Run("refused", func(t *testing.T) {
		f := newFoundFleet(t, refractv1alpha1.ActionRevert)
		f.each("abc", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff")
		f.each("a", fails)
		f.want(refractv1alpha1.RolloutReverting, "fff")
		f.each("a", keeps)
		f.want(refractv1alpha1.RolloutReverted, "fff")
	})
	t.Run("not taken back", func(t *testing.T) {
		f := newFoundFleet(t, refractv1alpha1.ActionRevert)
		f.want(refractv1alpha1.RolloutComplete, "ttt")
		f.in.Target = revision(2)
		f.want(progressing, "tgg")
		f.each("a", fails)
		f.want(refractv1alpha1.RolloutReverting, "ggg")
		f.each("a", func(c *Cluster) { c.Holds, c.Refused = false, "" }) // The cluster tries again.
		f.want(refractv1alpha1.RolloutReverting, "ggg")
		f.each("a", func(c *Cluster) { c.Refused = "exceeded quota: pods" })
		f.want(stalled, "ggg")
		const want = "a rejects the content before the change, which is tried again: fix the cause: a: exceeded quota: pods"
		said := f.status.Message
		if !strings.Contains(said, want) || f.status.Awaits == "" {
			t.Errorf("want a message with the necessary action of the user, got %q", said)
		}
		f.each("a", func(c *Cluster) { c.Refused = "" }) // The content is tried again, as after each write of the RolloutStatus.
		f.want(stalled, "ggg")
		if f.status.Message != said || f.status.Awaits == "" {
			t.Errorf("want the message to stay until the result of the try is known, got %q", f.status.Message)
		}
		f.each("a", holds)
		f.want(refractv1alpha1.RolloutReverted, "ggg")
	})
	t.Run("cannot be reached", func(t *testing.T) {
		f := newFoundFleet(t, refractv1alpha1.ActionRevert)
		f.want(refractv1alpha1.RolloutComplete, "ttt")
		f.in.Target = revision(2)
		f.want(progressing, "tgg")
		f.each("a", fails)
		f.want(refractv1alpha1.RolloutReverting, "ggg")
		f.each("a", func(c *Cluster) { c.Offline, c.Holds, c.Refused = true, false, "" })
		f.want(refractv1alpha1.RolloutReverted, "ggg")
		if !strings.Contains(f.status.Message, "a gets back its previous content when it can be reached") {
			t.Errorf("want the cluster named, got %q", f.status.Message)
		}
		f.each("a", func(c *Cluster) { c.Offline = false })
		f.want(refractv1alpha1.RolloutReverting, "ggg")
		f.each("a", func(c *Cluster) { c.Refused = "no" })
		f.want(stalled, "ggg")
		f.each("a", holds)
		f.each("a", func(c *Cluster) { c.Refused = "" })
		f.want(refractv1alpha1.RolloutReverted, "ggg")
	})
	t.Run("the next change fails elsewhere", func(t *testing.T) {
		f := newFoundFleet(t, refractv1alpha1.ActionRevert)
		f.each("abc", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff")
		f.each("a", func(c *Cluster) { holds(c); fails(c) })
		f.want(refractv1alpha1.RolloutReverting, "fff")
		f.each("a", func(c *Cluster) { c.Refused, c.Keeps = "", true }) // The cluster holds a change that is no longer the newest.
		other := newFoundFleet(t, refractv1alpha1.ActionRevert).in.Policy
		other.levels[0][0].clusters, _ = match.CompileTarget(&corev1alpha1.TargetClusters{Clusters: []string{"b"}}, nil)
		f.in.Policy, f.in.Target = other, revision(2)
		f.want(progressing, "ftf")
		f.each("b", fails)
		f.want(refractv1alpha1.RolloutReverting, "fff")
		f.each("b", keeps)
		f.want(stalled, "fff")
		if !strings.Contains(f.status.Message, "a, b keep the change") {
			t.Errorf("want a named, which keeps the previous change, got %q", f.status.Message)
		}
	})
	t.Run("gone from the hub", func(t *testing.T) {
		f := newFoundFleet(t, refractv1alpha1.ActionRevert)
		f.want(refractv1alpha1.RolloutComplete, "ttt")
		f.in.Target = revision(2)
		f.want(progressing, "tgg")
		f.each("a", fails)
		f.want(refractv1alpha1.RolloutReverting, "ggg")
		f.each("a", func(c *Cluster) { c.Lost, c.Holds = true, false })
		f.want(stalled, "ggg")
		if !strings.Contains(f.status.Message, "a keeps the change") {
			t.Errorf("want the cluster named, got %q", f.status.Message)
		}
		f.each("a", func(c *Cluster) { holds(c); c.Lost, c.Refused = false, "" }) // The revision is stored again.
		f.want(refractv1alpha1.RolloutReverted, "ggg")
	})
}

// TestAnew verifies that the contents of the clusters count as good if the RolloutStatus can no longer be compared with
// the newest revision. Only a user can resume a stopped rollout, and no cluster gets the change before that.
func TestAnew(t *testing.T) {
	policy, errs := Compile(&refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{Waves: []refractv1alpha1.RolloutWave{
		{Name: "first", TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"a"}}},
	}}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for phase, stopped := range map[refractv1alpha1.RolloutPhase]bool{
		refractv1alpha1.RolloutComplete: false, refractv1alpha1.RolloutProgressing: false, refractv1alpha1.RolloutWaiting: false,
		refractv1alpha1.RolloutHalted: true, refractv1alpha1.RolloutReverting: true, refractv1alpha1.RolloutStalled: true, refractv1alpha1.RolloutReverted: true,
	} {
		t.Run(string(phase), func(t *testing.T) {
			was := &refractv1alpha1.RolloutStatus{
				Phase: phase, Attempt: 3, Opened: 2, Nonce: "before", Target: revision(8), LastGood: revision(7),
				Done: []string{"a"}, Failed: []refractv1alpha1.FailedCluster{{Name: "b", Message: "it is not ready"}},
			}
			s := Anew(was, revision(9), "nonce")
			in := &Input{Policy: policy, Target: revision(9), Nonce: "later", Now: time.Unix(0, 0)}
			for _, name := range []string{"a", "b"} {
				if r := Assigned(s, name); r.Name != Found {
					t.Errorf("want %s to keep its content, got %s", name, r.Name)
				}
				in.Clusters = append(in.Clusters, Cluster{Cluster: match.Cluster{Name: name}, Keeps: true, Changes: true, Differs: true})
			}
			next, _ := Next(s, in)
			if is := Stopped(next); is != stopped {
				t.Fatalf("want the rollout stopped: %t, got %s", stopped, next.Phase)
			}
			if !stopped {
				return
			}
			if next.Awaits == "" || next.Message == "" {
				t.Errorf("want a message and a token to resume, got %+v", next)
			}
			in.Resumed = next.Awaits
			if next, _ = Next(next, in); Stopped(next) || Assigned(next, "a").Name != revision(9).Name || Assigned(next, "b").Name != Found {
				t.Errorf("want the first wave to get the target after the resume, got %+v", next)
			}
		})
	}
}

// TestRetold verifies which annotations are rewritten: those that equal the awaited token except for an earlier name of
// the target.
func TestRetold(t *testing.T) {
	s := &refractv1alpha1.RolloutStatus{Target: revision(9), Attempt: 2, Nonce: "nonce"}
	s.Awaits = s.Target.Name + "/2/1/nonce"
	for said, want := range map[string]string{
		"before/2/1/nonce": s.Awaits, "before/2/retry/nonce": "", "before/1/1/other": "", "before/1/1/": "", "before": "", "": "",
	} {
		if got := Retold(s, said); got != want {
			t.Errorf("%s: want %q, got %q", said, want, got)
		}
	}
	s.Awaits = ""
	for _, s := range []*refractv1alpha1.RolloutStatus{nil, s} {
		if got := Retold(s, "before/2/1/nonce"); got != "" {
			t.Errorf("if no token is awaited: want no token, got %q", got)
		}
	}
}
