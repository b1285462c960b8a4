// Package member knows the member clusters: how they are reached, whether they
// are ready, and which objects they hold that came from a hub.
package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// FieldManager is the name under which Refract applies fields.
const FieldManager = "refract"

// managed selects the copies on a member.
const managed = corev1alpha1.ManagedLabel + "=true"

// Member is one member cluster: a client of its API server and a view of the
// managed objects there. It is made by a [Set].
type Member struct {
	Name string

	client    metadata.Interface
	discovery discovery.DiscoveryInterface
	rest      rest.Interface
	notify    func(Key)
	ready     atomic.Bool

	ctx  context.Context //nolint:containedctx // The life of the watches, which begin one by one.
	stop context.CancelFunc
	done sync.WaitGroup

	misses int // Probes in a row that failed; its reconciler's alone.

	mu    sync.Mutex
	types map[schema.GroupResource]*copies
	// doubtful are groups that could not be discovered: there may be copies.
	doubtful map[string]bool
	uid      types.UID // Of the cluster: that of its namespace kube-system.
}

func newMember(name string, cfg *rest.Config, notify func(Key)) (*Member, error) {
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	m := &Member{
		Name:      name,
		client:    client,
		discovery: disco,
		rest:      disco.RESTClient(),
		notify:    notify,
		types:     map[schema.GroupResource]*copies{},
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m, nil
}

// close ends the watches and waits for them.
func (m *Member) close() {
	m.stop()
	m.done.Wait()
}

// Ready reports whether the member was ready to serve when it was last asked.
func (m *Member) Ready() bool { return m.ready.Load() }

// Probe asks the API server whether it is ready to serve. The error says why
// not: an API server that answers and is not ready gives an [apierrors.APIStatus].
func (m *Member) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return m.rest.Get().AbsPath("/readyz").Do(ctx).Error()
}

// probeTimeout is how long an API server may take to say that it is ready.
const probeTimeout = 5 * time.Second

// Sight says what is known of a copy.
type Sight int

const (
	// Unwatched says that nobody has asked for copies of the type, and none was found when
	// the member became ready.
	Unwatched Sight = iota
	// Unlisted says that the first list of the type is under way. The notification that the
	// Set was made with will be called for each copy that it finds.
	Unlisted
	// Absent says that there is no such copy.
	Absent
	// Present says that there is one.
	Present
)

// Copy returns what is known of an object.
func (m *Member) Copy(key Key) (Copy, Sight) {
	m.mu.Lock()
	t, doubtful := m.types[key.GroupResource], m.doubtful[key.Group]
	m.mu.Unlock()
	switch {
	case t == nil && doubtful:
		return Copy{}, Unlisted
	case t == nil:
		return Copy{}, Unwatched
	case !t.hasSynced():
		return Copy{}, Unlisted
	}
	c, ok := t.get(key.NamespacedName)
	if !ok {
		return Copy{}, Absent
	}
	return c, Present
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
		t.stop() // The member does not serve that version; perhaps it serves this one.
	}
	ctx, stop := context.WithCancel(m.ctx)
	t := newCopies(gvr, stop, m.notify)
	m.types[resource] = t
	r := cache.NewReflectorWithOptions(m.listWatch(gvr, t), &metav1.PartialObjectMetadata{}, t, cache.ReflectorOptions{
		Name:            m.Name + "/" + gvr.String(),
		TypeDescription: gvr.String(),
	})
	m.done.Go(func() { r.RunWithContext(ctx) })
	return t.synced
}

func (m *Member) listWatch(gvr schema.GroupVersionResource, t *copies) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = managed
			list, err := m.client.Resource(gvr).List(ctx, o)
			t.heard(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = managed
			w, err := m.client.Resource(gvr).Watch(ctx, o)
			t.heard(err)
			return w, err
		},
	}
}

