// Package admission answers the AdmissionReviews of API servers, in admission.k8s.io/v1 and v1beta1.
//
// [Mutating] and [Validating] are built from typed functions, one for each kind and version. A function that sets
// defaults changes the object that it gets. The API server gets a JSON patch (RFC 6902) of exactly these changes:
// fields that the Go type does not know keep their bytes, and the patch contains nothing that the function did not
// change. [Handler] is for all other webhooks, and gives them the whole request.
//
// A webhook can keep an object from being stored in two ways. A denial is an answer, and the user reads its text.
// [Unavailable] is not an answer: the API server gets an HTTP error, and the failurePolicy of the webhook decides.
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

// Operations of a [Request].
const (
	Create  = "CREATE"
	Update  = "UPDATE"
	Delete  = "DELETE"
	Connect = "CONNECT"
)

// Request is the request of an AdmissionReview. Its fields mean the same as in
// https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request. It is shared, and
// must not be modified.
type Request struct {
	// APIVersion is the version of the AdmissionReview: admission.k8s.io/v1 or admission.k8s.io/v1beta1.
	APIVersion string
	// UID identifies the AdmissionReview, not an object.
	UID string
	// Operation is one of the constants above.
	Operation string
	// Namespace is empty for cluster-scoped objects. Name is empty for objects whose name the API server generates
	// later.
	Namespace, Name string
	// SubResource is for example "status"; it is empty for the object itself.
	SubResource string
	// Kind and Resource are those of Object.
	Kind     metav1.GroupVersionKind
	Resource metav1.GroupVersionResource
	// RequestKind and RequestResource are those of the user's request. They differ from Kind and Resource if the API
	// server has converted the object for this webhook. They are nil if the review does not have them.
	RequestKind     *metav1.GroupVersionKind
	RequestResource *metav1.GroupVersionResource
	// UserInfo identifies the user of the request.
	UserInfo authenticationv1.UserInfo
	// DryRun is true if the API server stores nothing, even if the request is allowed.
	DryRun bool
	// Object is the JSON of the new object; nil for a deletion.
	Object []byte
	// OldObject is the JSON of the stored object; nil for a new object.
	OldObject []byte
	// Options are the options of the operation, for example CreateOptions; nil without options.
	Options []byte
}

// Response is the answer to a [Request]. The zero Response allows the request.
type Response struct {
	// Err denies the request; nil allows it. The API server passes the text of the error on unchanged, with code 400
	// and without a reason. If the error is or wraps an error with a Status, such as those of
	// k8s.io/apimachinery/pkg/api/errors, the Status provides code, reason and details. kubectl prints:
	//
	//	Error from server: admission webhook "NAME" denied the request: TEXT
	//
	// If Err wraps an [Unavailable] error, or the error of a context that has ended, the answer is HTTP 500 and not a
	// denial.
	Err error
	// Patch is a JSON patch of the object, for mutating webhooks only; empty for none. A denial has no patch.
	Patch []byte
	// Warnings are shown to the user. They are adapted to the limits of an API server. Each warning is written on one
	// line; empty and repeated warnings are omitted. If all together are longer than 4096 characters, each is cut to
	// 256 bytes, and of more than sixteen only the first fifteen are kept, with the number of the others.
	Warnings []string
	// AuditAnnotations go into the audit log. The API server prefixes each key with the name of the webhook.
	AuditAnnotations map[string]string
}

// Denied returns the response that denies with err, which must not be nil.
func Denied(err error) *Response { return &Response{Err: err} }

// Func answers a request. After an error or a nil Response, the API server gets HTTP 500 with the text of the error,
// and the failurePolicy of the webhook decides. A Func must be safe for concurrent use.
type Func func(ctx context.Context, r *Request) (*Response, error)

// Handler returns the handler that answers each AdmissionReview with f, in the version of the review. The context of f
// ends when the API server stops waiting.
//
// A request gets HTTP 400 if its body is not a review of v1 or v1beta1 with a request and a uid. It also gets 400 if a
// part other than the objects and options, such as userInfo, is longer than 256 KiB. A body of more than 32 MiB gets
// HTTP 413. Every HTTP error has a metav1.Status as its body, and an API server shows the message of the Status to the
// user. Handler does not recover panics; the server does.
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

// denial returns the Status of a denial with this error.
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

// Unavailable wraps an error to report that the webhook cannot decide now. The API server gets HTTP 500 with the text
// of err, and the failurePolicy of the webhook decides. Unavailable(nil) is nil.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &unavailableError{err}
}

type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// isUnavailable reports whether the error means that the webhook has not decided. This is also the case for the error
// of a context that has ended.
func isUnavailable(err error) bool {
	_, ok := errors.AsType[*unavailableError](err)
	return ok || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// unexpected returns the error for an object of a kind without a rule.
func unexpected(kind metav1.GroupVersionKind, known string) error {
	return fmt.Errorf("unexpected type %s, want %s", named(kind), known)
}

// named returns GROUP/VERSION KIND.
func named(kind metav1.GroupVersionKind) string {
	return metav1.GroupVersion{Group: kind.Group, Version: kind.Version}.String() + " " + kind.Kind
}
