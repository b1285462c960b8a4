// Package pki issues the certificates that a webhook server needs, and decides
// when to issue others: an authority of its own and a certificate for the
// server. It is told the time, and keeps what it has issued nowhere: the caller
// stores a [Bundle] as the data of a Secret.
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

// How long certificates live. Both are replaced when two thirds of that are over.
const (
	// AuthorityLife is that of an authority.
	AuthorityLife = 2 * 365 * 24 * time.Hour
	// ServingLife is that of the server's certificate.
	ServingLife = 90 * 24 * time.Hour
)

const (
	// skew is how much earlier than now certificates become valid, for clocks that
	// go wrong.
	skew = time.Hour
	// settle is how long a new authority is only trusted before it signs: until then
	// every API server must have been told.
	settle = time.Hour
)

// Bundle is what there is to serve with and to trust. It is never modified.
type Bundle struct {
	authorities []authority // By age, the oldest first.
	serving     *tls.Certificate
}

// authority is trusted, and can sign as long as its key is kept.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer // Nil if not known.
}

// Serving returns the server's certificate; nil if there is none.
func (b *Bundle) Serving() *tls.Certificate { return b.serving }

// Issuer issues certificates for a server.
type Issuer struct {
	// CommonName is what the certificates bear, that of the authority with "-ca" behind
	// it: for people who look, nothing is compared with it. Of a long one the first 61
	// bytes count.
	CommonName string
	// Names are the DNS names and IP addresses under which the server is reached.
	// Required. Those of a certificate that is replaced stay in the next one: other
	// servers may share the bundle, and none must take the name of another away.
	Names []string
	// Now tells the time. Required.
	Now func() time.Time
}

// Renew returns what is to take the place of the bundle now, and what was done,
// in words; it returns the bundle itself if nothing is to be done. Nil stands for
// a bundle with nothing in it.
//
// What is trusted stays trusted until it expires, and a new authority is trusted
// for an hour before it signs, so that whoever follows the bundles is never
// without a certificate that is trusted.
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

// wantsAuthority says why another authority is needed; empty if none is.
func (i *Issuer) wantsAuthority(b *Bundle) string {
	if len(b.authorities) == 0 {
		return "there was none"
	}
	newest := b.authorities[len(b.authorities)-1]
	switch {
	case newest.key == nil:
		return "the key of the last one is not there"
	case i.worn(newest.cert):
		return "two thirds of the last one's life are over"
	default:
		return ""
	}
}

// wantsServing says why another serving certificate is needed; empty if none is.
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

// worn reports whether two thirds of a certificate's life are over.
func (i *Issuer) worn(c *x509.Certificate) bool {
	return !i.Now().Before(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2))
}

// signer returns the authority that signs: the newest that is known to all, or
// else the oldest that can.
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

// forgetKeys drops the keys of authorities that will not sign again.
func (b *Bundle) forgetKeys(signer authority) {
	for i := range b.authorities[:len(b.authorities)-1] {
		if a := &b.authorities[i]; a.cert != signer.cert {
			a.key = nil
		}
	}
}

// mostCommonName leaves room for "-ca" in the 64 characters that RFC 5280 allows:
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

// sign makes a key and a certificate for it. An authority without key signs itself.
func sign(template *x509.Certificate, by authority) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by.key == nil {
		by.key = key
	}
	// RFC 5280 allows 20 octets.
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

// mostNames is how many names a certificate may have: of servers that are gone it
// keeps some, not all.
const mostNames = 32

// namesFor returns the names of the next serving certificate, our own first.
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

// sameKey reports whether a key is that of a certificate.
func sameKey(c *x509.Certificate, key crypto.Signer) bool {
	was, err := x509.MarshalPKIXPublicKey(c.PublicKey)
	if err != nil {
		return false
	}
	is, err := x509.MarshalPKIXPublicKey(key.Public())
	return err == nil && bytes.Equal(was, is)
}
