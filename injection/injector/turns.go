package injector

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"refract.dev/injection/inject"
	"refract.dev/internal/fair"
)

const (
	// turnPatience bounds the review of a pod with all its waits. The API server waits for two seconds, and gets the
	// reason for a missing injection only within this time.
	turnPatience = 1800 * time.Millisecond
	// Waiting pods are counted in pieces of this size, with a bound for a namespace and for all namespaces. A larger
	// pod counts as several pieces.
	waitingPiece                   = 64 << 10
	waitingEach, waitingAltogether = 128, 1024
)

// errBusy is wrapped by the error for a pod without a turn.
var errBusy = errors.New("too many pods are being created at once")

// turns lets namespaces take turns at injecting pods, because each injection takes processor time. One namespace can
// use all places that no other namespace needs, and no namespace waits longer than for its turn.
type turns struct{ places *fair.Places }

func newTurns() *turns {
	return &turns{fair.New(fair.Options{Places: max(2, runtime.GOMAXPROCS(0)), Each: waitingEach, All: waitingAltogether})}
}

// inject calls do when it is the namespace's turn. Its error wraps errBusy if the pod had no turn. Without policies it
// calls do at once.
func (t *turns) inject(
	ctx context.Context, namespace string, set *inject.Set, pod []byte, do func(*inject.Set) (*inject.Result, error),
) (*inject.Result, error) {
	if set == nil {
		return do(set)
	}
	done, err := t.places.Take(ctx, namespace, 1+len(pod)/waitingPiece)
	if err != nil {
		return nil, fmt.Errorf("%w: waiting for the turn of namespace %q: %w", errBusy, namespace, err)
	}
	defer done()
	return do(set)
}
