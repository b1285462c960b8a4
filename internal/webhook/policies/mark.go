package policies

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// storing is how long the API server may take to store what was admitted: as long
	// as it waits for another webhook, and more.
	storing = 35 * time.Second
	// mostPending is for how many policies of a namespace that is awaited at a time.
	mostPending = 100
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
}

// mark has it written that a policy, which was admitted as it is in w, may have objects
// refer to these. It does not wait, and reports whether it was taken on. What is
// stored meanwhile by another write is left to that.
func (m *marker) mark(ctx context.Context, w *write, refs []referent) bool {
	namespace := w.ref.Namespace
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending[namespace] >= mostPending {
		return false
	}
	m.pending[namespace]++
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storing) // The request ends before.
	go func() {
		defer cancel()
		defer m.done(namespace)
		var last error
		backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: 10, Cap: time.Second}
		err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, err error) {
			done, last = m.try(ctx, w, refs)
			return done, nil
		})
		if err != nil && last != nil {
			m.log.Error(last, "Cannot write down what a policy may refer to: that stays on the hub until somebody approves it", "policy", w.ref.String())
		}
	}()
	return true
}

func (m *marker) done(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[namespace]--
	if m.pending[namespace] == 0 {
		delete(m.pending, namespace)
	}
}

// try writes the mark if the policy is stored as it was admitted. It is done if that
// has been written, or will never be.
func (m *marker) try(ctx context.Context, w *write, refs []referent) (done bool, err error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(w.now.GroupVersionKind())
	err = m.client.Get(ctx, client.ObjectKey{Namespace: w.ref.Namespace, Name: w.ref.Name}, is)
	switch {
	case apierrors.IsNotFound(err):
		return w.was != nil, nil // One that is new is not stored yet.
	case err != nil:
		return false, err
	case is.GetUID() != w.now.GetUID() && w.was == nil:
		return false, nil // One that is going, perhaps.
	case is.GetUID() != w.now.GetUID(), is.GetGeneration() > w.now.GetGeneration():
		return true, nil
	case is.GetGeneration() < w.now.GetGeneration(), !equality.Semantic.DeepEqual(is.Object["spec"], w.now.Object["spec"]):
		return false, nil
	}
	before := is.DeepCopy()
	mark, err := runtime.DefaultUnstructuredConverter.ToUnstructured(markOf(w, refs, is.GetGeneration()))
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
