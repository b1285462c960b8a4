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

// Options say how webhooks are served.
type Options struct {
	// BindAddress is HOST:PORT to listen on; an empty host means all, port 0 any that
	// is free.
	BindAddress string
	// Listener, if set, is where to listen instead. The server closes it.
	Listener net.Listener
	// Certificates are what the server presents. It runs them. Required.
	Certificates Certificates
	// ClientCAFile, if set, is a file of authorities, as PEM. Whoever connects must show
	// a certificate for clients that one of them has signed, or the handshake ends: no
	// handler hears of it. The file is read for each connection; while it cannot be, what
	// it said last counts. Connections that are open go on.
	//
	// An API server shows one to admission webhooks, if it is configured to, and never to
	// conversion webhooks.
	ClientCAFile string
	// ClientNames are the common names that the certificates of clients may have; any
	// if there are none. They take ClientCAFile.
	ClientNames []string
	// Log is told what an operator acts on.
	Log logr.Logger
	// Metrics is where the server's metrics are registered; nil for nowhere. Servers
	// that share one count together.
	Metrics prometheus.Registerer
	// Drain is how long connections are still taken after the server was told to stop,
	// for those who have not heard yet that it is not ready; 0 for not at all.
	Drain time.Duration
	// Grace is how long requests may take that are there when the server stops to
	// listen; 0 for 10 seconds.
	Grace time.Duration
	// InFlightBytes is the room for the bodies of requests that are answered at the
	// same time; 0 for 256 MiB. A quarter of it is for bodies of up to 4 MiB, so that
	// lists do not keep single objects waiting, and a quarter of that for those of up to
	// 64 KiB. A request that finds no room waits for half of its time, and is then
	// answered with 503 and Retry-After.
	//
	// The first 64 KiB of a body must have come before it takes room. A larger one that
	// then comes at less than 256 KiB a second is cut off when others wait for its room,
	// with the same answer.
	InFlightBytes int64
	// Now tells the time by which a certificate has expired; time.Now if nil.
	Now func() time.Time
}

// defaultGrace is how long requests may take to end.
const defaultGrace = 10 * time.Second

// Server serves webhooks over HTTPS. It is a Runnable of controller-runtime's
// manager, and needs none.
type Server struct {
	log          logr.Logger
	certificates Certificates
	clients      *clients // Nil if anybody may connect.
	bindAddress  string
	drain, grace time.Duration
	bodyTimeout  time.Duration
	slowGrace    time.Duration
	now          func() time.Time
	mux          *http.ServeMux
	room         *room
	metrics      *metrics

	listener  atomic.Pointer[net.Listener] // Nil until there is one.
	listening atomic.Bool
	leaving   atomic.Bool // It is draining.

	mu     sync.Mutex
	checks []check
}

// check is a part of a server's readiness.
type check struct {
	name  string
	ready func() error
}

// New returns a server that does not serve yet. It returns an error if there are no
// certificates, if [Issued] ones are for names that no certificate can have, if the
// authorities of clients cannot be read, or if other metrics have the names of ours.
func New(o Options) (*Server, error) {
	if o.Certificates == nil {
		return nil, errors.New("the webhook server has no certificates: give it Files or Issued ones")
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

// clients returns who may connect; nil for everybody.
func (o *Options) clients() (*clients, error) {
	if o.ClientCAFile != "" {
		return newClients(o.ClientCAFile, o.ClientNames, o.Log, o.Now)
	}
	if len(o.ClientNames) > 0 {
		return nil, errors.New("the webhook's clients have names, and no authority whose certificates say so: give it a ClientCAFile")
	}
	return nil, nil //nolint:nilnil // Everybody.
}

// HandlerOption says how one handler is served.
type HandlerOption func(*guard)

// MaxBytes is the largest body that a handler takes.
func MaxBytes(n int64) HandlerOption { return func(g *guard) { g.most = n } }

// Handle has a handler answer what is posted to a path; one that ends in a slash
// stands for all below it. It must be called before Start, and once for a path.
//
// A body is read up to 32 MiB, unless an option says otherwise, or the handler does
// by a method MaxBytes() int64. Whoever sends more, or announces it, is answered
// with 413, whatever the handler makes of the error that it reads. A panic is
// logged, and answered with 500; the server goes on. The longest that an API server
// waits is 30 seconds: after that connections are cut, and a request's context ends.
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

// NeedLeaderElection returns false: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// AddReadiness has the server be ready only when this returns nil too, as when
// informers have synced. It is called by several goroutines, and should not take
// long.
func (s *Server) AddReadiness(name string, ready func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, check{name, ready})
}

// Ready returns nil if the server answers, with a certificate that is valid now, and
// all that was added to its readiness is so. It is no longer ready from the moment
// it is told to stop.
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

// Address returns HOST:PORT that the server listens on; empty until it does.
func (s *Server) Address() string {
	if l := s.listener.Load(); l != nil {
		return (*l).Addr().String()
	}
	return ""
}

// Limits of the HTTP server. The longest that an API server waits for a webhook
// is 30 seconds.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	// bodyTimeout is how long the first piece of a body may take, and then the rest, if
	// nobody waits for its room.
	bodyTimeout = requestTimeout / 2
	idleTimeout = 2 * time.Minute
	maxHeader   = 64 << 10
)

// Limits of HTTP/2, which an API server speaks to a URL on its own machine, with one
// connection for everything. All streams together fit into the buffer of the
// connection: requests that wait for room leave enough for those that do not.
const (
	streamBuffer     = 128 << 10
	connectionBuffer = streams * streamBuffer
	streams          = 31 // Less than 4 MiB is allowed. A client that wants more connects again.
)

// Start serves until ctx ends and requests that are there have been answered. It
// returns an error if it cannot listen, or if requests had to be cut off; that ctx
// has ended is none. It is called once.
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
	// While requests are drained there are new connections still.
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

// server returns the HTTP server.
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

// answer has a handler answer. Who asks while the server drains is told that this connection is over, and connects to another
// replica the next time. One that is closed with nothing said would be the end of what its client is sending at that moment.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	if s.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	s.mux.ServeHTTP(w, r)
}

// stop ends the server when its requests have been answered, or their time is up.
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
