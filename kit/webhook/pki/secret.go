package pki

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys in the data of a Secret with a bundle. Secrets of cert-manager also have the first three keys.
const (
	// ServingCertificate is the serving certificate.
	ServingCertificate = "tls.crt"
	// ServingKey is the key of the serving certificate.
	ServingKey = "tls.key"
	// Authorities are the certificates to trust.
	Authorities = "ca.crt"
	// AuthorityKeys are the private keys of the authorities that can still sign.
	AuthorityKeys = "ca.key"
)

// Trusted returns the certificates of the authorities as PEM, the oldest first.
func (b *Bundle) Trusted() []byte {
	var out bytes.Buffer
	for _, a := range b.authorities {
		writePEM(&out, cert.CertificateBlockType, a.cert.Raw)
	}
	return out.Bytes()
}

// Data returns the bundle as the data of a Secret.
func (b *Bundle) Data() (map[string][]byte, error) {
	var keys, chain, key bytes.Buffer
	for _, a := range b.authorities {
		if a.key == nil {
			continue
		}
		if err := writeKey(&keys, a.key); err != nil {
			return nil, fmt.Errorf("encoding the key of an authority: %w", err)
		}
	}
	for _, der := range b.serving.Certificate {
		writePEM(&chain, cert.CertificateBlockType, der)
	}
	if err := writeKey(&key, b.serving.PrivateKey); err != nil {
		return nil, fmt.Errorf("encoding the serving key: %w", err)
	}
	return map[string][]byte{
		Authorities: b.Trusted(), AuthorityKeys: keys.Bytes(), ServingCertificate: chain.Bytes(), ServingKey: key.Bytes(),
	}, nil
}

func writeKey(out *bytes.Buffer, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	writePEM(out, keyutil.PrivateKeyBlockType, der)
	return nil
}

func writePEM(out *bytes.Buffer, kind string, der []byte) {
	_ = pem.Encode(out, &pem.Block{Type: kind, Bytes: der}) // A write to a buffer cannot fail.
}

// Parse returns the usable part of a bundle in the data of a Secret, and an error for the unusable part. The error
// never contains a key.
func Parse(data map[string][]byte) (*Bundle, error) {
	authorities, authoritiesErr := parseAuthorities(data[Authorities], data[AuthorityKeys])
	serving, servingErr := parseServing(data[ServingCertificate], data[ServingKey])
	return &Bundle{authorities: authorities, serving: serving}, errors.Join(authoritiesErr, servingErr)
}

func parseAuthorities(certs, keys []byte) ([]authority, error) {
	parsed, err := cert.ParseCertsPEM(certs)
	if err != nil {
		return nil, fmt.Errorf("%s holds no certificates", Authorities)
	}
	signers := parseKeys(keys)
	var out []authority
	var errs []error
	for _, c := range parsed {
		if !c.IsCA {
			errs = append(errs, fmt.Errorf("%s holds a certificate that is not an authority", Authorities))
			continue
		}
		a := authority{cert: c}
		if at := slices.IndexFunc(signers, func(s crypto.Signer) bool { return sameKey(c, s) }); at >= 0 {
			a.key = signers[at]
		}
		out = append(out, a)
	}
	slices.SortStableFunc(out, func(a, b authority) int { return a.cert.NotBefore.Compare(b.cert.NotBefore) })
	return out, errors.Join(errs...)
}

// parseKeys returns the readable private keys in a text. It skips unreadable ones, because an authority without a key
// is replaced.
func parseKeys(text []byte) []crypto.Signer {
	var signers []crypto.Signer
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return signers
		}
		key, err := keyutil.ParsePrivateKeyPEM(pem.EncodeToMemory(block))
		if signer, ok := key.(crypto.Signer); ok && err == nil {
			signers = append(signers, signer)
		}
	}
}

func parseServing(chain, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s hold no certificate with its key", ServingCertificate, ServingKey)
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, fmt.Errorf("reading %s: %w", ServingCertificate, err)
	}
	return &pair, nil
}
