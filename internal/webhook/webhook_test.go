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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/webhook/pki"
)

// local returns a server on a free port of this machine, and its URL.
func local(t *testing.T, c client.WithWatch, log logr.Logger) (*Server, string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + l.Addr().String()
	s, err := New(Options{Client: c, Namespace: system, URL: url, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s.listener = l
	return s, url
}

// start starts a server, and returns what stops it and says how it ended.
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
	eventually(t, "the server is ready", func() error { return s.Ready() })
	return stop
}

// eventually waits until there is no error.
func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	err := errors.New("was never asked")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = is(); err == nil {
			return
		}
		if !sleep(t.Context(), 10*time.Millisecond) {
			break
		}
	}
	t.Fatalf("Waiting until %s: %v", what, err)
}

// caller asks as an API server does, on a connection of its own each time.
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
	s, url := local(t, hub(), log.logger())
	s.Handle("/echo", echo)
	s.Handle("/panic", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a mistake") }))
	if s.Ready() == nil {
		t.Error("A server that does not listen is not ready.")
	}
	stop := start(t, s)
	c := caller(s.source.trusted())

	for _, tc := range []struct {
		reason, path, body string
		want               int
	}{
		{"Whoever asks gets an answer.", "/echo", "hello", http.StatusOK},
		{"A mistake in one handler is no reason to end.", "/panic", "", http.StatusInternalServerError},
		{"And others go on.", "/echo", "hello", http.StatusOK},
		{"Nobody fills the memory.", "/echo", strings.Repeat("x", maxRequest+1), http.StatusRequestEntityTooLarge},
		{"There is nothing else.", "/", "", http.StatusNotFound},
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
		t.Errorf("A panic is logged:\n%s", &log)
	}
	if err := stop(); err != nil {
		t.Errorf("That it is told to stop is no error: %v", err)
	}
	if s.Ready() == nil {
		t.Error("A server that has stopped is not ready.")
	}
}

func TestServerAnswersWhatItWasAskedBeforeItStops(t *testing.T) {
	s, url := local(t, hub(), logr.Discard())
	asked, answer := make(chan struct{}), make(chan struct{})
	s.Handle("/slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		io.WriteString(w, "done")
	}))
	stop := start(t, s)
	got := make(chan string, 1)
	go func() {
		_, text, err := ask(context.WithoutCancel(t.Context()), caller(s.source.trusted()), url+"/slow", "")
		got <- fmt.Sprint(text, err)
	}()
	<-asked
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	eventually(t, "the server stops", func() error {
		if s.Ready() == nil {
			return errors.New("it is still ready")
		}
		return nil
	})
	close(answer)
	if text := <-got; text != "done<nil>" {
		t.Errorf("The request was there before: got %q", text)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestRotationUnderLoad renews the certificate again and again, and the authority
// twice, while clients that trust what the API server has last been told connect
// all the time.
func TestRotationUnderLoad(t *testing.T) {
	s, url := local(t, hub(), logr.Discard())
	s.Handle("/echo", echo)
	certs := s.source.(*issued)
	now := &clock{now: time.Now()}
	certs.issuer.Now = now.read
	start(t, s)

	var told atomic.Pointer[[]byte] // What the API server trusts: some time behind.
	tell := func() {
		trusted := s.source.trusted()
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
	// round waits until every client has begun and ended a request.
	round := func() {
		t.Helper()
		for i := range answers {
			before := answers[i].Load()
			eventually(t, "clients are served", func() error {
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
		round() // They trust what there was before.
		tell()
		round()
		now.add(2 * time.Hour) // The new authority signs from now on.
		serials[synced(t, certs).Serving().Leaf.SerialNumber.String()] = true
		round()
	}
	cancel()
	wg.Wait()
	if len(serials) < 15 {
		t.Errorf("In 1200 days there were %d certificates, want at least 15", len(serials))
	}
}

func TestOptions(t *testing.T) {
	service := types.NamespacedName{Namespace: "refract", Name: "webhook"}
	cases := map[string]struct {
		reason  string
		options Options
		names   []string
		err     string
	}{
		"URL":             {"A laptop has no Services.", Options{URL: "https://Hub.example:9443/refract", Namespace: system}, []string{"hub.example"}, ""},
		"Address":         {"Nor a name.", Options{URL: "https://[::1]:9443", Namespace: system}, []string{"::1"}, ""},
		"Service":         {"The API server asks for this name.", Options{Service: service, Namespace: system}, []string{"webhook.refract.svc", "webhook.refract"}, ""},
		"Both":            {"Which of them is meant?", Options{URL: "https://hub.example", Service: service, Namespace: system}, nil, "a URL or a Service, and not both"},
		"Neither":         {"Nobody would find it.", Options{Namespace: system}, nil, "a URL or a Service, and not both"},
		"HTTP":            {"API servers use TLS alone.", Options{URL: "http://hub.example", Namespace: system}, nil, "want https://"},
		"NoHost":          {"Nobody would find it.", Options{URL: "https://:9443", Namespace: system}, nil, "want https://"},
		"Password":        {"It is not for logs.", Options{URL: "https://a:hunter2@hub.example", Namespace: system}, nil, "neither a user"},
		"Query":           {"API servers refuse it.", Options{URL: "https://hub.example?a=b", Namespace: system}, nil, "neither a user"},
		"NoNamespace":     {"The Secret has to be somewhere.", Options{URL: "https://hub.example"}, nil, "namespace"},
		"ServiceOfNobody": {"A Service has a namespace.", Options{Service: types.NamespacedName{Name: "webhook"}, Namespace: system}, nil, "namespace"},
		"NoFolder":        {"What is not there cannot be served.", Options{URL: "https://hub.example", CertDir: "not-there"}, nil, "certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := New(tc.options)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s\nNew(): got error %v, want %q in it", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nNew(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.names, s.endpoint.names()); diff != "" {
				t.Errorf("%s\nnames: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAddressInUse(t *testing.T) {
	taken, _ := local(t, hub(), logr.Discard())
	s, err := New(Options{Client: hub(), Namespace: system, URL: "https://hub.example", BindAddress: taken.listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "listening for webhooks") {
		t.Errorf("Start(): got %v", err)
	}
}

// TestFolder serves with files that somebody else keeps, as cert-manager does.
func TestFolder(t *testing.T) {
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
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Client: hub(), URL: "https://" + l.Addr().String(), CertDir: dir, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	s.listener = l
	s.Handle("/echo", echo)
	start(t, s)
	connects := func(b *pki.Bundle) error {
		_, _, err := ask(t.Context(), caller(b.Trusted()), s.endpoint.at("/echo"), "x")
		return err
	}
	if err := connects(first); err != nil {
		t.Error(err)
	}
	second := write(time.Now())
	eventually(t, "the new certificate is served", func() error { return connects(second) })
	if diff := cmp.Diff(string(second.Trusted()), string(s.source.trusted())); diff != "" {
		t.Errorf("The API server is to trust what is in the folder: -want, +got:\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(dir, pki.Authorities), []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(second.Trusted()), string(s.source.trusted())); diff != "" {
		t.Errorf("A file that is being written says nothing: -want, +got:\n%s", diff)
	}
}
