// Package rescue keeps a panic over the data of users from ending the process. Only the work on that data ends, and its
// report gets an error.
//
// A panic is a bug in Refract that certain data triggers. Each panic is counted. It is logged with its stack once an
// hour for each place in the code, so that repeated data does not fill the log. The package does not help against a
// stack overflow or a lack of memory; bounds on all input prevent these.
package rescue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// PanicError is the error of a panic. It does not contain the message of the panic, which may quote data that the
// readers of the error may not read. The message is in the log.
type PanicError struct {
	// Work is the work that panicked, such as "reading a copy".
	Work string
}

// Error returns the text for reports.
func (p *PanicError) Error() string {
	return p.Work + ": Refract stumbled over what it was given; that is a mistake in Refract, which its log tells of"
}

// Is reports whether an error is, or wraps, a [PanicError]. Such an error has been logged.
func Is(err error) bool { return errors.As(err, new(*PanicError)) }

// To must be deferred by work on the data of users. It turns a panic into the error that err points to, logs it with
// these keys and values, and counts it. Without a panic it does nothing. The work must be a constant, because it is a
// label of the metric.
func To(err *error, log logr.Logger, work string, keysAndValues ...any) {
	if reason := recover(); reason != nil {
		*err = note(log, work, reason, keysAndValues...)
	}
}

// Libraries also rescues goroutines of libraries. client-go has many: they decode watches, and call handlers of
// Refract. After a panic, each goroutine continues as its library defines (a watch starts again), and the panic is
// logged. Panics that controller-runtime rescues are counted, too. Libraries changes the whole process, and must be
// called before other goroutines start.
func Libraries(log logr.Logger) {
	utilruntime.ReallyCrash = false                                                                //nolint:reassign // It is made for that.
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, reason any) { //nolint:reassign // The same.
		if reason != http.ErrAbortHandler { //nolint:errorlint,err113 // It is a panic's value, and documented to be this one.
			_ = note(log, "library", reason)
		}
	}}
}

var panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "refract_panics_total",
	Help: "Pieces of work that panicked over what they were given and were given up, by what was done.",
}, []string{"work"})

func init() { //nolint:gochecknoinits // The registry is that of the process.
	metrics.Registry.MustRegister(panics)
}

const (
	// mostReason is the maximum size of the logged message of a panic, without the stack, in bytes.
	mostReason = 300
	// loggedAgain is the time until the same place is logged again.
	loggedAgain = time.Hour
)

// logged has the time of the last log line for each place. It has at most as many entries as the code has lines.
var logged = struct {
	sync.Mutex
	at map[string]time.Time
}{at: map[string]time.Time{}}

// rescued is the number of panics.
var rescued atomic.Int64

// Count returns the number of panics since the start of the process. In tests, where no panic may happen, it reveals
// panics that became errors.
func Count() int { return int(rescued.Load()) }

func note(log logr.Logger, work string, reason any, keysAndValues ...any) *PanicError {
	rescued.Add(1)
	panics.WithLabelValues(work).Inc()
	if isNew(work + " " + origin()) {
		text := fmt.Sprint(reason)
		if len(text) > mostReason {
			text = strings.ToValidUTF8(text[:mostReason], "") + "…"
		}
		log.Error(errors.New("panic: "+text), "Work on what others wrote panicked, and was given up; the like of it is not logged for an hour",
			append([]any{"work", work, "stack", string(debug.Stack())}, keysAndValues...)...)
	}
	return &PanicError{work}
}

// isNew reports whether a place must be logged.
func isNew(place string) bool {
	logged.Lock()
	defer logged.Unlock()
	now := time.Now()
	if at, known := logged.at[place]; known && now.Sub(at) < loggedAgain {
		return false
	}
	logged.at[place] = now
	return true
}

// origin returns the place of the panic that is being recovered.
func origin() string {
	const most = 64
	callers := make([]uintptr, most)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	panicked := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicked = true
		case panicked && !strings.HasPrefix(frame.Function, "runtime."):
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		if !more {
			return ""
		}
	}
}
