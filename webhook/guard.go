package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// defaultMaxBytes is the largest request that is read unless its handler takes
// more. A review of an admission holds at most two objects of 3 MB each.
const defaultMaxBytes = 32 << 20

// guard answers for a handler whatever is not for that to answer.
type guard struct {
	path        string
	handler     http.Handler
	most        int64 // Bytes of a body.
	room        *room
	bodyTimeout time.Duration
	log         logr.Logger
	metrics     *metrics
}

// ServeHTTP limits what the handler reads, and answers where it panics: the API
// server asks for others at the same time.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	inFlight := g.metrics.inFlight.WithLabelValues(g.path)
	inFlight.Inc()
	out := &response{ResponseWriter: w}
	defer func() {
		inFlight.Dec()
		g.metrics.seconds.WithLabelValues(g.path).Observe(time.Since(begun).Seconds())
		g.metrics.requests.WithLabelValues(g.path, strconv.Itoa(out.code)).Inc()
	}()
	switch {
	case r.Method != http.MethodPost:
		out.Header().Set("Allow", http.MethodPost)
		http.Error(out, "only POST is answered", http.StatusMethodNotAllowed)
	case r.ContentLength > g.most:
		dismiss(out, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request has a body of %d bytes, and %s takes at most %d", r.ContentLength, g.path, g.most))
	default:
		g.serve(out, r)
	}
	if out.code == 0 {
		out.code = http.StatusOK // What is sent for a handler that says nothing.
	}
}

// serve waits for room and calls the handler.
func (g *guard) serve(w *response, r *http.Request) {
	size := r.ContentLength
	if size < 0 {
		size = g.most // It does not say.
	}
	patience := timeFor(r)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	r = r.WithContext(ctx)
	taken, release := g.room.take(ctx, size, patience/2) // Half of it is left to answer.
	if release == nil {
		w.Header().Set("Retry-After", "1")
		dismiss(w, r, http.StatusServiceUnavailable, "too much is being answered at the moment: try again")
		return
	}
	g.metrics.bytes.Add(float64(taken))
	defer func() {
		g.metrics.bytes.Sub(float64(taken))
		release()
	}()
	if size > 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.bodyTimeout)) // All connections of a server have one.
	}
	w.body = &body{ReadCloser: http.MaxBytesReader(w.ResponseWriter, r.Body, g.most), path: g.path}
	r.Body = w.body
	defer g.rescue(w)
	g.handler.ServeHTTP(w, r)
	if w.code == 0 {
		w.WriteHeader(http.StatusOK) // Unless the body was too large.
	}
}

// rescue answers for a handler that panicked. An answer that has begun is cut off:
// half of one must not be taken for a whole.
func (g *guard) rescue(w *response) {
	reason := recover()
	if reason == nil {
		return
	}
	if reason == http.ErrAbortHandler { //nolint:errorlint,err113 // It is a panic's value, and documented to be this one.
		w.code = 0
		panic(reason)
	}
	g.metrics.panics.WithLabelValues(g.path).Inc()
	g.log.Error(fmt.Errorf("panic: %v", reason), "A webhook panicked", "path", g.path, "stack", string(debug.Stack()))
	if w.code != 0 {
		w.code = 0
		panic(http.ErrAbortHandler)
	}
	http.Error(w, "internal error", http.StatusInternalServerError)
}

// timeFor returns how long the API server waits for an answer, as it says itself.
func timeFor(r *http.Request) time.Duration {
	asked, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || asked <= 0 {
		return requestTimeout
	}
	return min(asked, requestTimeout)
}

// linger is how long bytes are still read that nobody wants.
const linger = time.Second

// dismiss answers a request whose body is not read. Who still sends it would not
// hear the answer if the connection were closed at once: the rest is thrown away
// for a moment.
func dismiss(w http.ResponseWriter, r *http.Request, code int, text string) {
	control := http.NewResponseController(w)
	if r.ProtoMajor != 1 || r.Header.Get("Expect") != "" || control.EnableFullDuplex() != nil {
		http.Error(w, text, code)
		return
	}
	w.Header().Set("Connection", "close")
	http.Error(w, text, code)
	if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(linger)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // Ends at the deadline.
}

// body is that of a request, and knows whether it was too large.
type body struct {
	io.ReadCloser

	path    string
	tooLong error
}

// Read reads some of the body; too large a one ends with an error that says so.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		b.tooLong = fmt.Errorf("the request has a body of more than the %d bytes that %s takes: %w", limit.Limit, b.path, err)
		err = b.tooLong
	}
	return n, err
}

// response is what a handler answers, unless the body was too large.
type response struct {
	http.ResponseWriter

	body    *body // Nil if nobody may read it.
	code    int   // 0 until there is one.
	refused bool
}

// WriteHeader begins the answer.
func (w *response) WriteHeader(code int) {
	if w.code != 0 {
		return
	}
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.code = code
	}
	if w.body == nil || w.body.tooLong == nil || code < http.StatusOK {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	why := w.body.tooLong.Error()
	w.code, w.refused = http.StatusRequestEntityTooLarge, true
	http.Error(w.ResponseWriter, why, w.code) // The connection is closed after it, as the reader has hit its limit.
}

// Write writes some of the answer, to nobody if the body was too large.
func (w *response) Write(text []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.refused {
		return len(text), nil
	}
	return w.ResponseWriter.Write(text)
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// quietLog takes what the HTTP server has to say: it logs a line for everybody
// who connects and leaves, as a probe does, which nobody acts on.
func quietLog(to logr.Logger) *log.Logger { return log.New(writer{to}, "", 0) }

type writer struct{ log logr.Logger }

var _ io.Writer = writer{}

// Write logs one line.
func (w writer) Write(line []byte) (int, error) {
	w.log.V(1).Info("The webhook server says", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}
