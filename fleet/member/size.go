package member

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MostSent is the maximum size of a copy in bytes: the default limit of etcd for one request. API servers read larger
// requests, and then answer with status 500.
const MostSent = 1536 << 10

// SizeError means that an object is too large for a member, and was not sent.
type SizeError struct{ Bytes int }

// Error returns a message with the remedy.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the copy has at least %d bytes as JSON, and a cluster stores at most %d: reduce the object, or the values that overrides add",
		e.Bytes, MostSent)
}

// CheckSize returns an error if the body of a request exceeds the limit of etcd. The body may be in pieces. Each escape
// sequence in the JSON counts as one byte, because Kubernetes stores its own types without escape sequences. So a
// ConfigMap or Secret of the maximum size passes.
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

// escaping returns the number of bytes that escape sequences add to JSON.
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

// CheckFields is [CheckSize] for an object that is not encoded yet. It is fast and finds most objects that are too
// large. It rejects no object that CheckSize accepts.
func CheckFields(object map[string]any) error {
	if size := leastSize(object, 0); size > MostSent {
		return &SizeError{size}
	}
	return nil
}

// leastSize adds the minimum size of a value as JSON, until the sum exceeds the limit of etcd.
func leastSize(value any, size int) int {
	switch v := value.(type) {
	case string:
		// Each escape sequence counts as one byte. These two characters are the only escaped ones with more bytes in
		// UTF-8.
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

// tooLarge are the messages of API servers and etcd about a request that is too large.
var tooLarge = []string{
	"request is too large", "Request entity too large", "trying to send message larger than max", "received message larger than max", "request body too large",
}

// IsTooLarge reports whether an object is too large for a member, by its size or by the answer of the member.
func IsTooLarge(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, new(*SizeError)) || apierrors.IsRequestEntityTooLargeError(err) ||
		errors.As(err, &status) && isTooLarge(status.Status().Message)
}

func isTooLarge(message string) bool {
	return slices.ContainsFunc(tooLarge, func(words string) bool { return strings.Contains(message, words) })
}
