package adversary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

// many is the number of objects of a tenant: more than may be deleted without an approval.
const many = 40

// deletions is a fleet whose tenants delete objects.
type deletions struct {
	*testing.T
	*harness.Env

	clients     map[string]client.Client
	controllers *harness.Replica
}

// startDeletions opens a fleet and starts the controllers with further arguments.
func startDeletions(t *testing.T, args ...string) *deletions {
	t.Helper()
	d := &deletions{T: t, Env: harness.New(t, harness.Topology{Members: 2, CRDs: true}), clients: map[string]client.Client{}}
	for _, cluster := range append([]string{"hub"}, d.Members...) {
		c, err := d.Client(cluster)
		d.must(err)
		d.clients[cluster] = c
	}
	d.must(d.JoinAll(t.Context()))
	d.run(args...)
	return d
}

func (d *deletions) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// run starts the controllers and waits until they are ready.
func (d *deletions) run(args ...string) {
	d.Helper()
	var err error
	d.controllers, err = d.Replica("controllers", append([]string{"--lease-duration=5s"}, args...)...)
	d.must(err)
	harness.Eventually(d.T, "the controllers are ready", d.controllers.Ready)
}

// tenant creates a namespace with a policy that places on all members, and n objects. It waits for the copies and the
// Propagations. If an object were deleted before it has a Propagation, the guard would take the object for one that the
// hub has lost.
func (d *deletions) tenant(ns string, n int) {
	d.Helper()
	d.must(harness.ApplyAll(d.Context(), d.clients["hub"], strings.ReplaceAll(`
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: everywhere, namespace: NS}, spec: {schedulingMode: Duplicate}}
`, "NS", ns)))
	d.label(ns, 0, n, "kubeadmiral.io/propagation-policy-name: everywhere")
	d.left(ns, n)
	harness.Eventually(d.T, fmt.Sprintf("%d Propagations in namespace %s", n, ns), func(ctx context.Context) error {
		var list refractv1alpha1.PropagationList
		if err := d.clients["hub"].List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("the hub has %d of %d", len(list.Items), n)
		}
		return nil
	})
}

// label writes the objects first to last-1 with these labels.
func (d *deletions) label(ns string, first, last int, labels string) {
	d.Helper()
	const manifest = `{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {%s}}}`
	d.each(first, last, func(name string) error {
		return harness.ApplyAll(d.Context(), d.clients["hub"], fmt.Sprintf(manifest, name, ns, labels))
	})
}

// drop deletes the objects first to last-1, each by its own request.
func (d *deletions) drop(ns string, first, last int) {
	d.Helper()
	d.each(first, last, func(name string) error { return d.Delete(d.Context(), "hub", "configmap", ns, name) })
}

// each calls the function do for the objects first to last-1 in parallel. Slow, sequential deletions may need no
// approval.
func (d *deletions) each(first, last int, do func(name string) error) {
	d.Helper()
	errs := make([]error, last-first)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = do(fmt.Sprintf("config-%02d", first+i)) })
	}
	all.Wait()
	d.must(errors.Join(errs...))
}

// has returns an error unless every member holds n copies in the namespace.
func (d *deletions) has(ctx context.Context, ns string, n int) error {
	for _, m := range d.Members {
		var list corev1.ConfigMapList
		if err := d.clients[m].List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{corev1alpha1.ManagedLabel: "true"}); err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("%s holds %d copies in namespace %s, want %d", m, len(list.Items), ns, n)
		}
	}
	return nil
}

func (d *deletions) left(ns string, n int) {
	d.Helper()
	harness.Eventually(d.T, fmt.Sprintf("%d copies in namespace %s", n, ns), func(ctx context.Context) error { return d.has(ctx, ns, n) })
}

// keeps fails the test if too many of the n copies are gone. On a busy machine, the guard may see the deletions in
// several portions, and lets at most ten copies go without approval, or 30% of n if that is more.
func (d *deletions) keeps(ns string, n int) {
	d.Helper()
	for _, m := range d.Members {
		var list corev1.ConfigMapList
		d.must(d.clients[m].List(d.Context(), &list, client.InNamespace(ns), client.MatchingLabels{corev1alpha1.ManagedLabel: "true"}))
		if least := n - max(10, n*3/10); len(list.Items) < least {
			d.Errorf("%s holds %d copies in namespace %s, want at least %d of %d", m, len(list.Items), ns, least, n)
		}
	}
}

// held returns the message of a member's condition DeletionsHeld; empty if no deletion waits for approval.
func (d *deletions) held(ctx context.Context, member string) (string, error) {
	fc := &corev1alpha1.FederatedCluster{}
	if err := d.clients["hub"].Get(ctx, types.NamespacedName{Name: member}, fc); err != nil {
		return "", err
	}
	at := slices.IndexFunc(fc.Status.Conditions, func(c corev1alpha1.ClusterCondition) bool {
		return c.Type == corev1alpha1.ClusterDeletionsHeld && c.Status == metav1.ConditionTrue
	})
	if at < 0 {
		return "", nil
	}
	return fc.Status.Conditions[at].Message, nil
}

