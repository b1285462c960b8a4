package injector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
)

// Cache stores the compiled policies of a cluster by namespace. A lookup takes no lock, except for the first lookup
// after a change.
//
// Policies are decoded one by one, not as a typed list. So a policy that cannot be decoded is skipped, and does not
// affect others.
type Cache struct {
	log logr.Logger
	// sets has a func() *inject.Set for every namespace with policies. The function creates the set at the first
	// lookup. Every change of a policy replaces the function. If the set were created at every change, the many changes
	// at the start would create as many sets.
	sets   sync.Map
	synced chan struct{} // Closed when all policies are known.
	// changed receives a value if the results of Any or AnyEphemeral may have changed.
	changed chan struct{}
	// forget is called with the name of a namespace before its policies change; may be nil.
	forget func(namespace string)

	mu                        sync.Mutex
	policies                  map[string]map[string]*entry // By namespace and name.
	valid, invalid, ephemeral int
}

// entry is a policy.
type entry struct {
	source *unstructured.Unstructured
	policy *inject.Policy // Nil if the policy is invalid.
	err    error          // The reason if the policy is invalid.
	// ephemeral is true if the policy applies to ephemeral containers.
	ephemeral bool
}

func newCache(log logr.Logger) *Cache {
	return &Cache{log: log, synced: make(chan struct{}), changed: make(chan struct{}, 1), policies: map[string]map[string]*entry{}}
}

// Set returns the policies of a namespace. Without policies it returns nil, the empty set.
func (c *Cache) Set(namespace string) *inject.Set {
	v, _ := c.sets.Load(namespace)
	set, ok := v.(func() *inject.Set)
	if !ok {
		return nil
	}
	return set()
}

// Any reports whether any namespace has a valid policy.
func (c *Cache) Any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.valid > 0
}

// AnyEphemeral reports whether a valid policy applies to ephemeral containers.
func (c *Cache) AnyEphemeral() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ephemeral > 0
}

// Ready returns an error until all policies are known.
func (c *Cache) Ready() error {
	select {
	case <-c.synced:
		return nil
	default:
		return errors.New("not all injection policies are known yet")
	}
}

// wait returns nil as soon as all policies are known. After the duration patience it returns an error.
func (c *Cache) wait(ctx context.Context, patience time.Duration) error {
	err := c.Ready()
	if err == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.synced:
		return nil
	case <-timer.C:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// kind returns an empty object of the policies' kind.
func kind() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy))
	return u
}

// watch subscribes to the policies in the manager's cache. The policies are known only after the manager has started
// and its cache has synced.
func (c *Cache) watch(ctx context.Context, mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, kind(), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching injection policies: %w", err)
	}
	events, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.update(o) },
		UpdateFunc: func(_, o any) { c.update(o) },
		DeleteFunc: c.remove,
	})
	if err != nil {
		return fmt.Errorf("watching injection policies: %w", err)
	}
	return mgr.Add(everywhere(func(ctx context.Context) error {
		if toolscache.WaitForCacheSync(ctx.Done(), events.HasSynced) {
			close(c.synced)
		}
		return nil
	}))
}

// update adds or updates a policy. update and remove are called for one event at a time, so no lock is needed for the
// compilation.
func (c *Cache) update(object any) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	before := c.get(u)
	if before.same(u) {
		return
	}
	now := c.compile(u)
	if now.err != nil {
		c.log.Info("An injection policy is not valid, and is left out",
			"namespace", u.GetNamespace(), "policy", u.GetName(), "reason", now.err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swap(u, before, now)
}

// get returns the entry of a policy; nil without an entry.
func (c *Cache) get(u *unstructured.Unstructured) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policies[u.GetNamespace()][u.GetName()]
}

// remove drops a policy.
func (c *Cache) remove(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.policies[u.GetNamespace()][u.GetName()]; before != nil {
		c.swap(u, before, nil)
	}
}

