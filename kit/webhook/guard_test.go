package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"refract.dev/internal/poll"
)

// keeping returns a client that reuses its connections, like an API server.
func keeping(t *testing.T, authorities []byte, http2 bool) *http.Client {
	t.Helper()
	transport := caller(authorities).Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.ForceAttemptHTTP2 = false, http2
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// value returns the value of a counter or a gauge.
func value(m prometheus.Metric) float64 {
	var is dto.Metric
	if err := m.Write(&is); err != nil {
		panic(err)
	}
	return is.GetCounter().GetValue() + is.GetGauge().GetValue()
}

// unsized hides the length of a text, so that the request announces no length.
type unsized struct{ io.Reader }

// reply is the head of an answer.
type reply struct {
	code, protocol int
	retryAfter     string
	last           bool // The server closes the connection after this answer.
}

func post(ctx context.Context, c *http.Client, url string, body io.Reader) (reply, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return reply{}, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return reply{}, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.ProtoMajor, resp.Header.Get("Retry-After"), resp.Close}, string(text), err
}

func TestTooLarge(t *testing.T) {
	s, url := local(t, Options{})
	s.Handle("/echo", echo, MaxBytes(1000))
	s.Handle("/own", ownLimit{})
	s.Handle("/hides", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // A careless handler ignores the error.
		fmt.Fprint(w, "all is well")
	}), MaxBytes(1000))
	start(t, s)
	sized := func(n int) func() io.Reader {
		return func() io.Reader { return strings.NewReader(strings.Repeat("x", n)) }
	}
	cases := map[string]struct {
		reason string
		path   string
		body   func() io.Reader // A new reader for each call, because a client may still read it after the answer.
		code   int
		want   string
	}{
		"Fits": {"A body of exactly the limit is accepted.", "/echo", sized(1000), 200, strings.Repeat("x", 1000)},
		"Announced": {
			"A body that announces more than the limit is not read.",
			"/echo", sized(1001), 413, "the request has a body of 1001 bytes, and /echo accepts at most 1000\n",
		},
		"Large": {
			"A client that is still sending receives the answer.",
			"/echo", sized(20 << 20), 413, "the request has a body of 20971520 bytes, and /echo accepts at most 1000\n",
		},
		"Unsized": {
			"A body without a length is read up to the limit.", "/echo", func() io.Reader { return unsized{sized(1001)()} }, 413,
			"the body of the request exceeds the 1000 bytes that /echo accepts: http: request body too large\n",
		},
		"Hidden": {
			"A handler that ignores the read error cannot answer with success.", "/hides", func() io.Reader { return unsized{sized(1 << 20)()} }, 413,
			"the body of the request exceeds the 1000 bytes that /hides accepts: http: request body too large\n",
		},
		"OwnFits": {"A body of exactly the handler's own limit is accepted.", "/own", sized(7), 200, "xxxxxxx"},
		"Own":     {"A handler's own limit applies.", "/own", sized(8), 413, "the request has a body of 8 bytes, and /own accepts at most 7\n"},
	}
	for name, tc := range cases {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%t", name, http2), func(t *testing.T) {
				resp, text, err := post(t.Context(), keeping(t, s.certificates.Trusted(), http2), url+tc.path, tc.body())
				if err != nil {
					t.Fatalf("%s\n%v", tc.reason, err)
				}
				if resp.code != tc.code || text != tc.want {
					t.Errorf("%s\ngot %d %q, want %d %q", tc.reason, resp.code, text, tc.code, tc.want)
				}
				if want := map[bool]int{false: 1, true: 2}[http2]; resp.protocol != want {
					t.Errorf("The request had HTTP/%d", resp.protocol)
				}
			})
		}
	}
}

// ownLimit accepts 7 bytes.
type ownLimit struct{}

func (ownLimit) MaxBytes() int64                                  { return 7 }
func (ownLimit) ServeHTTP(w http.ResponseWriter, r *http.Request) { echo(w, r) }

