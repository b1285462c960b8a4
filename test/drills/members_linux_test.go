package drills

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// TestMemberStopped stops a member's API server during changes, beyond the time at which the member counts as offline.
func TestMemberStopped(t *testing.T) {
	d := start(t)
	d.work()
	s := d.tell(size.objects)
	d.settle()
	before := s.measured(20, d.Members...)

	began := time.Now()
	d.must(d.Playground.Halt(d.struck(), playground.APIServer))
	s.removals = few
	during := s.meanwhile(size.stopped-time.Since(began), d.spared()...)
	s.undelayed(before, during)
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterOffline), metav1.ConditionTrue)

	d.must(d.Playground.Revive(t.Context(), d.struck(), playground.APIServer))
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionTrue)
	d.settle()
}

// meanwhile makes changes for this time, and at least ten. It returns the time that each change took to reach these
// clusters.
func (s *story) meanwhile(how time.Duration, clusters ...string) beats {
	s.Helper()
	var all beats
	const some = 10 // A median of fewer changes has no meaning.
	for end := time.Now().Add(how); time.Now().Before(end) || len(all.changes) < some; {
		s.change()
		all.add(s.measured(1, clusters...))
		s.pause(min(150*time.Millisecond, max(0, time.Until(end))))
	}
	return all
}

// TestMemberLosesItsData empties a member, which makes it another cluster at the same address with the same
// certificates. The member gets all its copies again.
func TestMemberLosesItsData(t *testing.T) {
	d := start(t)
	d.work()
	s := d.tell(40)
	d.settle()
	identity := d.identity(d.struck())

	d.must(d.Playground.Kill(d.struck(), playground.APIServer))
	d.must(d.Playground.Kill(d.struck(), playground.Etcd))
	d.must(d.Playground.Wipe(d.struck()))
	s.changes(20)
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionFalse) // A watch that is already open does not notice the loss.
	d.up(d.struck())
	if now := d.identity(d.struck()); now == identity {
		t.Fatalf("want a new cluster UID after the loss of all data, got the old one, %s", now)
	}
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionTrue)
	d.settle()
	s.changes(20)
	d.settle()
}

// TestMemberRestoredFromBackup restores an old state of a member, first after a short outage, then after an outage that
// made the member count as offline. Refract repeats the lost writes.
func TestMemberRestoredFromBackup(t *testing.T) {
	d := start(t)
	d.work()
	s := d.tell(40)
	d.settle()
	backup := filepath.Join(t.TempDir(), "backup")
	d.down(d.struck())
	d.must(d.Playground.Save(d.struck(), backup))
	d.up(d.struck())

	for _, long := range []bool{false, true} {
		s.changes(40)
		d.settle()
		d.down(d.struck())
		if long {
			d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionFalse)
		}
		d.must(d.Playground.Restore(d.struck(), backup))
		d.up(d.struck())
		d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionTrue)
		d.settle()
		s.changes(20)
		d.settle()
	}
}

// identity returns the UID of a cluster's namespace kube-system; it waits until a new cluster has one.
func (d *drill) identity(cluster string) types.UID {
	d.Helper()
	ns := &corev1.Namespace{}
	d.wait(cluster+" is known", func(ctx context.Context) error {
		return d.clients[cluster].Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, ns)
	})
	return ns.UID
}

// TestMemberEtcdFrozen freezes a member's etcd: its API server accepts requests and does not answer them.
func TestMemberEtcdFrozen(t *testing.T) {
	d := start(t)
	d.work()
	s := d.tell(size.objects)
	d.settle()
	before := s.measured(20, d.Members...)

	d.must(d.Playground.Freeze(d.struck(), playground.Etcd))
	t.Cleanup(func() { _ = d.Playground.Thaw(d.struck(), playground.Etcd) })
	s.removals = few
	during := s.meanwhile(size.frozen, d.spared()...)
	d.must(d.Playground.Thaw(d.struck(), playground.Etcd))
	s.undelayed(before, during)
	d.settle()
}