// waits returns when the message on every member contains each text of says and no text of rest.
func (d *deletions) waits(says []string, rest ...string) {
	d.Helper()
	harness.Eventually(d.T, "deletions are held: "+strings.Join(says, ", "), func(ctx context.Context) error {
		for _, m := range d.Members {
			message, err := d.held(ctx, m)
			if err != nil {
				return err
			}
			for _, want := range says {
				if !strings.Contains(message, want) {
					return fmt.Errorf("%s: want %q, got %q", m, want, message)
				}
			}
			for _, other := range rest {
				if strings.Contains(message, other) {
					return fmt.Errorf("%s: want no %q, got %q", m, other, message)
				}
			}
		}
		return nil
	})
}

// nothingWaits fails the test if a deletion waits on a member.
func (d *deletions) nothingWaits() {
	d.Helper()
	for _, m := range d.Members {
		switch message, err := d.held(d.Context(), m); {
		case err != nil:
			d.Fatal(err)
		case message != "":
			d.Errorf("%s holds back deletions that a user requested: %s", m, message)
		}
	}
}

// approve approves all waiting deletions.
func (d *deletions) approve() {
	d.Helper()
	for _, m := range d.Members {
		harness.Eventually(d.T, "approving the deletions on "+m, func(context.Context) error { // Repeated: further deletions may need approval.
			_, err := d.Refract("approve", m, "--yes", "--kubeconfig", d.Kubeconfig("hub"))
			return err
		})
	}
	harness.Eventually(d.T, "no deletion waits any more", func(ctx context.Context) error {
		for _, m := range d.Members {
			if message, err := d.held(ctx, m); err != nil || message != "" {
				return errors.Join(err, errors.New(message))
			}
		}
		return nil
	})
}

// TestDeletionsThatWereAskedFor: deletions that a user requested need no approval, whatever their number.
func TestDeletionsThatWereAskedFor(t *testing.T) {
	t.Parallel()
	d := startDeletions(t)
	a, b := harness.NameOf(t)+"-a", harness.NameOf(t)+"-b"
	d.tenant(a, many)
	d.tenant(b, 5)
	d.drop(a, 0, many)
	d.drop(b, 0, 1)
	d.left(a, 0)
	d.left(b, 4)
	d.nothingWaits()
}

// TestDeletionsThatNobodyAskedFor: deletions that no user requested wait for approval, without delaying those of
// another tenant.
func TestDeletionsThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	d := startDeletions(t)
	a, b := harness.NameOf(t)+"-a", harness.NameOf(t)+"-b"
	d.tenant(a, many)
	d.tenant(b, 8)

	d.must(d.Delete(t.Context(), "hub", "propagationpolicy", a, "everywhere"))
	d.label(a, 0, many, "")
	d.waits([]string{"copies in namespace " + a + ", whose objects no longer request propagation", "refract approve "})
	d.drop(b, 0, 1)
	d.left(b, 7) // The user has deleted an object of tenant b.
	d.label(b, 1, 2, "")
	d.left(b, 6) // An object of tenant b has lost its label. A single deletion needs no approval.
	d.waits([]string{"in namespace " + a}, b)
	d.keeps(a, many)
	out, err := d.Refract("get", "clusters", "--kubeconfig", d.Kubeconfig("hub"))
	if !strings.Contains(out, "copies in namespace "+a) {
		t.Errorf("refract get clusters does not report the waiting deletions: %v\n%s", err, out)
	}
	d.approve()
	d.left(a, 0)
}

// TestDeletionsThatNobodySaw: deletions wait for approval if the objects were deleted while the controllers were down,
// or together with their namespace.
func TestDeletionsThatNobodySaw(t *testing.T) {
	t.Parallel()
	d := startDeletions(t)
	a, b, c := harness.NameOf(t)+"-a", harness.NameOf(t)+"-b", harness.NameOf(t)+"-c"
	d.tenant(a, many)
	d.tenant(b, 5)
	d.tenant(c, 20)

	d.must(d.controllers.Stop(syscall.SIGTERM))
	d.drop(a, 0, many)
	d.drop(b, 0, 1)
	d.run()
	d.waits([]string{"copies in namespace " + a + ", whose objects disappeared from the hub unobserved"}, "in namespace "+b)
	d.left(b, 4)
	d.keeps(a, many)

	d.must(d.Delete(t.Context(), "hub", "namespace", "", c))
	d.waits([]string{"copies in namespace " + c + ", whose namespace was deleted on the hub"})
	d.drop(b, 1, 2)
	d.left(b, 3)
	d.keeps(c, 20)
	d.approve()
	d.left(a, 0)
	d.left(c, 0)
}

// TestDeletionsAreAllAskedAbout: with --deletion-guard-all, deletions that a user requested wait for approval, too.
func TestDeletionsAreAllAskedAbout(t *testing.T) {
	t.Parallel()
	d := startDeletions(t, "--deletion-guard-all")
	a, b := harness.NameOf(t)+"-a", harness.NameOf(t)+"-b"
	d.tenant(a, many)
	d.tenant(b, 5)
	d.drop(a, 0, many)
	d.waits([]string{"copies in namespace " + a + ", whose objects were deleted on the hub"})
	d.drop(b, 0, 1)
	d.left(b, 4)
	d.keeps(a, many)
	d.approve()
	d.left(a, 0)
}
