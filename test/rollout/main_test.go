// Package rollout tests on real control planes that a change reaches clusters wave by wave. It has a hub and six
// members, and runs the controllers as users do. The tag of an image decides whether Pods become ready.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

var (
	env *harness.Env
	hub client.WithWatch
	// controllers is the replica that runs at the beginning of each test.
	controllers *harness.Replica
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{Members: 6, Nodes: true, Own: true, CRDs: true}, func(ctx context.Context, e *harness.Env) (stop func() error, err error) {
		env = e
		if hub, err = e.Client("hub"); err != nil {
			return nil, err
		}
		if err := e.JoinAll(ctx); err != nil {
			return nil, err
		}
		root, err := harness.Root()
		if err != nil {
			return nil, err
		}
		if _, err := e.Kubectl("hub", "", "apply", "--server-side", "-f", filepath.Join(root, "config", "rbac", "users.yaml")); err != nil {
			return nil, err
		}
		if controllers, err = e.Replica("controllers"); err != nil {
			return nil, err
		}
		return nil, harness.Await(ctx, controllers.Ready)
	})
}

// refract runs the program as a user, and returns its output.
func refract(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary, err := env.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, append(args, "--kubeconfig", env.Kubeconfig("hub"))...).CombinedOutput()
	t.Logf("refract %s\n%s", strings.Join(args, " "), out)
	return string(out), err
}

// kubectl runs kubectl on a cluster as a user.
func kubectl(t *testing.T, cluster, manifest string, args ...string) string {
	t.Helper()
	out, err := env.Kubectl(cluster, manifest, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies manifests, with NS replaced by the namespace.
func apply(t *testing.T, ns string, manifests ...string) {
	t.Helper()
	kubectl(t, "hub", strings.ReplaceAll(strings.Join(manifests, "\n---\n"), "NS", ns), "apply", "--server-side", "--force-conflicts", "-f", "-")
}

// shop is a Deployment on all clusters with a rollout policy.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: NS, labels: {pod-security.kubernetes.io/enforce: privileged}} # The default of member-3 is restricted.
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, refract.dev/rollout-policy-name: careful}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: "shop:1"}]
`

// careful is the rollout policy: first one cluster, then the clusters in Europe after an approval, then the rest.
const careful = `
apiVersion: refract.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: NS}
spec:
  waves:
  - {name: canary, targetClusters: {clusters: [member-2]}, minReadySeconds: 3}
  - {name: europe, targetClusters: {clusterSelector: {region: eu}}, strategy: Manual}
  - {name: rest, maxConcurrent: 1}
  health: {timeoutSeconds: 10}
  onFailure: {action: Revert}
`

// release changes the image of the Deployment.
func release(t *testing.T, ns, image string) {
	t.Helper()
	kubectl(t, "hub", "", "set", "image", "--namespace="+ns, "deployment/web", "web="+image)
}

// rollout returns the status of the rollout.
func rollout(ctx context.Context, ns string) (*refractv1alpha1.RolloutStatus, error) {
	p := &refractv1alpha1.Propagation{}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: ns, Name: "web.deployments.apps"}, p); err != nil {
		return nil, err
	}
	if p.Status.Rollout == nil {
		return nil, errors.New("it has no rollout yet")
	}
	return p.Status.Rollout, nil
}

// reaches waits until the rollout has a phase and the function is returns true for its status. It returns the status.
func reaches(t *testing.T, ns string, phase refractv1alpha1.RolloutPhase, is func(*refractv1alpha1.RolloutStatus) bool) *refractv1alpha1.RolloutStatus {
	t.Helper()
	var got *refractv1alpha1.RolloutStatus
	harness.Eventually(t, "the rollout is "+string(phase), func(ctx context.Context) (err error) {
		if got, err = rollout(ctx, ns); err != nil {
			return err
		}
		if got.Phase != phase || (is != nil && !is(got)) {
			return fmt.Errorf("it is %s: %s; opened %d, current %v, done %v, failed %v", got.Phase, got.Message, got.Opened, got.Current, got.Done, got.Failed)
		}
		return nil
	})
	return got
}

// complete waits until the change has reached every cluster.
func complete(t *testing.T, ns string) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	reaches(t, ns, refractv1alpha1.RolloutComplete, func(s *refractv1alpha1.RolloutStatus) bool { return s.Target.Generation == d.Generation })
}

// history records the images of each member's copy, with their times.
type history struct {
	mu   sync.Mutex
	seen map[string][]image // By member.
}

type image struct {
	name string
	at   time.Time
}

// watching records the images of a namespace's copies until the test ends.
func watching(t *testing.T, ns string) *history {
	t.Helper()
	h := &history{seen: map[string][]image{}}
	for _, name := range env.Members {
		c, err := env.Client(name)
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		running.Go(func() {
			for ctx.Err() == nil {
				h.follow(ctx, c, name, ns)
			}
		})
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
	}
	return h
}

func (h *history) follow(ctx context.Context, c client.WithWatch, name, ns string) {
	w, err := c.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(ns))
	if err != nil {
		select { // The member may be unreachable.
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			if d, ok := e.Object.(*appsv1.Deployment); ok {
				h.see(name, d.Spec.Template.Spec.Containers[0].Image)
			}
		}
	}
}

func (h *history) see(member, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.seen[member]
	if len(all) == 0 || all[len(all)-1].name != name {
		h.seen[member] = append(all, image{name, time.Now()})
	}
}

// had returns the members whose copy has had an image at any time, sorted.
func (h *history) had(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var members []string
	for member, all := range h.seen {
		if slices.ContainsFunc(all, func(i image) bool { return i.name == name }) {
			members = append(members, member)
		}
	}
	slices.Sort(members)
	return members
}

// since returns the last time at which a member's copy got an image; the zero time if it never did.
func (h *history) since(member, name string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var at time.Time
	for _, i := range h.seen[member] {
		if i.name == name {
			at = i.at
		}
	}
	return at
}

// now returns the present image of a member.
func (h *history) now(member string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.seen[member]
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1].name
}

// approve approves the waiting step.
func approve(t *testing.T, ns string) {
	t.Helper()
	if _, err := refract(t, "rollout", "approve", "deployment/web", "-n", ns); err != nil {
		t.Fatal(err)
	}
}

// awaits waits until a rollout asks for an approval and this number of clusters are done.
func awaits(t *testing.T, ns string, done int) {
	t.Helper()
	reaches(t, ns, refractv1alpha1.RolloutWaiting, func(s *refractv1alpha1.RolloutStatus) bool { return s.Awaits != "" && len(s.Done) == done })
}

// has waits until a member's copy has an image.
func (h *history) has(t *testing.T, member, image string) {
	t.Helper()
	harness.Eventually(t, member+" has "+image, func(context.Context) error {
		if got := h.now(member); got != image {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
}

// namespace creates a namespace for the test, which is deleted with the test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := harness.NameOf(t)
	t.Cleanup(func() {
		kubectl(t, "hub", "", "delete", "namespace", ns, "--wait=false", "--ignore-not-found")
	})
	return ns
}
