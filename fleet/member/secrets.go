package member

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"refract.dev/internal/reflector"
)

const (
	// unaskedInterval is the interval between two checks for Secrets that are not read any more.
	unaskedInterval = time.Minute
	// unaskedAfter is the time without a read after which a Secret is no longer watched. The reconciliations of a
	// cluster read its Secret much more often.
	unaskedAfter = 5 * time.Minute
	// mostSecretChanges is the maximum number of changes of Secrets that wait for a reconciliation.
	mostSecretChanges = 4096
)

// pausesRefused are the pauses while RBAC forbids reading a Secret. They are bounded, so that a new right takes effect
// within half a minute.
var pausesRefused = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 50, Cap: 30 * time.Second}

// SecretReader reads the Secrets of the system namespace by their names.
type SecretReader interface {
	// Read returns a Secret, which the caller may modify. The error is [apierrors.IsNotFound] if the Secret does not
	// exist.
	Read(ctx context.Context, name string) (*corev1.Secret, error)
	// Changes delivers the names of Secrets that were read and have changed since.
	Changes() <-chan event.GenericEvent
}

// Secrets reads the Secrets of one namespace by their names. It lists and watches each Secret with its name as the
// field selector, so RBAC checks the right to this name. A right to read all Secrets of the namespace is not necessary.
// A Secret is watched as long as it is read from time to time. Secrets is safe for concurrent use.
type Secrets struct {
	from      cache.Getter
	namespace string
	changes   chan event.GenericEvent
	now       func() time.Time

	ctx     context.Context //nolint:containedctx // The context of all watches.
	stop    context.CancelFunc
	watches sync.WaitGroup

	mu    sync.Mutex
	names map[string]*followed
}

// NewSecrets returns a reader for the Secrets of a namespace. It uses a client for version v1 of the core group. The
// manager must start the reader.
func NewSecrets(from cache.Getter, namespace string) *Secrets {
	s := &Secrets{
		from: from, namespace: namespace, changes: make(chan event.GenericEvent, mostSecretChanges), now: time.Now, names: map[string]*followed{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

var (
	_ manager.LeaderElectionRunnable = (*Secrets)(nil)
	_ SecretReader                   = (*Secrets)(nil)
)

// Changes delivers the names of Secrets that were read and have changed since.
func (s *Secrets) Changes() <-chan event.GenericEvent { return s.changes }

// NeedLeaderElection returns false: a replica that stands by watches the Secrets, too, to be ready to lead.
func (s *Secrets) NeedLeaderElection() bool { return false }

// Start returns when ctx and all watches have ended.
func (s *Secrets) Start(ctx context.Context) error {
	tick := time.NewTicker(unaskedInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.stop() // No watch begins after this.
			s.mu.Unlock()
			s.watches.Wait()
			return nil
		case <-tick.C:
			s.forget()
		}
	}
}

// forget ends the watches of Secrets that were not read lately.
func (s *Secrets) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.names {
		if s.now().Sub(f.asked) > unaskedAfter {
			f.stop()
			delete(s.names, name)
		}
	}
}

// Read returns a Secret in its last seen version, which the caller may modify. It waits for the first answer of the API
// server about the Secret. The error is [apierrors.IsNotFound] if the Secret does not exist, and the error of the API
// server if the Secret could not be read yet.
func (s *Secrets) Read(ctx context.Context, name string) (*corev1.Secret, error) {
	if name == "" {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	f := s.follow(name) //nolint:contextcheck // The watch lives longer than the request of the caller.
	select {
	case <-f.answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.secret != nil:
		return f.secret.DeepCopy(), nil
	case f.err != nil:
		return nil, f.err
	default:
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
}

// follow begins to watch a Secret, unless it is watched already.
func (s *Secrets) follow(name string) *followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.names[name]
	if f == nil {
		f = &followed{answered: make(chan struct{}), changed: func() { s.tell(name) }}
		s.names[name] = f
		var ctx context.Context
		ctx, f.stop = context.WithCancel(s.ctx)
		if ctx.Err() == nil {
			s.watches.Go(func() {
				reflector.Run(ctx, name, s.reflector(name, f), pauses, pausesRefused) // Secrets are always served.
			})
		}
	}
	f.asked = s.now()
	return f
}

// tell triggers a reconciliation of the clusters that use a Secret.
func (s *Secrets) tell(name string) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	select {
	case s.changes <- event.GenericEvent{Object: secret}:
	default: // The channel is full: the regular reconciliation of the clusters comes sooner.
	}
}

// reflector lists and watches one Secret.
func (s *Secrets) reflector(name string, into *followed) *cache.Reflector {
	by := cache.NewListWatchFromClient(s.from, "secrets", s.namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := by.ListWithContext(ctx, o)
			into.failed(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return by.WatchWithContext(ctx, o)
		},
	}
	return cache.NewReflectorWithOptions(lw, &corev1.Secret{}, into, cache.ReflectorOptions{Name: "secret/" + name, Backoff: &pauses})
}

// followed is a watched Secret. The reflector keeps it up to date.
type followed struct {
	changed  func()
	stop     context.CancelFunc
	asked    time.Time     // The time of the last read; guarded by the lock of Secrets.
	answered chan struct{} // Closed when the API server has answered once.

	mu     sync.Mutex
	synced bool
	err    error // The error of the last list, before the first success.
	secret *corev1.Secret
}

var _ cache.ReflectorStore = (*followed)(nil)

// failed records the error of a list. A Secret that was read once stays known until the next successful list.
func (f *followed) failed(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced {
		return
	}
	if f.err == nil {
		close(f.answered)
	}
	f.err = err
}

// set stores the Secret from an answer of the API server; nil if it does not exist.
func (f *followed) set(secret *corev1.Secret) {
	f.mu.Lock()
	if !f.synced && f.err == nil {
		close(f.answered)
	}
	before, first := f.secret, !f.synced && f.err == nil
	f.synced, f.err, f.secret = true, nil, secret
	f.mu.Unlock()
	if !first && (before == nil || secret == nil || before.ResourceVersion != secret.ResourceVersion) {
		f.changed()
	}
}

// Add is called by the reflector.
func (f *followed) Add(obj any) error {
	if secret, ok := obj.(*corev1.Secret); ok {
		f.set(secret)
	}
	return nil
}

// Update is called by the reflector.
func (f *followed) Update(obj any) error { return f.Add(obj) }

// Delete is called by the reflector.
func (f *followed) Delete(any) error {
	f.set(nil)
	return nil
}

// Replace is called by the reflector with the result of a list.
func (f *followed) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return f.Delete(nil)
	}
	return f.Add(list[0])
}

// Resync is called by the reflector; there is nothing to do.
func (f *followed) Resync() error { return nil }
