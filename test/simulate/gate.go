package simulate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"refract.dev/test/apiserver"
)

// errDead is the error of requests of a killed process.
var errDead = errors.New("the process was killed")

// errRefused is the error of requests to an API server that is down.
var errRefused = errors.New("connect: connection refused")

// errClosed is the error if a client reads a response that it has closed.
var errClosed = errors.New("http: read on closed response body")

// errCut is the error if the connection of a response breaks.
var errCut = errors.New("unexpected EOF: the connection broke")

// gate holds each request of a process until the driver serves it. It is safe for concurrent use.
type gate struct {
	world   *World
	process *Process
}

var _ http.RoundTripper = gate{}

// call is a request that waits for the driver.
type call struct {
	process *Process
	target  *Target
	request *http.Request
	body    []byte
	key     string // Orders waiting calls.
	answer  chan answer
}

// answer is the result of a request.
type answer struct {
	response *http.Response
	err      error
}

// RoundTrip waits until the driver answers the request, or the context ends.
func (g gate) RoundTrip(r *http.Request) (*http.Response, error) {
	w := g.world
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("reading a request: %w", err)
		}
		_ = r.Body.Close() // The body was read completely.
	}
	target := w.target(r.URL.Host)
	if target == nil {
		return nil, fmt.Errorf("dial tcp: lookup %s: no such host", r.URL.Hostname())
	}
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/events") {
		return echoed(r, body), nil
	}
	c := &call{process: g.process, target: target, request: r, body: body, answer: make(chan answer, 1)}
	c.key = g.process.Name + " " + target.Name + " " + w.described(r)
	if !w.gates.arrive(c) {
		return nil, errDead
	}
	select {
	case a := <-c.answer:
		return a.response, a.err
	case <-r.Context().Done():
		w.gates.leave(c)
		return nil, context.Cause(r.Context())
	}
}

// echoed answers the write of an Event immediately and stores nothing. client-go holds a lock during the write, and
// testing/synctest does not treat a goroutine that waits for a lock as idle.
func echoed(r *http.Request, body []byte) *http.Response {
	return &http.Response{
		Status: "201 Created", StatusCode: http.StatusCreated, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// described returns a text for a request. It is the same in each run with the same seed.
func (w *World) described(r *http.Request) string {
	q := r.URL.Query()
	q.Del("timeoutSeconds") // This value is random.
	q.Del("timeout")
	return r.Method + " " + w.plain(r.URL.Path) + "?" + w.plain(q.Encode())
}

// gates contain the calls and streams that wait for the driver.
type gates struct {
	arrived chan struct{} // Receives an element when a call has arrived.

	mu      sync.Mutex
	calls   []*call
	streams []*stream
	dead    map[*Process]bool
}

func newGates() *gates {
	return &gates{arrived: make(chan struct{}, 1), dead: map[*Process]bool{}}
}

func (g *gates) arrive(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead[c.process] {
		return false
	}
	g.calls = append(g.calls, c)
	select {
	case g.arrived <- struct{}{}:
	default:
	}
	return true
}

func (g *gates) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = slices.DeleteFunc(g.calls, func(o *call) bool { return o == c })
}

// waiting returns the waiting calls, sorted. Equal calls are in the order of their arrival.
func (g *gates) waiting() []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := slices.Clone(g.calls)
	slices.SortStableFunc(calls, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.key, b.key), bytes.Compare(a.body, b.body))
	})
	return calls
}

// open returns the open streams, sorted.
func (g *gates) open() []*stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget()
	return slices.Clone(g.streams)
}

// forget removes the streams that clients have closed. The caller must hold the lock.
func (g *gates) forget() {
	g.streams = slices.DeleteFunc(g.streams, func(s *stream) bool {
		if !s.closed() {
			return false
		}
		s.watch.Stop()
		return true
	})
}

// undelivered returns the open streams with a pending event, sorted.
func (g *gates) undelivered() (streams []*stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.streams {
		if (s.broken || s.watch.Waiting() > 0 || s.watch.Ended()) && !s.closed() {
			streams = append(streams, s)
		}
	}
	return streams
}

// add adds a stream in sorted order.
func (g *gates) add(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget()
	at, _ := slices.BinarySearchFunc(g.streams, s, func(a, b *stream) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.number, b.number))
	})
	g.streams = slices.Insert(g.streams, at, s)
}

// kill ends the pending requests and streams of a process, and rejects its later requests.
func (g *gates) kill(p *Process) {
	g.mu.Lock()
	g.dead[p] = true
	var ended []*call
	g.calls = slices.DeleteFunc(g.calls, func(c *call) bool {
		if c.process == p {
			ended = append(ended, c)
		}
		return c.process == p
	})
	streams := slices.Clone(g.streams)
	g.mu.Unlock()
	for _, c := range ended {
		c.answer <- answer{err: errDead}
	}
	for _, s := range streams {
		if s.process == p {
			s.end(errDead)
		}
	}
}

// stream is the response to a watch. The driver pushes events, and the client reads them.
type stream struct {
	process *Process
	target  *Target
	watch   *apiserver.Watch
	key     string
	number  int
	ctx     context.Context //nolint:containedctx // The context of the request.
	more    chan struct{}
	broken  bool // Whether the connection has broken. The client notices this later.

	mu   sync.Mutex
	data []byte
	err  error
	shut bool
}

var _ io.ReadCloser = (*stream)(nil)

// Read waits for an event.
func (s *stream) Read(into []byte) (int, error) {
	for {
		s.mu.Lock()
		if len(s.data) > 0 {
			n := copy(into, s.data)
			s.data = s.data[n:]
			s.mu.Unlock()
			return n, nil
		}
		err, shut := s.err, s.shut
		s.mu.Unlock()
		switch {
		case shut:
			return 0, errClosed
		case err != nil:
			return 0, err
		}
		select {
		case <-s.more:
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
}

// Close is called by the client.
func (s *stream) Close() error {
	s.mu.Lock()
	s.shut = true
	s.mu.Unlock()
	s.tell()
	return nil
}

func (s *stream) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shut || s.err != nil || s.ctx.Err() != nil
}

func (s *stream) push(event []byte) {
	s.mu.Lock()
	s.data = append(s.data, event...)
	s.mu.Unlock()
	s.tell()
}

// end makes the client read the error after all pushed events: io.EOF if the server ends the watch.
func (s *stream) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.tell()
}

func (s *stream) tell() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
