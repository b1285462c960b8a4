// Package pki issues the certificates of a webhook server, an authority and a serving certificate, and decides when to
// replace them. The caller provides the time, and stores a [Bundle] as the data of a Secret; the package stores
// nothing.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// Lifetimes of certificates. Both are replaced after two thirds of their lifetime.
const (
	// AuthorityLife is the lifetime of an authority.
	AuthorityLife = 2 * 365 * 24 * time.Hour
	// ServingLife is the lifetime of a serving certificate.
	ServingLife = 90 * 24 * time.Hour
)

const (
	// skew is the time by which certificates are valid before they are issued, because some clocks are slow.
	skew = time.Hour
	// settle is the time for which a new authority is trusted before it signs. After this time every API server must
	// trust it.
	settle = time.Hour
)

// Bundle holds a serving certificate and the authorities to trust. It is never modified.
type Bundle struct {
	authorities []authority // Sorted by the start of their validity, the oldest first.
	serving     *tls.Certificate
}

// authority is a trusted certificate authority. It can sign if its key is known.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer // Nil if unknown.
}

// Serving returns the serving certificate, or nil if there is none.
func (b *Bundle) Serving() *tls.Certificate { return b.serving }

// Issuer issues certificates for a server.
type Issuer struct {
	// CommonName is the common name of the certificates, with the suffix "-ca" for the authority. It is for humans
	// only: no program compares it. Only its first 61 bytes are used.
	CommonName string
	// Names are the DNS names and IP addresses of the server. Required. A new certificate also keeps the names of the
	// replaced certificate: several servers may share the bundle, and no server may remove the names of another.
	Names []string
	// Now returns the time. Required.
	Now func() time.Time
}

// Renew returns a bundle with all renewals that are due now, and a description of each change. If no renewal is due, it
// returns b. A nil bundle means an empty one.
//
// An authority stays trusted until it expires. A new authority is trusted for an hour before it signs. So an API server
// that follows the bundles always trusts the certificate of the server.
func (i *Issuer) Renew(b *Bundle) (*Bundle, []string, error) {
	var did []string
	next := &Bundle{}
	if b != nil {
		next.authorities, next.serving = slices.Clone(b.authorities), b.serving
	}
	now := i.Now()
	next.authorities = slices.DeleteFunc(next.authorities, func(a authority) bool {
		switch {
		case now.After(a.cert.NotAfter):
			did = append(did, "dropped an authority that has expired")
		case now.Before(a.cert.NotBefore):
			did = append(did, "dropped an authority that is not valid yet")
		default:
			return false
		}
		return true
	})
	if why := i.wantsAuthority(next); why != "" {
		a, err := i.authority(now)
		if err != nil {
			return nil, nil, fmt.Errorf("issuing an authority: %w", err)
		}
		next.authorities = append(next.authorities, a)
		did = append(did, "issued an authority: "+why)
	}
	signer := next.signer(now)
	if why := i.wantsServing(next); why != "" {
		serving, err := i.serving(signer, i.namesFor(next), now)
		if err != nil {
			return nil, nil, fmt.Errorf("issuing a serving certificate: %w", err)
		}
		next.serving = serving
		did = append(did, "issued a serving certificate: "+why)
	}
	if len(did) == 0 {
		return b, nil, nil
	}
	next.forgetKeys(signer)
	return next, did, nil
}

// wantsAuthority returns the reason for a new authority, or "" if none is needed.
func (i *Issuer) wantsAuthority(b *Bundle) string {
	if len(b.authorities) == 0 {
		return "there was none"
	}
	newest := b.authorities[len(b.authorities)-1]
	switch {
	case newest.key == nil:
		return "the key of the last one is missing"
	case i.worn(newest.cert):
		return "two thirds of the last one's life are over"
	default:
		return ""
	}
}

// wantsServing returns the reason for a new serving certificate, or "" if none is needed.
func (i *Issuer) wantsServing(b *Bundle) string {
	if b.serving == nil {
		return "there was none"
	}
	leaf := b.serving.Leaf
	switch {
	case i.Now().Before(leaf.NotBefore):
		return "it is not valid yet"
	case !containsAll(namesIn(leaf), i.sortedNames()):
		return "it was for other names"
	case !slices.ContainsFunc(b.authorities, func(a authority) bool { return leaf.CheckSignatureFrom(a.cert) == nil }):
		return "it was signed by another authority"
	case i.worn(leaf):
		return "two thirds of its life are over"
	default:
		return ""
	}
}

// worn reports whether two thirds of the lifetime of a certificate have passed.
func (i *Issuer) worn(c *x509.Certificate) bool {
	return !i.Now().Before(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2))
}

// signer returns the authority that signs: the newest authority with a key that has been trusted long enough. If there
// is none, it returns the oldest authority with a key.
func (b *Bundle) signer(now time.Time) authority {
	var able authority
	for _, a := range b.authorities {
		if a.key == nil {
			continue
		}
		if able.cert == nil || !now.Before(a.cert.NotBefore.Add(skew+settle)) {
			able = a
		}
	}
	return able
}

// forgetKeys deletes the keys of all authorities except the signer and the newest one. The other authorities will not
// sign again.
func (b *Bundle) forgetKeys(signer authority) {
	for i := range b.authorities[:len(b.authorities)-1] {
		if a := &b.authorities[i]; a.cert != signer.cert {
			a.key = nil
		}
	}
}

// mostCommonName leaves 3 of the 64 characters that RFC 5280 allows for the suffix "-ca":
// https://www.rfc-editor.org/rfc/rfc5280#appendix-A
const mostCommonName = 61

func (i *Issuer) commonName() string {
	if i.CommonName == "" {
		return "webhook"
	}
	return i.CommonName[:min(len(i.CommonName), mostCommonName)]
}

func (i *Issuer) authority(now time.Time) (authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: i.commonName() + "-ca", SerialNumber: now.UTC().Format("20060102T150405Z")},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(AuthorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	cert, key, err := sign(template, authority{cert: template})
	return authority{cert: cert, key: key}, err
}

func (i *Issuer) serving(by authority, names []string, now time.Time) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: i.commonName()},
		NotBefore:             now.Add(-skew),
		NotAfter:              earlier(now.Add(ServingLife), by.cert.NotAfter),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	cert, key, err := sign(template, by)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// sign creates a key and signs its certificate. If the authority has no key, the certificate is self-signed.
func sign(template *x509.Certificate, by authority) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by.key == nil {
		by.key = key
	}
	// A serial number of 127 bits is within the 20 octets of RFC 5280.
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// mostNames limits the names of a certificate, because it also keeps names of servers that no longer exist.
const mostNames = 32

// namesFor returns the names of the next serving certificate, with the names of this server first.
func (i *Issuer) namesFor(b *Bundle) []string {
	names := i.sortedNames()
	if b.serving == nil {
		return names
	}
	for _, name := range namesIn(b.serving.Leaf) {
		if len(names) < mostNames && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func containsAll(names, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(name string) bool { return !slices.Contains(names, name) })
}

func (i *Issuer) sortedNames() []string {
	names := make([]string, len(i.Names))
	for at, name := range i.Names {
		names[at] = name
		if ip := net.ParseIP(name); ip != nil {
			names[at] = ip.String()
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func namesIn(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sameKey reports whether the key belongs to the certificate.
func sameKey(c *x509.Certificate, key crypto.Signer) bool {
	was, err := x509.MarshalPKIXPublicKey(c.PublicKey)
	if err != nil {
		return false
	}
	is, err := x509.MarshalPKIXPublicKey(key.Public())
	return err == nil && bytes.Equal(was, is)
}
