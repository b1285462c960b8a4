package injector

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
	"refract.dev/injection/inject"
)

// Bounds of the live lists that pods cause.
const (
	// listPatience is how long a pod waits for a list of policies.
	listPatience = 200 * time.Millisecond
	// listsPerSecond and listsAtOnce bound the lists of one namespace's policies by rate and burst, because any user
	// may write a hash on a template.
	listsPerSecond, listsAtOnce = 5, 10
	// allListsPerSecond and allListsAtOnce are the same bounds for all namespaces together.
	allListsPerSecond, allListsAtOnce = 50, 200
	// mostHashes and mostNamespaces bound the memory.
	mostHashes, mostNamespaces = 256, 4096
)

// errTooMany is the error when a rate limit for lists is exceeded.
var errTooMany = errors.New("policies were listed too often lately")

// liveFallback injects pods that are recreated because of a policy even if the cache does not have the policy yet. The
// template of such a pod has the expected hash. If the cached policies give another hash, the policies are listed live
// once.
//
// If the live list gives another hash as well, the expected hash is an old one, for example after a rollback of the
// workload, or belongs to other containers. It is remembered until the policies of the namespace change, so that such
// pods cost no more than others.
type liveFallback struct {
	// list lists the present policies of a namespace.
	list func(ctx context.Context, namespace string) (*inject.Set, error)

	turns   *turns
	flights singleflight.Group
	limit   flowcontrol.RateLimiter
	mu      sync.Mutex
	known   map[string]*cached
}

// cached is the memory about a namespace while its cached policies do not change.
type cached struct {
	limit flowcontrol.RateLimiter

	mu sync.Mutex
	// negative has the hashes that a list did not give.
	negative map[string]bool
	// newer has the policies of the last list, if they gave a pod another result than the cached policies; otherwise
	// nil.
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

// forget drops the memory about a namespace, and the results of lists in progress.
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

// settle returns the final result for a pod: the result of the cached policies, or a better one.
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

// ask returns the best result for a pod, nil if that is the result of the cached policies, and the outcome for the
// metric.
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
			continue // The list may be older than the policy for which this pod was recreated.
		}
		m.remember(here, result, l)
		if found {
			return result, fallbackFound
		}
		return result, fallbackDifferent
	}
}

// listing has the policies of one list, as of some time after its begin.
type listing struct {
	set   *inject.Set
	begun time.Time
}

// inject injects the policies of a listing into a pod. It returns nil without a listing, for an unreadable pod, and for
// a pod without a turn.
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

// join lists the policies of a namespace; concurrent callers share one list.
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

// recall returns the newer listing, and whether the hash is remembered as negative.
func (m *cached) recall(hash string) (newer *listing, negative bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newer, m.negative[hash]
}

// remember stores the result of a list for a pod; here is the result of the cached policies.
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
