// Package simulation simulates a fleet of member clusters: many API servers in one process that keep their objects in
// memory. Objects with the same content share it, and each object takes some hundred bytes more. So a thousand members
// with a thousand objects each fit on one machine.
//
// Each member has its own address, certificate and token, because connections are a part of the cost of a member. It
// answers the requests of the controllers like an API server: probes, discovery, reads, lists and watches of whole
// objects (JSON) or metadata (protobuf and JSON), server-side apply with force, merge patches, creations and deletions.
// A test compares the responses with those of a real API server. Defaults, validation and conversion are missing. An
// apply replaces the object and does not merge the fields of several managers. There are no controllers, except those
// of namespaces and, on request, of the status of Deployments.
package simulation

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Fleet is a set of running members. It is safe for concurrent use.
type Fleet struct {
	// Members are sorted by name.
	Members []*Member

	servers []*http.Server
	running sync.WaitGroup
}

// Start starts n members on free ports of 127.0.0.1. The caller must close the fleet with [Fleet.Close].
func Start(ctx context.Context, n int) (*Fleet, error) {
	f := &Fleet{}
	shared := newLibrary()
	for i := range n {
		m, err := f.start(ctx, i+1, shared)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting member %d: %w", i+1, err), f.Close())
		}
		f.Members = append(f.Members, m)
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, number int, shared *library) (*Member, error) {
	m := &Member{Access: Access{Name: fmt.Sprintf("m-%04d", number), Token: rand.Text()}}
	var err error
	if m.store, err = newStore(number, shared); err != nil {
		return nil, err
	}
	certificate, text, err := selfSigned(m.Name)
	if err != nil {
		return nil, err
	}
	m.CA = text
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.Endpoint = "https://" + l.Addr().String()
	s := &http.Server{
		Handler:           m,
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // Tests disconnect clients during requests.
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	f.servers = append(f.servers, s)
	f.running.Go(func() { _ = s.ServeTLS(l, "", "") }) // It ends with Close.
	return m, nil
}

// Close stops all members.
func (f *Fleet) Close() error {
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, s.Close())
	}
	f.running.Wait()
	return errors.Join(errs...)
}

// SetFault sets the fault of the member with this name, or of all members if the name is empty.
func (f *Fleet) SetFault(name string, fault Fault) {
	for _, m := range f.Members {
		if name == "" || m.Name == name {
			m.fault.Store(&fault)
		}
	}
}

// SetWorkloads sets the state that Deployments get when they are written, on the member with this name, or on all
// members if the name is empty. It does not affect existing Deployments.
func (f *Fleet) SetWorkloads(name string, is Workloads) {
	for _, m := range f.Members {
		if name == "" || m.Name == name {
			m.workloads.Store(&is)
		}
	}
}

// Requests returns the number of requests that all members have answered so far, by kind: probe, discover, get, list,
// watch, apply, patch, create and delete.
func (f *Fleet) Requests() map[string]int64 {
	sum := map[string]int64{}
	for _, m := range f.Members {
		for v := range m.counts {
			sum[verbNames[v]] += m.counts[v].Load()
		}
	}
	return sum
}

// Count returns the number of objects on all members whose labels match the selector.
func (f *Fleet) Count(selector labels.Selector) int {
	n := 0
	for _, m := range f.Members {
		n += m.store.count(selector)
	}
	return n
}

// Control returns a handler that lets another process control the fleet:
//
//	GET  /members             access to each member
//	GET  /requests            the result of Requests
//	GET  /count?selector=…    the result of Count
//	PUT  /fault?member=NAME   SetFault with the Fault in the body
//	PUT  /workloads?member=NAME&are=WORKLOADS   SetWorkloads
//
// All answers are JSON.
func (f *Fleet) Control() http.Handler {
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, what any) {
		w.Header().Set("Content-Type", "application/json")
		encode(w, what)
	}
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, _ *http.Request) { say(w, f.Members) })
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) { say(w, f.Requests()) })
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, r *http.Request) {
		selector, err := labels.Parse(r.URL.Query().Get("selector"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		say(w, f.Count(selector))
	})
	mux.HandleFunc("PUT /fault", func(w http.ResponseWriter, r *http.Request) {
		var fault Fault
		if err := json.NewDecoder(r.Body).Decode(&fault); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.SetFault(r.URL.Query().Get("member"), fault)
		say(w, fault)
	})
	mux.HandleFunc("PUT /workloads", func(w http.ResponseWriter, r *http.Request) {
		is := Workloads(r.URL.Query().Get("are"))
		f.SetWorkloads(r.URL.Query().Get("member"), is)
		say(w, is)
	})
	return mux
}

// selfSigned returns a self-signed certificate for 127.0.0.1, and its PEM encoding.
func selfSigned(name string) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