// TestMemberBehavesBadly makes a member misbehave in each known way, one after the other, and recover in between.
func TestMemberBehavesBadly(t *testing.T) {
	outage := size.misbehaves
	d := start(t)
	p, err := d.Proxy(d.struck())
	d.must(err)
	t.Cleanup(p.Close)
	d.must(d.Join(t.Context(), d.struck(), p.Access))
	d.work()
	s := d.tell(size.objects)
	d.settle()
	before := s.measured(20, d.Members...)

	faults := []struct {
		name, reason string
		fault        harness.Fault
		writes       int // Maximum number of writes in 8 s.
	}{
		{"Full", "A member that answers 429 gets fewer requests.", harness.RefuseWrites(http.StatusTooManyRequests), len(s.alive) + 50},
		{"Broken", "A member that rejects every write gets a request only now and then.", harness.RefuseWrites(http.StatusInternalServerError), len(s.alive) + 50},
		{"Hanging", "A member that hangs blocks only its own workers.", harness.Hang(), len(s.alive)},
		{"Slow", "Requests to a slow member are completed.", harness.Delay(time.Second), 1000},
		{"Closed", "A member that rejects the token gets few requests.", harness.RefuseAll(), len(s.alive) + 50},
	}
	for _, f := range faults {
		// No subtests, because the effects of a fault may last into the next one.
		p.Count()
		p.Behave(f.fault)
		s.removals = 2
		s.override() // Changes nearly every copy.
		during := s.meanwhile(outage, d.spared()...)
		counts := p.Count()
		p.Behave(nil)
		d.Logf("%s: requests to the member in %s: %v", f.name, outage, counts)
		s.undelayed(before, during)
		writes := counts[http.MethodPatch] + counts[http.MethodPost] + counts[http.MethodDelete]
		if most := f.writes * int(outage/time.Second) / 8; writes > most {
			t.Errorf("%s: %s\n%d writes in %s, want at most %d", f.name, f.reason, writes, outage, most)
		}
		d.wait(f.name+": it is ready again", func(ctx context.Context) error {
			if c := d.clusterCondition(ctx, d.struck(), string(corev1alpha1.ClusterReady)); c.Status != metav1.ConditionTrue {
				return errors.New(c.Message)
			}
			return nil
		})
		d.settle()
		d.Logf("%s: requests to catch up: %v", f.name, p.Count())
	}

	s.removals = 0
	p.Cut()
	s.changes(10)
	d.settle()

	// The proxy of the test must still run during the cleanup of the drill.
	direct, err := d.Access(d.struck())
	d.must(err)
	d.must(d.Join(t.Context(), d.struck(), direct))
	d.settle()
}

