package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
)

const (
	// steady is the number of objects of each tenant that stay unchanged.
	steady = 10
	// podsPerSecond is the number of pods that the tenants together create per second on one member, as dry runs. The
	// pods of their Deployments are not included.
	podsPerSecond = 10
	// evil is the namespace of the hostile tenant, and mallory is her user name.
	evil, mallory = "evil", "mallory"
	// secret is a part of the names, keys and values of the other tenants' objects, and of a Secret in mallory's own
	// namespace that she may not read. She never sends this text herself, so a response to her that contains it is a
	// leak.
	secret = "hush-7f3a9c"
	// injecting is the member on which the test checks the injection.
	injecting = "member-1"
)

// benign is the number of tenants beside the hostile one.
var benign = func() int {
	if soaking() {
		return 7
	}
	return 3
}()

// siege is a fleet under attack, and the observations of the test.
type siege struct {
	*testing.T
	*harness.Env

	clients     map[string]client.Client               // Of an administrator, by cluster.
	copies      map[string]corelisters.ConfigMapLister // The current ConfigMaps of each member.
	controllers *harness.Replica
	injector    *harness.Replica
	addresses   []string // Of the webhooks.

	pods atomic.Int64 // Number of pods of the benign tenants.

	mu         sync.Mutex
	uninjected []error  // Pods of benign tenants without the variable of their policy.
	told       []string // Answers to mallory that contain the secret.
}

// TestFleetUnderAttack runs all known attacks of a tenant on other tenants at once, while one member sends invalid
// responses, and checks that the other tenants are not affected. With REFRACT_SOAK=1 it takes ten minutes, and also
// compares the propagation delays of the other tenants during the attack with those before it.
func TestFleetUnderAttack(t *testing.T) {
	quiet, attacked := time.Duration(0), 20*time.Second
	soak := soaking()
	if soak {
		quiet, attacked = 4*time.Minute, 10*time.Minute
	}
	s := besiege(t)
	for _, ns := range tenantsOf() {
		s.settle(ns)
	}
	s.watch()
	uids := s.steady()
	attacks := s.prepare()
	over := s.guardMemory()

	before := s.live("before", quiet)
	stop := s.attack(attacks)
	during := s.live("during", attacked)
	stop()
	over()

	for _, what := range []string{"created", "changed", "deleted"} {
		b, d := quantile(before[what], 0.99), quantile(during[what], 0.99)
		t.Logf("an object is %s on three members: p50 %s, p99 %s of %d without the attack; p50 %s, p99 %s of %d with it", what,
			quantile(before[what], 0.5), b, len(before[what]), quantile(during[what], 0.5), d, len(during[what]))
		if soak && d > 3*b {
			t.Errorf("An object is %s after %s with the attack, and after %s without: want three times as long at most.", what, d, b)
		}
	}
	s.judge(attacks, uids)
}

// soaking reports whether the long form of the test runs.
func soaking() bool { return os.Getenv("REFRACT_SOAK") == "1" }

func tenantsOf() (all []string) {
	for i := range benign {
		all = append(all, fmt.Sprintf("tenant-%s-%d", secret, i))
	}
	return all
}

