// Package bounded reads AdmissionReviews within limits. Limits are necessary, because decoded JSON needs many times its
// size in memory, and because any client that can connect to a webhook can send reviews.
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
	// MaxBytes is the maximum size of a review in bytes. A review has two objects. Each may be as large as an API
	// server can store, and twice as large in JSON.
	MaxBytes = 8 << 20
	// MaxValues is the maximum number of JSON values in a review of a policy. It is enough for two policies with the
	// maximum number of items, and ten values for each item. Decoding, comparing and explaining needs half a KB for
	// each value.
	MaxValues = 100_000
)

// Handler returns a handler that calls f for each review. The server does not accept reviews of more than MaxBytes.
func Handler(f admission.Func) http.Handler { return &handler{admission.Handler(f)} }

type handler struct{ http.Handler }

// MaxBytes returns the maximum size of a review; the server enforces it.
func (*handler) MaxBytes() int64 { return MaxBytes }

// atOnce is the number of reviews that are read at the same time. A waiting review counts as one piece for each
// waitingPiece bytes. waitingEach limits the pieces of one namespace, and waitingAltogether those of all namespaces.
const (
	atOnce                         = 2
	waitingPiece                   = 64 << 10
	waitingEach, waitingAltogether = 32, 128
)

// Turns returns the limits for reviews that are being read, and for waiting reviews, which are counted by [Weight].
func Turns() fair.Options {
	return fair.Options{Places: atOnce, Each: waitingEach, All: waitingAltogether}
}

// Weight returns the number of pieces of a review.
func Weight(req *admission.Request) int { return 1 + (len(req.Object)+len(req.OldObject))/waitingPiece }

// Reader lets namespaces take turns at work on reviews that needs only their objects, such as decoding and checking.
// Handlers that share a Reader share the turns. It is safe for concurrent use.
type Reader struct {
	places *fair.Places
	values int
}

// NewReader returns a Reader that rejects reviews with more values than this. All members, elements, objects and lists
// of the new and the old object count as values.
func NewReader(values int) *Reader { return &Reader{fair.New(Turns()), values} }

// ErrTooLong is the cause of a context that ends because a review has waited too long.
var ErrTooLong = errors.New("it takes too long")

// Read calls the function read when it is the turn of the review's namespace, and returns the error of read. If ctx
// ends first, or if the review has too many values, Read does not call the function. Its error then has a status for
// the API server. Values are counted without decoding the objects.
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
