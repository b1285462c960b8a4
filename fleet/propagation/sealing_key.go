package propagation

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/revision"
)

// sealingKey is the key for content of types that the ClusterRole view may not read. The key encrypts (seals) such
// content in revisions, and replaces its hashes in reports by digests. It is in a Secret of the hub. The zero value is
// ready for use, and reads the key when it is first needed.
type sealingKey struct {
	mu  sync.Mutex
	key []byte // Nil if the next use must read the hub.
	// last is the result of the last read.
	last []byte
	// Reads are numbered in the order of their start. begun is the number of the last one that began. done is the
	// number of the last one whose result was kept. A result of an earlier read that arrives later is dropped.
	begun, done int
	// another is true if a read since the last call of [sealingKey.replaced] returned another key than the read before
	// it.
	another bool
}

// ready returns the last known key. It reads or creates the key if none is known.
func (k *sealingKey) ready(ctx context.Context, live client.Reader, c client.Client, system string) ([]byte, error) {
	if last := k.known(); last != nil {
		return last, nil
	}
	return k.make(ctx, live, c, system)
}

// known returns the last known key; nil before the first read.
func (k *sealingKey) known() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// digest returns the value that a report contains instead of the hash of an object's content. If the ClusterRole view
// may read the type, this is the hash itself. For other types it is empty before the first read of the key.
func (k *sealingKey) digest(key Key, hash string) string {
	if hash == "" || !isSealed(key) || revision.IsDigest(hash) {
		return hash
	}
	last := k.known()
	if last == nil {
		return ""
	}
	return revision.Digest(last, hash)
}

// read returns the key. If known is true, the key in memory is sufficient. If the hub has no Secret with the key, the
// error is NotFound.
func (k *sealingKey) read(ctx context.Context, live client.Reader, system string, known bool) ([]byte, error) {
	kept, number := k.begin(known)
	if kept != nil {
		return kept, nil
	}
	key, err := storedKey(ctx, live, system)
	if err != nil {
		return nil, err
	}
	k.keep(key, number)
	return key, nil
}

// readAgain reads the key again; it does nothing before the first read. If the hub has lost the key, the known key stays
// in use, because it still decrypts stored content. The next leader that encrypts content creates another key.
func (k *sealingKey) readAgain(ctx context.Context, live client.Reader, system string) error {
	number, known := k.beginAgain()
	if !known {
		return nil
	}
	key, err := storedKey(ctx, live, system)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	k.keep(key, number)
	return nil
}

// storedKey reads the key from the hub.
func storedKey(ctx context.Context, live client.Reader, system string) ([]byte, error) {
	s := &corev1.Secret{}
	if err := live.Get(ctx, types.NamespacedName{Namespace: system, Name: revision.KeySecret}, s); err != nil {
		return nil, fmt.Errorf("reading the key of revisions: %w", err)
	}
	if key := s.Data[revision.KeyName]; revision.IsKey(key) {
		return key, nil
	}
	return nil, fmt.Errorf("the Secret %s/%s, which seals revisions of Secrets, holds no key: delete it, and Refract creates one", system, revision.KeySecret)
}

// begin returns the key in memory, if known is true and there is one. Otherwise it begins a read, and returns its
// number.
func (k *sealingKey) begin(known bool) (kept []byte, number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known && k.key != nil {
		return k.key, 0
	}
	k.key = nil
	k.begun++
	return nil, k.begun
}

// beginAgain begins a read, and returns its number. If the key was never read, known is false, and no read begins.
func (k *sealingKey) beginAgain() (number int, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		return 0, false
	}
	k.begun++
	return k.begun, true
}

// keep records the result of a read, unless the result of a later read is recorded already.
func (k *sealingKey) keep(key []byte, number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number > k.done {
		k.another = k.another || k.last != nil && !bytes.Equal(key, k.last)
		k.key, k.last, k.done = key, key, number
	}
}

// replaced reports whether the key has changed since the last call of replaced: a read returned another key than the
// read before it.
func (k *sealingKey) replaced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.another = false }()
	return k.another
}

// forget drops the key in memory, so that the next use reads the hub. The results of reads that are under way are
// dropped, too.
func (k *sealingKey) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key, k.done = nil, k.begun
}

// make returns the key on the hub. It creates the key if the hub has none.
func (k *sealingKey) make(ctx context.Context, live client.Reader, c client.Client, system string) ([]byte, error) {
	key, err := k.read(ctx, live, system, false) // Not from memory: nobody can decrypt content whose key the hub has lost.
	if !apierrors.IsNotFound(err) {
		return key, err
	}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: revision.KeySecret}, Immutable: new(true),
		Data: map[string][]byte{revision.KeyName: revision.NewKey()},
	}
	if err := c.Create(ctx, s); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("storing the key of revisions: %w", err)
	}
	return k.read(ctx, live, system, false) // Another client may have created the key first.
}
