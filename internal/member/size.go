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
	return fmt.Sprintf("the copy has at least %d bytes as JSON, and a cluster stores at most %d: make the object, or what overrides add to it, smaller",
		e.Bytes, MostSent)
}

// CheckSize returns an error if the body of a request, which may be in pieces, is more than etcd stores. The size is that of the JSON that is sent, in
// which each escape sequence counts as one byte: Kubernetes stores its own types without them. So a ConfigMap or Secret with all the data that it
// may have passes.
func CheckSize(body ...[]byte) error {
	size := 0
	for _, piece := range body {
		size += len(piece)
	}
	if size <= MostSent {
		return nil
	}
	for _, piece := range body {
		size -= escaping(piece)
	}
	if size <= MostSent {
		return nil
	}
	return &SizeError{size}
}

// escaping returns how many bytes of JSON are there because of its escape sequences.
func escaping(body []byte) (n int) {
	for i := bytes.IndexByte(body, '\\'); i >= 0 && i+1 < len(body); {
		escape := 2
		if body[i+1] == 'u' {
			escape = 6
		}
		n += escape - 1
		from := min(i+escape, len(body))
		next := bytes.IndexByte(body[from:], '\\')
		if next < 0 {
			break
		}
		i = from + next
	}
	return n
}

// CheckFields is [CheckSize] of an object that is not encoded yet. It finds most of those that are too large, in little time, and no other.
func CheckFields(object map[string]any) error {
	if size := leastSize(object, 0); size > MostSent {
		return &SizeError{size}
	}
	return nil
}

// leastSize adds how many bytes a value has at least as JSON, until it is more than etcd stores.
func leastSize(value any, size int) int {
	switch v := value.(type) {
	case string:
		// Of what is escaped these alone have more bytes than the one that an escape sequence counts as.
		return size + len(v) + 2 - 2*(strings.Count(v, "\u2028")+strings.Count(v, "\u2029"))
	case map[string]any:
		for key, of := range v {
			if size > MostSent {
				break
			}
			size = leastSize(of, leastSize(key, size))
		}
	case []any:
		for _, of := range v {
			if size > MostSent {
				break
			}
			size = leastSize(of, size)
		}
	}
	return size + 1
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
