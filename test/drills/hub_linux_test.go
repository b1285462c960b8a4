package drills

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/playground"
)

// TestHubRestarted restarts the hub's API server, and then the whole hub, during changes.
func TestHubRestarted(t *testing.T) {
	d := start(t)
	k := d.work(briefLease)
	s := d.tell(size.objects)
	for _, outage := range []func(){
		func() {
			d.must(d.Playground.Halt("hub", playground.APIServer))
			d.pause(size.hubStopped)
			d.must(d.Playground.Revive(context.Background(), "hub", playground.APIServer))
		},
		func() {
			d.must(d.Playground.Kill("hub", playground.Etcd))
			d.must(d.Playground.Kill("hub", playground.APIServer))
			d.up("hub")
		},
	} {
		var over atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.removals = few
			n := 0
			for ; n < size.hubChanges || !over.Load(); n++ {
				s.change()
			}
			d.Logf("%d changes were made", n)
		}()
		outage()
		over.Store(true)
		<-done
		d.settle()
	}
	d.Logf("the controllers were started again %d times", k.restarts())
}

// TestHubRestoredFromBackup makes the hub lose half of its objects. The copies stay until a user approves their
// deletion, or the objects exist again.
func TestHubRestoredFromBackup(t *testing.T) {
	const half = 20
	d := startAlone(t, topology)
	k := d.work(briefLease)
	d.apply("hub", everywhere)
	configMaps := func(from, to int) {
		for i := range to - from {
			d.apply("hub", fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: config-%d, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
data: {a: b}
`, from+i))
		}
	}
	configMaps(0, half)
	d.settle()
	backup := filepath.Join(d.Dir, "backup")
	d.down("hub")
	d.must(d.Playground.Save("hub", backup))
	d.up("hub")
	configMaps(half, 2*half)
	d.settle()
	copies := d.copies()

	restore := func() {
		d.Helper()
		// The controllers must be stopped before the restore of a database, because their caches have newer objects.
		k.stop()
		d.down("hub")
		d.must(d.Playground.Restore("hub", backup))
		d.up("hub")
		k = d.work(briefLease)
		for _, m := range d.Members {
			want := fmt.Sprintf("%d of %d copies", half, 2*half)
			d.wait(m+": deletions are held", func(ctx context.Context) error {
				c := d.clusterCondition(ctx, m, string(corev1alpha1.ClusterDeletionsHeld))
				if c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, want) || !strings.Contains(c.Message, "refract approve "+m) {
					return fmt.Errorf("want %q and the remedy in the message, got %s: %s", want, c.Status, c.Message)
				}
				return nil
			})
		}
		d.unchanged(copies)
	}

	restore()
	configMaps(half, 2*half)
	d.settle()
	for _, m := range d.Members {
		d.awaitCondition(m, string(corev1alpha1.ClusterDeletionsHeld), metav1.ConditionFalse)
	}
	d.unchanged(copies)

	restore()
	for _, m := range d.Members {
		out, err := d.Refract("approve", m, "--yes", "--kubeconfig", d.Kubeconfig("hub"))
		if err != nil {
			t.Fatal(err)
		}
		d.Logf("refract approve %s:\n%s", m, out)
	}
	d.settle()
	for _, m := range d.Members {
		d.awaitCondition(m, string(corev1alpha1.ClusterDeletionsHeld), metav1.ConditionFalse)
	}
}

// copies returns the UIDs of all copies, by cluster and name.
func (d *drill) copies() map[string]types.UID {
	d.Helper()
	all := map[string]types.UID{}
	for _, m := range d.Members {
		list := listOf("ConfigMap")
		d.must(d.clients[m].List(d.Context(), list))
		for i := range list.Items {
			if list.Items[i].GetLabels()[corev1alpha1.ManagedLabel] == "true" {
				all[m+"/"+list.Items[i].GetName()] = list.Items[i].GetUID()
			}
		}
	}
	return all
}

// unchanged fails the drill unless every copy has the same UID as before.
func (d *drill) unchanged(before map[string]types.UID) {
	d.Helper()
	now := d.copies()
	for name, uid := range before {
		if now[name] != uid {
			d.Fatalf("copy %s was deleted, although no user deleted its object", name)
		}
	}
}

// TestPolicyMadeInvalid makes policies invalid for a while: copies keep their content in the meantime.
func TestPolicyMadeInvalid(t *testing.T) {
	const sizes = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: sizes, namespace: NS}
spec: {overrideRules: [{overriders: {jsonpatch: [{path: %s, operator: replace, value: %q}]}}]}
`
	const config = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: %s
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere%s}
data: {size: large, color: %s}
`
	d := start(t)
	d.work()
	d.apply("hub", everywhere, fmt.Sprintf(sizes, "/data/size", "small"))
	overridden := ", kubeadmiral.io/override-policy-name: sizes"
	for i := range 5 {
		d.apply("hub", fmt.Sprintf(config, fmt.Sprintf("config-%d", i), overridden, "red"))
	}
	d.apply("hub", fmt.Sprintf(config, "plain", "", "red"))
	d.settle()

	for _, nonsense := range []string{"/no/where", "/data/~9"} {
		d.apply("hub", fmt.Sprintf(sizes, nonsense, "tiny"))
		d.wait(nonsense+": it is said that the policy is of no use", func(ctx context.Context) error {
			p := d.get(ctx, "hub", "Propagation", "config-0.configmaps")
			if got := rowOf(p, "member-1"); !strings.HasPrefix(got, "Failed ") {
				return errors.New(got)
			}
			return nil
		})
		for i := range 5 {
			d.apply("hub", fmt.Sprintf(config, fmt.Sprintf("config-%d", i), overridden, "green"))
		}
		d.apply("hub", fmt.Sprintf(config, "plain", "", "green"))
		d.wait("objects without the invalid policy still change", func(ctx context.Context) error { return d.holds(ctx, "plain", "large green") })
		for i := range 5 {
			d.must(d.holds(t.Context(), fmt.Sprintf("config-%d", i), "small red"))
		}
		d.apply("hub", fmt.Sprintf(config, "plain", "", "red"))
		for i := range 5 {
			d.apply("hub", fmt.Sprintf(config, fmt.Sprintf("config-%d", i), overridden, "red"))
		}
		d.apply("hub", fmt.Sprintf(sizes, "/data/size", "small"))
		d.settle()
	}
}

// holds returns an error unless the ConfigMap has this value on every member.
func (d *drill) holds(ctx context.Context, name, want string) error {
	for _, m := range d.Members {
		u := d.get(ctx, m, "ConfigMap", name)
		if u == nil {
			return fmt.Errorf("%s has no %s", m, name)
		}
		data, _ := u.Object["data"].(map[string]any)
		if got := fmt.Sprint(data["size"], " ", data["color"]); got != want {
			return fmt.Errorf("%s: %s is %s, want %s", m, name, got, want)
		}
	}
	return nil
}
