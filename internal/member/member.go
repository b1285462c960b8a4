// Package member knows the member clusters: how they are reached, whether they
// are ready, and which objects they hold that came from a hub.
package member

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/reflector"
)

// managed selects the copies on a member.
const managed = corev1alpha1.ManagedLabel + "=true"

// Requests for objects of a member per second, and how many may come at once.
// API servers on few cores take some hundred writes per second; the limit is to
// keep an error of ours from becoming theirs, not to slow anything down.
const (
	requestsPerSecond = 500
	requestBurst      = 1000
)

// Member is one member cluster: a client of its API server and a view of the
// managed objects there. It is made by a [Set].
type Member struct {
	Name string

	client    metadata.Interface
	objects   dynamic.Interface
	discovery *discovery.DiscoveryClient
	rest      rest.Interface // Not limited, so that probes do not wait for writes.
	closeIdle func()
	hooks     hooks
	ready     atomic.Bool
	rights    rights
	excess    *excess
	breaker   breaker
	meter     meter

	ctx      context.Context //nolint:containedctx // The life of the watches, which begin one by one.
	stop     context.CancelFunc
	done     sync.WaitGroup
	requests sync.RWMutex // Held for reading during a request.

	misses int // Probes in a row that failed; its reconciler's alone.
	probes int // That succeeded; its reconciler's alone, too.

	mu    sync.Mutex
	types map[schema.GroupResource]*copies
	// doubtful are groups that could not be discovered: there may be copies.
	doubtful map[string]bool
	// refused are types that may not be listed, and why. There may be copies, but
	// none that was wanted since.
	refused map[schema.GroupResource]error
	// without are types that are not watched as there were no copies. If there ever are,
	// it is this process that writes them, and watches.
	without map[schema.GroupResource]bool
	// strays is how many of the types that are watched were found although the hub does not
	// have them.
	strays int
	// asked counts how often all types were to be looked at; swept is up to which of
	// these that is done, sweptAt when it was, and sweepErr why it failed the last time.
	asked, swept int
	sweptAt      time.Time
	sweepErr     error
	awaited      bool            // Whether somebody was told to wait for it.
	answering    clusterIdentity // When it was last asked.
}

func newMember(name string, cfg *rest.Config, h hooks) (*Member, error) {
	tooMuch := &excess{now: time.Now}
	h.account = newAccount()
	web, closeIdle, err := httpClient(name, cfg, h.account, tooMuch.note)
	if err != nil {
		return nil, err
	}
	return connected(name, cfg, h, web, closeIdle, tooMuch)
}

// connected returns a member to which requests go by way of an HTTP client.
func connected(name string, cfg *rest.Config, h hooks, web *http.Client, closeIdle func(), tooMuch *excess) (*Member, error) {
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, web)
	if err != nil {
		return nil, err
	}
	limited := rest.CopyConfig(cfg)
	limited.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestBurst)
	client, err := metadata.NewForConfigAndClient(limited, web)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(limited, web)
	if err != nil {
		return nil, err
	}
	h.excess = func(what string, limit int) error {
		err := &LimitError{Member: name, What: what, Limit: limit}
		tooMuch.note(err)
		return err
	}
	m := &Member{
		Name:      name,
		client:    client,
		objects:   objects,
		discovery: disco,
		rest:      disco.RESTClient(),
		closeIdle: closeIdle,
		hooks:     h,
		rights:    rights{now: time.Now},
		excess:    tooMuch,
		breaker:   breaker{now: time.Now, opened: meter(name).opened},
		meter:     meter(name),
		types:     map[schema.GroupResource]*copies{},
		refused:   map[schema.GroupResource]error{},
		without:   map[schema.GroupResource]bool{},
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// close refuses new requests, waits for those under way, and ends the watches.
func (m *Member) close() {
	m.stop()
	m.requests.Lock()
	m.requests.Unlock() //nolint:staticcheck // Those that were under way have ended, and none begins.
	m.mu.Lock()
	m.mu.Unlock() //nolint:staticcheck // The same for watches that were just beginning.
	m.done.Wait()
	m.closeIdle()
	ownerships.forget(m.hooks.account)
}

// Ready reports whether the member was ready to serve when it was last asked.
func (m *Member) Ready() bool { return m.ready.Load() }

// Probe asks the API server whether it is ready to serve. The error says why
// not: an API server that answers and is not ready gives an [apierrors.APIStatus].
func (m *Member) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return m.rest.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error() // The next probe is the retry.
}

