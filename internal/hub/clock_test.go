package hub

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/match"
	"refract.dev/release"
)

// worldBegan is when the tests begin.
var worldBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world has the time that has passed, and an API server whose clock is ahead of it by so much.
type world struct {
	passed time.Duration
	server time.Duration
}

// clock is that of a process whose own clock is ahead by so much.
func (w *world) clock(ahead time.Duration) *Clock {
	began := w.passed
	return &Clock{began: worldBegan.Add(began + ahead), elapsed: func() time.Duration { return w.passed - began }}
}

// hear has clocks hear an answer of the API server, which has been under way for so long.
func (w *world) hear(late time.Duration, clocks ...*Clock) {
	for _, c := range clocks {
		c.note(worldBegan.Add(w.passed + w.server - late).Truncate(time.Second))
	}
}

// off is how much a clock differs from that of the API server.
func (w *world) off(c *Clock) time.Duration { return c.Now().Sub(worldBegan.Add(w.passed + w.server)) }

func TestClock(t *testing.T) {
	for _, ahead := range []time.Duration{0, 15 * time.Minute, -15 * time.Minute} {
		w := &world{}
		c := w.clock(ahead)
		if got := w.off(c); got != ahead {
			t.Errorf("%s ahead: without an answer it has the time of the process, got %s", ahead, got)
		}
		w.hear(10*time.Second, c)
		w.passed += 1500 * time.Millisecond
		w.hear(0, c)
		w.passed += time.Second
		w.hear(20*time.Second, c)
		if got := w.off(c); got < -time.Second || got > 0 {
			t.Errorf("%s ahead: want the time of the API server by the answer that came soonest, to the second, got %s", ahead, got)
		}
		w.server = -time.Hour // Its clock is set back.
		for range 3 {
			w.passed += clockWindow
			w.hear(0, c)
		}
		if got := w.off(c); got < -time.Second || got > 0 {
			t.Errorf("%s ahead: want it to follow the API server, got %s", ahead, got)
		}
	}
}

func TestClockFollows(t *testing.T) {
	far := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	date := far.Format(http.TimeFormat)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer s.Close()
	c, cfg := NewClock(), &rest.Config{Host: s.URL}
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

// TestSkewedReplicas: a rollout asks for 900 s of readiness and for readiness within 600 s. Replicas whose clocks differ write the times down and
// compare them, in turns. That changes no result by more than the API servers of the hub differ.
func TestSkewedReplicas(t *testing.T) {
	policy, errs := release.Compile(&refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{
		Waves:  []refractv1alpha1.RolloutWave{{Name: "all", MinReadySeconds: 900}},
		Health: &refractv1alpha1.RolloutHealth{TimeoutSeconds: 600},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	good, target := refractv1alpha1.Revision{Name: "good"}, refractv1alpha1.Revision{Name: "target"}
	const readyAfter = 590 * time.Second
	for _, skews := range [][3]time.Duration{{0, 0, 0}, {-15 * time.Minute, 0, 15 * time.Minute}, {15 * time.Minute, 0, -15 * time.Minute}, {0, -15 * time.Minute, 15 * time.Minute}} {
		for _, server := range []time.Duration{0, time.Minute, -time.Minute} {
			w := &world{}
			// The first replica writes to the member and sees that the copy is ready. The others lead in turns.
			writer, leaders := w.clock(skews[0]), []*Clock{w.clock(skews[1]), w.clock(skews[2])}
			var readySince time.Time
			is := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
			var done time.Duration
			for ; done == 0 && len(is.Failed) == 0 && w.passed < time.Hour; w.passed += 5 * time.Second {
				w.hear(0, writer, leaders[0])
				w.server = server // The second leader asks another API server.
				w.hear(0, leaders[1])
				w.server = 0
				ready := w.passed >= readyAfter
				if ready && readySince.IsZero() {
					readySince = writer.Now()
				}
				is, _ = release.Next(is, &release.Input{Policy: policy, Target: target, Now: leaders[int(w.passed/(5*time.Second))%2].Now(), Clusters: []release.Cluster{{
					Cluster: match.Cluster{Name: "a"}, Changes: true, Differs: len(is.Current)+len(is.Done) == 0, Holds: true, Ready: ready, ReadySince: readySince,
				}}})
				if is.Phase == refractv1alpha1.RolloutComplete {
					done = w.passed
				}
			}
			const want, step = readyAfter + 900*time.Second, 10 * time.Second
			switch {
			case len(is.Failed) > 0 && server <= 0:
				t.Errorf("skews %v, API servers %s apart: the cluster failed after %s: %s", skews, server, w.passed, is.Message)
			case len(is.Failed) > 0:
				if w.passed < 600*time.Second-server {
					t.Errorf("skews %v, API servers %s apart: the cluster failed after %s", skews, server, w.passed)
				}
			case done < want-max(server, -server)-step || done > want+max(server, -server)+step:
				t.Errorf("skews %v, API servers %s apart: done after %s, want about %s", skews, server, done, want)
			}
		}
	}
}
