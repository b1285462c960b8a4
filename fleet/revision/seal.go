package revision

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// KeySecret is the name of the Secret in the system namespace with the key that seals the parts of Secrets. KeyName is
// the key of the value in that Secret.
const (
	KeySecret = "refract-revisions" //nolint:gosec // It is a name.
	KeyName   = "key"
)

// keyLength is the length of a key for AES-256, in bytes.
const keyLength = 32

// ErrSealed is wrapped by the error for a part that was sealed with another key.
var ErrSealed = errors.New("it was sealed with another key")

// NewKey returns a random key.
func NewKey() []byte {
	key := make([]byte, keyLength)
	_, _ = rand.Read(key) // Read never returns an error.
	return key
}

// IsKey reports whether key has the length of a valid key.
func IsKey(key []byte) bool { return len(key) == keyLength }

// sealed is the encrypted data of a ControllerRevision.
type sealed struct {
	Sealed []byte `json:"sealed"`
}

// Seal returns the stored form of a confidential part: a JSON object with the encrypted result of [Part.Encode]. It
// cannot be decrypted without the key, or under another name.
func Seal(data, key []byte, name string) ([]byte, error) {
	c, err := sealer(key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed{Sealed: c.Seal(nil, nil, data, []byte(name))}) //nolint:gosec // The nonce is random, and precedes the encrypted data.
}

// Open returns the data that was sealed, or [ErrSealed].
func Open(data, key []byte, name string) ([]byte, error) {
	c, err := sealer(key)
	if err != nil {
		return nil, err
	}
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("opening a revision: %w: %w", ErrSealed, err)
	}
	text, err := c.Open(nil, nil, s.Sealed, []byte(name))
	if err != nil {
		return nil, fmt.Errorf("opening a revision: %w", ErrSealed)
	}
	return text, nil
}

// keyed is the prefix of digests that depend on the key, and of names of revisions with sealed parts. No hexadecimal
// number begins with it.
const keyed = "k"

// sealedPrefix is the prefix of part names that depend on the key. keyLabel is the number of digits that distinguish
// keys.
const (
	sealedPrefix = prefix + "sealed-"
	keyLabel     = 8
)

// SealedName returns the name of a sealed part. It depends on the key, because readers of names may lack the right to
// read the content: with a plain hash, they could test a guess of the content. A name of another key differs in its
// prefix.
func SealedName(key []byte, name string) string {
	return sealedWith(key) + mac(key, "part", name)[:hashLength]
}

// IsSealed reports whether a name is a result of [SealedName], with any key.
func IsSealed(name string) bool { return strings.HasPrefix(name, sealedPrefix) }

// IsSealedWith reports whether a name is a result of [SealedName] with this key.
func IsSealedWith(key []byte, name string) bool { return strings.HasPrefix(name, sealedWith(key)) }

func sealedWith(key []byte) string { return sealedPrefix + mac(key, "name", "")[:keyLabel] + "-" }

// SealedRevision returns the name of a revision under this key. The given name may come from an earlier version or
// another key.
func SealedRevision(key []byte, name string) string {
	return (keyed + mac(key, "revision", name))[:hashLength]
}

// digestLength is the length of a digest, and of the hash of a content.
const digestLength = 32

// Digest replaces the hash of a confidential content in Propagations. Readers of Propagations may lack the right to
// read the content: with a plain hash, they could test a guess of the content.
func Digest(key []byte, hash string) string {
	return (keyed + mac(key, "content", hash))[:digestLength]
}

// IsDigest reports whether a text is a result of [Digest], with any key.
func IsDigest(s string) bool { return strings.HasPrefix(s, keyed) }

func mac(key []byte, purpose, text string) string {
	m := hmac.New(sha256.New, key)
	_, _ = m.Write([]byte(purpose + "\x00" + text)) // Write never returns an error.
	return hex.EncodeToString(m.Sum(nil))
}

func sealer(key []byte) (cipher.AEAD, error) {
	if !IsKey(key) {
		return nil, fmt.Errorf("key %[2]s of Secret %[1]s: want %[3]d bytes, got %[4]d", KeySecret, KeyName, keyLength, len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