// TestMemberRefusesTheCredentials lets the hub's client certificate for a member expire.
func TestMemberRefusesTheCredentials(t *testing.T) {
	d := start(t)
	d.work()
	s := d.tell(30)
	d.settle()
	before := s.measured(20, d.Members...)

	good, err := d.Access(d.struck())
	d.must(err)
	expired := good
	expired.Cert, expired.Key, err = d.Playground.ClientCertificate(d.struck(), "late", []string{"system:masters"}, time.Now().Add(-time.Minute))
	d.must(err)
	d.must(d.Join(t.Context(), d.struck(), expired))
	d.wait("the status reports the rejected credentials", func(ctx context.Context) error {
		if c := d.clusterCondition(ctx, d.struck(), string(corev1alpha1.ClusterReady)); c.Status != metav1.ConditionFalse || c.Reason != "Unauthorized" {
			return fmt.Errorf("Ready is %s, %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
	s.removals = 4
	s.undelayed(before, s.meanwhile(size.refused, d.spared()...))
	d.must(d.Join(t.Context(), d.struck(), good))
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionTrue)
	d.settle()
}

// TestTypeArrivesLater installs a type on members long after its objects were placed there.
func TestTypeArrivesLater(t *testing.T) {
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.drills.refract.dev}
spec:
  group: drills.refract.dev
  names: {kind: Gear, plural: gears, singular: gear}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	const gear = `
apiVersion: drills.refract.dev/v1
kind: Gear
metadata: {name: gear-%d, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec: {teeth: %d}
`
	d := start(t)
	d.work()
	d.apply("hub", crd, everywhere)
	t.Cleanup(func() {
		for _, c := range d.clients {
			_ = harness.DeleteCRD(context.Background(), c, "gears.drills.refract.dev")
		}
	})
	const n = 5
	d.wait("the hub serves the type", func(ctx context.Context) error {
		return d.clients["hub"].List(ctx, listOf("Gear"))
	})
	for i := range n {
		d.apply("hub", fmt.Sprintf(gear, i, i))
	}
	for _, m := range d.Members {
		d.wait("the missing type is reported", func(ctx context.Context) error {
			p := d.get(ctx, "hub", "Propagation", "gear-0.gears.drills.refract.dev")
			if p == nil {
				return errors.New("there is no Propagation")
			}
			if got := rowOf(p, m); got != "Failed TypeNotServed" {
				return errors.New(got)
			}
			return nil
		})
	}
	for _, m := range d.Members {
		d.apply(m, crd)
		d.wait(m+" has the objects", func(ctx context.Context) error {
			list := listOf("Gear")
			if err := d.clients[m].List(ctx, list); err != nil {
				return err
			}
			if len(list.Items) != n {
				return fmt.Errorf("it has %d of %d", len(list.Items), n)
			}
			return nil
		})
	}
	d.settle()
	for i := range n {
		d.must(d.hub().Delete(t.Context(), object("Gear", d.ns, fmt.Sprintf("gear-%d", i))))
	}
	d.settle()
}

// TestNamespaceDeletedOnMember deletes a namespace with copies on a member. A finalizer delays the deletion for some
// seconds.
func TestNamespaceDeletedOnMember(t *testing.T) {
	d := startAlone(t, harness.Topology{Members: 1, Nodes: true, Own: true, CRDs: true})
	d.work()
	s := d.tell(20)
	d.settle()
	const held = `
apiVersion: v1
kind: ConfigMap
metadata: {name: held, namespace: NS, finalizers: [drills.refract.dev/hold]}
`
	d.apply("member-1", held)
	before := d.namespaceUID("member-1")
	d.must(d.clients["member-1"].Delete(t.Context(), &corev1.Namespace{ObjectMeta: named(d.ns)}))
	d.wait("the copies are gone", func(ctx context.Context) error {
		for _, o := range s.alive {
			kind, name := cut(o)
			if err := absent(d.clients["member-1"].Get(ctx, types.NamespacedName{Namespace: d.ns, Name: name}, object(kind, d.ns, name))); err != nil {
				return fmt.Errorf("%s: %w", o, err)
			}
		}
		return nil
	})
	s.changes(10)
	d.pause(3 * time.Second)
	d.apply("member-1", `
apiVersion: v1
kind: ConfigMap
metadata: {name: held, namespace: NS, finalizers: []}
`)
	d.settle()
	if now := d.namespaceUID("member-1"); now == before {
		t.Error("The namespace was not deleted, so the test shows nothing.")
	}
}

func (d *drill) namespaceUID(cluster string) types.UID {
	d.Helper()
	ns := &corev1.Namespace{}
	d.must(d.clients[cluster].Get(d.Context(), types.NamespacedName{Name: d.ns}, ns))
	return ns.UID
}

// TestNamespaceDeletedWhileMemberIsAway deletes a namespace of the hub that has copies on an unreachable member, and
// creates it again at once. When the member is back, Refract deletes the copies of objects that a user deleted, without
// an approval, also after a restart of the controllers. It updates the copies of recreated objects and does not delete
// them.
func TestNamespaceDeletedWhileMemberIsAway(t *testing.T) {
	d := start(t)
	k := d.work()
	const asked = 15 // More than the guard allows without an approval.
	config := func(name, color string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: NS, labels: {%s: everywhere}}, data: {color: %s}}",
			name, corev1alpha1.PropagationPolicyLabel, color)
	}
	const everywhere = "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: everywhere, namespace: NS}, spec: {schedulingMode: Duplicate}}"
	manifests := []string{everywhere, config("again", "blue"), config("left", "blue")}
	for i := range asked {
		manifests = append(manifests, config(fmt.Sprintf("asked-%02d", i), "blue"))
	}
	d.apply("hub", manifests...)
	d.settle()
	before := d.get(t.Context(), d.struck(), "ConfigMap", "again").GetUID()

	d.down(d.struck())
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterOffline), metav1.ConditionTrue)
	for i := range asked {
		d.must(d.hub().Delete(t.Context(), object("ConfigMap", d.ns, fmt.Sprintf("asked-%02d", i))))
	}
	d.wait("the reachable members have lost the copies", func(ctx context.Context) error {
		for i := range asked {
			name := types.NamespacedName{Namespace: d.ns, Name: fmt.Sprintf("asked-%02d", i)}
			if err := absent(d.clients[d.spared()[0]].Get(ctx, name, object("ConfigMap", "", ""))); err != nil {
				return err
			}
		}
		return nil
	})

	began := time.Now()
	d.must(d.hub().Delete(t.Context(), &corev1.Namespace{ObjectMeta: named(d.ns)}))
	d.wait("the namespace is gone", func(ctx context.Context) error {
		return absent(d.hub().Get(ctx, types.NamespacedName{Name: d.ns}, &corev1.Namespace{}))
	})
	d.must(d.hub().Create(t.Context(), &corev1.Namespace{ObjectMeta: named(d.ns)}))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("want the namespace to be deleted and created within ten seconds, got %v", took)
	}
	d.apply("hub", everywhere, config("again", "red"))

	d.owes(asked + 1)
	restarts := k.restarts()
	d.must(k.replica().Signal(syscall.SIGKILL))
	d.wait("the replica runs again", func(context.Context) error {
		if k.restarts() == restarts {
			return errors.New("it was not started yet")
		}
		return nil
	})
	d.atWork(k)
	d.owes(asked + 1)

	d.up(d.struck())
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionTrue)
	d.settle()
	d.owes(0)
	again := d.get(t.Context(), d.struck(), "ConfigMap", "again")
	if again.GetUID() != before || harness.Field(again, "data", "color") != "red" {
		t.Errorf("want a changed copy with the same UID, got %s with UID %s, and before %s", harness.Field(again, "data", "color"), again.GetUID(), before)
	}
}

// owes waits until the status of the struck FederatedCluster lists this number of pending deletions.
func (d *drill) owes(want int) {
	d.Helper()
	d.wait(fmt.Sprintf("%s tells of %d copies to be deleted", d.struck(), want), func(ctx context.Context) error {
		fc := &corev1alpha1.FederatedCluster{}
		if err := d.hub().Get(ctx, types.NamespacedName{Name: d.struck()}, fc); err != nil {
			return err
		}
		if got := len(fc.Status.PendingDeletions); got != want {
			return fmt.Errorf("it tells of %d", got)
		}
		return nil
	})
}