// Apply writes the body by server-side apply and forces the fields in it. It is
// one request. The answer is remembered for [Member.Copy].
func (m *Member) Apply(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	got, err := m.client.Resource(gvr).Namespace(name.Namespace).Patch(ctx, name.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
	if err != nil {
		return err
	}
	m.Remember(Key{gvr.GroupResource(), name}, copyOf(got))
	return nil
}

// Remember records what was read of an object, for [Member.Copy].
func (m *Member) Remember(key Key, c Copy) {
	if t := m.typed(key.GroupResource); t != nil {
		t.put(key.NamespacedName, c)
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

// Read reads the metadata of an object, whether it is a copy or not.
func (m *Member) Read(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (Copy, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := m.client.Resource(gvr).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return Copy{}, err
	}
	return copyOf(got), nil
}

// Delete begins the deletion of the copy with this UID. Found is false, and there
// is no error, if the copy is not there, or another object in its place.
func (m *Member) Delete(ctx context.Context, key Key, uid types.UID) (found bool, err error) {
	t := m.typed(key.GroupResource)
	if t == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	background := metav1.DeletePropagationBackground
	err = m.client.Resource(t.gvr).Namespace(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// Identify reads which cluster this is, whatever its name.
func (m *Member) Identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	ns, err := m.client.Resource(gvr).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("identifying the cluster: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uid = ns.UID
	return nil
}

func (m *Member) identity() types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uid
}

var errUndiscovered = errors.New("the cluster did not say which types this API group has")

// ListError returns why copies of a type could not be listed the last time; nil
// if they could, or were not yet asked for.
func (m *Member) ListError(resource schema.GroupResource) error {
	m.mu.Lock()
	t, doubtful := m.types[resource], m.doubtful[resource.Group]
	m.mu.Unlock()
	switch {
	case t != nil:
		return t.listError()
	case doubtful:
		return errUndiscovered
	default:
		return nil
	}
}

// doubts reports whether there may be copies of types that are not known.
func (m *Member) doubts() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.doubtful) > 0
}

// CreateNamespace creates a namespace that copies need; hub marks it as made for
// them. One that is there already is left as it is.
func (m *Member) CreateNamespace(ctx context.Context, name, hub string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Namespace",
		"metadata": map[string]any{
			"name":        name,
			"annotations": map[string]string{refractv1alpha1.NamespaceAnnotation: hub},
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = m.rest.Post().AbsPath("/api/v1/namespaces").Param("fieldManager", FieldManager).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Sweep watches every type of which the member holds a copy, so that copies are
// found whose source went away unseen. It may be called again. A type that cannot
// be listed is watched, too: what it holds is not known until it can.
func (m *Member) Sweep(ctx context.Context) error {
	lists, err := discovery.ServerPreferredResources(m.discovery)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return fmt.Errorf("discovering types: %w", err)
	}
	m.mu.Lock()
	m.doubtful = map[string]bool{}
	if partial != nil {
		for gv := range partial.Groups {
			m.doubtful[gv.Group] = true
		}
	}
	m.mu.Unlock()
	var sweeps errgroup.Group
	sweeps.SetLimit(concurrentSweeps)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("discovering types: %w", err)
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			if Propagates(gvr.GroupVersion().WithKind(r.Kind).GroupKind(), r.Verbs) && m.typed(gvr.GroupResource()) == nil {
				sweeps.Go(func() error { return m.sweepType(ctx, gvr) })
			}
		}
	}
	return sweeps.Wait()
}

// concurrentSweeps bounds how many types are listed at once.
const concurrentSweeps = 8

func (m *Member) sweepType(ctx context.Context, gvr schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := m.client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: managed, Limit: 1})
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return nil // The type went away since it was discovered.
	case errors.As(err, &status), err == nil && len(found.Items) > 0:
		m.Watch(gvr) //nolint:contextcheck // The watch lives as long as the member.
		return nil
	case err != nil:
		return fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
	}
	return nil
}
