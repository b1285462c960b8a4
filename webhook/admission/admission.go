// Package admission answers the API server that asks about objects which somebody
// writes, in AdmissionReviews of admission.k8s.io/v1 and v1beta1.
//
// [Mutating] and [Validating] stand on typed functions, one for each kind and
// version. A function that sets defaults changes the object that it is given; what
// the API server gets is a JSON patch (RFC 6902) of no more than that: fields that the
// Go type does not know keep their bytes, and nothing is said that the function did
// not do. [Handler] is for everything else, and sees the request as it is.
//
// What keeps an object from being stored has two shapes. A denial is an answer: the
// one who writes reads its text. [Unavailable] is none: the API server gets an HTTP
// error, and the failurePolicy of the webhook decides.
package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operations that a [Request] is about.
const (
	Create  = "CREATE"
	Update  = "UPDATE"
	Delete  = "DELETE"
	Connect = "CONNECT"
)

// Request is what the API server asks. Its fields mean what they do in
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request;
// it is shared, and not to be modified.
type Request struct {
	// APIVersion is that of the review: admission.k8s.io/v1 or admission.k8s.io/v1beta1.
	APIVersion string
	// UID names the question, and never an object.
	UID string
	// Operation is one of the constants above.
	Operation string
	// Namespace is empty for what is cluster-scoped; Name is for what gets its name later.
	Namespace, Name string
	// SubResource is for instance "status"; empty for the object itself.
	SubResource string
	// Kind and Resource are those of Object.
	Kind     metav1.GroupVersionKind
	Resource metav1.GroupVersionResource
	// RequestKind and RequestResource are what the user asked for, which an API server
	// may have converted for this webhook; nil if it does not say.
	RequestKind     *metav1.GroupVersionKind
	RequestResource *metav1.GroupVersionResource
	// UserInfo says who asks.
	UserInfo authenticationv1.UserInfo
	// DryRun is whether nothing will be stored, whatever the answer.
	DryRun bool
	// Object is the JSON of what is to be stored; nil for a deletion.
	Object []byte
	// OldObject is the JSON of what is stored; nil for a new object.
	OldObject []byte
	// Options are those of the operation, for instance a CreateOptions; nil if there are
	// none.
	Options []byte
}

// Response is what the API server is told. The zero Response allows.
type Response struct {
	// Err denies; nil allows. The text that the API server passes on is exactly that of the
	// error, and the code is 400 without a reason. If the error is or wraps one with a Status,
	// as those of k8s.io/apimachinery/pkg/api/errors do, then code, reason and details are
	// those of the Status. kubectl prints:
	//
	//	Error from server: admission webhook "NAME" denied the request: TEXT
	//
	// If it wraps what [Unavailable] returns, or says that a context has ended, there is no
	// answer, but HTTP 500.
	Err error
	// Patch is a JSON patch of the object, for a mutating webhook alone; empty for none.
	// A denial has none.
	Patch []byte
	// Warnings are shown to the user. They are made to fit what an API server passes on:
	// each is on one line; empty ones and repetitions are left out; and if all of them are
	// longer than 4096 characters, each is cut to 256, and those beyond sixteen are counted.
	Warnings []string
	// AuditAnnotations go into the audit log; the API server puts the name of the webhook
	// before each key.
	AuditAnnotations map[string]string
}

// Denied returns the response that denies because of err, which must not be nil.
func Denied(err error) *Response { return &Response{Err: err} }

// Func answers a request. Its error, and a nil Response, are HTTP 500 with the text:
// the failurePolicy decides. It is called by many goroutines.
type Func func(ctx context.Context, r *Request) (*Response, error)

// Handler returns the handler that has f answer, in the version of the review that was
// asked. The context that f gets ends when the API server stops waiting.
//
// What is no review of version v1 or v1beta1 with a request and a uid in it is HTTP 400,
// as is one with more than 256 KiB about the user; and more than 32 MiB are HTTP 413. Every HTTP error has a metav1.Status as its body,
// whose message an API server repeats. Panics are left to the server.
func Handler(f Func) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, code, err := read(w, r)
		if err != nil {
			fail(w, code, err)
			return
		}
		request, err := parse(body)
		if err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		response, err := f(r.Context(), request)
		switch {
		case err != nil:
			fail(w, http.StatusInternalServerError, err)
		case response == nil:
			fail(w, http.StatusInternalServerError, errors.New("the webhook gave no answer"))
		case isUnavailable(response.Err):
			fail(w, http.StatusInternalServerError, response.Err)
		default:
			write(w, http.StatusOK, Answer(request.APIVersion, request.UID, response))
		}
	})
}

// denial returns what the API server is told of an error that denies.
func denial(err error) *metav1.Status {
	out := &metav1.Status{Code: http.StatusBadRequest}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		*out = known.Status()
		if out.Code < http.StatusBadRequest {
			out.Code = http.StatusBadRequest
		}
	}
	out.Status, out.Message = metav1.StatusFailure, err.Error()
	return out
}

// Unavailable returns an error that says that the answer cannot be given now, because of
// err: HTTP 500 with the text of err, so that the failurePolicy decides. It wraps err,
// and is nil if err is.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// isUnavailable reports whether an error is no answer. One that says that time has run
// out is none either: nothing is known of the object.
func isUnavailable(err error) bool {
	_, ok := errors.AsType[*unavailableError](err)
	return ok || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// unexpected says that a kind has no rule.
func unexpected(kind metav1.GroupVersionKind, known string) error {
	return fmt.Errorf("unexpected type %s, want %s", named(kind), known)
}

// named returns GROUP/VERSION KIND.
func named(kind metav1.GroupVersionKind) string {
	return metav1.GroupVersion{Group: kind.Group, Version: kind.Version}.String() + " " + kind.Kind
}
