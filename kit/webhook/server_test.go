package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/poll"
	"refract.dev/kit/webhook/pki"
)

// issuedHere returns certificates for servers on this machine, in a Secret of their own.
func issuedHere(c client.WithWatch, now func() time.Time) *issued {
	return issuing(c, now, logr.Discard(), "127.0.0.1")
}

// local returns a server on a free port of this machine, and its URL.
func local(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Listener = l
	if o.Certificates == nil {
		o.Certificates = issuedHere(hub(), time.Now)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, "https://" + s.Address()
}

// start starts a server, and returns a function that stops it and returns the result of Start.
func start(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	poll.Eventually(t, "the server is ready", func(context.Context) error { return s.Ready() })
	return stop
}

// caller returns a client like an API server, with a new connection for each request.
func caller(authorities []byte) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

func ask(ctx context.Context, c *http.Client, url, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	w.Write(body)
})

func TestServer(t *testing.T) {
	var log record
	s, url := local(t, Options{Log: log.logger()})
	s.Handle("/echo", echo)
	s.Handle("/swallow", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	s.Handle("/panic", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a mistake") }))
	if s.Ready() == nil {
		t.Error("A server that does not listen is not ready.")
	}
	stop := start(t, s)
	c := caller(s.certificates.Trusted())

	for _, tc := range []struct {
		reason, path, body string
		want               int
	}{
		{"A request gets an answer.", "/echo", "hello", http.StatusOK},
		{"A panic in a handler does not end the server.", "/panic", "", http.StatusInternalServerError},
		{"Other handlers still answer after the panic.", "/echo", "hello", http.StatusOK},
		{"A body of exactly the limit is read.", "/swallow", strings.Repeat("x", defaultMaxBytes), http.StatusOK},
		{
			"A body above the limit is rejected, so that it does not fill the memory.",
			"/echo", strings.Repeat("x", defaultMaxBytes+1), http.StatusRequestEntityTooLarge,
		},
		{"A path without a handler is not found.", "/", "", http.StatusNotFound},
	} {
		if got, _, err := ask(t.Context(), c, url+tc.path, tc.body); err != nil || got != tc.want {
			t.Errorf("%s\nPOST %s: got %d, %v, want %d", tc.reason, tc.path, got, err, tc.want)
		}
	}
	resp, err := c.Get(url + "/echo")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("API servers only POST: got %d", resp.StatusCode)
	}
	if !strings.Contains(log.String(), "a mistake") {
		t.Errorf("A panic must be logged:\n%s", &log)
	}
	if err := stop(); err != nil {
		t.Errorf("A requested stop must be no error: %v", err)
	}
	if s.Ready() == nil {
		t.Error("A server that has stopped is not ready.")
	}
}

// TestLongHeads: the server limits the head of a request. Go's HTTP server reads up to 4 KiB more than the limit.
func TestLongHeads(t *testing.T) {
	s, url := local(t, Options{})
	s.Handle("/echo", echo)
	start(t, s)
	c := caller(s.certificates.Trusted())
	const rest = 1 << 10 // The request line and the client's own headers are smaller.
	for _, tc := range []struct {
		reason string
		head   int
		want   int
	}{
		{"A head within the limit is accepted.", maxHeader - rest, http.StatusOK},
		{"A head above the limit is rejected.", maxHeader + 4<<10, http.StatusRequestHeaderFieldsTooLarge},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/echo", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Long", strings.Repeat("x", tc.head))
		resp, err := c.Do(req)
		if err != nil {
			t.Fatalf("%s\n%v", tc.reason, err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("%s\ngot %d for a head of %d bytes, want %d", tc.reason, resp.StatusCode, tc.head, tc.want)
		}
	}
}

func TestServerAnswersWhatItWasAskedBeforeItStops(t *testing.T) {
	s, url := local(t, Options{})
	asked, answer := make(chan struct{}), make(chan struct{})
	s.Handle("/slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		io.WriteString(w, "done")
	}))
	stop := start(t, s)
	got := make(chan string, 1)
	go func() {
		_, text, err := ask(context.WithoutCancel(t.Context()), caller(s.certificates.Trusted()), url+"/slow", "")
		got <- fmt.Sprint(text, err)
	}()
	<-asked
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	poll.Eventually(t, "the server stops", func(context.Context) error {
		if s.Ready() == nil {
			return errors.New("it is still ready")
		}
		return nil
	})
	close(answer)
	if text := <-got; text != "done<nil>" {
		t.Errorf("A request from before the stop must get its answer: got %q", text)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestRotationUnderLoad renews the certificate many times, and the authority twice, while clients open connections. The
// clients trust the authorities that the API server has received last.
func TestRotationUnderLoad(t *testing.T) {
	now := &clock{now: time.Now()}
	certs := issuedHere(hub(), now.read)
	s, url := local(t, Options{Certificates: certs, Now: now.read})
	s.Handle("/echo", echo)
	start(t, s)

	var told atomic.Pointer[[]byte] // Authorities that the clients trust. They are updated late.
	tell := func() {
		trusted := s.certificates.Trusted()
		told.Store(&trusted)
	}
	tell()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var answers [4]atomic.Int64
	for i := range answers {
		wg.Go(func() {
			for ctx.Err() == nil {
				c := caller(*told.Load())
				c.Transport.(*http.Transport).TLSClientConfig.Time = now.read
				if status, _, err := ask(t.Context(), c, url+"/echo", "x"); err != nil || status != http.StatusOK {
					t.Errorf("At %s: %d, %v", now.read(), status, err)
					return
				}
				answers[i].Add(1)
			}
		})
	}
	// round waits until every client has finished a request that it began after the call.
	round := func() {
		t.Helper()
		for i := range answers {
			before := answers[i].Load()
			poll.Eventually(t, "clients are served", func(context.Context) error {
				if answers[i].Load() < before+2 && !t.Failed() {
					return errors.New("not yet")
				}
				return nil
			})
		}
	}
	serials := map[string]bool{}
	for range 60 {
		now.add(20 * 24 * time.Hour)
		synced(t, certs)
		round() // The clients still trust the earlier authorities.
		tell()
		round()
		now.add(2 * time.Hour) // From now on the new authority signs.
		serials[synced(t, certs).Serving().Leaf.SerialNumber.String()] = true
		round()
	}
	cancel()
	wg.Wait()
	if len(serials) < 15 {
		t.Errorf("In 1200 days there were %d certificates, want at least 15", len(serials))
	}
}

func TestAddressInUse(t *testing.T) {
	taken, _ := local(t, Options{})
	s, err := New(Options{Certificates: issuedHere(hub(), time.Now), BindAddress: taken.Address()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "listening for webhooks") {
		t.Errorf("Start(): got %v", err)
	}
}

// TestFiles serves with files that another program manages, such as cert-manager.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(now time.Time) *pki.Bundle {
		issuer := pki.Issuer{Names: []string{"127.0.0.1"}, Now: func() time.Time { return now }}
		b, _, err := issuer.Renew(nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := b.Data()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{pki.Authorities, pki.ServingKey, pki.ServingCertificate} {
			if err := os.WriteFile(filepath.Join(dir, key), data[key], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	first := write(time.Now())
	certificates, err := Files(filepath.Join(dir, pki.ServingCertificate), filepath.Join(dir, pki.ServingKey), filepath.Join(dir, pki.Authorities), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	s, url := local(t, Options{Certificates: certificates})
	s.Handle("/echo", echo)
	start(t, s)
	connects := func(b *pki.Bundle) error {
		_, _, err := ask(t.Context(), caller(b.Trusted()), url+"/echo", "x")
		return err
	}
	if err := connects(first); err != nil {
		t.Error(err)
	}
	stays := keeping(t, first.Trusted(), false)
	before, _, err := post(t.Context(), stays, url+"/echo", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	second := write(time.Now())
	poll.Eventually(t, "the new certificate is served", func(context.Context) error { return connects(second) })
	if after, _, err := post(t.Context(), stays, url+"/echo", strings.NewReader("x")); err != nil || after != before {
		t.Errorf("An open connection must outlive the renewal: got %v, %v", after, err)
	}
	if diff := cmp.Diff(string(second.Trusted()), string(s.certificates.Trusted())); diff != "" {
		t.Errorf("authorities for the API server: -want, +got:\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(dir, pki.Authorities), []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(second.Trusted()), string(s.certificates.Trusted())); diff != "" {
		t.Errorf("authorities while the file is half written: -want, +got:\n%s", diff)
	}
}
