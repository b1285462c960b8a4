package restaurant

import (
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// requests is the log level for a line about each request. A list can cause thousands of requests.
const requests = 4

// logged returns a handler that logs each request and its answer. It returns h itself if the log is disabled.
func logged(h http.Handler, log logr.Logger) http.Handler {
	if !log.Enabled() {
		return h
	}
	l := &logging{handler: h, log: log}
	if of, ok := h.(limited); ok {
		return struct {
			http.Handler
			limited
		}{l, of}
	}
	return l
}

// limited is a handler with a limit for the size of requests.
type limited interface{ MaxBytes() int64 }

type logging struct {
	handler http.Handler
	log     logr.Logger
}

// ServeHTTP answers one request.
func (l *logging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun, answer := time.Now(), &answered{ResponseWriter: w, code: http.StatusOK}
	l.handler.ServeHTTP(answer, r)
	l.log.Info("Answered", "path", r.URL.Path, "from", r.RemoteAddr, "proto", r.Proto,
		"code", answer.code, "bytes", answer.bytes, "took", time.Since(begun).String())
}

// answered records the code and the size of an answer.
type answered struct {
	http.ResponseWriter

	code  int
	bytes int64
}

// WriteHeader records the code.
func (a *answered) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Write counts the bytes.
func (a *answered) Write(p []byte) (int, error) {
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}
