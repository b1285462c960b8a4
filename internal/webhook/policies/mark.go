package policies

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/rescue"
)

const (
	// storing is how long the API server may take to store what was admitted: as long
	// as it waits for another webhook, and more.
	storing = 35 * time.Second
	// mostPending is for how many policies of a namespace that is awaited at a time, and
	// mostAwaited for how many of all. Of each little is kept.
	mostPending = 20
	mostAwaited = 500
	// longestName is that of an object: a longer one names none.
	longestName = 253
)

// marker writes into the status of policies what who wrote them may have objects refer
// to: there, their authors cannot. While a policy is admitted it is not stored, so this
// is done a moment later, and not at all if the process ends in between: then what the
// policy brings in stays on the hub until somebody approves it.
type marker struct {
	client client.Client // Not a cache.
	log    logr.Logger

	mu      sync.Mutex
	pending map[string]int // By namespace.
	awaited int
}

// admitted is what is kept of a write until the policy is stored.
type admitted struct {
	kind       schema.GroupVersionKind
	name       client.ObjectKey
	uid        types.UID
	generation int64
	isNew      bool
	spec       [sha256.Size]byte
	references *corev1alpha1.CheckedReferences
}

// mark has it written that a policy, which was admitted as it is in w, may have objects
// refer to these. It does not wait, and reports whether it was taken on. What is
// stored meanwhile by another write is left to that.
func (m *marker) mark(ctx context.Context, w *write, refs []referent) bool {
	namespace := w.ref.Namespace
	a, err := admittedOf(w, refs)
	if err != nil {
		m.log.Error(err, "Cannot write down what a policy may refer to", "policy", w.ref.String())
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending[namespace] >= mostPending || m.awaited >= mostAwaited {
		return false
	}
	m.pending[namespace]++
	m.awaited++
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storing) // The request ends before.
	go func() {
		defer cancel()
		defer m.done(namespace)
		var last error
		backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: 10, Cap: time.Second}
		err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
			done, last = m.try(ctx, a)
			return done, nil
		})
		if err != nil && last != nil {
			m.log.Error(last, "Cannot write down what a policy may refer to: that stays on the hub until somebody approves it",
				"kind", a.kind.Kind, "policy", a.name.String())
		}
	}()
	return true
}

// admittedOf returns what is kept of a write.
func admittedOf(w *write, refs []referent) (*admitted, error) {
	a := &admitted{
		kind: w.now.GroupVersionKind(), name: client.ObjectKey{Namespace: w.ref.Namespace, Name: w.ref.Name},
		uid: w.now.GetUID(), generation: w.now.GetGeneration(), isNew: w.was == nil, references: markOf(w, refs, w.now.GetGeneration()),
	}
	var err error
	a.spec, err = digest(w.now)
	return a, err
}

// digest identifies the spec of a policy.
func digest(u *unstructured.Unstructured) ([sha256.Size]byte, error) {
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("spec: %w", err)
	}
	return sha256.Sum256(text), nil
}

func (m *marker) done(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awaited--
	m.pending[namespace]--
	if m.pending[namespace] == 0 {
		delete(m.pending, namespace)
	}
}

// try writes the mark if the policy is stored as it was admitted. It is done if that
// has been written, or will never be.
func (m *marker) try(ctx context.Context, a *admitted) (done bool, err error) {
	defer rescue.To(&err, m.log, "writing down what a policy may refer to")
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(a.kind)
	err = m.client.Get(ctx, a.name, known)
	switch {
	case apierrors.IsNotFound(err):
		return !a.isNew, nil // One that is new is not stored yet.
	case err != nil:
		return false, err
	case known.GetUID() != a.uid && a.isNew:
		return false, nil // One that is going, perhaps.
	case known.GetUID() != a.uid, known.GetGeneration() > a.generation:
		return true, nil
	case known.GetGeneration() < a.generation:
		return false, nil
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(a.kind)
	if err := m.client.Get(ctx, a.name, is); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if is.GetUID() != a.uid || is.GetGeneration() != a.generation {
		return false, nil // Since a moment: it is looked at again.
	}
	spec, err := digest(is)
	if err != nil || spec != a.spec {
		return true, err // Of two writes at a time the other one was stored.
	}
	before := is.DeepCopy()
	mark, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a.references)
	if err != nil {
		return true, err
	}
	if err := unstructured.SetNestedMap(is.Object, mark, "status", "references"); err != nil {
		return true, fmt.Errorf("status: %w", err)
	}
	// The lock has it that this is still what was admitted.
	err = m.client.Status().Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// markOf is what is written.
func markOf(w *write, refs []referent, generation int64) *corev1alpha1.CheckedReferences {
	mark := &corev1alpha1.CheckedReferences{ObservedGeneration: generation}
	for i := range refs {
		r := &refs[i]
		if len(r.Name) > longestName {
			continue
		}
		item := corev1alpha1.CheckedReference{Kind: r.Kind, Name: r.Name}
		if w.ref.Namespace == "" {
			item.Namespace = r.namespace
		}
		mark.Items = append(mark.Items, item)
	}
	return mark
}
