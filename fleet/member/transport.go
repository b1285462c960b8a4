package member

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Time limits for members that do not answer, so that waiting work ends.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = requestTimeout + 5*time.Second // The only bound of watches; all other requests end earlier.
	pingAfter     = 10 * time.Second               // Time without traffic after which a connection is pinged.
	pingTimeout   = 5 * time.Second                // Time without an answer after which a pinged connection is closed.
	idleTimeout   = 90 * time.Second
)

// httpClient returns an HTTP client for one member alone. client-go shares connections by their TLS settings, so a
// hanging member could block another member behind the same address. The client reads answers only up to the bounds.
func httpClient(cfg *rest.Config, bounds limits) (client *http.Client, closeIdle func(), err error) {
	return httpClientWith(cfg, nil, bounds)
}

// httpClientWith is httpClient with a replaceable token instead of the token in the configuration.
func httpClientWith(cfg *rest.Config, t *currentToken, bounds limits) (client *http.Client, closeIdle func(), err error) {
	if cfg.Transport != nil {
		return wrapped(cfg, cfg.Transport, t, bounds, func() {})
	}
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, nil, err
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	transport := &http.Transport{
		Proxy:                 proxy,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		TLSClientConfig:       tls,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConnsPerHost:   connectionsKept,
		ForceAttemptHTTP2:     true,

		MaxResponseHeaderBytes: mostHeader,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: pingAfter,
			MaxReceiveBufferPerStream: mostUnread,
		},
	}
	return wrapped(cfg, transport, t, bounds, transport.CloseIdleConnections)
}

// wrapped returns a client of a transport that adds the credentials and keeps the bounds.
func wrapped(cfg *rest.Config, transport http.RoundTripper, t *currentToken, bounds limits, closeIdle func()) (*http.Client, func(), error) {
	var next http.RoundTripper = impatient{bounded{transport, bounds}}
	if t != nil {
		next = bearer{next, t}
		cfg = rest.CopyConfig(cfg)
		cfg.BearerToken = ""
	}
	next, err := rest.HTTPWrappersForConfig(cfg, next)
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: next, CheckRedirect: stay}, closeIdle, nil
}

// redirected is the error of a request that was answered with a redirect. Refract follows no redirects, because each
// request has the credentials, regardless of its destination.
type redirected struct{ to string }

// Error implements error. It omits path and query, which may differ each time.
func (r *redirected) Error() string {
	return fmt.Sprintf("a redirect to %q, where the credentials are not sent", r.to)
}

func stay(r *http.Request, _ []*http.Request) error {
	return &redirected{to: r.URL.Scheme + "://" + r.URL.Host}
}

// connectionsKept is the number of idle connections that are kept. It matters for API servers behind a proxy with
// HTTP/1.1 only, and is enough for each writer of a member and some reads.
const connectionsKept = 72

// impatient removes Retry-After from answers. With it, client-go would retry ten times within one request, and hide the
// overload of the member. Refract retries a failed write by its own schedule.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// currentToken is a token that can be replaced while a member is connected. A token with a lifetime of an hour is
// renewed every forty minutes, and this must not cause new lists of the member.
type currentToken struct{ text atomic.Pointer[string] }

func newCurrentToken(text string) *currentToken {
	t := &currentToken{}
	t.set(text)
	return t
}

func (t *currentToken) set(text string) { t.text.Store(&text) }

// bearer adds a token to each request.
type bearer struct {
	next http.RoundTripper
	*currentToken
}

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if text := *b.text.Load(); text != "" {
		r = r.Clone(r.Context()) // The request belongs to the caller.
		r.Header.Set("Authorization", "Bearer "+text)
	}
	return b.next.RoundTrip(r)
}
