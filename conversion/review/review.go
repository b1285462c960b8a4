// Package review sends reviews to conversion and admission webhooks, as an API server does. It uses the client of the
// API server, and the checks of the API server for the answers. So the error texts are those of the API server.
//
// If a webhook rejects an object or gives an invalid answer, the error is a [pipeline.RefusedError]. If the webhook is
// unreachable or answers with an HTTP status other than 200, the error has another type.
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
	// URL of the endpoint. It must begin with https.
	URL string
	// Authority is the PEM of the authorities that may have signed the certificate of the endpoint. Empty means the
	// authorities that this machine trusts.
	Authority []byte
	// ServerName is the name that the certificate must have; empty means the host of the URL.
	ServerName string
	// Insecure accepts any certificate. Authority must then be empty.
	Insecure bool
}

const (
	// conversionTimeout is the timeout of API servers, which cannot be configured.
	conversionTimeout = 30 * time.Second
	// admissionTimeout is the default timeout of API servers.
	admissionTimeout = 10 * time.Second
	// maxAnswer is the maximum size of an answer. The objects that API servers can store are much smaller.
	maxAnswer = 16 << 20
)

// errTooLong is the error for an answer of more than maxAnswer bytes.
var errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

// check returns an error if the webhook cannot be called with these values.
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

// witness records the error of the last exchange with a webhook, because the client of the API server returns only its
// text.
type witness struct {
	timeout    time.Duration
	serverName string
	insecure   bool

	mu     sync.Mutex
	failed error // The error of the last exchange; nil if there was an answer.
}

// unreachable returns the reason why the webhook gave no answer; nil if it gave one.
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

// resolver returns the client configuration for calls of the webhook.
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

// watched is a transport that reports errors to a witness, and prevents retries.
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
	answer.Header.Del("Retry-After") // The user decides about a retry.
	answer.Body = &limited{body: answer.Body, left: maxAnswer}
	return answer, nil
}

// maxLine is the maximum number of bytes of an error answer that are shown.
const maxLine = 512

// firstLine returns the first line of an answer after a colon; "" if the line is empty or is not text. The client can
// still read the rest of the body.
func firstLine(answer *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxLine))
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line = strings.TrimSpace(line); err != nil || line == "" || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return ""
	}
	return ": " + line
}

// limited is a body with a maximum size.
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

// within calls ask, a function without a context, and returns its result. If ctx ends first, within returns the cause,
// and does not wait for ask.
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
