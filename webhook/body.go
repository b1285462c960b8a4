package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// slowGrace and slowest are what a body may take to come in while others wait for
	// its room: this long, and a second more for each so many bytes that have come.
	slowGrace = 250 * time.Millisecond
	slowest   = 256 << 10
	// looks is how often it is looked whether a body is too slow.
	looks = 50 * time.Millisecond
)

// body is that of a request. It knows whether it was too large, and gives up when it
// comes too slowly while others wait for its room.
type body struct {
	io.ReadCloser

	path    string
	grace   time.Duration
	begun   time.Time
	control *http.ResponseController
	first   bytes.Buffer // Has come, and has not been read.
	failed  error        // What the next read ends with; io.EOF if all has come.
	refusal *refusal     // Nil if it may be answered.

	mu     sync.Mutex
	grant  *grant // Nil unless more is to come.
	timer  *time.Timer
	cut    bool
	came   int64         // Bytes since it had room.
	waited time.Duration // For these bytes; what the handler does meanwhile is not the client's.
	since  time.Time     // When the read under way began; zero if none is.
}

// refusal is an answer that is not the handler's.
type refusal struct {
	code int
	err  error
}

// begin receives the first piece. It returns the size of the whole, which is at most
// what the request announces, or the limit if it announces nothing.
func (b *body) begin(announced, limit int64) (size int64) {
	n, err := b.first.ReadFrom(io.LimitReader(b.ReadCloser, firstPiece))
	switch {
	case err != nil:
		b.failed = b.explain(err)
		return n
	case n < firstPiece || n == announced:
		b.failed = io.EOF
		return n
	case announced < 0:
		return limit
	}
	return announced
}

// received reports whether nothing more is to come.
func (b *body) received() bool { return b.failed != nil }

// expect has room for the rest, which is to come.
func (b *body) expect(g *grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant = g
	b.timer = time.AfterFunc(looks, b.look)
}

// look cuts a body off that is too slow for those who wait.
func (b *body) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grant == nil {
		return
	}
	waited := b.waited
	if !b.since.IsZero() {
		waited += time.Since(b.since)
	}
	if allowed := b.grace + time.Duration(b.came)*time.Second/slowest; waited > allowed && b.grant.wanted() {
		b.cut, b.grant = true, nil
		_ = b.control.SetReadDeadline(b.begun) // The read under way ends.
		return
	}
	b.timer.Reset(looks)
}

// end has nobody look any more: all has come, or nobody reads it.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant = nil
	if b.timer != nil {
		b.timer.Stop()
	}
}

// Read reads some of the body; too large a one, or too slow a one, ends with an error
// that says so.
func (b *body) Read(into []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(into)
	}
	if b.failed != nil {
		return 0, b.failed
	}
	b.mu.Lock()
	b.since = time.Now()
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(into)
	b.mu.Lock()
	b.came += int64(n)
	b.waited += time.Since(b.since)
	b.since = time.Time{}
	b.mu.Unlock()
	if err != nil {
		b.end()
		b.failed = b.explain(err)
		if b.failed == io.EOF { //nolint:errorlint // A reader returns it as it is.
			b.patient()
		}
		err = b.failed
	}
	return n, err
}

// patient has the connection stay for as long as a request may take. It is for one
// whose body has come.
func (b *body) patient() { _ = b.control.SetReadDeadline(b.begun.Add(requestTimeout)) }

// explain returns what a handler is told of an error, and sees to what is answered.
func (b *body) explain(err error) error {
	if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = fmt.Errorf("the request has a body of more than the %d bytes that %s takes: %w", limit.Limit, b.path, err)
		b.refusal = &refusal{http.StatusRequestEntityTooLarge, err}
		return err
	}
	b.mu.Lock()
	cut := b.cut
	b.mu.Unlock()
	if cut {
		err = fmt.Errorf("the body of the request comes too slowly, and others wait: try again: %w", err)
		b.refusal = &refusal{http.StatusServiceUnavailable, err}
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the body of the request did not come in time: %w", err)
		b.refusal = &refusal{http.StatusRequestTimeout, err}
	}
	return err
}
