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
	// turnPatience is the time limit for the review of a pod, including all waits. It is shorter than the two seconds
	// of the API server, so that the response can still explain why the pod is not injected.
	turnPatience = 1800 * time.Millisecond
	// waitingPiece is the size of a waiting pod that counts as one piece; a larger pod counts as several. waitingEach
	// and waitingAltogether bound the pieces of one namespace and of all namespaces.
	waitingPiece                   = 64 << 10
	waitingEach, waitingAltogether = 128, 1024
)

// errBusy is wrapped by the error for a pod whose namespace did not get its turn.
var errBusy = errors.New("too many pods are being created at once")

// turns lets namespaces take turns at injecting pods, because an injection uses much processor time. One namespace may
// use all places that no other namespace needs. No namespace waits longer than until its next turn.
type turns struct{ places *fair.Places }

func newTurns() *turns {
	return &turns{fair.New(fair.Options{Places: max(2, runtime.GOMAXPROCS(0)), Each: waitingEach, All: waitingAltogether})}
}

// inject calls do when it is the namespace's turn. If the turn does not come in time, the error wraps errBusy. If the
// namespace has no policies, inject calls do at once.
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
