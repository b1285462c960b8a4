package propagation

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// policies are the policies of the hub, compiled.
type policies struct {
	changed func(tree.Policy) // Called with a reference without generation.

	mu           sync.RWMutex
	overrides    map[tree.Policy]*override.Policy
	propagations map[tree.Policy]*placement.Policy
	problems     map[tree.Policy]error // Of policies that are not valid.
}

func newPolicies(changed func(tree.Policy)) *policies {
	return &policies{
		changed:      changed,
		overrides:    map[tree.Policy]*override.Policy{},
		propagations: map[tree.Policy]*placement.Policy{},
		problems:     map[tree.Policy]error{},
	}
}

func (p *policies) override(ref tree.Policy) *override.Policy {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.overrides[ref]
}

func (p *policies) propagation(ref tree.Policy) *placement.Policy {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.propagations[ref]
}

// problem returns what is wrong with the policy, or nil.
func (p *policies) problem(ref tree.Policy) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.problems[ref]
}

// watch follows the policies through the manager's cache, and returns when all
// of them are known.
func (p *policies) watch(ctx context.Context, mgr ctrl.Manager) error {
	handlers := cache.ResourceEventHandlerFuncs{
		AddFunc: p.store,
		UpdateFunc: func(before, after any) {
			// A status that was written is no change of the policy.
			if !sameGeneration(before, after) {
				p.store(after)
			}
		},
		DeleteFunc: p.forget,
	}
	return follow(ctx, mgr, handlers, &corev1alpha1.OverridePolicy{}, &corev1alpha1.ClusterOverridePolicy{},
		&corev1alpha1.PropagationPolicy{}, &corev1alpha1.ClusterPropagationPolicy{})
}

func sameGeneration(before, after any) bool {
	b, ok := before.(client.Object)
	a, also := after.(client.Object)
	return ok && also && a.GetGeneration() == b.GetGeneration() && a.GetUID() == b.GetUID()
}

// follow calls the handlers for objects of these kinds, and returns when they
// have been called for all that are there now.
func follow(ctx context.Context, mgr ctrl.Manager, handlers cache.ResourceEventHandler, kinds ...client.Object) error {
	var synced []cache.InformerSynced
	for _, kind := range kinds {
		informer, err := mgr.GetCache().GetInformer(ctx, kind, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		handle, err := informer.AddEventHandler(handlers)
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		synced = append(synced, handle.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	return nil
}

func (p *policies) store(obj any) {
	var ref tree.Policy
	var err error
	p.mu.Lock()
	switch o := obj.(type) {
	case *corev1alpha1.OverridePolicy:
		compiled, errs := override.Compile(o)
		ref, err = anyGeneration(compiled.Ref), errs.ToAggregate()
		p.overrides[ref] = compiled
	case *corev1alpha1.ClusterOverridePolicy:
		compiled, errs := override.CompileCluster(o)
		ref, err = anyGeneration(compiled.Ref), errs.ToAggregate()
		p.overrides[ref] = compiled
	case *corev1alpha1.PropagationPolicy:
		compiled, errs := placement.Compile(o)
		ref, err = anyGeneration(compiled.Ref), errs.ToAggregate()
		p.propagations[ref] = compiled
	case *corev1alpha1.ClusterPropagationPolicy:
		compiled, errs := placement.CompileCluster(o)
		ref, err = anyGeneration(compiled.Ref), errs.ToAggregate()
		p.propagations[ref] = compiled
	}
	delete(p.problems, ref)
	if err != nil {
		p.problems[ref] = err
	}
	p.mu.Unlock()
	p.changed(ref)
}

func (p *policies) forget(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	ref := tree.Policy{Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
	p.mu.Lock()
	delete(p.overrides, ref)
	delete(p.propagations, ref)
	delete(p.problems, ref)
	p.mu.Unlock()
	p.changed(ref)
}

// kindOf returns the kind of a policy; objects from a cache do not carry it.
func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1alpha1.OverridePolicy:
		return corev1alpha1.KindOverridePolicy
	case *corev1alpha1.ClusterOverridePolicy:
		return corev1alpha1.KindClusterOverridePolicy
	case *corev1alpha1.PropagationPolicy:
		return corev1alpha1.KindPropagationPolicy
	default:
		return corev1alpha1.KindClusterPropagationPolicy
	}
}

// anyGeneration returns the reference without the generation: the key of a policy.
func anyGeneration(ref tree.Policy) tree.Policy {
	ref.Generation = 0
	return ref
}
