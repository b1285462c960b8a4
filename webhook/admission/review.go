package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/tree/raw"
)

const (
	kindReview = "AdmissionReview"
	// mostBytes is how long a review may be: three objects at the API server's own limit
	// of 3 MiB for a request, and some for what JSON adds.
	mostBytes = 32 << 20
	// mostPart is how long what a review says of a request beside its objects may be, as who
	// the user is: an API server takes no more in the head of a request.
	mostPart = 256 << 10
	// soonBytes is how much room is made on the word of a client.
	soonBytes = 1 << 20
)

// read returns the body of a request; with an error, the code to answer with.
func read(w http.ResponseWriter, r *http.Request) (body []byte, code int, err error) {
	if r.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("want POST, got %.20s", r.Method)
	}
	var out bytes.Buffer
	out.Grow(int(min(max(r.ContentLength, 0), soonBytes)) + bytes.MinRead)
	_, err = io.Copy(&out, http.MaxBytesReader(w, r.Body, mostBytes))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("want a review of at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("reading the review: %w", err)
	}
	return out.Bytes(), 0, nil
}

// parse reads a review, whose parts the request then shares.
func parse(body []byte) (*Request, error) {
	out := &Request{}
	var kind string
	var request []byte
	s := raw.New(body)
	s.Object(func(key []byte) {
		switch string(key) {
		case "apiVersion":
			out.APIVersion = string(s.Text())
		case "kind":
			kind = string(s.Text())
		case "request":
			request = s.Value()
		}
	})
	switch err := s.End(); {
	case err != nil:
		return nil, fmt.Errorf("reading the review: %w", err)
	case kind != kindReview ||
		out.APIVersion != admissionv1.SchemeGroupVersion.String() && out.APIVersion != admissionv1beta1.SchemeGroupVersion.String():
		return nil, fmt.Errorf("unexpected type %.80q %.80q, want %s of %s or %s",
			out.APIVersion, kind, kindReview, admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion)
	case raw.IsNull(request):
		return nil, errors.New("the review has no request")
	}
	if err := out.readRequest(request); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if out.UID == "" {
		return nil, errors.New("the request has no uid")
	}
	return out, nil
}

func (r *Request) readRequest(request []byte) error {
	s := raw.New(request)
	s.Object(func(key []byte) {
		switch string(key) {
		case "uid":
			text(s, &r.UID)
		case "operation":
			text(s, &r.Operation)
		case "namespace":
			text(s, &r.Namespace)
		case "name":
			text(s, &r.Name)
		case "subResource":
			text(s, &r.SubResource)
		case "kind":
			part(s, "kind", &r.Kind)
		case "resource":
			part(s, "resource", &r.Resource)
		case "requestKind":
			part(s, "requestKind", &r.RequestKind)
		case "requestResource":
			part(s, "requestResource", &r.RequestResource)
		case "userInfo":
			part(s, "userInfo", &r.UserInfo)
		case "dryRun":
			part(s, "dryRun", &r.DryRun)
		case "object":
			r.Object = value(s)
		case "oldObject":
			r.OldObject = value(s)
		case "options":
			r.Options = value(s)
		}
	})
	return s.End()
}

// text reads a string, or null for none.
func text(s *raw.Scanner, into *string) {
	if !s.Null() {
		*into = string(s.Text())
	}
}

func part(s *raw.Scanner, name string, into any) {
	v := s.Value()
	if v == nil {
		return
	}
	if len(v) > mostPart {
		s.Fail(fmt.Errorf("%s: want at most %d bytes, got %d", name, mostPart, len(v)))
		return
	}
	if err := json.Unmarshal(v, into); err != nil {
		s.Fail(fmt.Errorf("%s: %w", name, legible(err)))
	}
}

// value returns the bytes of the value that comes next; nil for null.
func value(s *raw.Scanner) []byte {
	if s.Null() {
		return nil
	}
	return s.Value()
}

// encode returns the review that answers a request.
func encode(r *Request, response *Response) []byte {
	out := &admissionv1.AdmissionResponse{
		UID: types.UID(r.UID), Allowed: response.Err == nil, Warnings: fitting(response.Warnings), AuditAnnotations: response.AuditAnnotations,
	}
	switch {
	case response.Err != nil:
		out.Result = denial(response.Err)
	case len(response.Patch) > 0:
		out.Patch, out.PatchType = response.Patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return encoded(&admissionv1.AdmissionReview{ // v1beta1 has the same fields.
		TypeMeta: metav1.TypeMeta{APIVersion: r.APIVersion, Kind: kindReview}, Response: out,
	})
}

// fail answers with an HTTP error. Its body is one that clients of Kubernetes read.
func fail(w http.ResponseWriter, code int, err error) {
	reason := metav1.StatusReasonBadRequest
	switch code {
	case http.StatusInternalServerError:
		reason = metav1.StatusReasonInternalError
	case http.StatusMethodNotAllowed:
		reason = metav1.StatusReasonMethodNotAllowed
	case http.StatusRequestEntityTooLarge:
		reason = metav1.StatusReasonRequestEntityTooLarge
	}
	write(w, code, encoded(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: err.Error(),
	}))
}

func encoded(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // Texts, bytes and numbers can always be encoded.
	}
	return out
}

func write(w http.ResponseWriter, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // Who does not read the answer is not told so.
}
