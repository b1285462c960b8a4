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

// Certificates are the certificates of a server. [Files] are certificates that another program manages, and [Issued]
// are certificates that the server issues. All methods are safe for concurrent use.
type Certificates interface {
	// Run keeps the certificates up to date until ctx ends, and then returns nil. The server calls Run once.
	Run(ctx context.Context) error
	// Serving returns the certificate that the server presents, with its Leaf, or an error while there is no
	// certificate. The server calls Serving for each connection, so it does no I/O.
	Serving() (*tls.Certificate, error)
	// Trusted returns the PEM of the authorities that an API server must trust. During a change of authorities it has
	// both the old and the new ones. It returns nil while the authorities are unknown, and if another program
	// configures the API server.
	Trusted() []byte
	// Changes returns a new channel on each call. The channel receives a value when the result of Trusted may have
	// changed.
	Changes() <-chan struct{}
}

// files are certificates that another program manages.
type files struct {
	authorities string // Path of the file with the authorities; empty for none.
	watcher     *certwatcher.CertWatcher
	log         logr.Logger
	changed     follow.Signal

	mu   sync.Mutex
	last []byte // The authorities in the last readable version of the file.
}

// Files are certificates in files that another program manages, for example a volume that cert-manager updates: a
// certificate chain and its key, as PEM. The server reloads changed files. It ignores invalid files, such as files that
// are being written, and keeps the last valid content.
//
// If caFile is not empty and the file exists, it contains the authorities that an API server must trust. Otherwise
// another program configures the API server, such as cert-manager's cainjector.
//
// While certificates of an old and of a new authority are in use, caFile must contain both authorities. Later errors of
// the certificate go to controller-runtime's log.
//
// Files returns an error if it cannot read the certificate.
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

// Serving returns the last valid certificate.
func (f *files) Serving() (*tls.Certificate, error) { return f.watcher.GetCertificate(nil) }

// Changes receives a value after each reload of the certificate.
func (f *files) Changes() <-chan struct{} { return f.changed.Listen() }

// Trusted returns the authorities in the last readable version of the file.
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
