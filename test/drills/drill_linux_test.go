// Package drills injects faults into a fleet of real processes under load. At the end of each drill every copy must be
// correct, and there must be no superfluous copy and no orphaned object.
package drills

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// topology is the topology of the fleets that drills share.
var topology = harness.Topology{Members: size.members, Own: true, CRDs: true}

func TestMain(m *testing.M) {
	harness.Main(m, topology, func(_ context.Context, env *harness.Env) (func() error, error) {
		fleets.add(env)
		return fleets.close, nil
	})
}

// drill is one test: a fleet with joined members, a namespace on its hub, and the started replicas of the controllers.
type drill struct {
	*testing.T
	*harness.Env

	ns       string
	clients  map[string]client.Client
	kubelets []*kubelet
	began    time.Time
}

// start begins a drill with a shared fleet. A drill that does not fail leaves the fleet usable for others.
func start(t *testing.T) *drill {
	t.Helper()
	t.Parallel()
	fleets.enter(t)
	env := fleets.take(t)
	d := begin(t, env)
	t.Cleanup(func() {
		defer func() {
			d.end()
			if !t.Failed() {
				fleets.add(env)
				return
			}
			if err := env.Close(); err != nil { // The next drill starts another fleet.
				t.Error(err)
			}
		}()
		if !t.Failed() {
			d.clear()
		}
	})
	return d
}

// startAlone begins a drill with its own fleet, which no other drill uses.
func startAlone(t *testing.T, of harness.Topology) *drill {
	t.Helper()
	t.Parallel()
	fleets.enter(t)
	d := begin(t, harness.New(t, of))
	t.Cleanup(d.end)
	return d
}

func begin(t *testing.T, env *harness.Env) *drill {
	t.Helper()
	d := &drill{T: t, Env: env, ns: harness.NameOf(t), clients: map[string]client.Client{}, began: time.Now()}
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		c, err := env.Client(cluster)
		d.must(err)
		d.clients[cluster] = c
	}
	d.must(env.JoinAll(t.Context()))
	d.must(d.hub().Create(t.Context(), &corev1.Namespace{ObjectMeta: named(d.ns)}))
	return d
}

func (d *drill) hub() client.Client { return d.clients["hub"] }

// struck is the member that the fault affects; spared are the others.
func (d *drill) struck() string { return d.Members[len(d.Members)-1] }

func (d *drill) spared() []string { return d.Members[:len(d.Members)-1] }

func (d *drill) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// clear removes all objects that the drill has placed.
func (d *drill) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for _, kind := range []string{"ConfigMap", "Deployment"} {
		d.must(d.hub().DeleteAllOf(ctx, object(kind, d.ns, ""), client.InNamespace(d.ns), client.HasLabels{corev1alpha1.PropagationPolicyLabel}))
	}
	d.wait("all copies are deleted", func(ctx context.Context) error {
		d.approveAll(ctx)
		return d.right(ctx)
	})
	d.must(client.IgnoreNotFound(d.hub().Delete(ctx, &corev1.Namespace{ObjectMeta: named(d.ns)})))
}