// swap replaces an entry by another one; nil means no entry. The caller holds the lock.
func (c *Cache) swap(u *unstructured.Unstructured, before, now *entry) {
	namespace, name := u.GetNamespace(), u.GetName()
	asked, ephemeral := c.valid > 0, c.ephemeral > 0
	if c.forget != nil {
		c.forget(namespace)
	}
	if c.policies[namespace] == nil {
		c.policies[namespace] = map[string]*entry{}
	}
	c.policies[namespace][name] = now
	if now == nil {
		delete(c.policies[namespace], name)
	}
	if len(c.policies[namespace]) == 0 {
		delete(c.policies, namespace)
		c.sets.Delete(namespace)
	} else {
		c.sets.Store(namespace, sync.OnceValue(func() *inject.Set { return setOf(slices.Values(c.held(namespace))) }))
	}
	c.count(before, -1)
	c.count(now, 1)
	policiesHeld.WithLabelValues("valid").Set(float64(c.valid))
	policiesHeld.WithLabelValues("invalid").Set(float64(c.invalid))
	if asked == (c.valid > 0) && ephemeral == (c.ephemeral > 0) {
		return
	}
	select {
	case c.changed <- struct{}{}:
	default: // A value is pending already. Its receiver will see this change, too.
	}
}

// held returns the current policies of a namespace.
func (c *Cache) held(namespace string) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.policies[namespace]))
}

func (c *Cache) count(e *entry, by int) {
	switch {
	case e == nil:
	case e.policy == nil:
		c.invalid += by
	case e.ephemeral:
		c.ephemeral += by
		c.valid += by
	default:
		c.valid += by
	}
}

// read returns the set of the listed policies. It takes a policy from the cache if the cached one is equal.
func (c *Cache) read(list *unstructured.UnstructuredList) *inject.Set {
	entries := make([]*entry, len(list.Items))
	for i := range list.Items {
		u := &list.Items[i]
		known := c.get(u)
		if !known.same(u) {
			known = c.compile(u)
		}
		entries[i] = known
	}
	return setOf(slices.Values(entries))
}

// setOf returns the set of the valid policies; nil if there are none.
func setOf(entries iter.Seq[*entry]) *inject.Set {
	var policies []*inject.Policy
	for e := range entries {
		if e.policy != nil {
			policies = append(policies, e.policy)
		}
	}
	if len(policies) == 0 {
		return nil
	}
	return inject.NewSet(policies...)
}

// compile compiles a policy. If the policy is invalid, the entry has the error.
func (c *Cache) compile(u *unstructured.Unstructured) *entry {
	e := &entry{source: u}
	defer rescue.To(&e.err, c.log, "compiling an injection policy", "namespace", u.GetNamespace(), "policy", u.GetName())
	text, err := u.MarshalJSON()
	if err != nil {
		e.err = err
		return e
	}
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if e.err = json.Unmarshal(text, p); e.err != nil {
		return e
	}
	policy, errs := inject.Compile(p)
	if e.err = errs.ToAggregate(); e.err != nil {
		return e
	}
	e.policy = policy
	e.ephemeral = p.Spec.Containers != nil && p.Spec.Containers.EphemeralContainers
	return e
}

// same reports whether the entry is still right for this version of the policy, so that the policy need not be compiled
// again. It ignores most of the status, which changes all the time.
func (e *entry) same(u *unstructured.Unstructured) bool {
	if e == nil || e.source.GetUID() != u.GetUID() || e.source.GetGeneration() != u.GetGeneration() {
		return false
	}
	for _, field := range [][]string{{"spec"}, {"status", "fromService"}} {
		was, _, _ := unstructured.NestedFieldNoCopy(e.source.Object, field...)
		is, _, _ := unstructured.NestedFieldNoCopy(u.Object, field...)
		if !equality.Semantic.DeepEqual(was, is) {
			return false
		}
	}
	return true
}