// probeTimeout is how long an API server may take to say that it is ready.
const probeTimeout = 5 * time.Second

// Lookup says what is known of a copy.
type Lookup int

const (
	// Unwatched says that nobody has asked for copies of the type, and none was found
	// since the member became ready.
	Unwatched Lookup = iota
	// Unlisted says that it is not known yet: the first list of the type is still to
	// come, cannot be made, or found more than is kept, see [Member.ListError]. [Set.OnCopy]
	// will be called for each copy that it finds.
	Unlisted
	// Absent says that there is no such copy.
	Absent
	// Present says that there is one.
	Present
)

// Copy returns what is known of an object.
func (m *Member) Copy(key Key) (Copy, Lookup) {
	m.mu.Lock()
	t, doubtful := m.types[key.GroupResource], m.doubtful[key.Group] || m.refused[key.GroupResource] != nil
	unswept := t == nil && m.unswept() && !m.without[key.GroupResource]
	m.mu.Unlock()
	if unswept {
		m.await()
	}
	switch {
	case t == nil && (doubtful || unswept):
		return Copy{}, Unlisted
	case t == nil:
		return Copy{}, Unwatched
	}
	return t.look(key.NamespacedName)
}

// Swept reports whether all types of the member were looked at for copies, as far as
// they could be. Before that nobody knows how many there are. If not, that is done next.
func (m *Member) Swept() bool {
	m.mu.Lock()
	yes := m.asked > 0 && (!m.unswept() || m.sweepErr != nil)
	m.mu.Unlock()
	if !yes {
		m.await()
	}
	return yes
}

// await has the member looked through before others: somebody waits for it.
func (m *Member) await() {
	m.mu.Lock()
	was := m.awaited
	m.awaited = true
	m.mu.Unlock()
	if !was {
		m.hooks.awaited()
	}
}

func (m *Member) typed(resource schema.GroupResource) *copies {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.types[resource]
}

// Watch begins to watch the copies of a type, unless it is watched already in a
// version that the member serves, and returns a channel that is closed when they have been listed once.
func (m *Member) Watch(gvr schema.GroupVersionResource) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	resource := gvr.GroupResource()
	if t, ok := m.types[resource]; ok {
		if t.gvr == gvr || !apierrors.IsNotFound(t.listError()) {
			return t.synced
		}
		t.end() // The member does not serve that version; perhaps it serves this one.
	}
	if m.ctx.Err() != nil {
		return make(chan struct{}) // Nobody will list anything any more.
	}
	delete(m.refused, resource)
	t := newCopies(gvr, m.hooks)
	m.types[resource] = t
	m.startWatch(t)
	return t.synced
}

// startWatch begins to list and watch. The lock must be held.
func (m *Member) startWatch(t *copies) {
	ctx, stop := context.WithCancel(m.ctx)
	t.stop, t.resting = stop, false
	var list page
	var begin func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	var kind runtime.Object
	if hasStatus(t.gvr.GroupResource()) {
		client := m.objects.Resource(t.gvr)
		kind, begin = &unstructured.Unstructured{}, client.Watch
		list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) }
	} else {
		client := m.client.Resource(t.gvr)
		kind, begin = &metav1.PartialObjectMetadata{}, client.Watch
		list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) }
	}
	heard := func(verb string, err error) error {
		err = brief(m.unserved(ctx, t.gvr, err))
		if ctx.Err() != nil {
			return err
		}
		t.onError(err)
		m.rights.note(action{verb, t.gvr.GroupResource(), ""}, err)
		if apierrors.IsNotFound(err) {
			// What is not there is not listed and not watched: neither right is missing.
			m.rights.granted(action{"list", t.gvr.GroupResource(), ""})
			m.rights.granted(action{"watch", t.gvr.GroupResource(), ""})
		}
		return err
	}
	r := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			found, err := t.list(ctx, list)
			if err = heard("list", err); err != nil {
				return nil, err
			}
			return found, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = managed
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				if err := t.begins(); err != nil {
					return nil, heard("watch", err)
				}
			}
			ctx, end := context.WithCancel(ctx)
			if err := t.watches(end); err != nil {
				end()
				return nil, heard("watch", err)
			}
			ctx, done := t.account.begin(ctx) // For an answer that is no watch.
			defer done()
			w, err := begin(ctx, o)
			return w, heard("watch", err)
		},
	}, kind, t, cache.ReflectorOptions{
		Name:            m.Name + "/" + t.gvr.String(),
		TypeDescription: t.gvr.String(),
		Backoff:         &pauses,
	})
	m.done.Go(func() {
		if reflector.Run(ctx, r, pauses) {
			m.retire(ctx, t)
		}
	})
}

