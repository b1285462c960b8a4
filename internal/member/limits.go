package member

import (
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is taken from a member. Its API server is somebody else's: what it answers with
// beyond these bounds is not read, the request fails with a [LimitError], and the condition
// Readable of the cluster says so. They are far above what a well API server answers with:
// it takes objects of up to 3 MiB, and stores up to 1.5 MiB.
//
// Of 1 MiB that is within the bounds no more than 64 MiB of memory come.
const (
	// mostAnswer is how many bytes an answer may have, after decompression, and mostEvent
	// one event of a watch, which as a whole may have any number.
	mostAnswer = 16 << 20
	mostEvent  = 8 << 20
	// mostValues is how many values the JSON of an answer may have, and mostEventValues
	// that of an event: an empty object of two bytes takes a hundred times that in memory.
	mostValues      = 250_000
	mostEventValues = 200_000
	// mostObjects is how many objects, or lists, may stand at the third level: there are the
	// objects of a list, of which an API server is never asked for so many at a time.
	mostObjects = 10_000
	// mostDepth is how deeply they may be nested.
	mostDepth = 1000
	// mostHeader is how many bytes the head of an answer may have.
	mostHeader = 256 << 10

	// pageSize is how many objects are asked for at a time when copies are listed. When
	// these are too much for an answer fewer are, down to one.
	pageSize = 100
	// mostPages is how many pages a list may have, and mostToken how many bytes the token
	// that the next is asked for with.
	mostPages = 5000
	mostToken = 16 << 10
	// pageTimeout is how long a page may take.
	pageTimeout = time.Minute

	// mostCopies is how many copies of one type are kept: as many as mostPages have.
	mostCopies = mostPages * pageSize
	// mostTypes is how many types a member may serve, and mostVersions how many versions
	// API groups may have, together: the types of each may have to be asked for. There are
	// subresources among what it lists, and types in several versions.
	mostTypes    = 10_000
	mostVersions = 5_000
	mostListed   = 4 * mostTypes
	// mostOfGroup is how many versions one API group may have of which all are asked for
	// the objects of a type.
	mostOfGroup = 100
	// discoveredAtOnce is how many versions are asked for at the same time.
	discoveredAtOnce = 4
	// mostMark is how many bytes each of the annotations may have by which a copy is known.
	mostMark = 2 << 10
	// mostFields is how many bytes the record of the fields may have that Refract applied.
	// Of a longer one it is only known whether it is another than before.
	mostFields = 256 << 10
	// mostManagers is how many bytes the records of all field managers of a copy may have,
	// for it to be told who has changed it.
	mostManagers = 1 << 20
	// mostMessage is how many bytes are kept of why a copy is not ready.
	mostMessage = 1000
)

// LimitError says that a member answers with more than is taken from one.
type LimitError struct {
	// Member is the name of the cluster.
	Member string
	// What is limited, as "bytes of an answer".
	What string
	// Limit is how many there may be.
	Limit int
}

// Error names the member and the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("cluster %s answers with more than %d %s, which is more than Refract takes from a member", e.Member, e.Limit, e.What)
}

// isLimit reports whether an error is, or wraps, a [LimitError].
func isLimit(err error) bool { return errors.As(err, new(*LimitError)) }

// brief bounds what an error says, which may quote a whole answer: it is logged, and kept.
func brief(err error) error {
	if err == nil || len(err.Error()) <= mostMessage {
		return err
	}
	var said apierrors.APIStatus
	if errors.As(err, &said) {
		s := said.Status()
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: s.Status, Code: s.Code, Reason: s.Reason, Message: cut(s.Message)}}
	}
	return errors.New(cut(err.Error()))
}

// excessKept is how long it is told that a member has answered with too much: what it is
// asked for is asked again sooner.
const excessKept = 5 * time.Minute

// excess is what a member answered with too much of last.
type excess struct {
	now func() time.Time

	mu  sync.Mutex
	err *LimitError
	at  time.Time
}

func (e *excess) note(err *LimitError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.at = err, e.now()
}

// describe returns it as text; "" if there was none lately.
func (e *excess) describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil || e.now().Sub(e.at) > excessKept {
		return ""
	}
	return e.err.Error()
}