// besiege opens a fleet. Before the webhooks run, mallory stores objects that they would reject, and one more member,
// which sends invalid answers, joins. Then the programs start.
func besiege(t *testing.T) *siege {
	t.Helper()
	s := &siege{
		T: t, Env: harness.New(t, harness.Topology{Members: 3, Nodes: true, Own: true, CRDs: true}),
		clients: map[string]client.Client{}, copies: map[string]corelisters.ConfigMapLister{},
	}
	for _, cluster := range append([]string{"hub"}, s.Members...) {
		c, err := s.Client(cluster)
		s.must(err)
		s.clients[cluster] = c
	}
	for _, m := range s.Members {
		_, err := s.Kubectl(m, "", "apply", "--server-side", "-f", filepath.Join(root, "config/crd/refract.dev_serviceinjectionpolicies.yaml"))
		s.must(err)
	}
	s.must(s.JoinAll(t.Context()))
	s.must(s.Join(t.Context(), "rogue", rogue(t)))

	s.must(harness.ApplyAll(t.Context(), s.clients["hub"], hostileHub))
	s.must(harness.ApplyAll(t.Context(), s.clients[injecting], hostileMember))
	unbounded(t, s.clients["hub"])
	hub := s.as("hub")
	for _, manifest := range stored() {
		harness.Eventually(t, "the API server stores mallory's objects while no webhook runs", func(context.Context) error {
			return client.IgnoreAlreadyExists(create(t, hub, evil, manifest))
		})
	}

	ports, err := harness.FreePorts(2)
	s.must(err)
	s.addresses = ports
	s.controllers, err = s.Replica("controllers", "--webhook-bind-address", ports[0], "--webhook-url", "https://"+ports[0])
	s.must(err)
	s.injector, err = s.ReplicaFor(injecting, "injector", "--injection", "--no-rollout", "--webhook-bind-address", ports[1], "--webhook-url", "https://"+ports[1])
	s.must(err)
	for _, r := range []*harness.Replica{s.controllers, s.injector} {
		harness.Eventually(t, r.Name+" is ready", r.Ready)
	}
	return s
}

func (s *siege) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// tenant is the manifest of the objects of each tenant: a policy that places them, an override policy with one value
// for each cluster, a Secret, an injection policy for the tenant's pods, and a Deployment that refers to the Secret.
const tenant = `
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: everywhere, namespace: NS}, spec: {
  schedulingMode: Duplicate, placement: [{cluster: member-1}, {cluster: member-2}, {cluster: member-3}]}}
---
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: by-cluster, namespace: NS}, spec: {overrideRules: [
  {targetClusters: {clusters: [member-1]}, overriders: {jsonpatch: [{path: /data/where, operator: add, value: member-1}]}},
  {targetClusters: {clusters: [member-2]}, overriders: {jsonpatch: [{path: /data/where, operator: add, value: member-2}]}},
  {targetClusters: {clusters: [member-3]}, overriders: {jsonpatch: [{path: /data/where, operator: add, value: member-3}]}}]}}
---
{apiVersion: v1, kind: Secret, metadata: {name: SECRET, namespace: NS}, stringData: {key-SECRET: value-SECRET}}
---
{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {name: db, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}},
  spec: {selector: {matchLabels: {a: b}}, env: [{name: FROM_POLICY, value: value-SECRET}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-SECRET, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}, spec: {
  replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {
    containers: [{name: web, image: example.com/web, envFrom: [{secretRef: {name: SECRET}}]}]}}}}
`

// settle creates a tenant, and waits until its pods are injected. The Deployment comes last, so that its pods are
// injected, too.
func (s *siege) settle(ns string) {
	s.Helper()
	manifest := strings.NewReplacer("NS", ns, "SECRET", secret).Replace(tenant)
	before, deployment, _ := strings.Cut(manifest, "---\n{apiVersion: apps/v1")
	s.must(harness.ApplyAll(s.Context(), s.clients["hub"], before))
	for i := range steady {
		s.must(s.put(ns, fmt.Sprintf("steady-%s-%d", secret, i), "1"))
	}
	harness.Eventually(s, "pods of "+ns+" are injected", func(ctx context.Context) error { return s.tryPod(ctx, ns) })
	s.must(harness.ApplyAll(s.Context(), s.clients["hub"], "{apiVersion: apps/v1"+deployment))
}

// put writes a tenant's ConfigMap on the hub.
func (s *siege) put(ns, name, size string) error {
	return harness.Apply(s.Context(), s.clients["hub"], map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": ns, "labels": map[string]any{
			corev1alpha1.PropagationPolicyLabel: "everywhere", corev1alpha1.OverridePolicyLabel: "by-cluster",
		}},
		"data": map[string]any{"size": size, "key-" + secret: "value-" + secret},
	})
}

// tryPod returns an error unless a new pod of the tenant gets the variable of its policy.
func (s *siege) tryPod(ctx context.Context, ns string) error {
	pod, err := tryPod(ctx, s.clients[injecting], ns, 1)
	if err != nil {
		return err
	}
	return injected(pod)
}

