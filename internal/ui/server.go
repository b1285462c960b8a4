package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// Bounds for one request.
const (
	mostBody    = 1 << 20 // The maximum size of a submitted policy or object, in bytes.
	mostHeader  = 64 << 10
	readTime    = 10 * time.Second
	mostEvents  = 64 // The maximum number of pages that receive events at the same time.
	eventsAlive = 20 * time.Second
)

// Server shows snapshots in a browser.
type Server struct {
	log      logr.Logger
	guard    *guard
	listener net.Listener
	now      atomic.Pointer[Snapshot]
	trying   chan struct{} // Its capacity is the maximum number of concurrent what-if computations.

	mu      sync.Mutex
	version uint64
	changed chan struct{} // Closed when there is a newer snapshot.
	told    int           // The number of pages that wait for a newer snapshot.
}

// Listen listens on a port of 127.0.0.1. If port is 0, it chooses a free one.
func Listen(port int, log logr.Logger) (*Server, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port))) //nolint:noctx // It does not wait.
	if err != nil {
		return nil, fmt.Errorf("listening for the browser: %w", err)
	}
	return &Server{log: log, listener: l, guard: newGuard(l.Addr()), changed: make(chan struct{}), trying: make(chan struct{}, 1)}, nil
}

// Address returns the address for the browser. It contains the token, so everyone who knows the address can see the
// pages.
func (s *Server) Address() string {
	return fmt.Sprintf("http://%s/?%s=%s", s.listener.Addr(), tokenParameter, s.guard.token)
}

// Show replaces the snapshot that the pages show.
func (s *Server) Show(is *Snapshot) {
	s.now.Store(is)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Serve serves the pages until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: readTime, ReadTimeout: readTime, IdleTimeout: time.Minute, MaxHeaderBytes: mostHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving the browser: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the server: %w", err)
	}
	return nil
}

// Handler returns the handler of all pages. It accepts only requests with the token.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, page := range map[string]func(*Snapshot, *http.Request) (*view, error){
		"GET /{$}":                              fleetView,
		"GET /object/{kind}/{namespace}/{name}": objectView,
		"GET /policies":                         policiesView,
		"GET /policy/{kind}/{namespace}/{name}": policyView,
		"GET /rollouts":                         rolloutsView,
		"GET /clusters":                         clustersView,
		"GET /services":                         servicesView,
		"GET /definitions":                      definitionsView,
		"POST /definitions":                     definitionsView,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, page) })
	}
	mux.HandleFunc("POST /whatif", s.whatIf)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /assets/{name}", asset)
	return s.guard.protect(mux)
}

// errNotThere is the error for the page of an object or policy that does not exist.
var errNotThere = errors.New("there is no such object or policy; it may have been deleted")

// answer writes a page.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, page func(*Snapshot, *http.Request) (*view, error)) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	is := s.now.Load()
	if is == nil {
		http.Error(w, "nothing was read yet", http.StatusServiceUnavailable)
		return
	}
	v, err := page(is, r)
	code := http.StatusOK
	switch {
	case errors.Is(err, errNotThere):
		code, v = http.StatusNotFound, &view{Title: "Not found", template: "missing", Data: err.Error()}
	case err != nil:
		code, v = http.StatusBadRequest, &view{Title: "Not valid", template: "missing", Data: err.Error()}
	}
	v.Origin, v.Live, v.Problems, v.At = is.Origin, is.Live, len(is.problems), is.at
	var b bytes.Buffer
	if err := v.write(&b); err != nil {
		s.log.Error(err, "Cannot write a page", "address", r.URL.Path)
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		w.Write(b.Bytes()) //nolint:errcheck // The browser has gone.
	}
}

// whatIf responds with the effect of a changed policy. The editor sends a request after each keystroke, so whatIf
// computes only one effect at a time.
func (s *Server) whatIf(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the policy is larger than 1 MiB, or cannot be read", http.StatusBadRequest)
		return
	}
	unhurried(w)
	select {
	case s.trying <- struct{}{}:
		defer func() { <-s.trying }()
	case <-r.Context().Done():
		return
	}
	is := s.now.Load()
	if is == nil || r.Context().Err() != nil {
		return
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "whatif", is.whatIf(r.PostForm.Get("policy"))); err != nil {
		s.log.Error(err, "Cannot write the effects of a policy")
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write(b.Bytes()) //nolint:errcheck // The browser has gone.
}

// unhurried removes the read deadline, because the computation of the response may take longer than the request.
func unhurried(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // In tests, w has no deadline, and an error is returned.
}

// events sends an event to a page whenever there is a new snapshot.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	flusher, ok := w.(http.Flusher)
	unhurried(w)
	s.mu.Lock()
	room := s.told < mostEvents
	if room {
		s.told++
	}
	s.mu.Unlock()
	if !ok || !room {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		s.mu.Lock()
		s.told--
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		s.mu.Lock()
		version, changed := s.version, s.changed
		s.mu.Unlock()
		if _, err := fmt.Fprintf(w, "data: %d\n\n", version); err != nil {
			return
		}
		flusher.Flush()
		alive := time.NewTimer(eventsAlive)
		select {
		case <-changed:
		case <-alive.C:
		case <-r.Context().Done():
			alive.Stop()
			return
		}
		alive.Stop()
	}
}
