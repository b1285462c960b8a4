package member

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
)

// bounded is a transport that bounds the answers of a member. It reads decompressed bodies, so it counts decompressed
// bytes.
//
// It requests JSON, because the memory for JSON can be calculated before the JSON is decoded. By contrast, a list of
// empty messages in protobuf takes 145 times its size in memory. Answers of another content type are marked as text, so
// that they are not decoded.
type bounded struct {
	next   http.RoundTripper
	limits limits
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
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		resp.Header.Set("Content-Type", "text/plain")
	}
	a := &reply{ctx: r.Context(), body: resp.Body, amounts: ofAnswer, exchange: exchangeOf(r.Context()), fail: t.limits.excess.over}
	if watch := r.URL.Query().Get("watch"); resp.StatusCode == http.StatusOK && (watch == "true" || watch == "1") {
		a.amounts, a.stream, a.exchange = ofEvent, true, nil
	}
	if a.exchange == nil {
		a.exchange, a.own = &exchange{account: t.limits.account}, true
	}
	resp.Body = a
	return resp, nil
}

// asJSON returns an Accept header without protobuf.
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

// amounts are the bounds of an answer, or of one event in an answer.
type amounts struct {
	bytes, values int
	of            string
}

var (
	ofAnswer = amounts{mostAnswer, mostValues, "of an answer"}
	ofEvent  = amounts{mostEvent, mostEventValues, "of an event"}
)

// reply is the body of an answer. Reading fails when the answer exceeds a bound. Content that is not JSON is counted as
// well, and fails later when it is decoded.
type reply struct {
	ctx      context.Context //nolint:containedctx // The context of the request that has this answer.
	body     io.ReadCloser
	amounts  amounts // The bounds.
	stream   bool    // Whether the body is a stream of events. Each top-level value is an event.
	exchange *exchange
	own      bool // Whether the exchange has only this request.
	fail     func(what string, limit int) error
	err      error // The error with which reading ended; nil before.

	bytes, values, objects, depth int // Totals of the answer so far, or of the current event.
	quoted, escaped               bool
	largest                       int // Size of the largest large event of the watch so far, in bytes.
}

// Read implements [io.Reader].
func (r *reply) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.stream && !isLarge(r.bytes, r.values) {
		r.exchange.shrink() // The reader requests the next event, so it no longer uses the previous one.
	}
	n, err := r.body.Read(p)
	if r.err = r.count(p[:n]); r.err != nil {
		return 0, r.err
	}
	if r.stream && err != nil && !errors.Is(err, io.EOF) && resumes(r.ctx) {
		err = io.ErrUnexpectedEOF // A reflector takes this for the normal end of a watch, and the next watch continues.
	}
	return n, err
}

// Close implements [io.Closer].
func (r *reply) Close() error {
	if r.own {
		r.exchange.end()
	}
	if r.largest > 0 {
		r.exchange.account.buffer(-bufferFactor * r.largest)
		r.largest = 0
	}
	return r.body.Close()
}

func isLarge(bytes, values int) bool { return bytes > smallAnswer || values > smallValues }

// count adds data that was read, and returns an error if a bound is exceeded.
func (r *reply) count(p []byte) error {
	had := r.values
	var ended struct{ bytes, values int } // The size of the largest event that ended in p.
	for i := 0; i < len(p); i++ {
		if r.quoted && !r.escaped {
			n := untilMeaning(p[i:])
			r.bytes += n
			if i += n; i == len(p) {
				break
			}
		}
		r.bytes++
		switch b := p[i]; {
		case r.escaped:
			r.escaped = false
		case r.quoted:
			r.escaped = b == '\\'
			r.quoted = r.escaped
		case b == '"':
			r.quoted = true
		case b == '{', b == '[':
			r.values++
			if r.depth++; r.depth > mostDepth {
				return r.fail("levels "+r.amounts.of, mostDepth)
			}
			if r.depth == 3 {
				r.objects++
			}
		case b == ',':
			r.values++
		case b == '}', b == ']':
			if r.depth--; r.depth > 0 {
				continue
			}
			ended.bytes, ended.values = max(ended.bytes, r.bytes), max(ended.values, r.values)
			r.end()
		}
	}
	bytes, values := max(r.bytes, ended.bytes), max(r.values, ended.values)
	if !r.stream {
		bytes, values = r.exchange.add(len(p), r.values-had)
	}
	switch {
	case bytes > r.amounts.bytes:
		return r.fail("bytes "+r.amounts.of, r.amounts.bytes)
	case r.objects > mostObjects:
		return r.fail("objects "+r.amounts.of, mostObjects)
	case values > r.amounts.values:
		return r.fail("values "+r.amounts.of, r.amounts.values)
	case !isLarge(bytes, values):
		return nil
	case r.stream && !r.grow(bytes):
		return r.fail("bytes of large watch events", mostBuffers)
	default:
		return r.exchange.enlarge(r.ctx)
	}
}

// grow reserves room for the buffers of an event of this size, and reports whether there is room.
func (r *reply) grow(bytes int) bool {
	if bytes <= r.largest {
		return true
	}
	if !r.exchange.account.buffer(bufferFactor * (bytes - r.largest)) {
		return false
	}
	r.largest = bytes
	return true
}

// end is called after each top-level value.
func (r *reply) end() {
	r.depth = 0
	if r.stream {
		r.bytes, r.values, r.objects = 0, 0, 0
	}
}
