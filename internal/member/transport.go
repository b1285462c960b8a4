package member

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// A member that does not answer is given up on after these times, so that what
// waits for it waits no longer.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = requestTimeout + 5*time.Second // Watches have no other; all else ends earlier.
	pingAfter     = 10 * time.Second               // A connection on which nothing came is asked whether it is alive,
	pingTimeout   = 5 * time.Second                // and is closed if it does not say so.
	idleTimeout   = 90 * time.Second
)

// httpClient makes an HTTP client for one member alone. The connections that
// client-go shares by their TLS settings would let one member that hangs hold up
// another behind the same address. Of its answers no more is read than is taken from a
// member.
func httpClient(cfg *rest.Config, bounds limits) (client *http.Client, closeIdle func(), err error) {
	return httpClientWith(cfg, nil, bounds)
}

// httpClientWith is httpClient with a token that may become another, in place of the one in the configuration.
func httpClientWith(cfg *rest.Config, t *currentToken, bounds limits) (client *http.Client, closeIdle func(), err error) {
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
	var next http.RoundTripper = impatient{bounded{transport, bounds}}
	if t != nil {
		next = bearer{next, t}
		cfg = rest.CopyConfig(cfg)
		cfg.BearerToken = ""
	}
	wrapped, err := rest.HTTPWrappersForConfig(cfg, next)
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: wrapped, CheckRedirect: stay}, transport.CloseIdleConnections, nil
}

// redirected is the error of a request that was answered with a redirect. The
// credentials are added to each request, wherever it goes: none is followed.
type redirected struct{ to string }

// Error implements error. It has no path and no query, which may be others each time.
func (r *redirected) Error() string {
	return fmt.Sprintf("a redirect to %q, where the credentials are not sent", r.to)
}

func stay(r *http.Request, _ []*http.Request) error {
	return &redirected{to: r.URL.Scheme + "://" + r.URL.Host}
}

// connectionsKept is for API servers behind something that speaks HTTP/1.1 only:
// as many as a member has writers, and some for reads.
const connectionsKept = 72

// impatient takes from answers the request to come again later. client-go would
// do so ten times within one request, and nobody would know that the member is
// overloaded; here a write that failed comes again by its own schedule.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// currentToken is one that may become another while a member is connected to: those that last an hour are renewed
// every forty minutes, and a member is not to be read anew for that.
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
		r = r.Clone(r.Context()) // It is the caller's.
		r.Header.Set("Authorization", "Bearer "+text)
	}
	return b.next.RoundTrip(r)
}
