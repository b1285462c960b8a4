// Package bounded reads AdmissionReviews within bounds. JSON takes many times its length in memory, and any client that
// reaches a webhook's port can send reviews.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/internal/fair"
	"refract.dev/kit/webhook/admission"
	"refract.dev/tree"
)

const (
	// MaxBytes is the largest review: two objects of the largest size that an API server stores, each with JSON of twice
	// that size.
	MaxBytes = 8 << 20
	// MaxValues is the maximum number of values in a review of a policy for objects or pods: two policies with the
	// largest number of items, with ten values each. Decoding, comparing and explaining takes half a KB for each value.
	MaxValues = 100_000
)

// Handler returns a handler that answers reviews of at most 8 MiB with f. A server of package webhook reads no more.
func Handler(f admission.Func) http.Handler { return &handler{admission.Handler(f)} }

type handler struct{ http.Handler }

// MaxBytes tells the server the limit.
func (*handler) MaxBytes() int64 { return MaxBytes }

// atOnce is the number of reviews that are read at the same time. waitingEach and waitingAltogether bound the reviews
// that wait, for each namespace and for all together, in pieces of waitingPiece bytes. A larger review counts as
// several pieces.
const (
	atOnce                         = 2
	waitingPiece                   = 64 << 10
	waitingEach, waitingAltogether = 32, 128
)

// Turns returns the limits of reviews at work and of waiting reviews, whose weights [Weight] returns.
func Turns() fair.Options {
	return fair.Options{Places: atOnce, Each: waitingEach, All: waitingAltogether}
}

// Weight returns the weight of a waiting review in pieces.
func Weight(req *admission.Request) int { return 1 + (len(req.Object)+len(req.OldObject))/waitingPiece }

// Reader runs work that needs only the objects of a review, such as decoding and checking, when their namespace has its
// turn. Handlers that share a Reader share its turns. Many goroutines may use it.
type Reader struct {
	places *fair.Places
	values int
}

// NewReader returns a Reader that accepts at most this many values in a review. Values are the members, elements,
// objects and lists of the object and the old object together.
func NewReader(values int) *Reader { return &Reader{fair.New(Turns()), values} }

// ErrTooLong is the cause of contexts that end because a review has waited too long.
var ErrTooLong = errors.New("it takes too long")

// Read calls read when the review's namespace has its turn, and returns its error. If ctx ends before the turn, or if
// the review has too many values, Read returns an error with a status and does not call read. Values are counted
// without decoding.
func (r *Reader) Read(ctx context.Context, req *admission.Request, read func() error) error {
	done, err := r.places.Take(ctx, req.Namespace, Weight(req))
	if err != nil {
		return status(&metav1.Status{
			Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
			Message: fmt.Sprintf("the object could not be checked: %v: try again", err),
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		})
	}
	defer done()
	if tree.Values(req.Object)+tree.Values(req.OldObject) > r.values {
		return status(&metav1.Status{
			Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: fmt.Sprintf("the object and its old version have more than %d values together: split the object", r.values),
		})
	}
	return read()
}

func status(s *metav1.Status) error {
	s.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: *s}
}
