package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"refract.dev/internal/webhook/pki"
)

// folder are certificates that somebody else keeps in files.
type folder struct {
	authorities string // Path of the file.
	watcher     *certwatcher.CertWatcher
	log         logr.Logger
	changed     chan struct{}

	mu   sync.Mutex
	last []byte // Of what the API server was told to trust.
}

func newFolder(dir string, log logr.Logger) (*folder, error) {
	w, err := certwatcher.New(filepath.Join(dir, pki.ServingCertificate), filepath.Join(dir, pki.ServingKey))
	if err != nil {
		return nil, fmt.Errorf("reading the webhook's certificate: %w", err)
	}
	f := &folder{authorities: filepath.Join(dir, pki.Authorities), watcher: w, log: log, changed: make(chan struct{}, 1)}
	w.RegisterCallback(func(tls.Certificate) { poke(f.changed) })
	return f, nil
}

func (f *folder) run(ctx context.Context) error { return f.watcher.Start(ctx) }

func (f *folder) serving() (*tls.Certificate, error) { return f.watcher.GetCertificate(nil) }

func (f *folder) changes() <-chan struct{} { return f.changed }

// trusted returns the authorities of the folder. A file that is not as it should
// be, as one that is being written, does not take the place of the last one.
func (f *folder) trusted() []byte {
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
