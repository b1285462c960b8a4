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

// Bounds of the answers of a member. The API server of a member is not trusted: Refract does not read answers beyond
// these bounds, the request fails with a [LimitError], and the condition Readable of the cluster reports it. The bounds
// are far above the answers of a healthy API server, which accepts objects of up to 3 MiB and stores up to 1.5 MiB.
//
// Reading 1 MiB within these bounds takes at most 64 MiB of memory. The data that is kept or read at the same time is
// counted for each member: see [account].
const (
	// mostAnswer is how many bytes an answer may have after decompression, and mostEvent how many one event of a watch
	// may have. A whole watch may have any number.
	mostAnswer = 16 << 20
	mostEvent  = 8 << 20
	// mostValues is how many values the JSON of an answer may have, and mostEventValues how many that of an event may
	// have: an empty object of two bytes takes a hundred times that in memory.
	mostValues      = 250_000
	mostEventValues = 200_000
	// mostObjects is how many objects and lists the third level of the JSON may have. The third level has the objects
	// of a list, and Refract never requests so many at a time.
	mostObjects = 10_000
	// mostDepth is how deeply values may be nested.
	mostDepth = 1000
	// mostHeader is how many bytes the header of an answer may have.
	mostHeader = 32 << 10

	// smallAnswer and smallValues are how many bytes and values an answer or event may have without being large.
	// mostLarge is how many large ones of a member are read at the same time. The others wait.
	smallAnswer = 64 << 10
	smallValues = 4000
	mostLarge   = 2
	// mostUnread is how many bytes of an answer may arrive before they are read.
	mostUnread = 512 << 10
	// mostBuffers is how many bytes the watches of a member may hold together after large events. Each watch counts
	// with bufferFactor times its largest event: a decoder keeps the memory that it needed once, and doubles it when it
	// is not enough.
	mostBuffers  = 64 << 20
	bufferFactor = 4

	// pageSize is how many copies are requested at a time in a list. If these are too much for an answer, fewer are
	// requested, down to one.
	pageSize = 100
	// mostPages is how many pages a list may have, and mostToken how many bytes the token for the next page may have.
	mostPages = 5000
	mostToken = 16 << 10
	// pageTimeout is how long a page may take, and mostPagesAtOnce how many pages of a member are requested at the same
	// time.
	pageTimeout     = time.Minute
	mostPagesAtOnce = 4

	// mostCopies is how many copies of a member are kept, and mostKept how many bytes these may take, with the records
	// of the fields that Refract applied to them. A copy that Refract writes counts as some 600 bytes.
	mostCopies = 200_000
	mostKept   = 128 << 20
	// mostNamespaces is how many namespaces a member may have.
	mostNamespaces = 50_000
	// mostTypes is how many types a member may serve, and mostVersions how many versions its API groups may have
	// together.
	mostTypes    = 10_000
	mostVersions = 1000
	// mostStrays is how many types may be watched that have copies but do not exist on the hub any more.
	mostStrays = 50
	// mostListed is how many types and subresources a member may list, and mostOfGroup how many versions an API group
	// may have if each of them is searched for the objects of a type.
	mostListed  = 4 * mostTypes
	mostOfGroup = 100
	// discoveredAtOnce is how many versions are requested at the same time.
	discoveredAtOnce = 4
	// mostMark is how many bytes each of the annotations that mark a copy may have.
	mostMark = 2 << 10
	// mostFields is how many bytes the record of the fields that Refract applied to a copy may have, and mostOfFields
	// how many the records of all copies of a member may have. Beyond that, Refract keeps only a digest, and knows that
	// a record has changed, but not the fields.
	mostFields   = 16 << 10
	mostOfFields = mostKept / 2
	// mostKnown is how many bytes the records of all members may have that are cached by the text that an API server
	// wrote. Each record counts as at least setBytes.
	mostKnown = 8 << 20
	// mostSet is how many bytes a record of fields may have to be parsed. In a longer record, the order of the fields
	// counts, too.
	mostSet = 256 << 10
	// mostManagers is how many bytes the records of all field managers of a copy may have. Beyond that, Refract does
	// not tell which manager has changed the copy.
	mostManagers = 1 << 20
	// mostMessage is how many bytes are kept of a message, such as the reason why a copy is not ready.
	mostMessage = 1000
	// overRest is how long no copies are listed after there were too many.
	overRest = time.Minute
)

// LimitError says that a member has answered with more than a bound permits.
type LimitError struct {
	// Member is the name of the cluster.
	Member string
	// What names the limited quantity, such as "bytes of an answer".
	What string
	// Limit is the bound.
	Limit int
}

// Error names the member and the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("cluster %s answers with more than %d %s, the limit for a member", e.Member, e.Limit, e.What)
}

// isLimit reports whether an error is, or wraps, a [LimitError].
func isLimit(err error) bool { return errors.As(err, new(*LimitError)) }

// brief bounds the text of an error, which is logged and kept, and may quote a whole answer.
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

// excessKept is how long an answer that was too large is reported. The same request is made again before that.
const excessKept = 5 * time.Minute

// limits are the bounds of one member: the room for its answers and for data that is kept of them, and the last bound
// that it exceeded.
type limits struct {
	account *account
	excess  *excess
}

func newLimits(member string) limits {
	return limits{newAccount(), &excess{member: member, now: time.Now}}
}

// excess is the last bound that a member exceeded.
type excess struct {
	member string
	now    func() time.Time

	mu  sync.Mutex
	err *LimitError
	at  time.Time
}

// over records that a bound was exceeded, and returns the error to fail with.
func (e *excess) over(what string, limit int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.at = &LimitError{Member: e.member, What: what, Limit: limit}, e.now()
	return e.err
}

// describe returns the last exceeded bound as text; "" if none was exceeded lately.
func (e *excess) describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil || e.now().Sub(e.at) > excessKept {
		return ""
	}
	return e.err.Error()
}
