// Package review asks conversion and admission webhooks as an API server does, with
// its own client and its own judgement of what they answer: the texts of refusals
// are those that a client of the API server reads.
//
// A webhook that answers, and says no or answers wrongly, is a
// [pipeline.RefusedError]. One that cannot be reached, or answers with an HTTP status
// other than 200, is any other error.
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
	// Authority is the PEM bundle of who may have signed the endpoint's certificate;
	// empty for those that this machine trusts.
	Authority []byte
	// ServerName is the name that the certificate must be for; empty for the host of
	// the URL.
	ServerName string
	// Insecure takes any certificate; there is no Authority then.
	Insecure bool
}

const (
	// conversionTimeout is the one of an API server, where it cannot be set.
	conversionTimeout = 30 * time.Second
	// admissionTimeout is the default of an API server.
	admissionTimeout = 10 * time.Second
	// maxAnswer is how much of an answer is read: an object that an API server can
	// store is much smaller.
	maxAnswer = 16 << 20
)

// errTooLong is for an answer that is not read to its end.
var errTooLong = fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)

// check returns what is wrong with the webhook itself.
func (w *Webhook) check() error {
	u, err := url.Parse(w.URL)
	if err != nil {
		return fmt.Errorf("reading the URL of a webhook: %w", err)
	}
	if u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s is no URL of a webhook: want https://HOST[:PORT]/PATH", w.URL)
	}
	return nil
}

// witness sees the exchange with a webhook, of which the client's errors tell only
// the text.
type witness struct {
	timeout    time.Duration
	serverName string
	insecure   bool

	mu     sync.Mutex
	failed error // Of the last exchange.
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

// resolver is how the clients of an API server get their configuration.
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

// watched is a transport with a witness, that asks once.
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
		t.by.saw(fmt.Errorf("it answers with the HTTP status %s%s", answer.Status, said))
	}
	answer.Header.Del("Retry-After") // Who waits for the command asks again.
	answer.Body = &limited{body: answer.Body, left: maxAnswer}
	return answer, nil
}

// maxLine is how much is shown of what a webhook says beside a status.
const maxLine = 512

// firstLine returns the first line of an answer after a colon; nothing if it is empty or
// no text. The client then reads what is left of the body.
func firstLine(answer *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxLine))
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line = strings.TrimSpace(line); err != nil || line == "" || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return ""
	}
	return ": " + line
}

// limited is a body that may not be too long.
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

// within calls ask, which cannot be cancelled, and does not wait for it longer than
// ctx lasts.
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

// unreachable is the error of a webhook that gives no answer.
func (w *Webhook) unreachable(err error) error { return fmt.Errorf("asking %s: %w", w.URL, err) }