// pauses are those between attempts at a watch that fails.
var pauses = wait.Backoff{Duration: 400 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 50, Cap: watchRetry}

// retire ends that a type is watched which the member does not serve. [Member.resume] begins
// it again: the member is asked for its types until then.
func (m *Member) retire(ctx context.Context, t *copies) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return // The member leaves, or the type is watched in another way by now.
	}
	t.stop()
	t.resting = true
	if t.miss() {
		m.hooks.log.Info("The cluster does not serve a type of which it has, or is to have, copies; it is watched when the cluster serves it again",
			"type", t.gvr.GroupResource().String())
	}
}

// resume watches a type that the member serves, be it in another version, if it rested.
func (m *Member) resume(gvr schema.GroupVersionResource) {
	m.mu.Lock()
	t := m.types[gvr.GroupResource()]
	rested := t != nil && t.resting
	if rested && t.gvr == gvr && m.ctx.Err() == nil {
		m.startWatch(t)
	}
	m.mu.Unlock()
	if rested && t.gvr != gvr {
		m.Watch(gvr)
	}
}

// rewatch lists and watches at once what was to be tried again some time.
func (m *Member) rewatch(t *copies) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() == nil && m.types[t.gvr.GroupResource()] == t {
		t.stop()
		m.startWatch(t)
	}
}

// Remember records what was read of an object, for [Member.Copy].
func (m *Member) Remember(key Key, c Copy) { m.storeCopy(key, c, false) }

func (m *Member) storeCopy(key Key, c Copy, written bool) {
	if t := m.typed(key.GroupResource); t != nil {
		t.remember(key.NamespacedName, c, written)
	}
}

// Forget records that the object is not there, for [Member.Copy].
func (m *Member) Forget(key Key) {
	if t := m.typed(key.GroupResource); t != nil {
		if c, ok := t.get(key.NamespacedName); ok {
			t.drop(key.NamespacedName, c.UID)
		}
	}
}

// identity is the UID of the cluster; "" if it is not known.
func (m *Member) identity() types.UID { return m.lastIdentity().uid }

var errUndiscovered = errors.New("the cluster did not say which types this API group has")

// ListError returns why copies of a type could not be listed the last time; nil
// if they could, or were not yet asked for.
func (m *Member) ListError(resource schema.GroupResource) error {
	m.mu.Lock()
	t, doubtful, refused := m.types[resource], m.doubtful[resource.Group], m.refused[resource]
	unswept, failed := m.unswept() && !m.without[resource], m.sweepErr
	m.mu.Unlock()
	switch {
	case t != nil:
		return t.listError()
	case refused != nil:
		return refused
	case doubtful:
		return errUndiscovered
	case unswept:
		return failed
	default:
		return nil
	}
}

// ConflictingManager returns the field manager that changed or removed fields of ours in a
// copy since it was last written; "" if nobody did, or it is not known.
func (m *Member) ConflictingManager(key Key) string {
	if t := m.typed(key.GroupResource); t != nil {
		return t.conflictingManager(key.NamespacedName)
	}
	return ""
}

func (m *Member) watched() []*copies {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.types))
}

// Count returns how many copies the member holds, as far as it is known.
func (m *Member) Count() int {
	n := 0
	for _, t := range m.watched() {
		n += t.len()
	}
	return n
}

// InNamespace returns how many copies there are in a namespace.
func (m *Member) InNamespace(ns string) int {
	n := 0
	for _, t := range m.watched() {
		n += t.inNamespace(ns)
	}
	return n
}

// Each calls f for every copy that is known, in no order, until it returns false.
func (m *Member) Each(f func(Key, Copy) bool) {
	for _, t := range m.watched() {
		if !t.each(f) {
			return
		}
	}
}

// listed reports whether the copies of all types are known that the credentials
// may list.
func (m *Member) listed() bool {
	m.mu.Lock()
	doubtful := len(m.doubtful) > 0 || m.asked == 0 || m.unswept()
	m.mu.Unlock()
	return !doubtful && !slices.ContainsFunc(m.watched(), func(t *copies) bool { return !t.complete() })
}
