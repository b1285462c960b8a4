package main

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// The files with the signature of the image and with the signed text. cosign verify-blob takes both.
const (
	signatureFile = "refract_image.sig"
	payloadFile   = "refract_image.payload.json"
)

// signing is a private key for signatures.
type signing struct{ signature.Signer }

// signingBy reads a private key in PEM format.
func signingBy(file, password string) (*signing, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	key, err := cryptoutils.UnmarshalPEMToPrivateKey(text, cryptoutils.StaticPasswordFunc([]byte(password)))
	if err != nil {
		return nil, fmt.Errorf("-key %s: want a private key, as cosign generate-key-pair writes it, with its password in $COSIGN_PASSWORD: %w", file, err)
	}
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("-key %s: %w", file, err)
	}
	return &signing{signer}, nil
}

// sign writes a signature of the image's digest for `refract install --verify`. The signature has no checksum, because
// no two signatures are equal.
func (r *release) sign(by *signing) error {
	if r.digest == "" {
		return errors.New("-key: there is no image to sign: -platforms has none for linux")
	}
	image, err := name.NewDigest(imageName + "@" + r.digest)
	if err != nil {
		return err
	}
	signed, err := payload.Cosign{Image: image}.MarshalJSON()
	if err != nil {
		return err
	}
	raw, err := by.SignMessage(bytes.NewReader(signed))
	if err != nil {
		return fmt.Errorf("signing the image: %w", err)
	}
	r.say("signed the image %s", r.digest)
	if err := os.WriteFile(filepath.Join(r.out, payloadFile), signed, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, signatureFile), []byte(base64.StdEncoding.EncodeToString(raw)+"\n"), 0o644)
}
