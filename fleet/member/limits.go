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
// Reading 1 MiB within these bounds takes at most 64 MiB of memory. The kept data and the answers under way are counted
// for each member: see [account].
const (
	// mostAnswer is the maximum size of an answer after decompression, in bytes. mostEvent is the maximum size of one
	// event of a watch. The size of a whole watch is not bounded.
	mostAnswer = 16 << 20
	mostEvent  = 8 << 20
	// mostValues is the maximum number of JSON values in an answer. mostEventValues is the maximum number in an event.
	// An empty object of two bytes takes a hundred times that in memory.
	mostValues      = 250_000
	mostEventValues = 200_000
	// mostObjects is the maximum number of objects and lists at the third level of the JSON. The third level has the
	// objects of a list, and Refract never requests so many at a time.
	mostObjects = 10_000
	// mostDepth is the maximum nesting of values.
	mostDepth = 1000
	// mostHeader is the maximum size of the header of an answer, in bytes.
	mostHeader = 32 << 10

	// An answer or event is large if it has more than smallAnswer bytes or smallValues values. mostLarge is the maximum
	// number of large answers and events of a member that are read at the same time. The others wait.
	smallAnswer = 64 << 10
	smallValues = 4000
	mostLarge   = 2
	// mostUnread is the maximum number of bytes of an answer that may arrive before they are read.
	mostUnread = 512 << 10
	// mostBuffers is the maximum number of bytes that the watches of a member may hold together after large events.
	// Each watch counts with bufferFactor times its largest event: a decoder keeps the largest buffer that it needed,
	// and doubles the buffer if it is too small.
	mostBuffers  = 64 << 20
	bufferFactor = 4

	// pageSize is the number of copies in a page of a list. If this many copies exceed the bounds of an answer, fewer
	// are requested, down to one.
	pageSize = 100
	// mostPages is the maximum number of pages of a list. mostToken is the maximum size of a continue token, in bytes.
	mostPages = 5000
	mostToken = 16 << 10
	// pageTimeout is the time limit of a page. mostPagesAtOnce is the maximum number of pages of a member that are
	// requested at the same time.
	pageTimeout     = time.Minute
	mostPagesAtOnce = 4

	// mostCopies is the maximum number of stored copies of a member. mostKept is the maximum size of these copies in
	// bytes, including the sets of their owned fields. A copy that Refract writes counts as some 600 bytes.
	mostCopies = 200_000
	mostKept   = 128 << 20
	// mostNamespaces is the maximum number of namespaces of a member.
	mostNamespaces = 50_000
	// mostTypes is the maximum number of types of a member. mostVersions is the maximum number of versions of all its
	// API groups together.
	mostTypes    = 10_000
	mostVersions = 1000
	// mostStrays is the maximum number of watched types that have copies but do not exist on the hub any more.
	mostStrays = 50
	// mostListed is the maximum number of types and subresources in the discovery of a member. mostOfGroup is the
	// maximum number of versions of an API group when each version is searched for the objects of a type.
	mostListed  = 4 * mostTypes
	mostOfGroup = 100
	// discoveredAtOnce is the maximum number of versions that are requested at the same time.
	discoveredAtOnce = 4
	// mostMark is the maximum size of each annotation that marks a copy, in bytes.
	mostMark = 2 << 10
	// mostFields is the maximum size of the set of owned fields of a copy, in bytes. mostOfFields is the maximum size
	// of all such sets of a member. Of further sets, Refract keeps only a digest: it can see that a set has changed,
	// but not which fields have changed.
	mostFields   = 16 << 10
	mostOfFields = mostKept / 2
	// mostKnown is the maximum size of a cache, in bytes, for all members. The cache finds the set of owned fields for
	// a text of an API server. Each set counts as at least setBytes.
	mostKnown = 8 << 20
	// mostSet is the maximum size of a set of owned fields that is parsed, in bytes. Two longer sets that differ only
	// in the order of fields count as different.
	mostSet = 256 << 10
	// mostManagers is the maximum size of the managedFields of a copy, in bytes. Beyond that, Refract does not report
	// which manager has changed the copy.
	mostManagers = 1 << 20
	// mostMessage is the maximum size of a kept message in bytes, such as the reason why a copy is not ready.
	mostMessage = 1000
	// overRest is the wait before copies are listed again after there were too many.
	overRest = time.Minute
)

// LimitError means that an answer of a member exceeds a bound.
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

// brief bounds the text of an error. The text is logged and kept, and may quote a whole answer.
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

// excessKept is the time for which an answer that was too large is reported. The request is repeated within this time.
const excessKept = 5 * time.Minute

// limits are the bounds of one member: the room for its answers and for the data kept from them, and the last exceeded
// bound.
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
