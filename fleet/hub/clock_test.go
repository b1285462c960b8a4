package hub

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/rollout"
)

// worldBegan is the start time of the tests.
var worldBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world has the elapsed time, and the lead of an API server's clock.
type world struct {
	passed time.Duration
	server time.Duration
}

// clock returns the clock of a process whose own clock is ahead by this much.
func (w *world) clock(ahead time.Duration) *Clock {
	began := w.passed
	return &Clock{began: worldBegan.Add(began + ahead), elapsed: func() time.Duration { return w.passed - began }}
}

// hear passes an answer of the API server to clocks. The answer arrives late by this duration.
func (w *world) hear(late time.Duration, clocks ...*Clock) {
	for _, c := range clocks {
		c.note(worldBegan.Add(w.passed + w.server - late).Truncate(time.Second))
	}
}

// off returns the difference between a clock and the clock of the API server.
func (w *world) off(c *Clock) time.Duration { return c.Now().Sub(worldBegan.Add(w.passed + w.server)) }

func TestClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, 15 * time.Minute, -15 * time.Minute} {
		w := &world{}
		c := w.clock(ahead)
		if got := w.off(c); got != ahead {
			t.Errorf("%s ahead: want the time of the process before the first answer, got %s", ahead, got)
		}
		w.hear(0, c)
		w.passed += 2500 * time.Millisecond
		w.hear(20*time.Second, c)
		if got := w.off(c); got < -time.Second || got > 0 {
			t.Errorf("%s ahead: want the time of the API server from the fastest answer, to the second, got %s", ahead, got)
		}
		w.server = -time.Minute // The server's clock is set back.
		before := c.Now()
		for passed := time.Duration(0); passed < time.Hour+3*clockWindow; passed += clockWindow {
			w.passed += clockWindow
			w.hear(0, c)
			now := c.Now()
			if went := now.Sub(before); went < clockWindow*9/10 || went > clockWindow*11/10 {
				t.Errorf("%s ahead: %s take %s on the clock", ahead, clockWindow, went)
			}
			before = now
		}
		if got := w.off(c); got < -time.Second || got > time.Second {
			t.Errorf("%s ahead: want the clock to follow the API server, got %s", ahead, got)
		}
	}
}

// TestClockJumps: the clock of an API server is set, or one of several API servers has a wrong clock and answers
// occasionally. A wait of an hour is exact to a minute.
func TestClockJumps(t *testing.T) {
	for name, server := range map[string]func(passed time.Duration) time.Duration{
		"Ahead": func(time.Duration) time.Duration { return 15 * time.Minute },
		"Back":  func(time.Duration) time.Duration { return -15 * time.Minute },
		"Days":  func(time.Duration) time.Duration { return 72 * time.Hour },
		"InTurns": func(passed time.Duration) time.Duration {
			return time.Duration(int64(passed/time.Second)%2) * 15 * time.Minute
		},
		"Once": func(passed time.Duration) time.Duration {
			if passed == time.Second {
				return 15 * time.Minute
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{}
			c := w.clock(0)
			w.hear(0, c)
			began := c.Now()
			last := began
			for w.passed < time.Hour {
				w.passed += time.Second
				w.server = server(w.passed)
				w.hear(0, c)
				now := c.Now()
				if !now.After(last) {
					t.Fatalf("after %s the clock goes back from %s to %s", w.passed, last, now)
				}
				last = now
			}
			if is := last.Sub(began); is < 59*time.Minute || is > 61*time.Minute {
				t.Errorf("an hour takes %s on the clock", is)
			}
		})
	}
}

func TestClockFollows(t *testing.T) {
	far := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	date := far.Format(http.TimeFormat)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer s.Close()
	c, cfg := NewClock(time.Now()), &rest.Config{Host: s.URL}
	c.Follow(cfg)
	web, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []string{date, "no date"} {
		date = sent
		resp, err := web.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if got := c.Now().Sub(far); got < 0 || got > time.Minute {
			t.Errorf("answered with %q: want the time of the API server, got %s", sent, c.Now())
		}
	}
}

// TestSkewedReplicas: a rollout demands 900 s of readiness, and readiness within 600 s. Replicas with different clocks
// write and compare these times in turn. The duration of the rollout is wrong by no more than the difference between
// the clocks of the hub's API servers. If these clocks are set meanwhile, it is wrong by less than a minute.
func TestSkewedReplicas(t *testing.T) {
	policy, errs := rollout.Compile(&refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{
		Waves:  []refractv1alpha1.RolloutWave{{Name: "all", MinReadySeconds: 900}},
		Health: &refractv1alpha1.RolloutHealth{TimeoutSeconds: 600},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, skews := range [][3]time.Duration{{0, 0, 0}, {-15 * time.Minute, 0, 15 * time.Minute}, {15 * time.Minute, 0, -15 * time.Minute}, {0, -15 * time.Minute, 15 * time.Minute}} {
		for _, set := range []time.Duration{0, 15 * time.Minute, -15 * time.Minute} {
			skewed(t, policy, skews, 0, set)
		}
		for _, server := range []time.Duration{time.Minute, -time.Minute} {
			skewed(t, policy, skews, server, 0)
		}
	}
}

// skewed simulates such a rollout. The clock of the second leader's API server is ahead by the duration apart. After
// 300 s the clocks of both API servers are changed by the duration set.
func skewed(t *testing.T, policy *rollout.Policy, skews [3]time.Duration, apart, set time.Duration) {
	t.Helper()
	good, target := refractv1alpha1.Revision{Name: "good"}, refractv1alpha1.Revision{Name: "target"}
	const readyAfter = 590 * time.Second
	w := &world{}
	// The first replica writes to the member and sees that the copy is ready. The others lead in turn.
	writer, leaders := w.clock(skews[0]), []*Clock{w.clock(skews[1]), w.clock(skews[2])}
	var readySince time.Time
	is := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
	var done time.Duration
	for ; done == 0 && len(is.Failed) == 0 && w.passed < time.Hour; w.passed += 5 * time.Second {
		server := time.Duration(0)
		if w.passed >= 300*time.Second {
			server = set
		}
		w.server = server
		w.hear(0, writer, leaders[0])
		w.server = server + apart
		w.hear(0, leaders[1])
		ready := w.passed >= readyAfter
		if ready && readySince.IsZero() {
			readySince = writer.Now()
		}
		is, _ = rollout.Next(is, &rollout.Input{Policy: policy, Target: target, Now: leaders[int(w.passed/(5*time.Second))%2].Now(), Clusters: []rollout.Cluster{{
			Cluster: match.Cluster{Name: "a"}, Changes: true, Differs: len(is.Current)+len(is.Done) == 0, Holds: true, Ready: ready, ReadySince: readySince,
		}}})
		if is.Phase == refractv1alpha1.RolloutComplete {
			done = w.passed
		}
	}
	const want, step = readyAfter + 900*time.Second, 10 * time.Second
	off := max(apart, -apart) + max(set, -set)/clockPace + step
	switch {
	case len(is.Failed) > 0 && apart <= 0:
		t.Errorf("skews %v, API servers %s apart, set by %s: the cluster failed after %s: %s", skews, apart, set, w.passed, is.Message)
	case len(is.Failed) > 0:
		if w.passed < 600*time.Second-apart {
			t.Errorf("skews %v, API servers %s apart, set by %s: the cluster failed after %s", skews, apart, set, w.passed)
		}
	case done < want-off || done > want+off:
		t.Errorf("skews %v, API servers %s apart, set by %s: done after %s, want about %s", skews, apart, set, done, want)
	}
}
