package webhook

import (
	"context"
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

// defaultMaxBytes is the largest body for handlers that set no limit. An AdmissionReview has at most two objects of 3
// MB.
const defaultMaxBytes = 32 << 20

// guard wraps a handler. It limits bodies, recovers panics, and sends the answers that do not depend on the handler.
type guard struct {
	path        string
	handler     http.Handler
	most        int64 // Largest body in bytes.
	room        *room
	bodyTimeout time.Duration
	slowGrace   time.Duration
	log         logr.Logger
	metrics     *metrics
}

// ServeHTTP answers requests that the handler cannot process: other methods than POST, and announced bodies beyond the
// limit. It passes all other requests to serve.
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
		http.Error(out, "only POST is allowed", http.StatusMethodNotAllowed)
	case r.ContentLength > g.most:
		dismiss(out, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request has a body of %d bytes, and %s accepts at most %d", r.ContentLength, g.path, g.most))
	default:
		g.serve(out, r)
	}
	if out.code == 0 {
		out.code = http.StatusOK // The HTTP server sends 200 for a handler that writes nothing.
	}
}

// serve receives the first piece of the body, waits for room for the whole body, and calls the handler. A client that
// announces a body and does not send it takes no room.
func (g *guard) serve(w *response, r *http.Request) {
	begun, patience := time.Now(), timeFor(r)
	ctx, cancel := context.WithDeadline(r.Context(), begun.Add(patience))
	defer cancel()
	r = r.WithContext(ctx)
	control := http.NewResponseController(w)
	b := &body{ReadCloser: http.MaxBytesReader(w.ResponseWriter, r.Body, g.most), path: g.path, grace: g.slowGrace, begun: begun, control: control}
	w.body, r.Body = b, b
	if r.ContentLength != 0 {
		_ = control.SetReadDeadline(begun.Add(min(g.bodyTimeout, patience))) // Cannot fail: every connection of an HTTP server supports deadlines.
	}
	size := b.begin(r.ContentLength, g.most)
	if b.refusal != nil && b.refusal.code == http.StatusRequestTimeout {
		w.WriteHeader(b.refusal.code)
		return
	}
	room := g.room.take(ctx, size, patience/2-time.Since(begun)) // The handler has the other half.
	if room == nil {
		g.busy(w, r)
		return
	}
	defer room.release()
	g.metrics.bytes.Add(float64(room.size))
	defer g.metrics.bytes.Sub(float64(room.size))
	if b.received() {
		b.patient()
	} else {
		_ = control.SetReadDeadline(time.Now().Add(g.bodyTimeout))
		b.expect(room)
		defer b.end()
	}
	defer g.rescue(w)
	g.handler.ServeHTTP(w, r)
	if w.code == 0 {
		w.WriteHeader(http.StatusOK) // Sends the refusal if the body was too large or too slow.
	}
}

// busy answers that there is no memory for the body.
func (g *guard) busy(w *response, r *http.Request) {
	const text = "too many requests at the moment: try again"
	w.Header().Set("Retry-After", "1")
	if w.body.received() {
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	dismiss(w, r, http.StatusServiceUnavailable, text)
}

// rescue recovers a panic of the handler, because the server is processing other requests, and answers with HTTP 500.
// If the answer has already begun, rescue cuts the connection, so that the client does not take the incomplete answer
// for a complete one.
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

// timeFor returns the time that the API server waits for an answer, from the timeout parameter of its request.
func timeFor(r *http.Request) time.Duration {
	asked, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || asked <= 0 {
		return requestTimeout
	}
	return min(asked, requestTimeout)
}

// linger is the time for which the server reads and discards the rest of a rejected body.
const linger = time.Second

// dismiss answers a request before its body has arrived. A client that still sends the body would miss the answer if
// the server closed the connection at once. So dismiss reads and discards the rest of the body for up to linger.
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

// response is the answer to a request. If the body was too large or too slow, a refusal replaces the answer of the
// handler.
type response struct {
	http.ResponseWriter

	body    *body // Nil if the server does not read the body.
	code    int   // 0 until the answer begins.
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
	if w.body == nil || w.body.refusal == nil || code < http.StatusOK {
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.code, w.refused = w.body.refusal.code, true
	if w.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w.ResponseWriter, w.body.refusal.err.Error(), w.code) // The server then closes the connection: it cannot read the rest of the body.
}

// Write writes a part of the answer. It discards the text after a refusal of the body.
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

// quietLog logs the messages of the HTTP server at a low level. The HTTP server logs a line for each client that
// disconnects early, such as a probe, and operators need not act on these lines.
func quietLog(to logr.Logger) *log.Logger { return log.New(writer{to}, "", 0) }

type writer struct{ log logr.Logger }

var _ io.Writer = writer{}

// Write logs one line.
func (w writer) Write(line []byte) (int, error) {
	w.log.V(1).Info("Message of the webhook server", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}
