package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
	"refract.dev/test/node/cluster"
)

// A kind with one field whose name differs between the two versions, and its conversion policy.
const (
	definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sizes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: sizes, singular: size, kind: Size, listKind: SizeList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {capacity: {type: integer}}}}}
`
	conversionPolicy = `
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: sizes}
spec:
  crd: sizes.example.com
  hub: v2
  mode: Serve
  spokes: [{version: v1, fields: [{hub: spec.capacity, spoke: spec.size}]}]
`
)

// field is the name of the field in each version.
var field = map[string]string{"v1": "size", "v2": "capacity"}

// every is the interval of each stream.
const every = 200 * time.Millisecond

// stream repeats an action until it is stopped, and counts its failures.
type stream struct {
	name   string
	does   func(ctx context.Context, n int) error
	done   int
	failed []failure
}

// failure is a failed action, with the disturbance during which the action began.
type failure struct {
	when  string
	err   error
	while string
}

// run repeats the action until ctx ends. An action in progress is completed.
func (s *stream) run(ctx context.Context, now *atomic.Value) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.done++
		while := fmt.Sprint(now.Load())
		if err := s.does(context.WithoutCancel(ctx), s.done); err != nil {
			s.failed = append(s.failed, failure{time.Now().Format("15:04:05.000"), err, while})
		}
	}
}

// judge fails the test for each failure, and logs the number of actions. It tolerates certain failures after a
// container was killed: the API server then gets no response to pending requests, and cannot connect until the kubelet
// reports the pod as not ready. Meanwhile pods are created without injection, and custom resources cannot be converted.
// Only the API server could retry.
func (s *stream) judge(t *testing.T) {
	t.Helper()
	killed := 0
	for _, f := range s.failed {
		if f.while == killing && unanswered(f.err) {
			killed++
			continue
		}
		t.Errorf("%s while %s: %s: %v", s.name, f.while, f.when, f.err)
	}
	t.Logf("%s: %d actions; %d failed, and %d while a killed program restarted", s.name, s.done, len(s.failed)-killed, killed)
}

var errNotInjected = errors.New("the pod lacks the items of the policy")

// unanswered reports whether an error means that the API server got no response from Refract.
func unanswered(err error) bool {
	return errors.Is(err, errNotInjected) || slices.ContainsFunc([]string{"connection refused", "connection reset by peer", "EOF"}, func(text string) bool {
		return strings.Contains(err.Error(), text)
	})
}

// disturb upgrades Refract to another image and rolls it back, restarts the kubelet, and kills containers.
func disturb(t *testing.T) {
	t.Helper()
	undisturbed(t, disturbances())
}

// undisturbed creates pods, and reads and writes objects in both versions, during the disturbances. It fails the test
// if an action fails.
func undisturbed(t *testing.T, disturbances []part) {
	t.Helper()
	ns := harness.NameOf(t)
	apply(t, ns, shop)
	apply(t, ns, strings.ReplaceAll(allowDatabase, "VALUE", "6379"))
	kubectl(t, conversionPolicy, "apply", "--server-side", "-f", "-")
	kubectl(t, "", "wait", "--for=condition=Ready", "conversionpolicy/sizes", "--timeout=2m")
	harness.Eventually(t, "pods are injected", func(ctx context.Context) error { return createPod(ctx, ns, 0) })

	streams := append(sizes(t, ns), &stream{name: "pods created", does: func(ctx context.Context, n int) error { return createPod(ctx, ns, n) }})
	ctx, stop := context.WithCancel(t.Context())
	var now atomic.Value
	now.Store("nothing")
	var running sync.WaitGroup
	for _, s := range streams {
		running.Go(func() { s.run(ctx, &now) })
	}
	for _, d := range disturbances {
		now.Store(d.name)
		began := time.Now()
		if !t.Run(d.name, d.test) {
			break
		}
		t.Logf("%s: %.1f s", d.name, time.Since(began).Seconds())
	}
	stop()
	running.Wait()
	for _, s := range streams {
		s.judge(t)
	}
	kubectl(t, "", "delete", "namespace", ns, "--wait=false")
}

// createPod creates a pod, every second time as a dry run. The pod has a scheduling gate and never runs, because
// injection happens at creation. createPod returns an error unless the pod has the items of the policy.
func createPod(ctx context.Context, ns string, n int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("pod-", n), Labels: map[string]string{"role": "frontend"}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}},
			Containers:      []corev1.Container{{Name: "web", Image: cluster.PodImage}},
		},
	}
	var options []client.CreateOption
	if n%2 == 0 {
		options = append(options, client.DryRunAll)
	}
	if err := api.Create(ctx, pod, options...); err != nil {
		return fmt.Errorf("the pod was rejected: %w", err)
	}
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == "DB_PORT" && v.Value == "6379" {
			return nil
		}
	}
	return errNotInjected
}

// sizes returns the streams that read and write objects in both versions. Each has its own object.
func sizes(t *testing.T, ns string) []*stream {
	t.Helper()
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	in := func(version string) dynamic.ResourceInterface {
		return objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "sizes"}).Namespace(ns)
	}
	write := func(ctx context.Context, name, version string, n int) error {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/" + version, "kind": "Size", "metadata": map[string]any{"name": name}, "spec": map[string]any{field[version]: int64(n)},
		}}
		_, err := in(version).Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}
	read := func(ctx context.Context, name, version string, n int) error {
		object, err := in(version).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := harness.Field(object, "spec", field[version]); got != fmt.Sprint(n) {
			return fmt.Errorf("spec.%s in %s: want %d, got %q", field[version], version, n, got)
		}
		return nil
	}
	harness.Eventually(t, "objects are converted", func(ctx context.Context) error {
		return errors.Join(write(ctx, "fixed", "v1", 5), write(ctx, "written", "v1", 0), read(ctx, "fixed", "v2", 5))
	})
	return []*stream{
		{name: "custom resources read", does: func(ctx context.Context, n int) error { return read(ctx, "fixed", version(n), 5) }},
		{name: "custom resources written", does: func(ctx context.Context, n int) error {
			if err := write(ctx, "written", version(n), n); err != nil {
				return err
			}
			return read(ctx, "written", version(n+1), n) // In the other version.
		}},
	}
}

func version(n int) string { return []string{"v1", "v2"}[n%2] }

// killing is the name of the last disturbance.
const killing = "Kill"

// disturbances returns the disturbances of Refract in their order.
func disturbances() []part {
	return []part{
		{"Upgrade", func(t *testing.T) {
			t.Helper()
			for _, name := range deployments {
				kubectl(t, "", "set", "image", "--namespace="+system, "deployment/"+name, "refract="+cluster.Images()[1])
			}
			allRolledOut(t, cluster.Images()[1])
		}},
		{"Rollback", func(t *testing.T) {
			t.Helper()
			for _, name := range deployments {
				kubectl(t, "", "rollout", "undo", "--namespace="+system, "deployment/"+name)
			}
			allRolledOut(t, cluster.Images()[0])
		}},
		{"Kubelet", func(t *testing.T) {
			t.Helper()
			if err := node.StopKubelet(); err != nil {
				t.Fatal(err)
			}
			if err := node.StartKubelet(t.Context()); err != nil {
				t.Fatal(err)
			}
			allRolledOut(t, cluster.Images()[0])
		}},
		{killing, func(t *testing.T) {
			t.Helper()
			kill(t, "refract-injection")
			kill(t, "refract-conversion")
			allRolledOut(t, cluster.Images()[0])
		}},
	}
}

// allRolledOut waits until all Deployments of Refract run the image and have no other pods.
func allRolledOut(t *testing.T, image string) {
	t.Helper()
	for _, name := range deployments {
		rolledOut(t, name)
		list := &corev1.PodList{}
		if err := api.List(t.Context(), list, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/name": name}); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if got := list.Items[i].Spec.Containers[0].Image; got != image && list.Items[i].DeletionTimestamp == nil {
				t.Errorf("pod %s runs %s, want %s", list.Items[i].Name, got, image)
			}
		}
	}
}

// kill kills a container of a Deployment with SIGKILL, and waits for its restart.
func kill(t *testing.T, name string) {
	t.Helper()
	list := &corev1.PodList{}
	if err := api.List(t.Context(), list, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/name": name}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 || len(list.Items[0].Status.ContainerStatuses) == 0 {
		t.Fatalf("%s has no container", name)
	}
	victim := &list.Items[0]
	_, id, _ := strings.Cut(victim.Status.ContainerStatuses[0].ContainerID, "://")
	if _, err := node.Ctr(t.Context(), "tasks", "kill", "--signal", "SIGKILL", id); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the killed container is ready again", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := api.Get(ctx, client.ObjectKeyFromObject(victim), now); err != nil {
			return err
		}
		if s := now.Status.ContainerStatuses[0]; s.RestartCount <= victim.Status.ContainerStatuses[0].RestartCount || !s.Ready {
			return fmt.Errorf("it has restarted %d times, and ready is %t", s.RestartCount, s.Ready)
		}
		return nil
	})
}
