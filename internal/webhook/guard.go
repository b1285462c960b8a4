package webhook

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
)

// maxRequest is the largest request that is read. A review of an admission holds
// at most two objects of 1.5 MB each; one of a conversion a page of a list.
const maxRequest = 32 << 20

// guarded returns the handler with a limit to what it reads, and with an answer
// and a line in the log where it panics: the API server asks for others at the
// same time.
func guarded(h http.Handler, log logr.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			reason := recover()
			if reason == nil {
				return
			}
			if reason == http.ErrAbortHandler { //nolint:errorlint,err113 // It is a panic's value, and documented to be this one.
				panic(reason)
			}
			log.Error(fmt.Errorf("panic: %v", reason), "A webhook panicked", "path", r.URL.Path, "stack", string(debug.Stack()))
			http.Error(w, "internal error", http.StatusInternalServerError)
		}()
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST is answered", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		h.ServeHTTP(w, r)
	})
}

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
