// Package bounded reads reviews of admission, whoever sends them, within bounds: JSON takes
// many times its length in memory, and a webhook's port answers whoever reaches it.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/internal/fair"
	"refract.dev/tree"
	"refract.dev/webhook/admission"
)

// mostBytes is how large a review may be: two objects as large as an API server stores,
// each perhaps twice as long in JSON.
const mostBytes = 8 << 20

// Handler returns the handler that has f answer reviews of at most 8 MiB. A server of
// package webhook reads no more.
func Handler(f admission.Func) http.Handler { return &handler{admission.Handler(f)} }

type handler struct{ http.Handler }

// MaxBytes is for the server.
func (*handler) MaxBytes() int64 { return mostBytes }

// atOnce is how many objects are read at the same time. Some more wait, of a namespace and
// altogether: so many pieces of them, of which a larger review counts for several.
const (
	atOnce                         = 2
	waitingPiece                   = 64 << 10
	waitingEach, waitingAltogether = 32, 128
)

// Turns returns how many work at the same time on reviews that weigh as [Weight] says, and
// how many wait.
func Turns() fair.Options {
	return fair.Options{Places: atOnce, Each: waitingEach, All: waitingAltogether}
}

// Weight is how many pieces of a review wait.
func Weight(req *admission.Request) int { return 1 + (len(req.Object)+len(req.OldObject))/waitingPiece }

// Reader has what is done with objects alone, as to decode and check them, be done when it
// is the turn of their namespace. Handlers that share one take turns with each other. It may
// be used by many goroutines.
type Reader struct {
	places *fair.Places
	values int
}

// NewReader returns one for reviews whose objects, that before included, have together at
// most so many members, elements, objects and lists.
func NewReader(values int) *Reader { return &Reader{fair.New(Turns()), values} }

// ErrTooLong is a cause of contexts that end because somebody has waited for too long.
var ErrTooLong = errors.New("it takes too long")

// Read calls read when it is the turn of the review's namespace, and returns its error. It
// does not call it, and returns an error with a status, if the turn does not come before ctx
// ends, or the review has too many values: these are counted first.
func (r *Reader) Read(ctx context.Context, req *admission.Request, read func() error) error {
	done, err := r.places.Take(ctx, req.Namespace, Weight(req))
	if err != nil {
		return status(&metav1.Status{
			Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
			Message: fmt.Sprintf("the object could not be looked at: %v: try again", err),
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		})
	}
	defer done()
	if tree.Values(req.Object)+tree.Values(req.OldObject) > r.values {
		return status(&metav1.Status{
			Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: fmt.Sprintf("the object, and what it was before, have more than %d values together: make several of it", r.values),
		})
	}
	return read()
}

func status(s *metav1.Status) error {
	s.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: *s}
}
