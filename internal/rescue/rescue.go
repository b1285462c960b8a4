// Package rescue recovers panics, so that unusual data of a user cannot end the process. Only the work on this data
// fails, with an error.
//
// A panic is a bug in Refract. The package counts every panic. It also logs it with its stack, but only once an hour
// for each place in the code, because the same data may cause many panics. The package does not help if the stack or
// the memory is exhausted. All input is bounded to prevent that.
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

// PanicError is the error of work that panicked. It does not contain the message of the panic, because the message may
// have data that the reader of the error may not see. The message is in the log.
type PanicError struct {
	// Work describes the work, such as "reading a copy".
	Work string
}

// Error returns the error as text for users.
func (p *PanicError) Error() string {
	return p.Work + ": Refract stumbled over what it was given; that is a mistake in Refract, which its log tells of"
}

// Is reports whether an error is a [PanicError] or wraps one. The panic is already in the log.
func Is(err error) bool { return errors.As(err, new(*PanicError)) }

// To recovers a panic. It must be deferred by functions that process data of users. It stores a [PanicError] in err,
// logs the panic with the given keys and values, and counts it. Without a panic it does nothing. The argument work must
// be a constant, because it is a label of the metric.
func To(err *error, log logr.Logger, work string, keysAndValues ...any) {
	if reason := recover(); reason != nil {
		*err = note(log, work, reason, keysAndValues...)
	}
}

// Libraries makes libraries recover panics in their goroutines. client-go has many goroutines, which decode watches and
// call handlers of Refract. After a panic, a goroutine continues as its library defines; for example, a watch starts
// again. Libraries also logs these panics, and counts them together with those that controller-runtime recovers. It
// changes the whole process, and must be called before other goroutines start.
func Libraries(log logr.Logger) {
	utilruntime.ReallyCrash = false                                                                //nolint:reassign // The variable is meant to be set.
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, reason any) { //nolint:reassign // The same.
		if reason != http.ErrAbortHandler { //nolint:errorlint,err113 // net/http panics with exactly this value to abort a handler.
			_ = note(log, "library", reason)
		}
	}}
}

var panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "refract_panics_total",
	Help: "Pieces of work that panicked over what they were given and were given up, by what was done.",
}, []string{"work"})

func init() { //nolint:gochecknoinits // The metrics registry is global to the process.
	metrics.Registry.MustRegister(panics)
}

const (
	// mostReason is the maximum size of a panic's message in the log, without the stack, in bytes.
	mostReason = 300
	// loggedAgain is the time after which a panic at the same place is logged again.
	loggedAgain = time.Hour
)

// logged has the time at which a panic was last logged, for each place in the code. Its size is bounded, because the
// number of places is.
var logged = struct {
	sync.Mutex
	at map[string]time.Time
}{at: map[string]time.Time{}}

// rescued is the number of recovered panics.
var rescued atomic.Int64

// Count returns the number of recovered panics. Tests use it to detect panics that were only returned as errors.
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

// isNew reports whether a panic at this place must be logged, and remembers the place.
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

// origin returns the place in the code of the panic that is being recovered.
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
