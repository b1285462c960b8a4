package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// signed returns a new public key, and a signature of the payload with its private key.
func signed(t *testing.T, payload []byte) (public, sig []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := signer.SignMessage(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	if public, err = cryptoutils.MarshalPublicKeyToPEM(key.Public()); err != nil {
		t.Fatal(err)
	}
	return public, []byte(base64.StdEncoding.EncodeToString(raw) + "\n")
}

func TestVerify(t *testing.T) {
	digest, other := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	payload, err := Payload(digest)
	if err != nil {
		t.Fatal(err)
	}
	// The payload must never change, because signatures of earlier releases must remain valid.
	const want = `{"critical":{"identity":{"docker-reference":"registry.invalid/refract"},"image":{"docker-manifest-digest":"sha256:` +
		`aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},"type":"cosign container image signature"},"optional":null}`
	if string(payload) != want {
		t.Errorf("Payload(): want %s, got %s", want, payload)
	}
	public, sig := signed(t, payload)
	another, _ := signed(t, payload)
	image := "registry.example.com/team/refract@" + digest
	cases := map[string]struct {
		reason      string
		image       string
		public, sig []byte
		want        string
	}{
		"Signed":       {"The owner of the key has signed the digest.", image, public, sig, ""},
		"WithTag":      {"A tag beside the digest is ignored.", "registry.example.com/refract:v1@" + digest, public, sig, ""},
		"AnotherImage": {"The signature is for another image.", "registry.example.com/team/refract@" + other, public, sig, "the signature is not one of image " + other},
		"AnotherKey":   {"The signature was made with another key.", image, another, sig, "the signature is not one of image"},
		"Tag":          {"A tag can change, so a digest is required.", "registry.example.com/refract:v0.1.0", public, sig, "has no digest"},
		"BadDigest":    {"The digest is malformed.", "registry.example.com/refract@sha256:abc", public, sig, "image "},
		"NoKey":        {"The file is not a key.", image, []byte("key"), sig, "reading the public key"},
		"NoSignature":  {"The signature is empty.", image, public, nil, "reading the signature"},
		"Long":         {"The file is too large for a signature.", image, public, bytes.Repeat([]byte("a"), Longest+1), "at most"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Verify(tc.image, tc.public, tc.sig)
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nVerify(): want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}
