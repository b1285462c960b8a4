// Package review sends reviews to conversion and admission webhooks like an API server. It uses the client of the API
// server, and its checks of the answers, so that the error texts are those of the API server.
//
// A rejection or an invalid answer of a webhook is a [pipeline.RefusedError]. If the webhook is unreachable or answers
// with an HTTP status other than 200, the error has another type.
package review

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Webhook is an endpoint.
type Webhook struct {
	// URL of the endpoint; it begins with https.
	URL string
	// Authority is the PEM bundle of the authorities for the endpoint's certificate; empty for the authorities of this
	// machine.
	Authority []byte
	// ServerName is the name in the expected certificate; empty for the host of the URL.
	ServerName string
	// Insecure accepts any certificate. Authority must be empty then.
	Insecure bool
}

const (
	// conversionTimeout is the fixed timeout of an API server.
	conversionTimeout = 30 * time.Second
	// admissionTimeout is the default of an API server.
	admissionTimeout = 10 * time.Second
	// maxAnswer is the maximum size of an answer. Objects that an API server can store are much smaller.
	maxAnswer = 16 << 20
)

// errTooLong is returned for an answer of more than maxAnswer bytes.
var errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

// check returns an error about the webhook itself.
func (w *Webhook) check() error {
	u, err := url.Parse(w.URL)
	if err != nil {
		return fmt.Errorf("reading the URL of a webhook: %w", err)
	}
	if u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s is not the URL of a webhook: want https://HOST[:PORT]/PATH", w.URL)
	}
	return nil
}

// witness records the result of an exchange with a webhook. The errors of the client contain only its text.
type witness struct {
	timeout    time.Duration
	serverName string
	insecure   bool

	mu     sync.Mutex
	failed error // Error of the last exchange.
}

// unreachable returns why a webhook gave no answer; nil if it gave one.
func (w *witness) unreachable() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *witness) saw(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err
}

// resolver returns the resolver with the configuration for the clients of an API server.
func (w *witness) resolver(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	config := func() *rest.Config {
		return &rest.Config{
			Timeout:         w.timeout,
			TLSClientConfig: rest.TLSClientConfig{ServerName: w.serverName, Insecure: w.insecure},
			WrapTransport:   func(next http.RoundTripper) http.RoundTripper { return &watched{next: next, by: w} },
		}
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc:        func(string) (*rest.Config, error) { return config(), nil },
		ClientConfigForServiceFunc: func(string, string, int) (*rest.Config, error) { return config(), nil },
	}
}

// watched is a transport that reports to a witness, and prevents retries.
type watched struct {
	next http.RoundTripper
	by   *witness
}

func (t *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		t.by.saw(err)
		return nil, err
	}
	t.by.saw(nil)
	if answer.StatusCode != http.StatusOK {
		said := firstLine(answer)
		t.by.saw(fmt.Errorf("the HTTP status is %s%s", answer.Status, said))
	}
	answer.Header.Del("Retry-After") // The user of the command decides about a retry.
	answer.Body = &limited{body: answer.Body, left: maxAnswer}
	return answer, nil
}

// maxLine is the maximum size of the shown body of an answer with an error status, in bytes.
const maxLine = 512

// firstLine returns a colon and the first line of an answer; nothing if the line is empty or not text. It leaves the
// rest of the body to the client.
func firstLine(answer *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxLine))
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line = strings.TrimSpace(line); err != nil || line == "" || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return ""
	}
	return ": " + line
}

// limited is a body of bounded size.
type limited struct {
	body io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, errTooLong
	}
	n, err := l.body.Read(p[:min(len(p), l.left+1)])
	if l.left -= n; l.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

func (l *limited) Close() error { return l.body.Close() }

// within calls ask, which has no context, and returns its result. If ctx ends first, it returns the cause and does not
// wait for ask.
func within[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := ask()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// unreachable returns the error for a webhook without an answer.
func (w *Webhook) unreachable(err error) error { return fmt.Errorf("asking %s: %w", w.URL, err) }