// TestBytesInFlight fills the memory for bodies. Further requests wait for a while, and then get 503. Small bodies have
// their own memory.
func TestBytesInFlight(t *testing.T) {
	s, url := local(t, Options{InFlightBytes: 4000})
	holds, answer := make(chan struct{}, 1), make(chan struct{})
	s.Handle("/hold", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		holds <- struct{}{}
		<-answer
		echo(w, r)
	}))
	s.Handle("/echo", echo)
	start(t, s)
	c := keeping(t, s.certificates.Trusted(), false)
	held := make(chan string, 1)
	go func() {
		_, text, err := post(t.Context(), c, url+"/hold", strings.NewReader(strings.Repeat("x", 3000)))
		held <- fmt.Sprint(len(text), err)
	}()
	<-holds

	large := strings.Repeat("y", 2000)
	for _, http2 := range []bool{false, true} {
		resp, text, err := post(t.Context(), keeping(t, s.certificates.Trusted(), http2), url+"/echo?timeout=2s", strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		if resp.code != http.StatusServiceUnavailable || resp.retryAfter != "1" || !strings.Contains(text, "try again") {
			t.Errorf("A request without room must be told to try again: got %d, Retry-After %q, %q", resp.code, resp.retryAfter, text)
		}
	}
	if resp, text, err := post(t.Context(), c, url+"/echo?timeout=20s", strings.NewReader("small")); err != nil || text != "small" {
		t.Errorf("A small body must have room: got %v, %q, %v", resp, text, err)
	}
	waited := make(chan string, 1)
	go func() {
		_, text, err := post(t.Context(), c, url+"/echo", strings.NewReader(large))
		waited <- fmt.Sprint(text == large, err)
	}()
	poll.Eventually(t, "the second request waits", func(context.Context) error {
		if got := value(s.metrics.inFlight.WithLabelValues("/echo")); got != 1 {
			return fmt.Errorf("%v wait", got)
		}
		return nil
	})
	close(answer)
	if got := <-held; got != "3000 <nil>" {
		t.Errorf("The request with room: got %s", got)
	}
	if got := <-waited; got != "true <nil>" {
		t.Errorf("The request that waits must get the released room: got %s", got)
	}
	poll.Eventually(t, "all room is given back", func(context.Context) error {
		if got := value(s.metrics.bytes); got != 0 {
			return fmt.Errorf("%v bytes are taken", got)
		}
		return nil
	})
}

// TestRoom: one body can use all memory for large bodies, but no more.
func TestRoom(t *testing.T) {
	r := newRoom(0)
	const large = defaultInFlight - defaultInFlight/4 // The rest is for small bodies.
	all := r.take(t.Context(), large, 0)
	if all == nil || all.size != large {
		t.Fatalf("want room for %d bytes, got %+v", large, all)
	}
	if more := r.take(t.Context(), smallBody+1, time.Millisecond); more != nil {
		t.Errorf("want no room for another large body, got %+v", more)
	}
	if small := r.take(t.Context(), smallBody, 0); small == nil {
		t.Error("want room for a small body")
	}
	all.release()
	if more := r.take(t.Context(), smallBody+1, 0); more == nil {
		t.Error("want room after the release")
	}
}

