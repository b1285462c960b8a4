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

// Bounds for the lists of policies that reviews of pods request from the API server.
const (
	// listPatience is the time limit for a pod that waits for a list of policies.
	listPatience = 200 * time.Millisecond
	// listsPerSecond and listsAtOnce limit the rate and the burst of lists for one namespace. A limit is necessary,
	// because any user may write an arbitrary hash into a pod template.
	listsPerSecond, listsAtOnce = 5, 10
	// allListsPerSecond and allListsAtOnce are the corresponding limits for all namespaces together.
	allListsPerSecond, allListsAtOnce = 50, 200
	// mostHashes is the maximum number of remembered hashes of a namespace, and mostNamespaces the maximum number of
	// remembered namespaces.
	mostHashes, mostNamespaces = 256, 4096
)

// errTooMany is the error when a rate limit for lists is exceeded.
var errTooMany = errors.New("policies were listed too often lately")

// liveFallback injects a recreated pod correctly even if the cache does not have the newest policy yet. The rollout of
// a policy writes the expected hash into the pod template. If the cached policies give another hash for the pod,
// liveFallback lists the policies from the API server.
//
// If the listed policies also give another hash, the template's hash is wrong: for example, the workload was rolled
// back, or its containers have changed. liveFallback remembers such a hash until the policies of the namespace change,
// so that further pods with this hash cause no list.
type liveFallback struct {
	// list lists the current policies of a namespace from the API server.
	list func(ctx context.Context, namespace string) (*inject.Set, error)

	turns   *turns
	flights singleflight.Group
	limit   flowcontrol.RateLimiter
	mu      sync.Mutex
	known   map[string]*cached
}

// cached has the remembered results for a namespace. They are dropped when the cached policies of the namespace change.
type cached struct {
	limit flowcontrol.RateLimiter

	mu sync.Mutex
	// negative has the template hashes that the listed policies did not give.
	negative map[string]bool
	// newer has the policies of the newest list that gave a pod another result than the cached policies; otherwise nil.
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

// forget drops the remembered results for a namespace. Lists that are still running will not be remembered.
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

// settle returns the final result for a pod. The argument here is the result of the cached policies. settle returns
// another result if a list has newer policies.
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

// ask returns the best result for a pod, and the outcome for the metric. The result is nil if the result of the cached
// policies is the best one.
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
			continue // The list may have begun before the policy change that caused the recreation of this pod.
		}
		m.remember(here, result, l)
		if found {
			return result, fallbackFound
		}
		return result, fallbackDifferent
	}
}

// listing has the policies of one list. They are at least as new as the time begun.
type listing struct {
	set   *inject.Set
	begun time.Time
}

// inject injects the policies of a listing into a pod. It returns nil if there is no listing, if the pod is not valid,
// or if its namespace did not get its turn.
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

// join lists the policies of a namespace. Concurrent callers share one list.
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

// recall returns the remembered newer listing, and whether the hash is remembered as negative.
func (m *cached) recall(hash string) (newer *listing, negative bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newer, m.negative[hash]
}

// remember stores the result that a list gave for a pod. The argument here is the result of the cached policies for the
// same pod.
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
