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

// sealingKey is the key that seals parts, and makes digests, of content that the role view does not read. The zero
// value reads the key when it is needed.
type sealingKey struct {
	mu  sync.Mutex
	key []byte
	// last is the key of the last read.
	last []byte
	// begun counts the reads, and done is the number of the last read that counts: a late answer does not undo a
	// later one.
	begun, done int
	// another is whether any read since the last call of [sealingKey.replaced] returned a different key than the read
	// before it.
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

// digest returns the value that a report has in place of the hash of a content; empty before the key was read.
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

// read returns the key. If known is true, the key in memory is sufficient. The error says if the hub has no key.
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

// readAgain reads the key if it was read before. If the hub has lost the key, the known one stays: it still opens
// parts, and the next leader that seals a part creates another key.
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

// begin returns the key in memory if known is true and there is one, otherwise the number of a read that begins.
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

// beginAgain returns the number of a read that begins, unless the key was never read.
func (k *sealingKey) beginAgain() (number int, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		return 0, false
	}
	k.begun++
	return k.begun, true
}

// keep records the result of a read, unless a later read ended first.
func (k *sealingKey) keep(key []byte, number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number > k.done {
		k.another = k.another || k.last != nil && !bytes.Equal(key, k.last)
		k.key, k.last, k.done = key, key, number
	}
}

// replaced reports whether any read since the last call of replaced returned a different key than the read before it.
func (k *sealingKey) replaced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.another = false }()
	return k.another
}

// forget makes the next use of the key read it from the hub. It ignores reads that are under way.
func (k *sealingKey) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key, k.done = nil, k.begun
}

// make returns the key on the hub. It creates the key if the hub has none.
func (k *sealingKey) make(ctx context.Context, live client.Reader, c client.Client, system string) ([]byte, error) {
	key, err := k.read(ctx, live, system, false) // Without the key on the hub, sealed content is lost.
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
