package webhook

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// defaultInFlight is the room for bodies unless the options say otherwise: for the
	// largest review of a conversion, and others beside it.
	defaultInFlight = 256 << 20
	// smallBody is the size up to which a body is small: a review of one object is, as
	// an API server takes no request of more than 3 MiB.
	smallBody = 4 << 20
)

// room bounds the bytes of the bodies that are held at the same time. A quarter of
// it is for small ones, so that lists do not keep single objects waiting.
type room struct {
	small, large     *semaphore.Weighted
	forSmall, forAll int64
}

func newRoom(size int64) *room {
	if size <= 0 {
		size = defaultInFlight
	}
	r := &room{forSmall: size / 4, forAll: size - size/4}
	r.small, r.large = semaphore.NewWeighted(r.forSmall), semaphore.NewWeighted(r.forAll)
	return r
}

// take waits for room until ctx ends or patience is over. It returns what it took,
// and what gives that back; nil if there was no room. A body that would not fit by
// itself has all the room for large ones.
func (r *room) take(ctx context.Context, size int64, patience time.Duration) (taken int64, release func()) {
	of, size := r.large, min(size, r.forAll)
	if size <= min(smallBody, r.forSmall) {
		of = r.small
	}
	if !of.TryAcquire(size) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if of.Acquire(ctx, size) != nil {
			return 0, nil
		}
	}
	return size, func() { of.Release(size) }
}
