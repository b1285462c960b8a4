package propagation

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/tree"
)

// direct reads Secrets of the namespace sys without a cache.
type direct struct{ client.Reader }

func (d direct) Read(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, d.Get(ctx, client.ObjectKey{Namespace: "sys", Name: name}, secret)
}

func (direct) Changes() <-chan event.GenericEvent { return nil }

// connected returns a controller whose stations do not run.
func connected(tb testing.TB, hub client.Client, s *sources, o Options) *Controller {
	tb.Helper()
	if s == nil {
		s = newSources(nil, nil, discard)
	}
	o.Now = time.Now
	c, err := connect(o, hubAccess{uid: theHub, client: hub, live: hub, secrets: direct{hub}, recorder: &events.FakeRecorder{}, log: discard}, s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.members.Close)
	c.namespaces.view.synced = true // The hub has no namespaces.
	return c
}

// replica is a fake leadership: a test decides whether it leads.
type replica struct{ leads bool }

func (r *replica) Leads() bool { return r.leads }
func (r *replica) Begin(ctx context.Context) (context.Context, func(), bool) {
	return ctx, func() {}, r.leads
}

// station returns a controller for a hub with the ready clusters eu-1 and us-1 and these objects. leading determines
// whether it leads; in both cases, it has ended its standby. It has decided all objects, and its queues are empty. Its
// stations do not run. Each cluster has an applier, which knows of no copies.
func station(t *testing.T, s *sources, leading *replica, on interceptor.Funcs, objects ...client.Object) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, corev1alpha1.AddToScheme, refractv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(on).WithObjects(objects...).WithStatusSubresource(
		&corev1alpha1.FederatedCluster{}, &corev1alpha1.OverridePolicy{}, &corev1alpha1.PropagationPolicy{}, &refractv1alpha1.Propagation{}, &refractv1alpha1.ClusterPropagation{},
		&refractv1alpha1.RolloutPolicy{}, &refractv1alpha1.ClusterRolloutPolicy{})
	for _, name := range []string{"eu-1", "us-1"} {
		fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		fc.Status.Conditions = []corev1alpha1.ClusterCondition{{Type: corev1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		hub.WithObjects(fc)
	}
	leads := leading.leads
	leading.leads = false // No requests go to their API servers.
	c := connected(t, hub.Build(), s, Options{Leadership: leading, SystemNamespace: "sys"})
	for _, name := range []string{"eu-1", "us-1"} {
		if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
			t.Fatal(err)
		}
		idle(t, c, &member.Member{Name: name, Copies: &member.Copies{}})
	}
	leading.leads = leads
	c.begin()
	c.state.complete.Store(true)
	return c
}

// idle gives a member an applier that does not run and that the controller does not replace.
func idle(t *testing.T, c *Controller, m *member.Member) (a *applier, ended func() bool) {
	t.Helper()
	queue, err := newWorkQueue("namespaces-"+m.Name, 1, discard, func(context.Context, string) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err = newApplier(&applier{
		hub: theHub, log: discard, member: m, state: c.state, namespaces: &namespaces{queue: queue}, guard: newGuard(DefaultGuard, time.Now),
		spare: newSpare(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	over := make(chan struct{})
	close(over)
	c.dispatcher.mu.Lock()
	defer c.dispatcher.mu.Unlock()
	c.dispatcher.appliers[m.Name] = runningApplier{applier: a, stop: stop, ended: over}
	return a, func() bool { return ctx.Err() != nil }
}

// asked lists the contents of the queues of all stations, sorted: the station, the key, and the priority or the delay.
// The delay is exact while the clock stands still, as in [synctest.Test].
func asked(c *Controller) []string {
	all := slices.Concat(
		waitingIn("decide", c.decider.queue), waitingIn("place", c.decider.everything), waitingIn("report", c.reporter.queue),
		waitingIn("review", c.reviewer.queue), waitingIn("own", c.dispatcher.leadership), waitingIn("pend", c.dispatcher.pending),
	)
	for name, r := range c.dispatcher.appliers {
		all = append(all, waitingIn(name, r.applier.queue)...)
		all = append(all, waitingIn(name+" namespace", r.applier.namespaces.queue)...)
	}
	slices.Sort(all)
	return all
}

// waitingIn lists the contents of a queue.
func waitingIn[K comparable](name string, w *workQueue[K]) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.queue
	for _, e := range q.items {
		switch e.place {
		case due:
			all = append(all, fmt.Sprintf("%s %s: %s", name, worded(e.key), [...]string{"costly", "resync", "dependency", "changed", "required"}[e.priority]))
		case later:
			all = append(all, fmt.Sprintf("%s %s: after %s", name, worded(e.key), e.at-w.now()))
		case nowhere:
		}
	}
	slices.Sort(all)
	return all
}

// worded returns a key as text.
func worded(key any) string {
	switch k := key.(type) {
	case Key:
		return k.Resource + " " + k.Name
	case tree.Policy:
		return k.Name
	case struct{}:
		return "all"
	default:
		return fmt.Sprint(k)
	}
}
