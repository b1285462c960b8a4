package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// signer is an authority that signs client certificates.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// signerOf returns a new authority and its certificate as PEM.
func signerOf(t *testing.T, name string) (*signer, []byte) {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	s := &signer{}
	s.cert, s.key = issue(t, template, nil)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

// client returns a client certificate with this name.
func (s *signer) client(t *testing.T, name string, change ...func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	is, key := issue(t, template, s)
	return &tls.Certificate{Certificate: [][]byte{is.Raw}, PrivateKey: key}
}

// issue signs a certificate with the key of by. If by is nil, the certificate is self-signed.
func issue(t *testing.T, template *x509.Certificate, by *signer) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = &signer{cert: template, key: key}
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	is, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return is, key
}

// showing returns a client like an API server that presents the certificate shown, or none if shown is nil.
func showing(authorities []byte, shown *tls.Certificate, http2 bool) *http.Client {
	c := caller(authorities)
	transport := c.Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = http2
	if shown != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*shown}
	}
	return c
}

// TestClients: a client without a certificate of the right authority is rejected before any handler runs.
func TestClients(t *testing.T) {
	ours, trusted := signerOf(t, "ours")
	theirs, _ := signerOf(t, "theirs")
	file := filepath.Join(t.TempDir(), "clients.crt")
	put(t, file, trusted)
	cases := map[string]struct {
		reason string
		names  []string
		shown  *tls.Certificate
		want   bool
	}{
		"Signed":  {"The API server's certificate is accepted.", nil, ours.client(t, "kube-apiserver"), true},
		"Named":   {"A certificate with an allowed name is accepted.", []string{"front-proxy", "kube-apiserver"}, ours.client(t, "kube-apiserver"), true},
		"Nothing": {"A client without a certificate is rejected.", nil, nil, false},
		"OtherName": {
			"The authority also signs certificates of other clients, which are not allowed.",
			[]string{"kube-apiserver"}, ours.client(t, "kubelet"), false,
		},
		"SelfSigned": {"A certificate of an unknown authority is rejected.", nil, (&signer{theirs.cert, theirs.key}).client(t, "kube-apiserver"), false},
		"SameSubject": {
			"An authority with the same name but another key is rejected.",
			nil, func() *tls.Certificate { s, _ := signerOf(t, "ours"); return s.client(t, "kube-apiserver") }(), false,
		},
		"Server": {"A server certificate is not a client certificate.", nil, ours.client(t, "kube-apiserver", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), false},
		"Expired": {"An expired certificate is rejected.", nil, ours.client(t, "kube-apiserver", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		}), false},
	}
	for name, tc := range cases {
		for protocol, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
			t.Run(name+protocol, func(t *testing.T) {
				s, url := local(t, Options{ClientCAFile: file, ClientNames: tc.names})
				var asked atomic.Bool
				s.Handle("/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					asked.Store(true)
					if got := r.ProtoMajor == 2; got != http2 {
						t.Errorf("the request has protocol %s", r.Proto)
					}
				}))
				start(t, s)
				_, _, err := ask(t.Context(), showing(s.certificates.Trusted(), tc.shown, http2), url, "")
				if (err == nil) != tc.want || asked.Load() != tc.want {
					t.Errorf("%s\ngot error %v, handler called: %t, want both an answer and a call: %t", tc.reason, err, asked.Load(), tc.want)
				}
			})
		}
	}
}

// TestClientsChange: the server checks the next connection against a new authority. A half-written file does not
// replace the last readable authorities.
func TestClientsChange(t *testing.T) {
	before, trustedBefore := signerOf(t, "before")
	after, trustedAfter := signerOf(t, "after")
	file := filepath.Join(t.TempDir(), "clients.crt")
	put(t, file, trustedBefore)
	var log record
	s, url := local(t, Options{ClientCAFile: file, Log: log.logger()})
	s.Handle("/", echo)
	start(t, s)
	old := showing(s.certificates.Trusted(), before.client(t, "kube-apiserver"), false)
	renewed := showing(s.certificates.Trusted(), after.client(t, "kube-apiserver"), false)
	for _, step := range []struct {
		reason   string
		file     []byte
		old, new bool
	}{
		{"Only the old authority is trusted.", trustedBefore, true, false},
		{"Both authorities are trusted.", append(append([]byte{}, trustedBefore...), trustedAfter...), true, true},
		{"Only the new authority is trusted.", trustedAfter, false, true},
		{"While the file is half written, the last content applies.", trustedAfter[:20], false, true},
		{"The last content still applies.", trustedAfter[:20], false, true},
		{"The file is readable again.", trustedBefore, true, false},
	} {
		put(t, file, step.file)
		for c, want := range map[*http.Client]bool{old: step.old, renewed: step.new} {
			if _, _, err := ask(t.Context(), c, url, ""); (err == nil) != want {
				t.Errorf("%s\ngot error %v, want it answered: %t", step.reason, err, want)
			}
		}
	}
	if n := strings.Count(log.String(), "the last ones remain valid"); n != 1 {
		t.Errorf("got %d lines about the file, want 1:\n%s", n, log.String())
	}
}

// TestClientOptions: New rejects invalid options.
func TestClientOptions(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.crt")
	put(t, empty, nil)
	cases := map[string]struct {
		reason string
		o      Options
		want   string
	}{
		"NoFile":  {"A missing file is a mistake that would exclude all clients.", Options{ClientCAFile: empty + ".gone"}, "authorities of the webhook's clients"},
		"Nothing": {"An empty file would exclude all clients.", Options{ClientCAFile: empty}, "authorities of the webhook's clients"},
		"Names":   {"Without authorities, the name in a certificate proves nothing.", Options{ClientNames: []string{"kube-apiserver"}}, "ClientCAFile"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.o.Certificates = issuing(hub(), time.Now, logr.Discard(), "127.0.0.1")
			if _, err := New(tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nNew(): got error %v, want %q in it", tc.reason, err, tc.want)
			}
		})
	}
}

func put(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
