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

// Proxy stands between the controllers and a cluster, and can be made to behave
// badly. It lets those in that bear its token, and is an administrator to the
// cluster. User agents pass through it.
type Proxy struct {
	// Access leads through the proxy.
	Access Access

	server *httptest.Server
	to     http.Handler

	mu     sync.Mutex
	fault  Fault
	healed chan struct{} // Closed when the fault ends.
	counts map[string]int
}

// Fault is what a proxy does with a request in place of passing it on. It returns
// false to have it passed on after all. Healed is closed when the fault is over.
type Fault func(w http.ResponseWriter, r *http.Request, healed <-chan struct{}) bool

// Proxy starts a proxy before a cluster. It has to be closed.
func (e *Env) Proxy(cluster string) (*Proxy, error) {
	cfg, err := e.Config(cluster)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "" // That of whoever asks.
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
		// What the cluster does not answer is not answered: the connection breaks.
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

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() {
	p.Behave(nil)
	p.server.CloseClientConnections()
	p.server.Close()
}

// Behave sets what the proxy does with requests from now on; nil has it pass
// them on.
func (p *Proxy) Behave(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.healed)
	p.fault, p.healed = f, make(chan struct{})
}

// Cut breaks every connection.
func (p *Proxy) Cut() { p.server.CloseClientConnections() }

// Count returns how many requests have come since it was last called, by method.
// Watches that go on are not among them.
func (p *Proxy) Count() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := p.counts
	p.counts = map[string]int{}
	return maps.Clone(counts)
}

// ServeHTTP is for the server of the proxy.
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

// RefuseWrites answers every write with the status. If it is 429, the answer asks
// for a second's patience.
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

// RefuseAll answers everything with 401.
func RefuseAll() Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) bool {
		answer(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 0)
		return true
	}
}

// Hang leaves requests without an answer until whoever asks gives up, or the
// fault is over; then they are passed on.
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

// Delay passes every request on after a while.
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

// answer writes the status as an API server does.
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
		panic(http.ErrAbortHandler) // Whoever asked is gone.
	}
}
