// Package rescue keeps what others wrote from taking the process down: work on it that
// panics ends alone, with an error that its reports can show.
//
// A panic is a mistake of ours that somebody's data has found. It is counted each time,
// and logged with its stack once an hour for each place in the code: whoever sends such
// data again and again does not fill the log. It does not help against a stack that
// overflows, or memory that ends: what comes in is bounded for that.
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

// PanicError is the error that a panic has become. It does not say what the panic said, which
// may quote what who reads the error may not: that is for the log.
type PanicError struct {
	// Work is what was done, as "reading a copy".
	Work string
}

// Error says it to whoever reads a status.
func (p *PanicError) Error() string {
	return p.Work + ": Refract stumbled over what it was given; that is a mistake in Refract, which its log tells of"
}

// Is reports whether an error is, or wraps, a [PanicError]: it has been logged.
func Is(err error) bool { return errors.As(err, new(*PanicError)) }

// To is deferred by work on what others wrote. It makes a panic the error that err points
// to, logs it with these keys and values, and counts it. Without a panic it does nothing.
// The work is a constant: it is a label of the metric.
func To(err *error, log logr.Logger, work string, keysAndValues ...any) {
	if reason := recover(); reason != nil {
		*err = note(log, work, reason, keysAndValues...)
	}
}

// Libraries has goroutines that are not ours rescued, too, of which client-go has many: those
// that decode watches, and those that call our handlers. Each goes on as its library says
// (a watch begins anew), and the log is told. What controller-runtime rescues is counted
// with the others. It is for the whole process, and to be called before anything begins.
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
	// mostReason bounds what is logged of a panic beside the stack, in bytes.
	mostReason = 300
	// loggedAgain is when the same place is logged once more.
	loggedAgain = time.Hour
)

// logged says when each place was logged last. There are no more than the code has lines.
var logged = struct {
	sync.Mutex
	at map[string]time.Time
}{at: map[string]time.Time{}}

// rescued is how many panics there were.
var rescued atomic.Int64

// Count returns how many panics there were since the process began. Where one must not
// happen, as in tests of what others wrote, it tells one that was made an error from none.
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

// isNew reports whether a place is to be logged.
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

// origin returns the place of the panic that is being recovered from.
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
