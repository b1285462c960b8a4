package member

import (
	"io"
	"net/http"
	"strings"
)

// bounded hands on no more of an answer than the limits of this package say. It is beyond
// what decompresses: what comes out counts.
//
// It has members answer with JSON, of which can be told how much memory it takes before it
// is decoded. A list of empty messages in protobuf takes 145 times what it has.
type bounded struct {
	next   http.RoundTripper
	member string
	excess func(*LimitError) // Told of what was too much.
}

// RoundTrip implements [http.RoundTripper].
func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if accept := r.Header.Get("Accept"); strings.Contains(accept, "protobuf") {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", asJSON(accept))
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	a := &reply{body: resp.Body, limits: ofAnswer, fail: func(what string, limit int) error {
		err := &LimitError{Member: t.member, What: what, Limit: limit}
		t.excess(err)
		return err
	}}
	if watch := r.URL.Query().Get("watch"); resp.StatusCode == http.StatusOK && (watch == "true" || watch == "1") {
		a.limits, a.stream = ofEvent, true
	}
	resp.Body = a
	return resp, nil
}

// asJSON returns what of an Accept header is no protobuf.
func asJSON(accept string) string {
	var kept []string
	for kind := range strings.SplitSeq(accept, ",") {
		if !strings.Contains(kind, "protobuf") {
			kept = append(kept, kind)
		}
	}
	if len(kept) == 0 {
		return "application/json"
	}
	return strings.Join(kept, ",")
}

// amounts are those of an answer, or of an event in one.
type amounts struct {
	bytes, values int
	of            string
}

var (
	ofAnswer = amounts{mostAnswer, mostValues, "of an answer"}
	ofEvent  = amounts{mostEvent, mostEventValues, "of an event"}
)

// reply is the body of an answer that fails when there is too much of it. It need not be
// JSON to be counted: what is none fails when it is decoded.
type reply struct {
	body   io.ReadCloser
	limits amounts
	stream bool // Of events: each value of its own is one.
	fail   func(what string, limit int) error
	err    error // What it failed with.

	bytes, values, objects, depth int // So far, of the answer or the event.
	quoted, escaped               bool
}

// Read implements [io.Reader].
func (r *reply) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.body.Read(p)
	if r.err = r.count(p[:n]); r.err != nil {
		return 0, r.err
	}
	return n, err
}

// Close implements [io.Closer].
func (r *reply) Close() error { return r.body.Close() }

// count adds what was read, and returns an error if that is too much.
func (r *reply) count(p []byte) error {
	for _, b := range p {
		r.bytes++
		switch {
		case r.escaped:
			r.escaped = false
		case r.quoted && b == '\\':
			r.escaped = true
		case b == '"':
			r.quoted = !r.quoted
		case r.quoted:
		case b == '{', b == '[':
			r.values++
			if r.depth++; r.depth > mostDepth {
				return r.fail("levels "+r.limits.of, mostDepth)
			}
			if r.depth == 3 {
				r.objects++
			}
		case b == ',':
			r.values++
		case b == '}', b == ']':
			if r.depth--; r.depth <= 0 {
				r.end()
			}
		}
	}
	switch {
	case r.bytes > r.limits.bytes:
		return r.fail("bytes "+r.limits.of, r.limits.bytes)
	case r.objects > mostObjects:
		return r.fail("objects "+r.limits.of, mostObjects)
	case r.values > r.limits.values:
		return r.fail("values "+r.limits.of, r.limits.values)
	default:
		return nil
	}
}

// end is called behind each value that is in no other.
func (r *reply) end() {
	r.depth = 0
	if r.stream {
		r.bytes, r.values, r.objects = 0, 0, 0
	}
}
