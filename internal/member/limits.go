package member

import (
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/internal/output"
)

// What is taken from a member. Its API server is somebody else's: what it answers with
// beyond these bounds is not read, the request fails with a [LimitError], and the condition
// Readable of the cluster says so. They are far above what a well API server answers with:
// it takes objects of up to 3 MiB, and stores up to 1.5 MiB.
//
// To read 1 MiB within these bounds takes 64 MiB of memory at most. What is kept, and
// what is read at a time, is counted for each member: see [account].
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
	mostHeader = 32 << 10

	// smallAnswer and smallValues are how many bytes and values an answer, or an event, may
	// have without being large, and mostLarge is how many large ones of a member are read at
	// a time. The others wait.
	smallAnswer = 64 << 10
	smallValues = 4000
	mostLarge   = 2
	// mostUnread is how many bytes of an answer may have come that nobody has read yet.
	mostUnread = 512 << 10
	// mostBuffers is how many bytes the watches of a member may hold together after large
	// events, each of them bufferFactor times the largest: what decodes them keeps the
	// memory that it needed once, and takes twice as much each time that it is not enough.
	mostBuffers  = 64 << 20
	bufferFactor = 4

	// pageSize is how many objects are asked for at a time when copies are listed. When
	// these are too much for an answer fewer are, down to one.
	pageSize = 100
	// mostPages is how many pages a list may have, and mostToken how many bytes the token
	// that the next is asked for with.
	mostPages = 5000
	mostToken = 16 << 10
	// pageTimeout is how long a page may take, and mostPagesAtOnce how many pages a member
	// is asked for at a time.
	pageTimeout     = time.Minute
	mostPagesAtOnce = 4

	// mostCopies is how many copies are kept of a member, and mostKept how many bytes these
	// may take, with the records of the fields that Refract applied to them. A copy as
	// Refract writes it counts for some 600.
	mostCopies = 200_000
	mostKept   = 128 << 20
	// mostNamespaces is how many namespaces a member may have.
	mostNamespaces = 50_000
	// mostTypes is how many types a member may serve, and mostVersions how many versions
	// its API groups may have together, if each has to be asked for.
	mostTypes    = 10_000
	mostVersions = 1000
	// mostStrays is how many types may be watched, as there is a copy, that the hub does not
	// have: once it had.
	mostStrays = 50
	// mostListed is how many types and subresources a member may list, and mostOfGroup how
	// many versions one API group may have of which all are asked for the objects of a type.
	mostListed  = 4 * mostTypes
	mostOfGroup = 100
	// discoveredAtOnce is how many versions are asked for at the same time.
	discoveredAtOnce = 4
	// mostMark is how many bytes each of the annotations may have by which a copy is known.
	mostMark = 2 << 10
	// mostFields is how many bytes the record of the fields may have that Refract applied to
	// a copy, and mostOfFields how many they may have of all copies of a member. Of one beyond
	// that it is only known whether it is another than before.
	mostFields   = 16 << 10
	mostOfFields = mostKept / 2
	// knownSets is how many of these records are known, of all members together, by how an
	// API server wrote them, and mostKnown how many bytes they may have.
	knownSets = 2048
	mostKnown = 8 << 20
	// mostSet is how many bytes a record of fields may have to be read at all. Of a longer
	// one their order counts, too.
	mostSet = 256 << 10
	// mostManagers is how many bytes the records of all field managers of a copy may have,
	// for it to be told who has changed it.
	mostManagers = 1 << 20
	// mostMessage is how many bytes are kept of why a copy is not ready.
	mostMessage = 1000
	// overRest is how long copies are not asked for after there were too many.
	overRest = time.Minute
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
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return limit
	}
	var said apierrors.APIStatus
	if errors.As(err, &said) {
		s := said.Status()
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: s.Status, Code: s.Code, Reason: s.Reason, Message: output.Cut(s.Message, mostMessage), Details: briefly(s.Details),
		}}
	}
	return errors.New(output.Cut(err.Error(), mostMessage))
}

// briefly bounds the details of an error.
func briefly(d *metav1.StatusDetails) *metav1.StatusDetails {
	if d == nil {
		return nil
	}
	const most = 16
	b := &metav1.StatusDetails{Name: output.Cut(d.Name, mostMessage), Group: output.Cut(d.Group, mostMessage), Kind: output.Cut(d.Kind, mostMessage)}
	for _, cause := range d.Causes[:min(len(d.Causes), most)] {
		b.Causes = append(b.Causes, metav1.StatusCause{
			Type:    metav1.CauseType(output.Cut(string(cause.Type), mostMessage)),
			Message: output.Cut(cause.Message, mostMessage),
			Field:   output.Cut(cause.Field, mostMessage),
		})
	}
	return b
}

// excessKept is how long it is told that a member has answered with too much: what it is
// asked for is asked again sooner.
const excessKept = 5 * time.Minute

// limits are what is taken from one member: room for what it answers and for what is kept of
// that, and what there was too much of.
type limits struct {
	account *account
	excess  *excess
}

func newLimits(member string) limits {
	return limits{newAccount(), &excess{member: member, now: time.Now}}
}

// excess is what a member answered with too much of last.
type excess struct {
	member string
	now    func() time.Time

	mu  sync.Mutex
	err *LimitError
	at  time.Time
}

// over records that there was too much of something, and returns the error to fail with.
func (e *excess) over(what string, limit int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.at = &LimitError{Member: e.member, What: what, Limit: limit}, e.now()
	return e.err
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
