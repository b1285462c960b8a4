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

// KeySecret is the name of the Secret in the system namespace with the key that parts of Secrets are sealed
// with, and KeyName that of its value.
const (
	KeySecret = "refract-revisions" //nolint:gosec // It is a name.
	KeyName   = "key"
)

// keyLength is that of a key: AES-256.
const keyLength = 32

// ErrSealed is wrapped by the error for a part that the key does not open.
var ErrSealed = errors.New("the key that it was sealed with is another")

// NewKey makes a key.
func NewKey() []byte {
	key := make([]byte, keyLength)
	_, _ = rand.Read(key) // It never fails.
	return key
}

// IsKey reports whether it is one.
func IsKey(key []byte) bool { return len(key) == keyLength }

// sealed is the data of a ControllerRevision that takes a key to be read.
type sealed struct {
	Sealed []byte `json:"sealed"`
}

// Seal returns what a part that is not for everybody is stored as: a JSON object, of what [Part.Encode]
// returned. It says nothing without the key, and cannot be put under another name.
func Seal(data, key []byte, name string) ([]byte, error) {
	c, err := sealer(key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed{Sealed: c.Seal(nil, nil, data, []byte(name))}) //nolint:gosec // The nonce is random, and before what is sealed.
}

// Open returns what was sealed, or [ErrSealed].
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

// keyed begins digests that are made with the key, and names of revisions that have such parts. No hexadecimal number begins with it.
const keyed = "k"

// sealedPrefix begins the names of parts that are named with the key, and keyLabel is how many digits tell keys apart.
const (
	sealedPrefix = prefix + "sealed-"
	keyLabel     = 8
)

// SealedName returns the name under which a part is kept that not everybody may read who reads names: who guesses at the content
// cannot try a guess without the key. Another key makes another name, which tells by its beginning that it is of another key.
func SealedName(key []byte, name string) string {
	return sealedWith(key) + mac(key, "part", name)[:hashLength]
}

// IsSealed reports whether a name is one that [SealedName] made, with whatever key.
func IsSealed(name string) bool { return strings.HasPrefix(name, sealedPrefix) }

// IsSealedWith reports whether it was made with this key.
func IsSealedWith(key []byte, name string) bool { return strings.HasPrefix(name, sealedWith(key)) }

func sealedWith(key []byte) string { return sealedPrefix + mac(key, "name", "")[:keyLabel] + "-" }

// SealedRevision returns how a revision is called by which an earlier version, or another key, called it otherwise.
func SealedRevision(key []byte, name string) string {
	return (keyed + mac(key, "revision", name))[:hashLength]
}

// digestLength is that of a digest, and of the hash of a content.
const digestLength = 32

// Digest returns what stands in reports in the place of a hash of a content that not everybody may read who reads reports: who
// guesses at the content cannot try a guess without the key.
func Digest(key []byte, hash string) string {
	return (keyed + mac(key, "content", hash))[:digestLength]
}

// IsDigest reports whether it is one that [Digest] has made, with whatever key.
func IsDigest(s string) bool { return strings.HasPrefix(s, keyed) }

func mac(key []byte, purpose, text string) string {
	m := hmac.New(sha256.New, key)
	_, _ = m.Write([]byte(purpose + "\x00" + text)) // It never fails.
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
