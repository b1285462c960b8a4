package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"refract.dev/internal/output"
)

const (
	// notShown is the reason why an answer about a Secret is not shown.
	notShown = "its answer is not shown, as it may hold values of Secrets"
	// notShownOf is notShown for other types.
	notShownOf = "its answer is not shown, as it may contain confidential values"
	// unnamedCause replaces a name that a member has written.
	unnamedCause = "(not shown)"
)

// masked hides confidential values in the error of a request for objects of a type. Sent is the object in the request,
// if any. An API server quotes the values that it rejects, and a webhook may quote all values, in any encoding. So if
// the content of the type is sealed, no value of the object remains in the error. An error about a Secret has no text
// of the member, only words of Refract that the callers recognize. An error about another sealed type keeps its reason,
// its code, the paths of fields and the words that are not values: see [wording].
func masked(of schema.GroupResource, sent []byte, err error) error {
	if err == nil || !Sealed(of) {
		return err
	}
	var said apierrors.APIStatus
	switch dial := (*net.OpError)(nil); {
	case errors.As(err, &said):
		return &apierrors.StatusError{ErrStatus: maskedStatus(of, sent, said.Status())}
	case isLimit(err), errors.As(err, &dial), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return err // The error does not come from an answer.
	}
	return &unshown{of, err}
}

// unshown is an error whose text may come from the member.
type unshown struct {
	of  schema.GroupResource
	err error
}

// Error implements error.
func (u *unshown) Error() string {
	if isSecret(u.of) {
		return "the answer of the cluster about Secrets is unreadable: " + notShown
	}
	return fmt.Sprintf("the answer of the cluster about %s is unreadable: %s", u.of, notShownOf)
}

// Unwrap returns the hidden error, so that callers can recognize it.
func (u *unshown) Unwrap() error { return u.err }

// knownReasons are the reasons of API servers that are passed on.
var knownReasons = []metav1.StatusReason{
	metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
	metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonStoreReadError, metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest,
	metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonRequestEntityTooLarge,
	metav1.StatusReasonUnsupportedMediaType, metav1.StatusReasonInternalError, metav1.StatusReasonExpired, metav1.StatusReasonServiceUnavailable,
}

// maskedStatus returns the Status of an API server without values of sealed objects.
func maskedStatus(of schema.GroupResource, sent []byte, said metav1.Status) metav1.Status {
	s := metav1.Status{Status: metav1.StatusFailure, Code: said.Code}
	if s.Code < http.StatusBadRequest || s.Code > 599 {
		s.Code = http.StatusInternalServerError
	}
	if slices.Contains(knownReasons, said.Reason) {
		s.Reason = said.Reason
	}
	if isSecret(of) {
		s.Details, s.Message = maskedDetails(said.Details), maskedMessage(of, &said, s.Code)
		return s
	}
	w := newWording(of, sent, said.Details)
	s.Details, s.Message = w.details(said.Details), w.message(&said)
	return s
}

// maskedMessage keeps only the parts of a message by which Refract distinguishes errors.
func maskedMessage(of schema.GroupResource, said *metav1.Status, code int32) string {
	if verb := knownDenial(said.Message); verb != "" {
		return fmt.Sprintf(`the request is forbidden: User %q cannot %s resource %q`, unnamedCause, verb, of.Resource)
	}
	for _, counted := range []string{of.Resource + "=1", "count/" + of.String() + "=1"} {
		if strings.Contains(said.Message, "is forbidden: exceeded quota: ") && strings.Contains(said.Message, ", requested: "+counted+", used: ") {
			return fmt.Sprintf("the request is forbidden: exceeded quota: %s, requested: %s, used: %s", unnamedCause, counted, unnamedCause)
		}
	}
	const webhook = "Internal error occurred: failed calling webhook "
	switch {
	case strings.HasPrefix(said.Message, webhook):
		return fmt.Sprintf("%s%q: %s", webhook, unnamedCause, notShown)
	case strings.HasPrefix(said.Message, deniedByWebhook):
		return deniedByWebhook + "of the cluster denied the request about Secrets: " + notShown
	case strings.Contains(said.Message, deniedByPolicy):
		return "a policy of the cluster" + deniedByPolicy + notShown
	}
	if words := ofStorage(said.Message); words != "" {
		return words
	}
	for _, words := range tooLarge {
		if strings.Contains(said.Message, words) {
			return words
		}
	}
	return fmt.Sprintf("the API server refused the request about Secrets with status %d: %s", code, notShown)
}

