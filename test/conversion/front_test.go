package conversion

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

// front is the server at the webhook's address. Like a Service, it forwards requests to the replicas in turn, and skips
// replicas that are not ready.
//
// It has the replicas' certificate, so it can count requests, and change responses as an attacker with that certificate
// could.
type front struct {
	server *http.Server
	at     string
	to     []string

	mu       sync.Mutex
	turn     int
	requests map[string]int                         // By path.
	alter    map[string]func(review map[string]any) // By path.
	// ready returns an error while the replica at an address is not ready. A replica without an entry is ready if it
	// accepts connections.
	ready map[string]func(context.Context) error
	// passing is true if connections go to the replicas unchanged. Otherwise the front terminates TLS and HTTP itself.
	passing bool
	conns   map[net.Conn]bool
}

// listen starts a front that serves with the given certificate.
func listen(certificate func(context.Context) (*tls.Certificate, error), to ...string) (*front, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{at: l.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	f.requests, f.alter, f.ready = map[string]int{}, map[string]func(map[string]any){}, map[string]func(context.Context) error{}
	f.server = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: f.at}) },
			Transport:      &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: f.dial, DisableKeepAlives: true},
			ModifyResponse: f.answer,
			// Without a listening replica, the client's connection ends without an answer.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: harness.Patience,
		TLSConfig: &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return certificate(hello.Context())
		}},
	}
	terminated := &handed{Listener: l, conns: make(chan net.Conn), done: make(chan struct{})}
	go func() { _ = f.server.ServeTLS(terminated, "", "") }() // It ends when the front is closed.
	go f.accept(l, terminated)
	return f, nil
}

// accept forwards connections to the replicas, or hands them to the front's own server.
func (f *front) accept(l net.Listener, to *handed) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // The listener is closed.
		}
		f.mu.Lock()
		passing := f.passing
		f.conns[c] = true
		f.mu.Unlock()
		if !passing {
			select {
			case to.conns <- c:
			case <-to.done:
			}
			continue
		}
		go func() {
			defer c.Close()
			if other, err := f.dial(context.Background(), "tcp4", ""); err == nil {
				exchange(c, other)
			}
		}()
	}
}

// handed is a listener that passes on connections that another goroutine has accepted. It may be closed once.
type handed struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	close(h.done)
	return h.Listener.Close()
}

// probe makes the front skip the replica at an address while ready returns an error.
func (f *front) probe(address string, ready func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready[address] = ready
}

// dial connects to the next replica that accepts the connection.
func (f *front) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	f.mu.Lock()
	f.turn++
	first, ready := f.turn, maps.Clone(f.ready)
	f.mu.Unlock()
	err := errors.New("no replica is behind the front")
	for i := range f.to {
		to := f.to[(first+i)%len(f.to)]
		if is := ready[to]; is != nil {
			if err = is(ctx); err != nil {
				continue
			}
		}
		var c net.Conn
		dialer := net.Dialer{Timeout: time.Second}
		if c, err = dialer.DialContext(ctx, network, to); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// exchange copies data between two connections until one of them ends.
func exchange(a, b net.Conn) {
	var both sync.WaitGroup
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(c[0], c[1]) // The end of a connection is not an error here.
			_ = a.Close()
			_ = b.Close()
		})
	}
	both.Wait()
}

// answer counts a response, and changes it if the test has called lie.
func (f *front) answer(r *http.Response) error {
	path := r.Request.URL.Path
	f.mu.Lock()
	f.requests[path]++
	alter := f.alter[path]
	f.mu.Unlock()
	if alter == nil || r.StatusCode != http.StatusOK {
		return nil
	}
	review := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return err
	}
	alter(review)
	text, err := json.Marshal(review)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", fmt.Sprint(len(text)))
	return nil
}

func (f *front) url() string { return "https://" + f.at }

func (f *front) close() { _ = f.server.Close() }

// path returns the path of the conversion reviews for a definition.
func path(crd string) string { return "/convert/" + crd }

// asked returns the number of reviews for a definition.
func (f *front) asked(crd string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[path(crd)]
}

// lie changes the responses to the reviews for a definition. A nil function ends this.
func (f *front) lie(crd string, alter func(review map[string]any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alter[path(crd)] = alter
}

// pass switches passing on or off, and closes all open connections.
func (f *front) pass(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passing = on
	for c := range f.conns {
		_ = c.Close() // It may be closed already.
	}
	clear(f.conns)
}

// presented returns the certificate in the replicas' Secret.
func (w *world) presented(ctx context.Context) (*tls.Certificate, error) {
	secret, err := w.secret(ctx)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(secret.Data[pki.ServingCertificate], secret.Data[pki.ServingKey])
	return &c, err
}

// converted returns the converted objects in a review's answer.
func converted(review map[string]any) []map[string]any {
	response, _ := review["response"].(map[string]any)
	list, _ := response["convertedObjects"].([]any)
	var out []map[string]any
	for _, o := range list {
		if o, ok := o.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

// post sends a review directly to the replicas, and returns the response.
func (w *world) post(crd, review string) (map[string]any, error) {
	c := &http.Client{Timeout: harness.Patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := c.Post(w.front.url()+path(crd), "application/json", strings.NewReader(review))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, text)
	}
	out := map[string]any{}
	return out, json.Unmarshal(text, &out)
}
