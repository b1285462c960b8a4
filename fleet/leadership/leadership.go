// Package leadership elects the one replica of the controllers that decides and writes. The other replicas stand by:
// they watch the hub, answer the webhook, and take over when the leader ends.
//
// The leader is the holder of the Lease refract-leader, which client-go elects. It works only while its Lease certainly
// exists: until two thirds of the duration have passed since the beginning of the last successful renewal, by the
// leader's own clock. Another replica takes the Lease only after it has seen the Lease unchanged for the whole
// duration, by its own clock. So two replicas never work at the same time, as long as the rates of their clocks differ
// by less than the last third. Times of different machines are never compared. A leader that loses the Lease ends its
// process.
//
// This does not cover a process that is frozen between the check and the write, nor a write that is under way in the
// network. Work is therefore bounded by a context that ends after two thirds of the duration, so such a write has the
// last third to arrive. A later write is corrected as drift.
//
// A leader that shuts down regularly waits for the end of its work and then releases the Lease at once. After a crash,
// the next leader waits for the duration of the Lease. Only the next process in the same pod does not wait: a kubelet
// restarts a container only after its process has ended. The pod is recognized by its UID ([Options.PodUID]), because
// two processes may have the same identity.
package leadership

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// LeaseName is the name of the Lease that the leader holds.
const LeaseName = "refract-leader"

// Options are the settings of a replica.
type Options struct {
	// Leases accesses the hub, without a rate limit on the requests.
	Leases coordinationclient.LeasesGetter
	// Namespace is the namespace of the Lease. It must exist, and be the same for all replicas.
	Namespace string
	// Identity names the replica for users: its pod or host. It need not be unique.
	Identity string
	// Unique distinguishes this process from all others, including earlier ones. It has letters and digits. If it is
	// empty, it is chosen at random. A simulation sets it.
	Unique string
	// LeaseDuration is the time after a crash until another replica leads. It is in whole seconds, at least 2; 0 means
	// 15 s. Replicas may have different durations. The Lease has the duration of its holder.
	LeaseDuration time.Duration
	// PodUID is the UID of the pod of this process, which must be the only process of its container; empty outside of
	// pods.
	PodUID string
	// Log reports changes of the leadership, and errors.
	Log logr.Logger
	// OnChange, if set, is called when the leadership of this replica has changed. It must not block, and may be called
	// without a change.
	OnChange func()
}

// requestTimeout is the timeout of a request. Without it, a request without an answer would never end.
func (o *Options) requestTimeout() time.Duration { return o.LeaseDuration / 5 }

// Leadership is the participation of one replica in the leader election. It is safe for concurrent use.
type Leadership struct {
	options Options
	id      string
	alone   bool

	mu      sync.Mutex
	elected bool
	ending  bool
	until   time.Time       // The Lease certainly exists until then.
	term    context.Context //nolint:containedctx // Ends when the Lease may have expired. All work ends with it.
	lapse   context.CancelFunc
	timer   *time.Timer
	busy    int           // Work in flight.
	idle    chan struct{} // Closed when the leadership ends and no work is in flight.
}

// New returns the leadership of a replica. [Leadership.Run] takes part in the election.
func New(o Options) (*Leadership, error) {
	if o.LeaseDuration == 0 {
		o.LeaseDuration = 15 * time.Second
	}
	if o.LeaseDuration < 2*time.Second || o.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("the duration of a lease: want whole seconds, at least 2, got %s", o.LeaseDuration)
	}
	if o.Identity == "" {
		return nil, errors.New("the identity of a replica: want a name, got none")
	}
	unique := o.Unique
	if unique == "" {
		random := make([]byte, 5)
		_, _ = rand.Read(random) // It never fails.
		unique = hex.EncodeToString(random)
	}
	l := &Leadership{options: o, id: pod(&o) + unique, idle: make(chan struct{})}
	l.term, l.lapse = context.WithCancel(context.Background())
	l.lapse() // There is no Lease yet.
	return l, nil
}

// pod returns the part of an id that all processes of one pod have: IDENTITY_POD_.
func pod(o *Options) string { return strings.ReplaceAll(o.Identity, "_", "-") + "_" + o.PodUID + "_" }

// Alone returns the leadership of a replica that is known to be the only one. It always leads, even without a call of
// Run.
func Alone() *Leadership { return &Leadership{alone: true} }

// ID returns the name of this process in the Lease, IDENTITY_POD_UNIQUE; "" for [Alone].
func (l *Leadership) ID() string { return l.id }