func injected(pod *corev1.Pod) error {
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == "FROM_POLICY" {
			return nil
		}
	}
	return fmt.Errorf("pod %s/%s is not injected: %v", pod.Namespace, pod.Name, pod.Spec.Containers[0].Env)
}

// watch starts to observe the copies on the members, and each new pod of a tenant.
func (s *siege) watch() {
	s.Helper()
	for _, m := range s.Members {
		cfg, err := s.Config(m)
		s.must(err)
		api, err := kubernetes.NewForConfig(cfg)
		s.must(err)
		all := informers.NewSharedInformerFactory(api, 0)
		s.copies[m] = all.Core().V1().ConfigMaps().Lister()
		if m == injecting {
			_, err = all.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.look})
			s.must(err)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
		all.Core().V1().ConfigMaps().Informer()
		all.Start(ctx.Done())
		s.Cleanup(func() { cancel(); all.Shutdown() })
		for of, synced := range all.WaitForCacheSync(s.Context().Done()) {
			if !synced {
				s.Fatalf("%s of %s: the cache is not synced", of, m)
			}
		}
	}
}

// look counts a new pod, and records an error if it lacks the injected variable.
func (s *siege) look(object any) {
	pod, is := object.(*corev1.Pod)
	if !is || !strings.HasPrefix(pod.Namespace, "tenant-") {
		return
	}
	s.pods.Add(1)
	if err := injected(pod); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uninjected = append(s.uninjected, err)
	}
}

// steady waits until all objects that stay unchanged are on the members, and returns the UIDs of their copies.
func (s *siege) steady() map[string]types.UID {
	s.Helper()
	uids := map[string]types.UID{}
	harness.Eventually(s, "all unchanged objects are on the members", func(context.Context) error {
		for _, m := range s.Members {
			for _, ns := range tenantsOf() {
				for i := range steady {
					name := fmt.Sprintf("steady-%s-%d", secret, i)
					have, err := s.copies[m].ConfigMaps(ns).Get(name)
					if err != nil {
						return fmt.Errorf("%s: %w", m, err)
					}
					uids[m+"/"+ns+"/"+name] = have.UID
				}
			}
		}
		return nil
	})
	return uids
}

