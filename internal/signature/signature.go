// Package signature verifies signatures of images. They are made with a key pair, in the format of cosign, by cosign
// itself or by `make dist`.
package signature

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// signedAs is the image name in the signed payload. It names no real registry, because an image has the same digest in
// every registry.
const signedAs = "registry.invalid/refract"

// Longest is the maximum size of a key or a signature, in bytes.
const Longest = 64 << 10

// Verify checks that sig is a signature of the image's digest by the private key that belongs to publicKey. publicKey
// is PEM; sig is a signature of [Payload] in base64. An image without a digest is an error, because its tag may later
// refer to another image.
func Verify(image string, publicKey, sig []byte) error {
	_, digest, ok := strings.Cut(image, "@")
	if !ok {
		return fmt.Errorf("image %q has no digest: want NAME@sha256:…, as only a digest always names the same image", image)
	}
	signed, err := Payload(digest)
	if err != nil {
		return fmt.Errorf("image %q: %w", image, err)
	}
	if len(publicKey) > Longest || len(sig) > Longest {
		return fmt.Errorf("a key and a signature have at most %d bytes", Longest)
	}
	key, err := cryptoutils.UnmarshalPEMToPublicKey(publicKey)
	if err != nil {
		return fmt.Errorf("reading the public key: want PEM, as cosign generate-key-pair writes it: %w", err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		return fmt.Errorf("reading the public key: %w", err)
	}
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(sig)))
	if err != nil || len(raw) == 0 {
		return errors.New("reading the signature: want base64, as make dist writes it")
	}
	if err := verifier.VerifySignature(bytes.NewReader(raw), bytes.NewReader(signed)); err != nil {
		return fmt.Errorf("the signature is not one of image %s by this key: %w", digest, err)
	}
	return nil
}

// Payload returns the text to sign for a digest, in the simple signing format of cosign.
func Payload(digest string) ([]byte, error) {
	image, err := name.NewDigest(signedAs+"@"+digest, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	return payload.Cosign{Image: image}.MarshalJSON()
}
