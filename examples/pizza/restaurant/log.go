package restaurant

import (
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// requests is the level of the log at which there is a line for each request: whoever
// reads a list would have thousands of them.
const requests = 4

// logged returns a handler that says what it was asked, and what it answered, unless
// nobody listens.
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

// limited is a handler that says how much it reads.
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

// answered counts what is answered.
type answered struct {
	http.ResponseWriter

	code  int
	bytes int64
}

// WriteHeader keeps the code.
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