// Words of API servers for an object that admission has denied.
const (
	deniedByWebhook = "admission webhook "
	deniedByPolicy  = " denied request: "
)

// ofStorage returns the words of an error of etcd in the answer of an API server, or "". It looks only at the
// beginning of the answer, because an answer that quotes an object begins with other words.
func ofStorage(message string) string {
	for _, before := range []string{"Internal error occurred: ", `an error on the server ("`} {
		message = strings.TrimPrefix(message, before)
	}
	if strings.HasPrefix(message, "rpc error: ") {
		_, message, _ = strings.Cut(message, " desc = ")
	}
	at := slices.IndexFunc(storageWords, func(words string) bool { return strings.HasPrefix(message, words) })
	if at < 0 {
		return ""
	}
	return storageWords[at]
}

// storageWords are the words of errors of etcd in answers of API servers. These errors concern all objects.
var storageWords = []string{
	"etcdserver: mvcc: database space exceeded", "etcdserver: request timed out", "etcdserver: leader changed",
	"etcdserver: no leader", "etcdserver: too many requests",
}

// rightsVerbs are the verbs of Refract's requests.
var rightsVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// knownDenial returns the verb of the missing right; "" if no right is missing.
func knownDenial(message string) string {
	said := denial.FindStringSubmatch(message)
	if said == nil || !slices.Contains(rightsVerbs, said[1]) {
		return ""
	}
	return said[1]
}

// maskedDetails keeps only the details that callers need to distinguish errors.
func maskedDetails(d *metav1.StatusDetails) *metav1.StatusDetails {
	if d == nil {
		return nil
	}
	kept := &metav1.StatusDetails{}
	if d.Kind == namespaces.Resource && d.Group == namespaces.Group {
		kept.Kind = d.Kind
	}
	const immutable = "immutable"
	for _, cause := range briefly(d).Causes {
		var c metav1.StatusCause
		switch {
		case cause.Type == "NamespaceTerminating":
			c.Type = cause.Type
		case cause.Field == "metadata.uid":
			c.Field = cause.Field
		case strings.Contains(cause.Message, immutable) && slices.Contains([]string{"data", "type", immutable}, cause.Field):
			c.Field, c.Message = cause.Field, immutable
		default:
			continue
		}
		kept.Causes = append(kept.Causes, c)
	}
	return kept
}

// maskedWatch returns a watch whose errors are masked.
func maskedWatch(of schema.GroupResource, events watch.Interface) watch.Interface {
	if !Sealed(of) {
		return events
	}
	w := &maskedEvents{Interface: events, of: of, to: make(chan watch.Event), over: make(chan struct{})}
	go w.forward()
	return w
}

// maskedEvents is a watch whose errors are masked. [watch.Filter] would leave a goroutine behind if the watch is
// stopped while an event waits.
type maskedEvents struct {
	watch.Interface

	of   schema.GroupResource
	to   chan watch.Event
	once sync.Once
	over chan struct{} // Closed when the watch is stopped.
}

// ResultChan implements [watch.Interface].
func (w *maskedEvents) ResultChan() <-chan watch.Event { return w.to }

// Stop implements [watch.Interface].
func (w *maskedEvents) Stop() {
	w.once.Do(func() { close(w.over) })
	w.Interface.Stop()
}

func (w *maskedEvents) forward() {
	defer close(w.to)
	for e := range w.Interface.ResultChan() {
		if e.Type == watch.Error {
			said := metav1.Status{Code: http.StatusInternalServerError}
			if s, ok := e.Object.(*metav1.Status); ok {
				said = *s
			}
			s := maskedStatus(w.of, nil, said)
			e.Object = &s
		}
		select {
		case w.to <- e:
		case <-w.over:
			return
		}
	}
}

// maskedFault returns the reason why a member's answer about an object cannot be read.
func maskedFault(of schema.GroupResource, why error) string {
	switch {
	case isSecret(of):
		return notShown
	case Sealed(of):
		return notShownOf
	}
	return output.Cut(why.Error(), mostMessage)
}
