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

	"refract.dev/webhook/follow"
)

// Certificates are what a server proves with who it is: [Files] that somebody else
// keeps, or [Issued] ones. All its methods may be called by several goroutines.
type Certificates interface {
	// Run keeps the certificates up to date until ctx ends, which is no error. The
	// server they are given to calls it, once.
	Run(ctx context.Context) error
	// Serving returns the certificate to present, with its Leaf, or why there is none
	// yet. It is asked for each connection, and does no I/O.
	Serving() (*tls.Certificate, error)
	// Trusted returns the authorities that an API server must trust, as PEM: the old
	// and the new ones while both are in use. Nil if that is not known yet, or is not
	// for these certificates to say.
	Trusted() []byte
	// Changes returns a channel of the caller's own, which is sent to when Trusted may
	// return something else.
	Changes() <-chan struct{}
}

// files are certificates that somebody else keeps.
type files struct {
	authorities string // Path of the file; empty for none.
	watcher     *certwatcher.CertWatcher
	log         logr.Logger
	changed     follow.Signal

	mu   sync.Mutex
	last []byte // Of what the API server was told to trust.
}

// Files are certificates in files that somebody else keeps, as cert-manager does by
// way of a volume: a chain and its key, as PEM. They are taken up when they change;
// files that are not as they should be, as ones that are being written, do not take
// the place of the last ones.
//
// If caFile is not empty and is there, it holds the authorities that an API server
// must trust. If not, what that is told is left to somebody else, as to
// cert-manager's cainjector.
//
// Who keeps them has both the old and the new authorities in caFile while
// certificates of both are in use. What goes wrong with the certificate later is
// told to controller-runtime's log.
//
// It returns an error if the certificate cannot be read now.
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

// Changes is sent to when the certificate was read.
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
