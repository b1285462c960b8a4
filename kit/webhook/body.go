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
	// While other requests wait for memory, the server cuts off a body if reading it takes longer than slowGrace plus
	// one second for each 256 KiB that arrived.
	slowGrace = 250 * time.Millisecond
	slowest   = 256 << 10
	// looks is the interval of the checks of the speed of a body.
	looks = 50 * time.Millisecond
)

// body is the body of a request. If the body is too large, or arrives too slowly while other requests wait for memory,
// Read returns an error, and the server sends a refusal instead of the handler's answer.
type body struct {
	io.ReadCloser

	path    string
	grace   time.Duration
	begun   time.Time
	control *http.ResponseController
	first   bytes.Buffer // Received, but not yet read by the handler.
	failed  error        // The result of all further reads from the connection; io.EOF after the whole body.
	refusal *refusal     // Nil while the handler may answer.

	mu     sync.Mutex
	grant  *grant // The memory granted to the body while the server checks its speed; otherwise nil.
	timer  *time.Timer
	cut    bool
	came   int64         // Bytes received since the grant.
	waited time.Duration // Total duration of the reads of these bytes, without the time that the handler takes between reads.
	since  time.Time     // Start of the current read; zero between reads.
}

// refusal is an answer of the server that replaces the answer of the handler.
type refusal struct {
	code int
	err  error
}

// begin receives the first piece of the body, and returns the size in bytes of the memory that the body needs. This is
// the received size if the whole body has arrived or the read failed. Otherwise it is the announced size or, if the
// request announces no size, limit.
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

// received reports whether the connection has nothing more to read: the whole body has arrived, or a read has failed.
func (b *body) received() bool { return b.failed != nil }

// expect starts the checks of the speed of the rest of the body. g is the memory granted to the body.
func (b *body) expect(g *grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant = g
	b.timer = time.AfterFunc(looks, b.look)
}

// look checks the speed of the body. It ends the current read if the body is too slow and other requests wait for
// memory.
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
		_ = b.control.SetReadDeadline(b.begun) // Ends the current read.
		return
	}
	b.timer.Reset(looks)
}

// end ends the checks of the speed. It is called after the last read from the connection, and after the handler has
// returned.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant = nil
	if b.timer != nil {
		b.timer.Stop()
	}
}

// Read reads a part of the body. If the body is too large or too slow, the error has that reason.
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

// patient extends the read deadline of the connection to the deadline of the request. It is called after the whole body
// has arrived, because the handler may still need time.
func (b *body) patient() { _ = b.control.SetReadDeadline(b.begun.Add(requestTimeout)) }

// explain returns the error for the handler. For a body that is too large, too slow or too late, it also records the
// refusal.
func (b *body) explain(err error) error {
	if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = fmt.Errorf("the body of the request exceeds the %d bytes that %s accepts: %w", limit.Limit, b.path, err)
		b.refusal = &refusal{http.StatusRequestEntityTooLarge, err}
		return err
	}
	b.mu.Lock()
	cut := b.cut
	b.mu.Unlock()
	if cut {
		err = fmt.Errorf("the body of the request arrives too slowly, and other requests wait: try again: %w", err)
		b.refusal = &refusal{http.StatusServiceUnavailable, err}
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the body of the request did not arrive in time: %w", err)
		b.refusal = &refusal{http.StatusRequestTimeout, err}
	}
	return err
}