// live does the normal work of the benign tenants for a while, and returns the time that each change took to reach all
// members.
func (s *siege) live(phase string, during time.Duration) map[string][]time.Duration {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), during)
	defer cancel()
	const cycle, rollout = 4 * time.Second, 20 * time.Second // Shorter cycles would overload the API servers on a machine with two processors.
	var mu sync.Mutex
	took := map[string][]time.Duration{}
	note := func(what string, began time.Time) {
		mu.Lock()
		defer mu.Unlock()
		took[what] = append(took[what], time.Since(began))
	}
	var all sync.WaitGroup
	for i, ns := range tenantsOf() {
		all.Go(func() {
			// Real tenants act independently, so their cycles start at different times.
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(i) * cycle / time.Duration(benign)):
			}
			every(ctx, cycle, func(n int) {
				all.Go(func() { s.cycle(ns, fmt.Sprintf("%s-%s-%d", phase, secret, n), note) })
			})
		})
		all.Go(func() {
			every(ctx, rollout, func(n int) {
				change := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"changed":"%s-%d"}}}}}`, phase, n)
				if err := s.Patch(s.Context(), "hub", "deployment", ns, "web-"+secret, change); err != nil {
					s.Errorf("Changing a Deployment of a tenant: %v", err)
				}
			})
		})
	}
	all.Go(func() {
		every(ctx, time.Second/podsPerSecond, func(n int) {
			all.Go(func() {
				ns := tenantsOf()[n%benign]
				pod, err := tryPod(s.Context(), s.clients[injecting], ns, 1)
				if err != nil {
					s.Errorf("A pod of %s: %v", ns, err)
					return
				}
				s.look(pod)
			})
		})
	})
	all.Wait()
	return took
}

// every calls the function do at once and then at each interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(n int)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		do(n)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// cycle creates, changes and deletes an object of a tenant. Each step starts when the previous one has reached all
// members.
func (s *siege) cycle(ns, name string, note func(what string, began time.Time)) {
	for _, step := range []struct {
		what string
		do   func() error
		size string // Empty: the object is deleted.
	}{
		{"created", func() error { return s.put(ns, name, "1") }, "1"},
		{"changed", func() error { return s.put(ns, name, "2") }, "2"},
		{"deleted", func() error { return s.Delete(s.Context(), "hub", "configmap", ns, name) }, ""},
	} {
		began := time.Now()
		if err := step.do(); err != nil {
			s.Errorf("%s/%s cannot be %s: %v", ns, name, step.what, err)
			return
		}
		if err := s.await(func() error { return s.arrived(ns, name, step.size) }); err != nil {
			s.Errorf("%s/%s is not %s on all members: %v", ns, name, step.what, err)
			return
		}
		note(step.what, began)
	}
}

// await polls at short intervals, so that durations are exact to some milliseconds.
func (s *siege) await(try func() error) error {
	ctx, cancel := context.WithTimeout(s.Context(), harness.Patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// arrived returns an error unless all members have the object with this size, or none has it if size is empty.
func (s *siege) arrived(ns, name, size string) error {
	for _, m := range s.Members {
		have, err := s.copies[m].ConfigMaps(ns).Get(name)
		switch {
		case apierrors.IsNotFound(err) && size == "":
		case err != nil:
			return fmt.Errorf("%s: %w", m, err)
		case size == "":
			return fmt.Errorf("%s still has the object", m)
		case have.Data["size"] != size || have.Data["where"] != m:
			return fmt.Errorf("%s has the object with size %q and the override of %q", m, have.Data["size"], have.Data["where"])
		}
	}
	return nil
}

// guardMemory kills a program that uses more memory than the limit in its manifest, as Kubernetes would. A call of over
// ends the check.
func (s *siege) guardMemory() (over func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	for _, of := range []struct {
		*harness.Replica

		manifest string
	}{{s.controllers, "refract.yaml"}, {s.injector, "injection/refract.yaml"}} {
		limit := s.limit(of.manifest)
		all.Go(func() {
			for !of.Ended() && peak(s.T, of.Replica) <= limit {
				select {
				case <-ctx.Done():
					s.Logf("%s took at most %d MiB of %d", of.Name, peak(s.T, of.Replica)>>20, limit>>20)
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
			if of.Ended() {
				return // judge reports it.
			}
			s.Errorf("%s took %d MiB: want at most %d", of.Name, peak(s.T, of.Replica)>>20, limit>>20)
			if err := of.Stop(syscall.SIGKILL); err != nil {
				s.Error(err)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// limit returns the memory limit of the Deployment in a manifest, in bytes.
func (s *siege) limit(manifest string) int64 {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config/install", manifest))
	s.must(err)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		of := struct {
			Kind string                                           `json:"kind"`
			Spec struct{ Template struct{ Spec corev1.PodSpec } } `json:"spec"`
		}{}
		s.must(yaml.Unmarshal([]byte(doc), &of))
		if of.Kind == "Deployment" {
			return of.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
		}
	}
	s.Fatalf("%s has no Deployment", manifest)
	return 0
}

// as returns a client of a cluster with mallory's credentials. The client checks the warnings from the API server for
// the secret.
func (s *siege) as(cluster string) client.Client {
	s.Helper()
	cfg, err := s.Config(cluster)
	s.must(err)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: mallory}
	cfg.WarningHandler = ear{s}
	c, err := harness.ClientFor(cfg)
	s.must(err)
	return c
}

// ear receives the warnings of an API server.
type ear struct{ *siege }

func (l ear) HandleWarningHeader(_ int, _, text string) { l.note(text) }

// note records a text that mallory received, if the text contains the secret.
func (s *siege) note(text string) {
	if !strings.Contains(text, secret) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, text)
}

// judge checks everything that must hold after the attack.
func (s *siege) judge(attacks []*attack, uids map[string]types.UID) {
	s.Helper()
	for _, r := range []*harness.Replica{s.controllers, s.injector} {
		if r.Ended() {
			s.Errorf("%s has ended:\n%s", r.Name, harness.LogTail(r.Log))
		}
	}
	lost := 0
	for key, uid := range uids {
		at := strings.Split(key, "/")
		if have, err := s.copies[at[0]].ConfigMaps(at[1]).Get(at[2]); err != nil || have.UID != uid {
			s.Errorf("copy %s is lost or was replaced: %v", key, err)
			lost++
		}
	}
	for _, a := range attacks {
		a.judge(s.T)
	}
	s.judgePods()
	s.read()
	for _, text := range s.told[:min(5, len(s.told))] {
		s.Errorf("mallory was told: %s", text)
	}
	s.must(s.unharmed())
	s.Logf("%d pods of others were created, %d without what their policies inject; %d of %d copies were lost; mallory was told %d secrets",
		s.pods.Load(), len(s.uninjected), lost, len(uids), len(s.told))
}

// judgePods fails the test if pods of the benign tenants were not injected. The short form runs beside other tests, so
// it tolerates pods that the API server admitted unchanged because the injector did not answer in time.
func (s *siege) judgePods() {
	s.Helper()
	unanswered, err := s.Unanswered(injecting, "pods", "tenant-")
	s.must(err)
	if len(s.uninjected) > 0 && (soaking() || len(s.uninjected) > unanswered) {
		s.Errorf("%d pods are not injected, %d of them for lack of time: %v", len(s.uninjected), unanswered, errors.Join(s.uninjected...))
	}
	if most := int(s.pods.Load()) / 10; len(s.uninjected) > most {
		s.Errorf("%d of %d pods are not injected: want at most %d, even on a busy machine", len(s.uninjected), s.pods.Load(), most)
	}
}

// read lists all objects that mallory may read on the hub, and all objects of her namespace on a member, and checks
// them for the secret.
func (s *siege) read() {
	s.Helper()
	for _, of := range [][3]string{
		{"hub", "refract.dev/v1alpha1", "Propagation"}, {"hub", "core.kubeadmiral.io/v1alpha1", "OverridePolicy"},
		{"hub", "refract.dev/v1beta1", "ServiceInjectionPolicy"}, {"hub", "v1", "Event"}, {"hub", "v1", "ConfigMap"},
		{injecting, "v1", "ConfigMap"}, {injecting, "apps/v1", "Deployment"}, {injecting, "v1", "Secret"}, {injecting, "v1", "Event"},
		{injecting, "refract.dev/v1beta1", "ServiceInjectionPolicy"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(of[1])
		list.SetKind(of[2] + "List")
		if err := s.clients[of[0]].List(s.Context(), list, client.InNamespace(evil)); err != nil {
			s.Errorf("Reading %s of %s: %v", of[2], of[0], err)
			continue
		}
		for i := range list.Items {
			text, err := list.Items[i].MarshalJSON()
			s.must(err)
			if strings.Contains(string(text), secret) {
				s.note(fmt.Sprintf("%s %s of %s: %s", of[2], list.Items[i].GetName(), of[0], text[:min(2000, len(text))]))
			}
		}
	}
}

// unharmed returns an error if Refract has taken over the root CA's ConfigMap, which each cluster creates itself, or
// has not reverted the forged write to the hostile tenant's own copy.
func (s *siege) unharmed() error {
	for _, m := range s.Members {
		ca := &corev1.ConfigMap{}
		if err := s.clients[m].Get(s.Context(), client.ObjectKey{Namespace: evil, Name: "kube-root-ca.crt"}, ca); err != nil {
			return err
		}
		if _, marked := ca.Labels[corev1alpha1.ManagedLabel]; marked {
			return fmt.Errorf("%s: ConfigMap kube-root-ca.crt was taken over", m)
		}
	}
	return harness.Await(s.Context(), func(ctx context.Context) error {
		mine := &corev1.ConfigMap{}
		if err := s.clients[injecting].Get(ctx, client.ObjectKey{Namespace: evil, Name: "mine"}, mine); err != nil {
			return err
		}
		if mine.Data["size"] != "1" {
			return fmt.Errorf("a write with Refract's field manager was not reverted: %v", mine.Data)
		}
		return nil
	})
}

// quantile returns a quantile of the durations; 0 if there are none.
func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[min(len(of)-1, int(float64(len(of))*q))].Round(time.Millisecond)
}
