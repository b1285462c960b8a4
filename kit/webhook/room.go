package webhook

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// defaultInFlight is the default memory for bodies. It is enough for the largest ConversionReview and other bodies
	// at the same time.
	defaultInFlight = 256 << 20
	// firstPiece is the number of bytes of a body that must arrive before the body is granted memory. It does not
	// exceed the buffers of a connection. Most reviews of one object are smaller.
	firstPiece = 64 << 10
	// smallBody is the maximum size of a small body. A review of one object is small, because an API server accepts no
	// request of more than 3 MiB.
	smallBody = 4 << 20
)

// room limits the memory for the bodies of all requests in progress. A quarter of it is for reviews of single objects,
// so that lists do not delay them. A quarter of that quarter is for bodies of at most firstPiece, so that slow senders
// do not delay them.
type room struct{ pools [3]pool }

// pool is the memory for bodies up to a maximum size. The last pool is for all larger bodies.
type pool struct {
	free       *semaphore.Weighted
	size, most int64
	waiting    atomic.Int64
}

func newRoom(size int64) *room {
	if size <= 0 {
		size = defaultInFlight
	}
	single, atOnce := size/4, size/16
	r := &room{}
	for i, p := range []struct{ size, most int64 }{{atOnce, firstPiece}, {single - atOnce, smallBody}, {size - single, size}} {
		r.pools[i].free, r.pools[i].size, r.pools[i].most = semaphore.NewWeighted(p.size), p.size, min(p.size, p.most)
	}
	return r
}

// grant is the memory of one body.
type grant struct {
	of   *pool
	size int64
}

// take waits for memory until ctx ends or patience has passed. Then it returns nil. A body that is larger than its pool
// gets the whole pool.
func (r *room) take(ctx context.Context, size int64, patience time.Duration) *grant {
	of := &r.pools[0]
	for i := range r.pools {
		if of = &r.pools[i]; size <= of.most {
			break
		}
	}
	g := &grant{of, min(size, of.size)}
	if of.free.TryAcquire(g.size) {
		return g
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of.waiting.Add(1)
	defer of.waiting.Add(-1)
	if of.free.Acquire(ctx, g.size) != nil {
		return nil
	}
	return g
}

// release returns the memory to its pool.
func (g *grant) release() { g.of.free.Release(g.size) }

// wanted reports whether another body waits for memory of the same pool.
func (g *grant) wanted() bool { return g.of.waiting.Load() > 0 }
