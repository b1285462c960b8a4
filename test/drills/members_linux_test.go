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

// TestMemberStopped has a member's API server be away while changes are made, until
// the member is given up and longer.
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

// meanwhile makes changes for a while, or for as long as it takes to make some, and
// returns how long they take to reach these clusters.
func (s *story) meanwhile(how time.Duration, clusters ...string) beats {
	s.Helper()
	var all beats
	const some = 10 // Or the median would say nothing.
	for end := time.Now().Add(how); time.Now().Before(end) || len(all.changes) < some; {
		s.change()
		all.add(s.measured(1, clusters...))
		s.pause(min(150*time.Millisecond, max(0, time.Until(end))))
	}
	return all
}

// TestMemberLosesItsData has a member come back empty: it is another cluster then,
// at the same address and with the same certificates, and is given what belongs
// there.
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
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionFalse) // Watches do not notice what came of it.
	d.up(d.struck())
	if now := d.identity(d.struck()); now == identity {
		t.Fatalf("A member that was wiped should be another cluster: its UID is %s as before.", now)
	}
	d.awaitCondition(d.struck(), string(corev1alpha1.ClusterReady), metav1.ConditionTrue)
	d.settle()
	s.changes(20)
	d.settle()
}

// TestMemberRestoredFromBackup has a member come back as it was some time ago, after a
// short outage and after one in which it was given up on: what was written to it since
// is written again.
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

// identity returns by what a cluster is known; it waits until a new one has that.
func (d *drill) identity(cluster string) types.UID {
	d.Helper()
	ns := &corev1.Namespace{}
	d.wait(cluster+" is known", func(ctx context.Context) error {
		return d.clients[cluster].Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, ns)
	})
	return ns.UID
}

// TestMemberEtcdFrozen has a member's etcd say nothing for a while: its API
// server takes requests and does not answer them.
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

// TestMemberBehavesBadly has a member answer in all the ways in which it should
// not, one after the other, and get well again each time.
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
		writes       int // At most so many in 8 s.
	}{
		{"Full", "A member that asks for patience is shown some.", harness.RefuseWrites(http.StatusTooManyRequests), len(s.alive) + 50},
		{"Broken", "A member that refuses everything is asked now and then.", harness.RefuseWrites(http.StatusInternalServerError), len(s.alive) + 50},
		{"Hanging", "A member that hangs costs its own workers only.", harness.Hang(), len(s.alive)},
		{"Slow", "A member that is slow is waited for.", harness.Delay(time.Second), 1000},
		{"Closed", "A member that does not know the token any more is not hammered.", harness.RefuseAll(), len(s.alive) + 50},
	}
	for _, f := range faults {
		// Not t.Run: what was wrong in one may still be wrong in the next.
		p.Count()
		p.Behave(f.fault)
		s.removals = 2
		s.override() // Concerns nearly every copy.
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

	// The proxy ends before what is cleaned up is gone.
	direct, err := d.Access(d.struck())
	d.must(err)
	d.must(d.Join(t.Context(), d.struck(), direct))
	d.settle()
}

// TestMemberRefusesTheCredentials has the certificate with which the hub reaches a
// member expire.
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
	d.wait("the status says so", func(ctx context.Context) error {
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

// TestTypeArrivesLater has members learn of a type when its objects have long been
// placed there.
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
		d.wait("it is said that a type is missing", func(ctx context.Context) error {
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

// TestNamespaceDeletedOnMember deletes a namespace on a member that has copies in
// it, and something that keeps it from going for some seconds.
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
		t.Error("The namespace was not deleted: there was nothing to come back from.")
	}
}

func (d *drill) namespaceUID(cluster string) types.UID {
	d.Helper()
	ns := &corev1.Namespace{}
	d.must(d.clients[cluster].Get(d.Context(), types.NamespacedName{Name: d.ns}, ns))
	return ns.UID
}

// TestNamespaceDeletedWhileMemberIsAway deletes a namespace of the hub that has copies on a member which cannot be reached, and creates it again
// at once. When the member is back, what somebody had deleted goes there without an approval, also after a restart of the controllers, and what
// was created again is changed and not deleted.
func TestNamespaceDeletedWhileMemberIsAway(t *testing.T) {
	d := start(t)
	k := d.work()
	const asked = 15 // More than goes unasked.
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
	d.wait("the members that are there have lost the copies", func(ctx context.Context) error {
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
		t.Errorf("want what was created again to be changed on the member, got %s of UID %s, and before %s", harness.Field(again, "data", "color"), again.GetUID(), before)
	}
}

// owes waits until the FederatedCluster that was struck tells of so many copies that are still to be deleted.
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