// TestStreamsThatWaitLeaveRoom sends more bodies over one HTTP/2 connection than the memory allows at a time. Streams
// that wait for memory must not keep the others from receiving their bodies.
func TestStreamsThatWaitLeaveRoom(t *testing.T) {
	const large = 2 << 20
	s, url := local(t, Options{InFlightBytes: 2 * large})
	s.slowGrace = time.Minute // The server cuts off no stream, even on a slow machine.
	s.Handle("/echo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}))
	start(t, s)
	c := keeping(t, s.certificates.Trusted(), true)
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if _, text, err := post(t.Context(), c, url+"/echo", strings.NewReader(strings.Repeat("x", large))); err != nil || text != fmt.Sprint(large, nil) {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
	asking.Wait()
}

// announce connects, sends a request head that announces a body, and sends a part of the body.
func announce(t *testing.T, s *Server, path string, size, sent int) net.Conn {
	t.Helper()
	d := &tls.Dialer{Config: caller(s.certificates.Trusted()).Transport.(*http.Transport).TLSClientConfig}
	c, err := d.DialContext(t.Context(), "tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: webhook\r\nContent-Length: %d\r\n\r\n%s", path, size, strings.Repeat("x", sent)); err != nil {
		t.Fatal(err)
	}
	return c
}

// hears returns the code and the text of the answer on a connection.
func hears(t *testing.T, c net.Conn) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// TestSilentClients: clients announce large bodies, and send little or nothing. Other requests do not wait for them.
func TestSilentClients(t *testing.T) {
	s, url := local(t, Options{})
	s.slowGrace = time.Minute // So a request that waited for silent clients would get no answer.
	s.Handle("/echo", echo)
	s.Handle("/large", echo, MaxBytes(128<<20))
	start(t, s)
	for i := range 100 {
		announce(t, s, "/echo", smallBody, i*100)
	}
	for range 4 {
		announce(t, s, "/large", 128<<20, 1)
	}
	poll.Eventually(t, "all are there", func(context.Context) error {
		if got := value(s.metrics.inFlight.WithLabelValues("/echo")) + value(s.metrics.inFlight.WithLabelValues("/large")); got != 104 {
			return fmt.Errorf("%v are", got)
		}
		return nil
	})
	if got := value(s.metrics.bytes); got != 0 {
		t.Errorf("Silent clients hold %v bytes of the room.", got)
	}
	for _, size := range []int{2, firstPiece, firstPiece + 1, smallBody, smallBody + 1} {
		text := strings.Repeat("y", size)
		resp, got, err := post(t.Context(), keeping(t, s.certificates.Trusted(), false), url+"/echo?timeout=10s", strings.NewReader(text))
		if err != nil || resp.code != http.StatusOK || got != text {
			t.Errorf("%d bytes: got %v and %d bytes, %v", size, resp, len(got), err)
		}
	}
}

// TestSlowClients: clients send enough of a body to be granted memory, and then stop. They lose the memory to other
// requests that wait for it. Small bodies do not wait at all.
func TestSlowClients(t *testing.T) {
	s, url := local(t, Options{InFlightBytes: 16 * firstPiece}) // The pool for small bodies has 3 pieces.
	s.slowGrace = time.Second                                   // Longer than the wait of a small body.
	s.Handle("/echo", echo)
	start(t, s)
	var slow []net.Conn
	for range 4 {
		slow = append(slow, announce(t, s, "/echo", 2*firstPiece, firstPiece+1))
	}
	poll.Eventually(t, "they hold the room, or wait for it", func(context.Context) error {
		if got, waiting := value(s.metrics.bytes), s.room.pools[1].waiting.Load(); got != 2*firstPiece || waiting == 0 {
			return fmt.Errorf("%v bytes are taken, and %d wait", got, waiting)
		}
		return nil
	})
	c := keeping(t, s.certificates.Trusted(), false)
	if resp, got, err := post(t.Context(), c, url+"/echo?timeout=2s", strings.NewReader("small")); err != nil || got != "small" {
		t.Errorf("A small body must have its own room: got %v, %q, %v", resp, got, err)
	}
	text := strings.Repeat("y", 3*firstPiece)
	for _, http2 := range []bool{false, true} {
		resp, got, err := post(t.Context(), keeping(t, s.certificates.Trusted(), http2), url+"/echo", strings.NewReader(text))
		if err != nil || resp.code != http.StatusOK || got != text {
			t.Errorf("http2=%t: other requests must get the room of slow clients: got %v and %d bytes, %v", http2, resp, len(got), err)
		}
	}
	if code, got := hears(t, slow[0]); code != http.StatusServiceUnavailable || !strings.Contains(got, "arrives too slowly") {
		t.Errorf("A slow client that was cut off must get the reason: got %d, %q", code, got)
	}
	poll.Eventually(t, "all room is given back", func(context.Context) error {
		if got := value(s.metrics.bytes); got != 0 {
			return fmt.Errorf("%v bytes are taken", got)
		}
		return nil
	})
}

// TestSlowClientAlone: a slow client has the whole time for its body if no other request waits for the memory.
func TestSlowClientAlone(t *testing.T) {
	s, _ := local(t, Options{})
	s.bodyTimeout = 4 * slowGrace
	s.Handle("/echo", echo)
	start(t, s)
	begun := time.Now()
	slow, silent := announce(t, s, "/echo", firstPiece+2, firstPiece), announce(t, s, "/echo", 1, 0)
	for _, c := range []net.Conn{slow, silent} {
		if code, got := hears(t, c); code != http.StatusRequestTimeout || !strings.Contains(got, "did not arrive in time") {
			t.Errorf("got %d, %q", code, got)
		}
	}
	if took := time.Since(begun); took < s.bodyTimeout {
		t.Errorf("The clients were cut off after %s, although no other request waited", took)
	}
}

func TestPanics(t *testing.T) {
	var log record
	s, url := local(t, Options{Log: log.logger()})
	s.Handle("/before", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("before the answer") }))
	s.Handle("/within", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"half":`)
		panic("within the answer")
	}))
	s.Handle("/abort", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	s.Handle("/echo", echo)
	start(t, s)
	c := keeping(t, s.certificates.Trusted(), false)
	if resp, text, err := post(t.Context(), c, url+"/before", http.NoBody); err != nil || resp.code != 500 || text != "internal error\n" {
		t.Errorf("The client must get an error without the text of the panic: got %v, %q, %v", resp, text, err)
	}
	for _, path := range []string{"/within", "/abort"} {
		if resp, text, err := post(t.Context(), c, url+path, http.NoBody); err == nil {
			t.Errorf("POST %s: half an answer must not look complete: got %v, %q", path, resp, text)
		}
	}
	if _, text, err := post(t.Context(), c, url+"/echo", strings.NewReader("hello")); err != nil || text != "hello" {
		t.Errorf("Other handlers must still answer: got %q, %v", text, err)
	}
	for _, path := range []string{"/before", "/within"} {
		if got := value(s.metrics.panics.WithLabelValues(path)); got != 1 {
			t.Errorf("Panics of %s: got %v, want 1", path, got)
		}
	}
	if got := log.String(); strings.Count(got, "A webhook panicked") != 2 || !strings.Contains(got, "guard_test.go") {
		t.Errorf("Each panic must be logged with its place:\n%s", got)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s, url := local(t, Options{Metrics: registry})
	other, err := New(Options{Certificates: s.certificates, Metrics: registry})
	if err != nil {
		t.Fatalf("Two servers of a process must be able to share their metrics: %v", err)
	}
	if other.metrics.requests != s.metrics.requests {
		t.Error("The two servers do not share their metrics.")
	}
	s.Handle("/echo", echo, MaxBytes(10))
	start(t, s)
	c := keeping(t, s.certificates.Trusted(), false)
	for _, body := range []string{"a", "b", "more than ten bytes"} {
		if _, _, err := post(t.Context(), c, url+"/echo", strings.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := post(t.Context(), c, url+"/elsewhere", http.NoBody); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"200": 2, "413": 1}
	poll.Eventually(t, "all requests are counted", func(context.Context) error {
		got := map[string]float64{}
		for code := range want {
			got[code] = value(s.metrics.requests.WithLabelValues("/echo", code))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	if diff := cmp.Diff([]string{
		"refract_webhook_body_bytes_in_flight", "refract_webhook_request_duration_seconds",
		"refract_webhook_requests_in_flight", "refract_webhook_requests_total",
	}, names); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}

	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "refract_webhook_requests_total", Help: "Another."}))
	if _, err := New(Options{Certificates: s.certificates, Metrics: taken}); err == nil {
		t.Error("New() must return an error if other metrics have the server's names.")
	}
}

// TestConnectionsOutliveCertificates: a connection remains while the certificates that it was established with are
// replaced.
func TestConnectionsOutliveCertificates(t *testing.T) {
	now := &clock{now: time.Now()}
	certs := issuedHere(hub(), now.read)
	s, url := local(t, Options{Certificates: certs, Now: now.read})
	s.Handle("/echo", echo)
	start(t, s)
	for _, http2 := range []bool{false, true} {
		c := keeping(t, certs.Trusted(), http2)
		var reused []bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = append(reused, info.Reused) }})
		for range 3 {
			if _, text, err := post(ctx, c, url+"/echo", strings.NewReader("hello")); err != nil || text != "hello" {
				t.Fatalf("got %q, %v", text, err)
			}
			before := certs.bundle.Load()
			now.add(80 * 24 * time.Hour)
			if synced(t, certs) == before {
				t.Fatal("The certificate was not renewed.")
			}
		}
		if diff := cmp.Diff([]bool{false, true, true}, reused); diff != "" {
			t.Errorf("http2=%t: connections were cut: -want, +got:\n%s", http2, diff)
		}
		now.add(-240 * 24 * time.Hour)
		synced(t, certs)
	}
}

func TestOldTLS(t *testing.T) {
	s, _ := local(t, Options{})
	start(t, s)
	config := caller(s.certificates.Trusted()).Transport.(*http.Transport).TLSClientConfig
	config.MaxVersion = tls.VersionTLS11
	config.MinVersion = tls.VersionTLS10
	if c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", s.Address()); err == nil {
		c.Close()
		t.Error("A connection with TLS 1.1 must fail.")
	}
}

func TestReadiness(t *testing.T) {
	now := &clock{now: time.Now()}
	certs := issuedHere(hub(), now.read)
	s, _ := local(t, Options{Certificates: certs, Now: now.read})
	var toppings error
	s.AddReadiness("toppings", func() error { return toppings })
	start(t, s)
	toppings = errors.New("not synced")
	if err := s.Ready(); err == nil || err.Error() != "toppings: not synced" {
		t.Errorf("Ready(): got %v", err)
	}
	toppings = nil
	if err := s.Ready(); err != nil {
		t.Errorf("Ready(): got %v", err)
	}
	now.add(100 * 24 * time.Hour)
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("Ready() with an old certificate: got %v", err)
	}
}

// TestDrain: a server whose context has ended still accepts new connections for a while.
func TestDrain(t *testing.T) {
	s, url := local(t, Options{Drain: 5 * time.Second})
	s.Handle("/echo", echo)
	stop := start(t, s)
	c := keeping(t, s.certificates.Trusted(), false)
	if _, _, err := post(t.Context(), c, url+"/echo", strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	poll.Eventually(t, "the server stops", func(context.Context) error {
		if s.Ready() == nil {
			return errors.New("it is still ready")
		}
		return nil
	})
	var got httptrace.GotConnInfo
	traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { got = i }})
	resp, text, err := post(traced, c, url+"/echo", strings.NewReader("hello"))
	if !got.Reused {
		t.Error("The client's connection was closed: a request in transit would have failed.")
	}
	if err != nil || text != "hello" {
		t.Fatalf("A client that does not know of the shutdown must get an answer: got %q, %v", text, err)
	}
	if !resp.last {
		t.Error("The answer must end the connection, so that the client's next request goes to another replica.")
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Address()); err == nil {
		c.Close()
		t.Error("The stopped server still listens.")
	}
}

func TestGraceIsOver(t *testing.T) {
	s, url := local(t, Options{Grace: 50 * time.Millisecond})
	asked, ended := make(chan struct{}), make(chan struct{})
	s.Handle("/for-ever", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(ended)
	}))
	stop := start(t, s)
	failed := make(chan error, 1)
	go func() {
		_, _, err := post(context.WithoutCancel(t.Context()), caller(s.certificates.Trusted()), url+"/for-ever", http.NoBody)
		failed <- err
	}()
	<-asked
	if err := stop(); err == nil || !strings.Contains(err.Error(), "waiting for webhook requests to end") {
		t.Errorf("Start() must return an error after cutting off a request: got %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("The client must get an error.")
	}
	<-ended
}

// TestTimeOfARequest: the context of a request ends when the API server stops waiting.
func TestTimeOfARequest(t *testing.T) {
	s, url := local(t, Options{})
	s.Handle("/waits", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		fmt.Fprint(w, context.Cause(r.Context()))
	}))
	start(t, s)
	if _, text, err := post(t.Context(), caller(s.certificates.Trusted()), url+"/waits?timeout=50ms", http.NoBody); err != nil || text != "context deadline exceeded" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestNoCertificates(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("New() must say so.")
	}
}