// Leads reports whether this replica leads now. A write needs [Leadership.Begin].
func (l *Leadership) Leads() bool {
	if l.alone {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads()
}

func (l *Leadership) leads() bool { return l.elected && !l.ending && before(time.Now(), l.until) }

// Begin reports whether work may begin now: a write, or other work that two replicas must not do at the same time. If
// so, the caller must call end when the work is done or given up: a leader that shuts down keeps its Lease until then.
// The returned context is for the work: it ends before another replica may lead.
func (l *Leadership) Begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	if l.alone {
		return ctx, func() {}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads() {
		return ctx, func() {}, false
	}
	l.busy++
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(l.term, cancel)
	return ctx, sync.OnceFunc(func() {
		unbind()
		cancel()
		l.finish()
	}), true
}

func (l *Leadership) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 && l.ending {
		close(l.idle)
	}
}

// Run takes part in the election until ctx ends. If this replica leads then, Run waits for the end of the work in flight,
// but no longer than the Lease certainly exists, and releases the Lease. It returns an error if the leadership was lost:
// another replica may lead, so the process must end. Run must be called once.
func (l *Leadership) Run(ctx context.Context) error {
	if l.alone {
		<-ctx.Done()
		return nil
	}
	lock := &timedLock{
		Interface: ReleaseOwn(&resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.options.Namespace, Name: LeaseName},
			Client:     l.options.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.id},
		}),
		leadership: l,
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:            LeaseName,
		Lock:            lock,
		LeaseDuration:   l.options.LeaseDuration,
		RenewDeadline:   l.options.LeaseDuration * 2 / 3,
		RetryPeriod:     l.options.LeaseDuration / 10,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { l.elect(true) },
			OnStoppedLeading: func() { l.elect(false) },
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the election of a leader: %w", err)
	}
	// The elector ends later than ctx, to release the Lease when no work is in flight.
	inner, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), l.options.Log))
	defer cancel()
	defer l.stop()
	deposed := make(chan struct{})
	go func() {
		defer close(deposed)
		elector.Run(inner)
	}()
	select {
	case <-deposed:
		return errors.New("leadership was lost, as it was not renewed in time")
	case <-ctx.Done():
	}
	if !l.end(inner) {
		l.options.Log.Info("Work in flight did not end; the Lease is kept until it expires", "replica", l.id)
		lock.keep()
	}
	cancel()
	<-deposed
	return nil
}

// end prevents new work, and reports whether the work in flight has ended while the Lease certainly existed.
func (l *Leadership) end(ctx context.Context) bool {
	l.mu.Lock()
	l.ending = true
	if l.busy == 0 {
		close(l.idle)
	}
	until := l.until
	l.mu.Unlock()
	l.changed()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-l.idle:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy == 0 // A replica that does not lead has no work in flight.
}

func (l *Leadership) elect(elected bool) {
	l.mu.Lock()
	same := l.elected == elected
	l.elected = elected
	l.mu.Unlock()
	if !same {
		l.options.Log.Info("Leadership changed", "leads", elected, "replica", l.id)
		l.changed()
	}
}

// renew extends the leadership. After a late renewal it reports a change: the replica skipped work between the end of
// its Lease and the renewal, although no other replica was elected.
func (l *Leadership) renew(began time.Time) {
	until := began.Add(l.options.LeaseDuration * 2 / 3)
	l.mu.Lock()
	late := !before(time.Now(), l.until)
	l.until = until
	if l.term.Err() != nil && before(time.Now(), until) {
		l.term, l.lapse = context.WithCancel(context.Background())
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(until), l.expire)
	} else {
		l.timer.Reset(time.Until(until))
	}
	changed := late && l.elected
	l.mu.Unlock()
	if changed {
		l.changed()
	}
}

// heldBy ends the work of a leader if another process holds the Lease, because a user has deleted or edited the Lease.
func (l *Leadership) heldBy(id string) {
	l.mu.Lock()
	lost := l.elected && id != l.id && before(time.Now(), l.until)
	if lost {
		l.until = time.Time{}
		l.lapse()
	}
	l.mu.Unlock()
	if lost {
		l.changed()
	}
}

// expire ends the work if the Lease was not renewed in time.
func (l *Leadership) expire() {
	l.mu.Lock()
	late := !before(time.Now(), l.until)
	if late {
		l.lapse()
	}
	l.mu.Unlock()
	if late {
		l.changed()
	}
}

// stop stops the timer, unless the timer is still needed to end work in flight.
func (l *Leadership) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil && l.busy == 0 {
		l.timer.Stop()
	}
}

func (l *Leadership) changed() {
	if l.options.OnChange != nil {
		l.options.OnChange()
	}
}

// before compares wall clocks as well, because the monotonic clock stands still while a virtual machine is suspended.
func before(now, then time.Time) bool {
	return now.Before(then) && now.Round(0).Before(then.Round(0))
}
