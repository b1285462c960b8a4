package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Options configure a [Server].
type Options struct {
	// BindAddress is the HOST:PORT to listen on. An empty host means all addresses, port 0 any free port.
	BindAddress string
	// Listener, if set, replaces BindAddress. The server closes it.
	Listener net.Listener
	// Certificates provide the server's certificate. The server calls their Run. Required.
	Certificates Certificates
	// ClientCAFile, if set, is a PEM file of certificate authorities. Each client must then present a client
	// certificate that one of them has signed. Otherwise the TLS handshake fails, before any handler runs. The server
	// reads the file for each connection; while the file is unreadable, its last readable content applies. Open
	// connections continue.
	//
	// If an API server is configured to present a certificate, it presents it to admission webhooks, and never to
	// conversion webhooks.
	ClientCAFile string
	// ClientNames are the allowed common names of client certificates. An empty list allows any name. ClientNames
	// require ClientCAFile.
	ClientNames []string
	// Log gets the messages that an operator should act on.
	Log logr.Logger
	// Metrics registers the server's metrics; nil registers none. Servers with the same registerer share their metrics.
	Metrics prometheus.Registerer
	// Drain is the time for which the server still accepts connections after its context ends, because some clients do
	// not know yet that the server is unready. 0 means none.
	Drain time.Duration
	// Grace is the time for running requests to finish after the server has stopped listening; 0 means 10 seconds.
	Grace time.Duration
	// InFlightBytes is the memory for the bodies of all requests in progress; 0 means 256 MiB. A quarter of it is for
	// bodies of up to 4 MiB, so that lists do not delay single objects. A quarter of that quarter is for bodies of up
	// to 64 KiB. A request that finds no free memory waits for half of its timeout, and then gets 503 with Retry-After.
	//
	// A body takes memory after its first 64 KiB have arrived. If other requests wait for this memory, the server cuts
	// off a body that arrives at less than 256 KiB a second, and answers in the same way.
	InFlightBytes int64
	// Now returns the time for the check of the certificate's expiry; nil means time.Now.
	Now func() time.Time
}

// defaultGrace is the default of [Options].Grace.
const defaultGrace = 10 * time.Second

// Server serves webhooks over HTTPS. It is a Runnable of controller-runtime's manager, but works without one.
type Server struct {
	log          logr.Logger
	certificates Certificates
	clients      *clients // Nil if any client may connect.
	bindAddress  string
	drain, grace time.Duration
	bodyTimeout  time.Duration
	slowGrace    time.Duration
	now          func() time.Time
	mux          *http.ServeMux
	room         *room
	metrics      *metrics

	listener  atomic.Pointer[net.Listener] // Nil until the server listens.
	listening atomic.Bool
	leaving   atomic.Bool // The server drains.

	mu     sync.Mutex
	checks []check
}

// check is one readiness check.
type check struct {
	name  string
	ready func() error
}

// New returns a server that does not listen yet. It returns an error if there are no certificates, if a name of
// [Issued] certificates is invalid, if ClientCAFile is unreadable, or if the registerer has other metrics with the
// names of the server's metrics.
func New(o Options) (*Server, error) {
	if o.Certificates == nil {
		return nil, errors.New("the webhook server has no certificates: use Files or Issued")
	}
	if c, ok := o.Certificates.(*issued); ok && c.invalid != nil {
		return nil, c.invalid
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	allowed, err := o.clients()
	if err != nil {
		return nil, err
	}
	counted, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	s := &Server{
		log: o.Log, certificates: o.Certificates, clients: allowed, bindAddress: o.BindAddress,
		drain: o.Drain, grace: o.Grace, bodyTimeout: bodyTimeout, slowGrace: slowGrace, now: o.Now,
		mux: http.NewServeMux(), room: newRoom(o.InFlightBytes), metrics: counted,
	}
	if o.Listener != nil {
		s.listener.Store(&o.Listener)
	}
	return s, nil
}

// clients returns the verifier of client certificates; nil allows all clients.
func (o *Options) clients() (*clients, error) {
	if o.ClientCAFile != "" {
		return newClients(o.ClientCAFile, o.ClientNames, o.Log, o.Now)
	}
	if len(o.ClientNames) > 0 {
		return nil, errors.New("ClientNames is set without ClientCAFile: set the authorities of the clients, too")
	}
	return nil, nil //nolint:nilnil // Everybody.
}

// HandlerOption configures one handler of a server.
type HandlerOption func(*guard)

// MaxBytes sets the largest body, in bytes, that a handler accepts.
func MaxBytes(n int64) HandlerOption { return func(g *guard) { g.most = n } }

// Handle registers the handler for POST requests to a path. A path that ends in a slash includes all paths below it.
// Call Handle before Start, and once for each path.
//
// The handler reads a body of up to 32 MiB, unless an option, or a method MaxBytes() int64 of the handler, sets another
// limit. A client that sends or announces more gets 413, even if the handler ignores the read error. The server logs a
// panic, answers with 500, and continues. An API server waits at most 30 seconds: after that, the context of the
// request ends, and the server cuts the connection.
func (s *Server) Handle(path string, h http.Handler, o ...HandlerOption) {
	g := &guard{
		path: path, handler: h, most: defaultMaxBytes, room: s.room, bodyTimeout: s.bodyTimeout, slowGrace: s.slowGrace, log: s.log, metrics: s.metrics,
	}
	if limited, ok := h.(interface{ MaxBytes() int64 }); ok {
		g.most = limited.MaxBytes()
	}
	for _, option := range o {
		option(g)
	}
	s.mux.Handle(path, g)
}

// NeedLeaderElection returns false, because every replica answers requests.
func (*Server) NeedLeaderElection() bool { return false }

// AddReadiness adds a check to [Server.Ready], for example that informers have synced. The server is ready only while
// ready returns nil. The function ready must be safe for concurrent use, and should return quickly.
func (s *Server) AddReadiness(name string, ready func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, check{name, ready})
}

