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
	// mostBytes is the largest review: three objects of 3 MiB, the API server's own limit for a request, and a reserve
	// for the overhead of JSON.
	mostBytes = 32 << 20
	// mostPart is the largest size of each other part of a review, such as userInfo. It corresponds to the API server's
	// limit for the headers of a request.
	mostPart = 256 << 10
	// soonBytes is the largest buffer that read allocates for an announced length before the body has arrived.
	soonBytes = 1 << 20
)

// read returns the body of a request. If it returns an error, code is the HTTP status of the answer.
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

// Review is an AdmissionReview without decoding: its parts are parts of the received bytes. [Handler] decodes all
// parts. Review is for webhooks that need only some parts, and need them fast.
type Review struct {
	// APIVersion is the version of the review. The other texts are fields of its request. All are without quotes.
	APIVersion, UID, Operation, Namespace, Name, SubResource []byte
	// These parts are JSON; nil for null and for missing parts.
	Kind, Resource, RequestKind, RequestResource, UserInfo, DryRun, Object, OldObject, Options []byte
}

// Read reads a review of v1 or v1beta1 that has a request with a uid, in one pass. The parts refer to body; Read does
// not modify it. After an error, the parts before the error are set, so that the caller can still answer.
func (r *Review) Read(body []byte) error {
	var kind []byte
	requested := false
	s := raw.New(body)
	s.Object(func(key []byte) {
		switch string(key) {
		case "apiVersion":
			r.APIVersion = s.Text()
		case "kind":
			kind = s.Text()
		case "request":
			*r = Review{APIVersion: r.APIVersion} // The last request counts.
			if requested = !s.Null(); requested {
				r.readRequest(s)
			}
		}
	})
	v1, v1beta1 := admissionv1.SchemeGroupVersion.String(), admissionv1beta1.SchemeGroupVersion.String()
	switch err := s.End(); {
	case err != nil:
		return fmt.Errorf("reading the review: %w", err)
	case string(kind) != kindReview || string(r.APIVersion) != v1 && string(r.APIVersion) != v1beta1:
		return fmt.Errorf("unexpected type %.80q %.80q, want %s of %s or %s", r.APIVersion, kind, kindReview, v1, v1beta1)
	case !requested:
		return errors.New("the review has no request")
	case len(r.UID) == 0:
		return errors.New("the request has no uid")
	}
	return nil
}

func (r *Review) readRequest(s *raw.Scanner) {
	s.Object(func(key []byte) {
		switch string(key) {
		case "uid":
			r.UID = text(s)
		case "operation":
			r.Operation = text(s)
		case "namespace":
			r.Namespace = text(s)
		case "name":
			r.Name = text(s)
		case "subResource":
			r.SubResource = text(s)
		case "kind":
			r.Kind = value(s)
		case "resource":
			r.Resource = value(s)
		case "requestKind":
			r.RequestKind = value(s)
		case "requestResource":
			r.RequestResource = value(s)
		case "userInfo":
			r.UserInfo = value(s)
		case "dryRun":
			r.DryRun = value(s)
		case "object":
			r.Object = value(s)
		case "oldObject":
			r.OldObject = value(s)
		case "options":
			r.Options = value(s)
		}
	})
}

// text reads a string. It returns nil for null.
func text(s *raw.Scanner) []byte {
	if s.Null() {
		return nil
	}
	return s.Text()
}

// value returns the bytes of the next value. It returns nil for null.
func value(s *raw.Scanner) []byte {
	if s.Null() {
		return nil
	}
	return s.Value()
}

// parse reads a review. The request refers to the bytes of body.
func parse(body []byte) (*Request, error) {
	var r Review
	if err := r.Read(body); err != nil {
		return nil, err
	}
	out := &Request{
		APIVersion: string(r.APIVersion), UID: string(r.UID), Operation: string(r.Operation), Namespace: string(r.Namespace),
		Name: string(r.Name), SubResource: string(r.SubResource), Object: r.Object, OldObject: r.OldObject, Options: r.Options,
	}
	for _, p := range []struct {
		name string
		part []byte
		into any
	}{
		{"kind", r.Kind, &out.Kind}, {"resource", r.Resource, &out.Resource},
		{"requestKind", r.RequestKind, &out.RequestKind}, {"requestResource", r.RequestResource, &out.RequestResource},
		{"userInfo", r.UserInfo, &out.UserInfo}, {"dryRun", r.DryRun, &out.DryRun},
	} {
		if len(p.part) > mostPart {
			return nil, fmt.Errorf("reading the request: %s: want at most %d bytes, got %d", p.name, mostPart, len(p.part))
		}
		if p.part == nil {
			continue
		}
		if err := json.Unmarshal(p.part, p.into); err != nil {
			return nil, fmt.Errorf("reading the request: %s: %w", p.name, legible(err))
		}
	}
	return out, nil
}

// Answer returns the AdmissionReview with the response to the request with this uid, in the given version.
func Answer(apiVersion, uid string, response *Response) []byte {
	out := &admissionv1.AdmissionResponse{
		UID: types.UID(uid), Allowed: response.Err == nil, Warnings: fitting(response.Warnings), AuditAnnotations: response.AuditAnnotations,
	}
	switch {
	case response.Err != nil:
		out.Result = denial(response.Err)
	case len(response.Patch) > 0:
		out.Patch, out.PatchType = response.Patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return encoded(&admissionv1.AdmissionReview{ // v1beta1 has the same fields.
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kindReview}, Response: out,
	})
}

// fail answers with an HTTP error. Its body is a Status, which Kubernetes clients can read.
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
		panic(err) // Strings, bytes and numbers can always be encoded.
	}
	return out
}

func write(w http.ResponseWriter, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // If the client has disconnected, nobody reads the answer.
}
