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
)

// sated is an API server whose etcd takes no large objects.
type sated struct{ *depot }

func (s *sated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "large") {
		s.depot.ServeHTTP(w, r)
		return
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // The client went away.
	}
	s.fail(w, metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request is too large"})
}

// BenchmarkLargeCopies: the copies of a tenant that are too large for a member delay none of others: their p99 is to be at most twice what it is without.
func BenchmarkLargeCopies(b *testing.B) {
	const large, others = 100, 500
	for _, bc := range []struct {
		name  string
		bytes int
		edits bool // Whether their owner edits one of them for each write of the others.
	}{{"None", 0, false}, {"NotSent", 2 << 20, false}, {"Refused", 1 << 20, false}, {"NotSentEdited", 2 << 20, true}, {"RefusedEdited", 1 << 20, true}} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				a := shopkeeper(b, &sated{newDepot()}, 0, onHub(nil))
				<-a.member.Copies.Watch(configMaps)
				l := &listeners{neighbours: neighbours{state: a.state}}
				a.stations, a.cluster = l, l
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					a.run(ctx)
				}()
				value := strings.Repeat("x", bc.bytes)
				for i := 0; i < large && bc.bytes > 0; i++ {
					key := keyOf("configmaps", fmt.Sprint("large-", i))
					a.state.setDesired(key, wantedWith(b, key.Name, value, "m"), previous{}, nil)
					a.queue.add(key, priorityResync)
				}
				if bc.bytes > 0 {
					l.await(b, func() bool { return l.recorded.Load() >= large })
				}
				var took []time.Duration
				for i := range others {
					key := keyOf("configmaps", fmt.Sprint("other-", i))
					a.state.setDesired(key, wanted(b, key.Name, "m"), previous{}, nil)
					if bc.edits {
						again := keyOf("configmaps", fmt.Sprint("large-", i%large))
						a.state.setDesired(again, wantedWith(b, again.Name, value, "m"), previous{}, nil)
						a.queue.add(again, priorityResync)
					}
					began := time.Now()
					a.queue.add(key, priorityResync)
					l.await(b, func() bool { return l.synced.Load() >= int64(i+1) })
					took = append(took, time.Since(began))
				}
				stop()
				<-ended
				slices.Sort(took)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			}
		})
	}
}