// approveAll approves the deletions that the guard holds back at the end of the drill.
func (d *drill) approveAll(ctx context.Context) {
	for _, m := range d.Members {
		fc := &corev1alpha1.FederatedCluster{}
		d.must(d.hub().Get(ctx, types.NamespacedName{Name: m}, fc))
		if fc.Status.DeletionsHeld == nil {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, refractv1alpha1.ApproveAnnotation, fc.Status.DeletionsHeld.Token)
		d.must(d.hub().Patch(ctx, fc, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
}

// end stops the controllers, and reports details if the drill has failed.
func (d *drill) end() {
	d.Logf("the drill took %s", time.Since(d.began).Round(100*time.Millisecond))
	if d.Failed() {
		d.explain()
	}
	for _, k := range d.kubelets {
		k.stop()
	}
}

// explain logs the present state.
func (d *drill) explain() {
	for _, k := range d.kubelets {
		k.mu.Lock()
		d.Logf("replica %s has ended %d times, with\n%s", k.name, k.starts, strings.Join(k.lasts, "\n"))
		k.mu.Unlock()
		d.Logf("the log of replica %s ends:\n%s", k.name, harness.LogTail(filepath.Join(d.Dir, k.name+".log")))
	}
	if out, err := d.Kubectl("hub", "", "get", "federatedclusters", "-o",
		`jsonpath={range .items[*]}{.metadata.name}{range .status.conditions[*]}; {.type}={.status} {.reason}: {.message}{end}{"\n"}{end}`); err == nil {
		d.Logf("the clusters are:\n%s", out)
	}
	out, err := d.Kubectl("hub", "", "get", "propagations", "-n", d.ns, "-o",
		`jsonpath={range .items[?(@.status.conditions[0].status!="True")]}{.metadata.name}: {.status.clusters}{"\n"}{end}`)
	if err == nil {
		d.Logf("not synced are:\n%s", out[:min(len(out), 8000)])
	}
}

// wait waits until try succeeds.
func (d *drill) wait(what string, try func(context.Context) error) {
	d.Helper()
	harness.Eventually(d.T, what, try)
}

// pause waits; the duration is part of the fault.
func (d *drill) pause(how time.Duration) {
	d.Helper()
	select {
	case <-time.After(how):
	case <-d.Context().Done():
		d.Fatal("the drill was called off")
	}
}

// right returns an error that lists all differences from the intended state.
func (d *drill) right(ctx context.Context) error {
	wrong, err := d.Wrong(ctx)
	if err != nil {
		return err
	}
	if n := len(wrong); n > 0 {
		return fmt.Errorf("%d things are wrong:\n%s", n, strings.Join(wrong[:min(n, 12)], "\n"))
	}
	return nil
}

// settle waits for the end state that every drill requires: all copies are correct, none is superfluous, and no object
// is orphaned.
func (d *drill) settle() {
	d.Helper()
	d.wait("every copy is correct, none is superfluous or orphaned", d.right)
}

// clusterCondition returns a condition of a FederatedCluster, or a zero one.
func (d *drill) clusterCondition(ctx context.Context, cluster, kind string) corev1alpha1.ClusterCondition {
	d.Helper()
	fc := &corev1alpha1.FederatedCluster{}
	if err := d.hub().Get(ctx, types.NamespacedName{Name: cluster}, fc); err != nil {
		return corev1alpha1.ClusterCondition{Message: err.Error()}
	}
	for i := range fc.Status.Conditions {
		if string(fc.Status.Conditions[i].Type) == kind {
			return fc.Status.Conditions[i]
		}
	}
	return corev1alpha1.ClusterCondition{}
}

// awaitCondition waits until a FederatedCluster has the condition in this state.
func (d *drill) awaitCondition(cluster, kind string, want metav1.ConditionStatus) {
	d.Helper()
	d.wait(fmt.Sprintf("%s: %s is %s", cluster, kind, want), func(ctx context.Context) error {
		if got := d.clusterCondition(ctx, cluster, kind); got.Status != want {
			return fmt.Errorf("it is %q: %s: %s", got.Status, got.Reason, got.Message)
		}
		return nil
	})
}

// apply applies manifests to a cluster; NS in them is the drill's namespace.
func (d *drill) apply(cluster string, manifests ...string) {
	d.Helper()
	text := strings.ReplaceAll(strings.Join(manifests, "\n---\n"), "NS", d.ns)
	d.must(harness.ApplyAll(d.Context(), d.clients[cluster], text))
}

// get returns an object of a cluster, or nil if it does not exist or cannot be read.
func (d *drill) get(ctx context.Context, cluster, kind, name string) *unstructured.Unstructured {
	u := object(kind, d.ns, name)
	if err := d.clients[cluster].Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return nil
	}
	return u
}

// kinds are the kinds that drills use, by name.
var kinds = map[string]schema.GroupVersionKind{
	"ConfigMap":   {Version: "v1", Kind: "ConfigMap"},
	"Deployment":  {Group: "apps", Version: "v1", Kind: "Deployment"},
	"Gear":        {Group: "drills.refract.dev", Version: "v1", Kind: "Gear"},
	"Propagation": refractv1alpha1.GroupVersion.WithKind(refractv1alpha1.KindPropagation),
}

func object(kind, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kinds[kind])
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

func listOf(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kinds[kind].GroupVersion().WithKind(kind + "List"))
	return list
}

// rowOf returns state and reason of a cluster's row in a Propagation.
func rowOf(p *unstructured.Unstructured, cluster string) string {
	if p == nil {
		return "no Propagation"
	}
	rows, _, _ := unstructured.NestedSlice(p.Object, "status", "clusters")
	for _, row := range rows {
		if r, ok := row.(map[string]any); ok && r["name"] == cluster {
			return strings.TrimSuffix(fmt.Sprintf("%v %v", r["state"], r["reason"]), " <nil>")
		}
	}
	return "no row"
}

// kubelet keeps a replica running: it restarts a replica that has ended, as the real kubelet does.
type kubelet struct {
	name string

	mu      sync.Mutex
	now     *harness.Replica
	starts  int
	lasts   []string // The last log line before each end.
	stopped bool
	done    chan struct{}
}

// briefLease is for drills that wait for the expiration of leases. Other drills use longer leases, so that a busy
// machine does not make a replica lose its lease.
const briefLease = "--lease-duration=5s"

// restDelay is the time between the end of a replica and its restart. A real kubelet waits longer.
const restDelay = 500 * time.Millisecond

// keep starts a replica with additional arguments, and keeps it running.
func (d *drill) keep(name string, args ...string) *kubelet {
	d.Helper()
	k := &kubelet{name: name, done: make(chan struct{})}
	var err error
	k.now, err = d.Replica(name, args...)
	d.must(err)
	d.kubelets = append(d.kubelets, k)
	go func() {
		defer close(k.done)
		for {
			for !k.replica().Ended() {
				<-time.After(20 * time.Millisecond)
			}
			k.rest()
			again, err := k.again(func() (*harness.Replica, error) { return d.Replica(name, args...) })
			if err != nil {
				d.Error(err)
			}
			if !again {
				return
			}
		}
	}()
	return k
}

// rest waits for restDelay, unless the replica was stopped for good.
func (k *kubelet) rest() {
	k.mu.Lock()
	stopped := k.stopped
	k.mu.Unlock()
	if !stopped {
		<-time.After(restDelay)
	}
}

// again restarts the replica, unless it was stopped for good.
func (k *kubelet) again(start func() (*harness.Replica, error)) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return false, nil
	}
	tail := harness.LogTail(k.now.Log)
	r, err := start()
	if err != nil {
		return false, err
	}
	k.now = r
	k.starts++
	k.lasts = append(k.lasts, tail[strings.LastIndex(tail, "\n")+1:])
	return true, nil
}

