package member

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MostSent is how many bytes a copy may have: what etcd takes in one request unless it is told otherwise. API servers read more of a request, and
// then fail with status 500.
const MostSent = 1536 << 10

// SizeError says that an object is too large for a member. It was not sent.
type SizeError struct{ Bytes int }

// Error says what to do.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the copy has %d bytes as JSON, and a cluster stores at most %d: make the object, or what overrides add to it, smaller",
		e.Bytes, MostSent)
}

// checkSize returns an error if the body of a request is more than etcd stores. The size is that of the JSON that is sent, in which each escape
// sequence counts as one byte: Kubernetes stores its own types without them, and a ConfigMap or Secret with all the data that it may have passes.
func checkSize(body []byte) error {
	if len(body) <= MostSent {
		return nil
	}
	size := len(body)
	for i := bytes.IndexByte(body, '\\'); i >= 0 && i+1 < len(body); {
		escape := 2
		if body[i+1] == 'u' {
			escape = 6
		}
		size -= escape - 1
		from := min(i+escape, len(body))
		next := bytes.IndexByte(body[from:], '\\')
		if next < 0 {
			break
		}
		i = from + next
	}
	if size <= MostSent {
		return nil
	}
	return &SizeError{size}
}

// tooLarge are the words of API servers and of etcd for a request that is too large.
var tooLarge = []string{
	"request is too large", "Request entity too large", "trying to send message larger than max", "received message larger than max", "request body too large",
}

// IsTooLarge reports whether an object is too large for a member, by its size or by what the member has answered.
func IsTooLarge(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, new(*SizeError)) || apierrors.IsRequestEntityTooLargeError(err) ||
		errors.As(err, &status) && isTooLarge(status.Status().Message)
}

func isTooLarge(message string) bool {
	return slices.ContainsFunc(tooLarge, func(words string) bool { return strings.Contains(message, words) })
}
