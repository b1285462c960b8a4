package webhook

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// defaultInFlight is the room for bodies unless the options say otherwise: for the
	// largest review of a conversion, and others beside it.
	defaultInFlight = 256 << 20
	// firstPiece is how much of a body must have come before it gets room, no more than
	// what a connection takes anyway. Most reviews of one object are not larger.
	firstPiece = 64 << 10
	// smallBody is the size up to which a body is small: a review of one object is, as
	// an API server takes no request of more than 3 MiB.
	smallBody = 4 << 20
)

// room bounds the bytes of the bodies that are held at the same time. A quarter of
// it is for those of single objects, so that lists do not keep them waiting, and a
// quarter of that for those that are there at once, so that nobody who sends slowly
// does.
type room struct{ pools [3]pool }

// pool is the room for bodies of up to a size; the last one is for all others.
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

// grant is the room of one body.
type grant struct {
	of   *pool
	size int64
}

// take waits for room until ctx ends or patience is over; it returns nil if there was
// none. A body that would not fit by itself has all the room for large ones.
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

// release gives the room back.
func (g *grant) release() { g.of.free.Release(g.size) }

// wanted reports whether somebody waits for this room.
func (g *grant) wanted() bool { return g.of.waiting.Load() > 0 }
