package main

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

// TestSign: the signature covers the digest of the built image, in the form that `refract install --verify` reads.
func TestSign(t *testing.T) {
	private, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("secret")))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cosign.key")
	if err := os.WriteFile(file, private, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := signingBy(file, "another"); err == nil {
		t.Error("want an error for another password")
	}
	by, err := signingBy(file, "secret")
	if err != nil {
		t.Fatal(err)
	}
	r := releaseOf(t, t.TempDir())
	if err := r.sign(by); err == nil {
		t.Error("want an error without an image")
	}
	if err := r.image(programs(t)); err != nil {
		t.Fatal(err)
	}
	all, err := layout.ImageIndexFromPath(filepath.Join(r.out, imageDir))
	if err != nil {
		t.Fatal(err)
	}
	tops, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := tops.Manifests[0].Digest.String(); r.digest != got {
		t.Errorf("want the digest that is pushed, %s, got %s", got, r.digest)
	}
	if err := r.sign(by); err != nil {
		t.Fatal(err)
	}
	// internal/signature builds the same text.
	want := `{"critical":{"identity":{"docker-reference":"registry.invalid/refract"},"image":{"docker-manifest-digest":"` + r.digest +
		`"},"type":"cosign container image signature"},"optional":null}`
	key, err := cryptoutils.UnmarshalPEMToPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := os.ReadFile(filepath.Join(r.out, signatureFile))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(sig)))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.VerifySignature(bytes.NewReader(raw), strings.NewReader(want)); err != nil {
		t.Errorf("want a signature of %s: %v", want, err)
	}
	if signed, err := os.ReadFile(filepath.Join(r.out, payloadFile)); err != nil || string(signed) != want {
		t.Errorf("want %s, got %s, %v", want, signed, err)
	}
}