func (k *kubelet) replica() *harness.Replica {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// restarts returns the number of restarts of the replica.
func (k *kubelet) restarts() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts
}

// stop ends the replica for good.
func (k *kubelet) stop() {
	k.mu.Lock()
	k.stopped = true
	r := k.now
	k.mu.Unlock()
	_ = r.Signal(syscall.SIGCONT)
	_ = r.Stop(syscall.SIGTERM) // The error is ignored: another drill tests the end of a replica.
	<-k.done
}

// work starts one replica and waits until it is ready.
func (d *drill) work(args ...string) *kubelet {
	d.Helper()
	k := d.keep("one", args...)
	d.atWork(k)
	return k
}

func (d *drill) atWork(k *kubelet) {
	d.Helper()
	d.wait("replica "+k.name+" is at work", func(ctx context.Context) error { return k.replica().Ready(ctx) })
}

// down stops the API server and the etcd of a cluster.
func (d *drill) down(cluster string) {
	d.Helper()
	d.must(d.Playground.Halt(cluster, playground.APIServer))
	d.must(d.Playground.Halt(cluster, playground.Etcd))
}

// up continues the etcd and the API server of a cluster.
func (d *drill) up(cluster string) {
	d.Helper()
	d.must(d.Playground.Revive(d.Context(), cluster, playground.Etcd))
	d.must(d.Playground.Revive(d.Context(), cluster, playground.APIServer))
}

// absent returns nil if the error means that the object does not exist.
func absent(err error) error {
	if err == nil {
		return errors.New("it is there")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
