package injection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
)

// Bounds of what pods may have us ask the API server for.
const (
	// listPatience is how long a pod waits for a list of policies.
	listPatience = 200 * time.Millisecond
	// listsPerSecond and listsAtOnce are how often the policies of one namespace are
	// listed: anybody may write a hash on a template.
	listsPerSecond, listsAtOnce = 5, 10
	// allListsPerSecond and allListsAtOnce are the same for all namespaces together.
	allListsPerSecond, allListsAtOnce = 50, 200
	// mostHashes and mostNamespaces are how many are remembered.
	mostHashes, mostNamespaces = 256, 4096
)

// errTooMany is returned if policies were listed too often lately.
var errTooMany = errors.New("policies were listed too often lately")

// liveFallback sees to it that pods which were recreated because of a policy get what
// it injects even if this cache does not have the policy yet. Such a pod has the
// hash of what it is to get from its template. If the policies here give another,
// they are listed once, live.
//
// A hash that a list does not give either is of old, as after a rollback of its
// workload, or of other containers. It is remembered until the policies of the
// namespace change, so that such pods cost no more than others.
type liveFallback struct {
	// list returns the policies of a namespace as they are now.
	list func(ctx context.Context, namespace string) (*inject.Set, error)

	turns   *turns
	flights singleflight.Group
	limit   flowcontrol.RateLimiter
	mu      sync.Mutex
	known   map[string]*cached
}

// cached is what is known of a namespace while its policies do not change here.
type cached struct {
	limit flowcontrol.RateLimiter

	mu sync.Mutex
	// negative are hashes that a list did not give.
	negative map[string]bool
	// newer are the policies of the last list, if they gave a pod something else than
	// those here did; nil if not.
	newer *listing
}

func newLiveFallback(live client.Reader, policies *Cache) *liveFallback {
	h := &liveFallback{turns: newTurns(), known: map[string]*cached{}, limit: flowcontrol.NewTokenBucketRateLimiter(allListsPerSecond, allListsAtOnce)}
	h.list = func(ctx context.Context, namespace string) (*inject.Set, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(refractv1beta1.GroupVersion.WithKind(refractv1beta1.KindServiceInjectionPolicy + "List"))
		if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing the injection policies of %s: %w", namespace, err)
		}
		return policies.read(list), nil
	}
	policies.forget = h.forget
	return h
}

// forget drops what is known of a namespace. What is being found out about it now
// is dropped, too.
func (h *liveFallback) forget(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, namespace)
}

func (h *liveFallback) cached(namespace string) *cached {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.known[namespace]
	if m != nil {
		return m
	}
	if len(h.known) >= mostNamespaces {
		clear(h.known)
	}
	m = &cached{negative: map[string]bool{}, limit: flowcontrol.NewTokenBucketRateLimiter(listsPerSecond, listsAtOnce)}
	h.known[namespace] = m
	return m
}

// settle returns what becomes of a pod: the result that the policies here give, or
// a better one.
func (h *liveFallback) settle(ctx context.Context, namespace string, pod []byte, here *inject.Result) *inject.Result {
	if here.TemplateHash == "" || here.TemplateHash == here.Hash || (answer{Result: here}).excluded() {
		return here
	}
	result, outcome := h.ask(ctx, namespace, pod, here)
	fallbacks.WithLabelValues(outcome).Inc()
	if result == nil {
		return here
	}
	return result
}

// ask returns what becomes of a pod according to the best that is known, nil if
// that is what is here, and how it came to know.
func (h *liveFallback) ask(ctx context.Context, namespace string, pod []byte, here *inject.Result) (*inject.Result, string) {
	arrived := time.Now()
	m := h.cached(namespace)
	newer, negative := m.recall(here.TemplateHash)
	result := h.inject(ctx, namespace, newer, pod)
	switch {
	case negative:
		return result, fallbackRemembered
	case result != nil && result.Hash == here.TemplateHash:
		return result, fallbackShared
	}
	patient, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	for {
		l, err := h.join(patient, namespace, m)
		if errors.Is(err, errTooMany) {
			return result, fallbackLimited
		}
		if err != nil {
			return result, fallbackFailed
		}
		if result = h.inject(ctx, namespace, l, pod); result == nil {
			return nil, fallbackFailed
		}
		found := result.Hash == here.TemplateHash
		if !found && l.begun.Before(arrived) {
			continue // It may not have seen what this pod was recreated for.
		}
		m.remember(here, result, l)
		if found {
			return result, fallbackFound
		}
		return result, fallbackDifferent
	}
}

// listing are policies as they were at some time after it began.
type listing struct {
	set   *inject.Set
	begun time.Time
}

// inject returns what a listing gives a pod; nil for no listing, if the pod cannot be
// read, and if it had no turn.
func (h *liveFallback) inject(ctx context.Context, namespace string, l *listing, pod []byte) *inject.Result {
	if l == nil {
		return nil
	}
	result, err := h.turns.inject(ctx, namespace, l.set, pod, func(set *inject.Set) (*inject.Result, error) { return set.Inject(pod) })
	if err != nil {
		return nil
	}
	return result
}

// join lists the policies of a namespace, together with all who want to know at
// the same time.
func (h *liveFallback) join(ctx context.Context, namespace string, m *cached) (*listing, error) {
	flight := h.flights.DoChan(namespace, func() (any, error) {
		if !m.limit.TryAccept() || !h.limit.TryAccept() {
			return nil, errTooMany
		}
		l := &listing{begun: time.Now()}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listPatience)
		defer cancel()
		var err error
		l.set, err = h.list(ctx, namespace)
		return l, err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case landed := <-flight:
		l, _ := landed.Val.(*listing)
		return l, landed.Err
	}
}

// recall returns what is known of a hash.
func (m *cached) recall(hash string) (newer *listing, negative bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newer, m.negative[hash]
}

// remember takes up what a list gave for a pod, here being what the policies here
// gave.
func (m *cached) remember(here, result *inject.Result, l *listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if result.Hash != here.Hash && (m.newer == nil || m.newer.begun.Before(l.begun)) {
		m.newer = l
	}
	if result.Hash == here.TemplateHash {
		return
	}
	if len(m.negative) >= mostHashes {
		clear(m.negative)
	}
	m.negative[here.TemplateHash] = true
}
