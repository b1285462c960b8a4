package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// TestMain makes control planes for the tests that need them.
func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

// web has two Deployments on all clusters: web is ready when its pods are ready, and slow changes in waves.
const web = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: shop}
spec: {schedulingMode: Duplicate}
---
apiVersion: refract.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: shop}
spec: {waves: [{name: canary, targetClusters: {clusters: [member-2]}}, {name: rest, strategy: Manual}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "web:1"}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: slow, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: everywhere, refract.dev/rollout-policy-name: careful}}
spec:
  replicas: 1
  selector: {matchLabels: {app: slow}}
  template: {metadata: {labels: {app: slow}}, spec: {terminationGracePeriodSeconds: 0, containers: [{name: slow, image: "slow:1"}]}}
`

// TestLive: a page shows changes on a member, a waiting rollout, and new objects without a reload.
func TestLive(t *testing.T) {
	env := harness.New(t, harness.Topology{Members: 2, Nodes: true, CRDs: true})
	if err := env.JoinAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	controllers, err := env.Replica("controllers")
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are ready", controllers.Ready)
	kubectl := func(cluster, manifest string, args ...string) {
		t.Helper()
		if _, err := env.Kubectl(cluster, manifest, args...); err != nil {
			t.Fatal(err)
		}
	}
	kubectl("hub", web, "apply", "--server-side", "-f", "-")
	p := visit(t, 1300, 900, "--kubeconfig", env.Kubeconfig("hub"))
	cell := func(object, cluster, state string) string {
		return fmt.Sprintf(`document.querySelector('a[href="/object/Deployment.apps/shop/%s?c=%s"]')?.parentElement.classList.contains("s-%s") || false`, object, cluster, state)
	}
	for _, object := range []string{"web", "slow"} {
		p.open("/?each=1&q=" + object)
		for _, member := range []string{"member-1", "member-2"} {
			p.until(cell(object, member, "right"))
		}
	}

	// The pod is deleted, and no node accepts a new one.
	p.open("/?each=1&q=web")
	member, err := env.Client("member-1")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := env.Kubectl("member-1", "", "get", "nodes", "--output=name")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kubectl("member-1", "", append([]string{"uncordon"}, strings.Fields(nodes)...)...) }) // Later tests use the same cluster.
	kubectl("member-1", "", append([]string{"cordon"}, strings.Fields(nodes)...)...)
	kubectl("member-1", "", "delete", "pods", "--namespace=shop", "--selector=app=web", "--wait=false")
	harness.Eventually(t, "the copy is not ready on the member", func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := member.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, d); err != nil {
			return err
		}
		if d.Status.AvailableReplicas > 0 {
			return errors.New("it is")
		}
		return nil
	})
	changed := time.Now()
	p.until(cell("web", "member-1", "waits"))
	took := time.Since(changed)
	t.Logf("the page shows a member's change after %s", took.Round(10*time.Millisecond))
	if took > 10*time.Second {
		t.Errorf("want a member's change on the page within 1 s, got %s", took)
	}

	// A rollout sends a change wave by wave.
	kubectl("hub", "", "set", "image", "--namespace=shop", "deployment/slow", "slow=slow:2")
	p.open("/?each=1&q=slow")
	p.until(cell("slow", "member-1", "held")) // The wave waits for an approval, so no cluster has the change.
	p.until(cell("slow", "member-2", "held"))
	p.until(`document.querySelector("main .summary").textContent.includes("2 the change waits")`)
	p.open("/rollouts")
	p.until(`document.body.textContent.includes("refract rollout approve deployment/shop/slow")`)

	// One object is created, and one is deleted.
	p.open("/?q=newcomer")
	kubectl("hub", strings.NewReplacer("name: web,", "name: newcomer,").Replace(web), "apply", "--server-side", "--force-conflicts", "-f", "-")
	p.until(`document.querySelectorAll(".fleet tbody tr").length === 1`)
	kubectl("hub", "", "delete", "deployment", "--namespace=shop", "newcomer", "--wait=false")
	p.until(`document.querySelectorAll(".fleet tbody tr").length === 0`)
	p.open("/clusters")
	p.until(`document.querySelector("main .summary")?.textContent.trim().startsWith("2 clusters") ?? false`) // The page may be replacing the element.
	p.accessible("clusters of a hub")
	p.clean()
}
