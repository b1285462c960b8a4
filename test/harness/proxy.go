package harness

import (
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Proxy is a proxy between the controllers and a cluster. It can inject faults. Clients authenticate to it with its
// token. It connects to the cluster as an administrator, and forwards the clients' user agents.
type Proxy struct {
	// Access is the endpoint and token of the proxy.
	Access Access

	server *httptest.Server
	to     http.Handler

	mu     sync.Mutex
	fault  Fault
	healed chan struct{} // Closed at the end of the fault.
	counts map[string]int
}

// Fault handles a request instead of the cluster. If it returns false, the proxy forwards the request. The channel
// healed is closed when the fault ends.
type Fault func(w http.ResponseWriter, r *http.Request, healed <-chan struct{}) bool

// Proxy starts a proxy for a cluster. The caller must close it.
func (e *Env) Proxy(cluster string) (*Proxy, error) {
	cfg, err := e.Config(cluster)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "" // The proxy passes on the user agent of the client.
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	p := &Proxy{counts: map[string]int{}, healed: make(chan struct{})}
	p.to = &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // Watches are streams.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		// If the cluster does not answer, the connection to the client breaks.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = nil
	p.server.StartTLS()
	p.Access = Access{
		Endpoint: p.server.URL, Token: "token-of-" + cluster,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}
	return p, nil
}

// Close stops the proxy and ends every connection through it.
func (p *Proxy) Close() {
	p.Behave(nil)
	p.server.CloseClientConnections()
	p.server.Close()
}

// Behave sets the fault for all later requests; nil ends the fault.
func (p *Proxy) Behave(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.healed)
	p.fault, p.healed = f, make(chan struct{})
}

// Cut breaks every connection.
func (p *Proxy) Cut() { p.server.CloseClientConnections() }

// Count returns the number of requests by method since the last call. It does not count watches that were open already.
func (p *Proxy) Count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := p.counts
	p.counts = map[string]int{}
	return maps.Clone(counts)
}

// ServeHTTP handles the requests of clients.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.counts[r.Method]++
	fault, healed := p.fault, p.healed
	p.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+p.Access.Token {
		answer(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 0)
		return
	}
	if fault != nil && fault(w, r, healed) {
		return
	}
	p.to.ServeHTTP(w, r)
}

// RefuseWrites answers every write with the status code. With 429, the answer tells the client to retry after a second.
func RefuseWrites(code int) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) bool {
		switch {
		case r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/"):
			return false
		case code == http.StatusTooManyRequests:
			answer(w, code, metav1.StatusReasonTooManyRequests, 1)
		default:
			answer(w, code, metav1.StatusReasonInternalError, 0)
		}
		return true
	}
}

// RefuseAll answers every request with 401.
func RefuseAll() Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) bool {
		answer(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 0)
		return true
	}
}

// Hang answers no request until the client gives up or the fault ends. When the fault ends, the proxy forwards the
// waiting requests.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request, healed <-chan struct{}) bool {
		select {
		case <-r.Context().Done():
			return true
		case <-healed:
			return false
		}
	}
}

// Delay forwards every request after the duration.
func Delay(d time.Duration) Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-r.Context().Done():
			return true
		case <-t.C:
			return false
		}
	}
}

// answer writes a status like an API server.
func answer(w http.ResponseWriter, code int, reason metav1.StatusReason, retryAfter int32) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "a fault that a test has put in",
	}
	w.Header().Set("Content-Type", "application/json")
	if retryAfter > 0 {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter)))
	}
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(&status); err != nil {
		panic(http.ErrAbortHandler) // The client has disconnected.
	}
}
