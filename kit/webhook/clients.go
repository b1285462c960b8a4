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

// clients verifies client certificates: an authority in the file must have signed the certificate. It is safe for
// concurrent use.
type clients struct {
	file  string
	names []string // Allowed common names; empty allows all.
	log   logr.Logger
	now   func() time.Time

	mu      sync.Mutex
	last    *x509.CertPool // From the last successful read.
	trouble string         // The error of the latest read; "" after a successful read.
}

// newClients returns an error if it cannot read the authorities.
func newClients(file string, names []string, log logr.Logger, now func() time.Time) (*clients, error) {
	c := &clients{file: file, names: slices.Clone(names), log: log, now: now}
	pool, err := c.read()
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of the webhook's clients: %w", err)
	}
	c.last = pool
	return c, nil
}

// require makes a server demand a certificate from each client. It disables the resumption of TLS sessions, so that the
// server checks each new connection against the present content of the file.
func (c *clients) require(config *tls.Config) {
	// The chain is verified in VerifyConnection and not through ClientCAs: ClientCAs would tell every client the names
	// of the authorities, and the pool can change.
	config.ClientAuth = tls.RequireAnyClientCert
	config.VerifyConnection = c.verify
	config.SessionTicketsDisabled = true
}

// verify returns an error if a client with these certificates may not connect. The server calls it in the TLS
// handshake.
func (c *clients) verify(is tls.ConnectionState) error {
	if len(is.PeerCertificates) == 0 {
		return errors.New("the client has sent no certificate")
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

// authorities returns the authorities in the file. If the file is unreadable, it returns the last readable ones,
// because another program may be writing the file.
func (c *clients) authorities() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool, err := c.read()
	if err == nil {
		c.last, c.trouble = pool, ""
		return c.last
	}
	if err.Error() != c.trouble { // Logged only once: any client can cause this error at any rate.
		c.log.Error(err, "The authorities of the webhook's clients cannot be read; the last ones remain valid", "file", c.file)
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
