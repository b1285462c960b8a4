package playground

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"
)

// lifetime is the validity of certificates. No playground runs that long.
const lifetime = 366 * 24 * time.Hour

// pair is a certificate with its key, or a public key with its private key, in PEM.
type pair struct {
	cert, key []byte
}

// authority issues certificates. Each cluster has its own authority, so the administrator of one cluster has no access
// to another cluster.
type authority struct {
	pair
	parsed *x509.Certificate
	signer *ecdsa.PrivateKey
}

// subject is the subject of a certificate.
type subject struct {
	name   string
	groups []string
	hosts  []string  // The names and addresses of a server; empty for a client.
	until  time.Time // The end of the validity. If it is zero, the certificate is valid for lifetime.
}

// newAuthority returns an authority with a new key.
func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := certificate(subject{name: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	template.ExtKeyUsage = nil

	p, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority %q: %w", name, err)
	}
	return parseAuthority(p)
}

// parseAuthority returns the authority with this certificate and key.
func parseAuthority(p pair) (*authority, error) {
	both, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate authority: %w", err)
	}
	signer, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading a certificate authority: want an ECDSA key, got %T", both.PrivateKey)
	}
	return &authority{pair: p, parsed: both.Leaf, signer: signer}, nil
}

// issue returns a certificate with a new key.
func (a *authority) issue(s subject) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	p, err := sign(certificate(s), a.parsed, key, a.signer)
	if err != nil {
		return pair{}, fmt.Errorf("issuing a certificate for %q: %w", s.name, err)
	}
	return p, nil
}

// pool returns a certificate pool that trusts only this authority.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.parsed)
	return pool
}

// newSigningKey returns a key pair that signs tokens.
func newSigningKey() (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return pair{}, fmt.Errorf("encoding a public key: %w", err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), key: private}, nil
}

// certificate returns the template of a certificate. Every certificate is valid for a client. A server certificate must
// be, too, because the members of an etcd cluster are clients of each other.
func certificate(s subject) *x509.Certificate {
	now := time.Now()
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.name, Organization: s.groups},
		NotBefore:   now.Add(-time.Hour), // Clocks differ between machines.
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if !s.until.IsZero() {
		c.NotAfter = s.until
		if s.until.Before(c.NotBefore) {
			c.NotBefore = s.until.Add(-time.Hour)
		}
	}
	if len(s.hosts) > 0 {
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range s.hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
			continue
		}
		c.DNSNames = append(c.DNSNames, host)
	}
	return c
}

// sign returns the certificate of key. The issuer is parent, and signer is the key of the issuer.
func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: private}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
