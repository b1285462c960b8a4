package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"refract.dev/kit/webhook/follow"
)

// Certificates are the certificates of a server: [Files] that another program manages, or [Issued] ones. Several
// goroutines may call all methods at the same time.
type Certificates interface {
	// Run keeps the certificates up to date until ctx ends, which is no error. The server that uses them calls it once.
	Run(ctx context.Context) error
	// Serving returns the certificate to present, with its Leaf, or an error while no certificate exists. The
	// server calls it for each connection, and it does no I/O.
	Serving() (*tls.Certificate, error)
	// Trusted returns the authorities that an API server must trust, as PEM: the old and the new ones while both are in
	// use. It returns nil while they are unknown, or if another program configures the API server.
	Trusted() []byte
	// Changes returns a new channel for each caller. It receives a value when the result of Trusted may have changed.
	Changes() <-chan struct{}
}

// files are certificates that another program manages.
type files struct {
	authorities string // Path of the file; empty for none.
	watcher     *certwatcher.CertWatcher
	log         logr.Logger
	changed     follow.Signal

	mu   sync.Mutex
	last []byte // The last authorities that could be read.
}

// Files are certificates in files that another program manages, such as cert-manager with a volume: a certificate chain
// and its key, as PEM. The server reloads them when they change. It ignores invalid files, such as files that are being
// written, and keeps the last valid ones.
//
// If caFile is not empty and the file exists, it holds the authorities that an API server must trust. Otherwise another
// program configures the API server, such as cert-manager's cainjector.
//
// While certificates of an old and of a new authority are in use, caFile must have both authorities. Later errors of
// the certificate go to controller-runtime's log.
//
// Files returns an error if the certificate cannot be read now.
func Files(certFile, keyFile, caFile string, log logr.Logger) (Certificates, error) {
	w, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the webhook's certificate: %w", err)
	}
	f := &files{authorities: caFile, watcher: w, log: log}
	w.RegisterCallback(func(tls.Certificate) { f.changed.Send() })
	return f, nil
}

// Run watches the files.
func (f *files) Run(ctx context.Context) error { return f.watcher.Start(ctx) }

// Serving returns the last certificate that could be read.
func (f *files) Serving() (*tls.Certificate, error) { return f.watcher.GetCertificate(nil) }

// Changes receives a value after each reload of the certificate.
func (f *files) Changes() <-chan struct{} { return f.changed.Listen() }

// Trusted returns the last authorities that could be read.
func (f *files) Trusted() []byte {
	if f.authorities == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := os.ReadFile(f.authorities)
	if os.IsNotExist(err) {
		return f.last
	}
	if err == nil {
		_, err = cert.ParseCertsPEM(text)
	}
	if err != nil {
		f.log.Error(err, "The webhook's authorities cannot be read", "file", f.authorities)
		return f.last
	}
	f.last = text
	return text
}
