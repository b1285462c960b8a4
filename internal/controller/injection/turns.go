package injection

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"refract.dev/inject"
	"refract.dev/internal/fair"
)

const (
	// turnPatience is how long a pod may take, with all that it waits for; the API server
	// waits for two seconds, and is told why the pod is not injected only before they are over.
	turnPatience = 1800 * time.Millisecond
	// Of pods that wait for their turn there may be so many pieces, for a namespace and for
	// all of them. A larger pod counts for several.
	waitingPiece                   = 64 << 10
	waitingEach, waitingAltogether = 128, 1024
)

// errBusy is wrapped by the error for a pod that had no turn.
var errBusy = errors.New("too many pods are being created at once")

// turns have the namespaces' pods take turns, for each is work: one namespace has all
// that others leave, and none waits for more than its turn.
type turns struct{ places *fair.Places }

func newTurns() *turns {
	return &turns{fair.New(fair.Options{Places: max(2, runtime.GOMAXPROCS(0)), Each: waitingEach, All: waitingAltogether})}
}

// inject has policies of a namespace do something to a pod when it is the namespace's
// turn. Its error wraps errBusy if there was none. No policies take no turn.
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
