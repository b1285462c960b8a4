// Package simulate runs the real controllers under hostile schedules. A hub and three clusters in memory, replicas of
// Refract, users, and the clusters' controllers run in one bubble of testing/synctest. A seed decides every event.
// After each step the simulation checks the promises to users. If one is broken, it shortens the history and tells it
// as a story.
package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/test/apiserver"
)

// mostAtOnce is the maximum number of requests and events within a moment. More indicate a loop.
const (
	mostAtOnce = 6000
	moment     = 10 * time.Second
)

// deliver performs one pending event, chosen by the random numbers of the step: it answers a request, or sends one
// event of a watch. It reports whether an event was pending.
func (w *World) deliver() bool {
	w.settle()
	calls := w.gates.waiting()
	events := w.gates.undelivered()
	n := len(calls) + len(events)
	if n == 0 {
		return false
	}
	if w.recent++; w.Elapsed()-w.since > moment {
		w.recent, w.since = 0, w.Elapsed()
	}
	if w.recent > mostAtOnce {
		w.Failf("too-many-requests", "%d requests and events within %s; the last: %s", w.recent, moment, w.Journal.last)
		return false
	}
	i := w.Rand.IntN(n)
	w.reseed()
	if i < len(calls) {
		w.serve(calls[i])
	} else {
		w.tell(events[i-len(calls)])
	}
	return true
}

// reseed makes the random pauses of client-go repeatable. client-go draws the pause before a retry right after a
// response.
func (w *World) reseed() { mathrand.Seed(w.Rand.Int64()) } //nolint:staticcheck // The generator is that of libraries.

// drain performs all pending events, until the duration has passed.
func (w *World) drain(long time.Duration) {
	for end := time.Now().Add(long); w.failed == nil; {
		if w.deliver() {
			continue
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		w.pass(left)
	}
}

// serve answers a call or lets it fail.
func (w *World) serve(c *call) {
	w.gates.leave(c)
	w.stats.requests++
	t, r := c.target, c.request
	what := c.key
	weather := t.Weather
	if w.calm {
		weather = Weather{}
	}
	switch {
	case t.Down || c.process.cut[t]:
		w.note(what, "unreachable")
		c.answer <- answer{err: errRefused}
		return
	case w.chance(weather.Slow):
		w.recent-- // The request is counted again when it is served; a slow server does not cause additional requests.
		w.note(what, "waits")
		w.gates.arrive(c)
		return
	case w.chance(weather.Refuse):
		status := w.refusal(c)
		w.note(what, "fails: "+string(status.Reason))
		c.answer <- answer{response: w.failure(c, status)}
		return
	case writes(r.Method) && w.chance(weather.Conflict) && bytes.Contains(c.body, []byte("resourceVersion")):
		w.note(what, "conflict")
		c.answer <- answer{response: w.failure(c, &apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "it",
			errors.New("the object has been modified; please apply your changes to the latest version and try again")).ErrStatus)}
		return
	}
	if a := w.atFront(c); a != nil {
		w.oracle.repeats(c, 0)
		w.note(what, "is answered by something else")
		c.answer <- *a
		return
	}
	if status := w.refused(t, r); status != nil {
		w.oracle.repeats(c, int(status.Code))
		w.note(what, "fails: "+string(status.Reason))
		c.answer <- answer{response: w.failure(c, status)}
		return
	}
	r = r.Clone(r.Context())
	r.Header.Set("X-Remote-User", c.process.Name)
	if apiserver.IsWatch(r) {
		w.watch(c, r)
		return
	}
	w.Journal.body(c.body)
	got := w.reviewed(t, r, c.body)
	if got == nil {
		got = w.answered(c.process, t, r, c.body)
		dry := r.URL.Query().Has("dryRun")
		if writes(r.Method) && !dry && got.Code < http.StatusBadRequest && !strings.Contains(r.URL.Path, "/leases/") {
			w.wrote(c)
		}
	}
	w.oracle.repeats(c, got.Code)
	if w.chance(weather.Lose) {
		w.note(what, "is done, and the answer is lost")
		c.answer <- answer{err: errCut}
		return
	}
	w.note(what, strconv.Itoa(got.Code))
	c.answer <- answer{response: w.respond(c, got.Code, got.Header, got.Body)}
}

// wrote records a write of a process.
func (w *World) wrote(c *call) {
	if !w.renews(c) {
		w.changed = w.Elapsed()
		clear(w.oracle.repeated)
	}
	w.oracle.wrote(c)
}

func writes(method string) bool { return method != http.MethodGet && method != http.MethodHead }

func (w *World) chance(percent int) bool { return percent > 0 && w.Rand.IntN(100) < percent }

// watch begins a stream.
func (w *World) watch(c *call, r *http.Request) {
	watch, refused := c.target.Server.Watch(r) //nolint:contextcheck // A server in memory waits for nothing.
	if watch == nil {
		w.note(c.key, strconv.Itoa(refused.Code))
		c.answer <- answer{response: w.respond(c, refused.Code, refused.Header, refused.Body)}
		return
	}
	w.streams++
	s := &stream{
		process: c.process, target: c.target, watch: watch, key: c.key, number: w.streams, ctx: c.request.Context(), more: make(chan struct{}, 1),
	}
	w.gates.add(s)
	w.note(c.key, "watches")
	resp := w.respond(c, http.StatusOK, watch.Header(), nil)
	resp.Body, resp.ContentLength = s, -1
	c.answer <- answer{response: resp}
}

// tell sends one event of a watch, or ends the watch.
func (w *World) tell(s *stream) {
	w.stats.events++
	weather := s.target.Weather
	switch {
	case s.broken:
		w.note(s.key, "the watch breaks")
		s.end(errCut)
		return
	case s.watch.Waiting() == 0: // The watch has ended.
		w.note(s.key, "the watch ends")
		s.end(io.EOF)
		return
	case w.calm:
	case s.target.Down || s.process.cut[s.target]:
		w.note(s.key, "the watch breaks")
		s.end(errCut)
		return
	case w.chance(weather.Break):
		if w.Rand.IntN(2) == 0 {
			w.note(s.key, "the watch expires")
			s.target.Server.Compact()
			s.push(s.watch.Expire())
			s.end(io.EOF)
			return
		}
		w.note(s.key, "the watch breaks")
		s.end(errCut)
		return
	}
	w.note(s.key, "event")
	s.push(s.watch.Next())
}

// refusal returns a random error that an API server may return for any request.
func (w *World) refusal(c *call) *metav1.Status {
	gr := schema.GroupResource{Resource: "objects"}
	switch w.Rand.IntN(4) {
	case 0:
		e := apierrors.NewTooManyRequests("the server has received too many requests and has asked us to try again later", 1)
		return &e.ErrStatus
	case 1:
		return &apierrors.NewInternalError(errors.New("etcdserver: leader changed")).ErrStatus
	case 2:
		return &apierrors.NewServiceUnavailable("apiserver is shutting down").ErrStatus
	default:
		return &apierrors.NewServerTimeout(gr, strings.ToLower(c.request.Method), 1).ErrStatus
	}
}

func (w *World) failure(c *call, status *metav1.Status) *http.Response {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	header := http.Header{"Content-Type": {"application/json"}}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	return w.respond(c, int(status.Code), header, encoded(status))
}

func (w *World) respond(c *call, code int, header http.Header, body []byte) *http.Response {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Date", time.Now().Add(c.target.Skew).UTC().Format(http.TimeFormat))
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: c.request,
	}
}

func (w *World) note(what, how string) { w.Journal.request(w, what, how) }