// Ready returns nil if the server listens, its certificate is valid now, and all functions of [Server.AddReadiness]
// return nil. It returns an error as soon as the context of Start ends.
func (s *Server) Ready() error {
	if !s.listening.Load() {
		return errors.New("the webhook server does not listen")
	}
	c, err := s.certificates.Serving()
	if err != nil {
		return err
	}
	if s.now().After(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhook's certificate expired at %s", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	s.mu.Lock()
	checks := s.checks
	s.mu.Unlock()
	var errs []error
	for _, c := range checks {
		if err := c.ready(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Address returns the HOST:PORT that the server listens on, or "" before it listens.
func (s *Server) Address() string {
	if l := s.listener.Load(); l != nil {
		return (*l).Addr().String()
	}
	return ""
}

// Limits of the HTTP server. An API server waits for a webhook for at most 30 seconds.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	// bodyTimeout is the time for the first piece of a body, and again for the rest of the body. The rest has less time
	// if other requests wait for memory.
	bodyTimeout = requestTimeout / 2
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
)

// Limits of HTTP/2. An API server that calls a URL on its own machine sends all requests over one HTTP/2 connection.
// The buffer of the connection is as large as the buffers of all its streams together. So streams that wait for memory
// do not use up the buffer of the connection.
const (
	streamBuffer     = 128 << 10
	connectionBuffer = streams * streamBuffer
	streams          = 31 // Go allows less than 4 MiB for a connection. A client that needs more streams opens another connection.
)

// Start serves until ctx ends and the running requests are answered. It returns an error if the server cannot listen,
// if its certificates fail, or if requests did not finish within Grace. The end of ctx alone is no error. Call Start
// once.
func (s *Server) Start(ctx context.Context) error {
	if s.listener.Load() == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.bindAddress)
		if err != nil {
			return fmt.Errorf("listening for webhooks: %w", err)
		}
		s.listener.Store(&l)
	}
	server := s.server()
	group, ctx := errgroup.WithContext(ctx)
	// Connections that clients open during the drain still need certificates.
	certificates, stopCertificates := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer stopCertificates()
		<-ctx.Done()
		return s.stop(ctx, server)
	})
	group.Go(func() error {
		if err := s.certificates.Run(certificates); err != nil {
			return fmt.Errorf("keeping the webhook's certificates: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		s.listening.Store(true)
		if err := server.ServeTLS(*s.listener.Load(), "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving webhooks: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// server returns the HTTP server with its limits and its TLS configuration.
func (s *Server) server() *http.Server {
	secured := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificates.Serving() },
	}
	if s.clients != nil {
		s.clients.require(secured)
	}
	return &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       quietLog(s.log),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connectionBuffer,
		},
		TLSConfig: secured,
	}
}

// answer calls the handler. While the server drains, each answer announces the end of its connection, so that the
// client sends its next request to another replica. Without this announcement, the server could close a connection on
// which the client is sending a request, and that request would fail.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if s.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	s.mux.ServeHTTP(w, r)
}

// stop waits for Drain, stops listening, and waits for running requests, for up to Grace.
func (s *Server) stop(ctx context.Context, server *http.Server) error {
	ctx = context.WithoutCancel(ctx)
	s.listening.Store(false)
	if s.drain > 0 {
		s.leaving.Store(true)
		draining, cancel := context.WithTimeout(ctx, s.drain)
		<-draining.Done()
		cancel()
	}
	stopping, cancel := context.WithTimeout(ctx, s.grace)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("waiting for webhook requests to end: %w", err), server.Close())
	}
	return nil
}
