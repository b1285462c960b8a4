package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/cert"
)

// clients are who may connect: those with a certificate that one of the authorities of
// a file has signed for clients. It may be used by several goroutines.
type clients struct {
	file  string
	names []string // Common names; none for all.
	log   logr.Logger
	now   func() time.Time

	mu      sync.Mutex
	last    *x509.CertPool // What could be read the last time.
	trouble string         // Why it could not be read since then; "" if it could.
}

// newClients returns an error if the authorities cannot be read now.
func newClients(file string, names []string, log logr.Logger, now func() time.Time) (*clients, error) {
	c := &clients{file: file, names: slices.Clone(names), log: log, now: now}
	pool, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of the webhook's clients: %w", err)
	}
	c.last = pool
	return c, nil
}

// require has a server want a certificate of whoever connects. Sessions are not
// resumed: what counts is what the file says now.
func (c *clients) require(config *tls.Config) {
	// Who it is to be from is not for everybody to know, and the pool may change: so the
	// chain is verified here.
	config.ClientAuth = tls.RequireAnyClientCert
	config.VerifyConnection = c.verify
	config.SessionTicketsDisabled = true
}

// verify returns why whoever shows these certificates may not connect. It is asked in
// the handshake.
func (c *clients) verify(is tls.ConnectionState) error {
	if len(is.PeerCertificates) == 0 {
		return errors.New("the client shows no certificate")
	}
	client, between := is.PeerCertificates[0], x509.NewCertPool()
	for _, other := range is.PeerCertificates[1:] {
		between.AddCert(other)
	}
	_, err := client.Verify(x509.VerifyOptions{
		Roots: c.authorities(), Intermediates: between, CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("verifying the certificate of %q: %w", client.Subject.CommonName, err)
	}
	if len(c.names) > 0 && !slices.Contains(c.names, client.Subject.CommonName) {
		return fmt.Errorf("the client's certificate is for %q, want one for %s", client.Subject.CommonName, strings.Join(c.names, ", "))
	}
	return nil
}

// authorities returns those in the file, or that were there last: it may be being
// written.
func (c *clients) authorities() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool, err := c.read()
	if err == nil {
		c.last, c.trouble = pool, ""
		return c.last
	}
	if err.Error() != c.trouble { // Anybody may connect as often as they like.
		c.log.Error(err, "The authorities of the webhook's clients cannot be read, and the last ones count", "file", c.file)
		c.trouble = err.Error()
	}
	return c.last
}

func (c *clients) read() (*x509.CertPool, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	authorities, err := cert.ParseCertsPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.file, err)
	}
	pool := x509.NewCertPool()
	for _, a := range authorities {
		pool.AddCert(a)
	}
	return pool, nil
}
