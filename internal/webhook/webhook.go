// Package webhook serves the webhooks of a cluster, be it a hub or a member: it
// listens, keeps the certificates that this takes, and keeps the API server
// informed when and where to ask. What is answered is for the handlers to say.
//
// Without a folder of certificates it is its own authority. Authority and
// certificate lie in a Secret of the system namespace, which all replicas share:
// whichever of them sees first that something is to be renewed writes it, and all
// take it up. Nothing restarts, and no connection is cut.
package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options say how webhooks are served.
type Options struct {
	// Client reads what is there now, not what a cache remembers. Its scheme has the
	// kinds of Kubernetes. Required.
	Client client.WithWatch
	// Namespace is the system namespace. Required unless CertDir is given.
	Namespace string
	// BindAddress is HOST:PORT to listen on; an empty host means all.
	BindAddress string
	// URL is where the API server finds this server, https://HOST[:PORT][/PATH]. Either
	// it or Service is required.
	URL string
	// Service is in front of this server, on port 443.
	Service types.NamespacedName
	// CertDir, if set, is a folder with tls.crt and tls.key, which somebody else keeps,
	// as cert-manager does. If ca.crt is there too it is what the API server is told to
	// trust; if not, what it is told is left to somebody else.
	CertDir string
	// Log is told what an operator acts on.
	Log logr.Logger
	// Now tells the time by which certificates are issued; time.Now if nil.
	Now func() time.Time
}

// Server serves webhooks over HTTPS. It is a Runnable of a manager, which every
// replica runs.
type Server struct {
	client   client.WithWatch
	log      logr.Logger
	endpoint endpoint
	address  string
	now      func() time.Time
	source   source
	mux      *http.ServeMux

	listener  net.Listener // Nil until there is one.
	listening atomic.Bool

	mu   sync.Mutex
	told []chan<- struct{} // Who is told that something else must be trusted.
}

// source is where certificates come from.
type source interface {
	// run keeps the certificates up to date until ctx ends.
	run(ctx context.Context) error
	// serving returns the certificate to present, or why there is none.
	serving() (*tls.Certificate, error)
	// trusted returns what the API server must trust, as PEM; nil if that is not for
	// us to say.
	trusted() []byte
	// changes is sent to when trusted may return something else.
	changes() <-chan struct{}
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	at, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		client: o.Client, log: o.Log, endpoint: at, address: o.BindAddress, now: o.Now,
		mux: http.NewServeMux(),
	}
	if o.CertDir != "" {
		s.source, err = newFolder(o.CertDir, o.Log)
		return s, err
	}
	if o.Namespace == "" {
		return nil, errors.New("the namespace for the webhook's Secret is not given")
	}
	s.source = newIssued(o.Client, o.Namespace, at.names(), o.Now, o.Log)
	return s, nil
}

// Handle has a handler answer what is asked at the path. The server limits the
// size of requests and how long they take, and survives a panic.
func (s *Server) Handle(path string, h http.Handler) { s.mux.Handle(path, guarded(h, s.log)) }

// NeedLeaderElection returns false: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// Ready returns nil if the server answers, with a certificate that is valid now.
func (s *Server) Ready() error {
	if !s.listening.Load() {
		return errors.New("the webhook server does not listen")
	}
	c, err := s.source.serving()
	if err != nil {
		return err
	}
	if s.now().After(c.Leaf.NotAfter) {
		return fmt.Errorf("the webhook's certificate expired at %s", c.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// soon is how often it is looked whether something is so that will be in a moment.
const soon = 50 * time.Millisecond

// answers returns when the server is ready, and false if ctx ended before.
func (s *Server) answers(ctx context.Context) bool {
	for s.Ready() != nil {
		if !sleep(ctx, soon) {
			return false
		}
	}
	return true
}

// Limits of the HTTP server. The longest that an API server waits for a webhook
// is 30 seconds.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeader      = 64 << 10
	// grace is how long requests may take that are there when the server is told to
	// stop.
	grace = 10 * time.Second
)

// Start serves until ctx ends and requests that are there have been answered. It
// returns an error if it cannot listen; that ctx has ended is none.
func (s *Server) Start(ctx context.Context) error {
	if s.listener == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
		if err != nil {
			return fmt.Errorf("listening for webhooks: %w", err)
		}
		s.listener = l
	}
	server := &http.Server{
		Handler:           s.mux,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       quietLog(s.log),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.source.serving() },
		},
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.source.run(ctx) })
	group.Go(func() error {
		s.passTrust(ctx)
		return nil
	})
	group.Go(func() error {
		s.listening.Store(true)
		if err := server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving webhooks: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		s.listening.Store(false)
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if err := server.Shutdown(stopping); err != nil {
			return errors.Join(fmt.Errorf("waiting for webhook requests to end: %w", err), server.Close())
		}
		return nil
	})
	return group.Wait()
}

// trustChanges returns a channel that is sent to when the API server must trust
// something else.
func (s *Server) trustChanges() <-chan struct{} {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, c)
	return c
}

// passTrust tells all of them until ctx ends.
func (s *Server) passTrust(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.source.changes():
		}
		s.mu.Lock()
		for _, c := range s.told {
			poke(c)
		}
		s.mu.Unlock()
	}
}

// endpoint is where the API server finds the webhooks.
type endpoint struct {
	url     *url.URL // Nil for a Service.
	service types.NamespacedName
}

func (o *Options) endpoint() (endpoint, error) {
	if (o.URL == "") == (o.Service.Name == "") {
		return endpoint{}, errors.New("the webhook needs a URL or a Service, and not both, for the API server to find it")
	}
	if o.URL == "" {
		if o.Service.Namespace == "" {
			return endpoint{}, fmt.Errorf("the namespace of the webhook's Service %q is not given", o.Service.Name)
		}
		return endpoint{service: o.Service}, nil
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return endpoint{}, fmt.Errorf("the webhook's URL: %w", err)
	case u.Scheme != "https" || u.Hostname() == "":
		return endpoint{}, fmt.Errorf("the webhook's URL is %q, want https://HOST[:PORT][/PATH]", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return endpoint{}, fmt.Errorf("the webhook's URL is %q, and API servers allow neither a user nor a query nor a fragment", u.Redacted())
	}
	return endpoint{url: u}, nil
}

// names returns the names that the server's certificate is for.
func (e *endpoint) names() []string {
	if e.url != nil {
		return []string{strings.ToLower(e.url.Hostname())}
	}
	// An API server asks for NAME.NAMESPACE.svc, whatever the cluster's domain.
	inside := e.service.Name + "." + e.service.Namespace
	return []string{inside + ".svc", inside}
}

// at returns the URL of a path; empty for a Service.
func (e *endpoint) at(path string) string {
	if e.url == nil {
		return ""
	}
	return e.url.JoinPath(path).String()
}
