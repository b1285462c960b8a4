package propagation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// sated is an API server whose etcd rejects large objects and needs some time for the others.
type sated struct {
	*depot

	takes time.Duration
}

func (s *sated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPatch && s.takes > 0 {
		<-time.After(s.takes)
	}
	if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "large") {
		s.depot.ServeHTTP(w, r)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // The client disconnected.
	}
	s.change(func() { s.requests = append(s.requests, r.Method+" large") })
	s.fail(w, metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request is too large"})
}

// took signals each written copy on the channel written.
type took struct {
	listeners

	written chan struct{}
}

func (l *took) record(a *applier, key Key, s clusterStatus) (settled, due, ok bool) {
	settled, due, ok = l.listeners.record(a, key, s)
	if s.state == refractv1alpha1.StateSynced {
		l.written <- struct{}{}
	}
	return settled, due, ok
}

const (
	// writeTakes is the minimal time that the API server takes for a write.
	writeTakes = 2 * time.Millisecond
	// warmUp is the number of writes that are not measured.
	warmUp = 20
)

// beside describes the copies that another tenant has on the member where the measured copies are written.
type beside struct {
	copies, bytes int
	// every is the number of measured writes between two edits of the other tenant's copies; 0 for no edits. An edit of 1
	// MiB after each measured write is more than a hub accepts.
	every int
}

// write returns how long each of n measured writes takes.
func (c beside) write(b *testing.B, n int) (times []time.Duration) {
	b.Helper()
	a := shopkeeper(b, &sated{newDepot(), writeTakes}, 0, onHub(nil))
	<-a.member.Copies.Watch(configMaps)
	l := &took{listeners{neighbours: neighbours{state: a.state}}, make(chan struct{}, 1)}
	a.stations, a.cluster = l, l
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.run(ctx)
	}()
	values := [2]string{strings.Repeat("x", c.bytes), strings.Repeat("y", c.bytes)} // Made in advance, so that the measurement excludes their garbage.
	change := func(i int) {
		key := keyOf("configmaps", fmt.Sprint("large-", i%c.copies))
		a.state.setDesired(key, wantedWith(b, key.Name, values[i/c.copies%2], "m"), previous{}, nil)
		a.queue.add(key, priorityResync)
	}
	for i := range c.copies {
		change(i)
	}
	l.await(b, func() bool { return l.recorded.Load() >= int64(c.copies) })
	for i := range warmUp + n {
		key := keyOf("configmaps", fmt.Sprint("other-", i))
		a.state.setDesired(key, wanted(b, key.Name, "m"), previous{}, nil)
		if c.every > 0 && i%c.every == 0 {
			change(c.copies + i/c.every)
		}
		began := time.Now()
		a.queue.add(key, priorityResync)
		<-l.written
		times = append(times, time.Since(began))
	}
	stop()
	<-ended
	return times[warmUp:]
}

// p99 returns the 99th percentile of times, in milliseconds.
func p99(times []time.Duration) float64 {
	times = slices.Sorted(slices.Values(times))
	return float64(times[len(times)*99/100].Microseconds()) / 1000
}

// BenchmarkLargeCopies: the copies of a tenant that are too large for a member do not delay the copies of others. The
// p99 of the others should be at most twice the p99 without the large copies. The benchmark measures both in turn, in
// rounds. It reports the p99 of all rounds, and as ratio the median of the ratios of the rounds. "Same" has no large
// copies in either half.
func BenchmarkLargeCopies(b *testing.B) {
	const rounds, writes = 10, 300
	for _, bc := range []struct {
		name   string
		beside beside
	}{
		{"Same", beside{}}, {"NotSent", beside{100, 2 << 20, 0}}, {"Refused", beside{100, 1 << 20, 0}},
		{"NotSentEdited", beside{100, 2 << 20, 1}}, {"RefusedEdited", beside{100, 1 << 20, 8}}, {"RefusedFlooded", beside{100, 1 << 20, 1}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				var alone, together []time.Duration
				var ratios []float64
				for round := range rounds {
					var without, with []time.Duration
					for half := range 2 { // Each half comes first equally often.
						if (round+half)%2 == 0 {
							without = beside{}.write(b, writes)
						} else {
							with = bc.beside.write(b, writes)
						}
					}
					alone, together = append(alone, without...), append(together, with...)
					ratios = append(ratios, p99(with)/p99(without))
				}
				slices.Sort(ratios)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(p99(alone), "alone-p99-ms")
				b.ReportMetric(p99(together), "p99-ms")
				b.ReportMetric(p99(together)/p99(alone), "p99-ratio")
				b.ReportMetric((ratios[rounds/2-1]+ratios[rounds/2])/2, "ratio")
			}
		})
	}
}
