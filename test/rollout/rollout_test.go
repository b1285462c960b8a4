package rollout

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/playground"
	"refract.dev/test/harness"
)

// TestWaves: a change reaches the clusters wave by wave. A bad change stops at the first cluster, and is reverted automatically.
func TestWaves(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	apply(t, ns, shop, careful)
	complete(t, ns)

	release(t, ns, "shop:2")
	awaits(t, ns, 1)
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:2")); diff != "" {
		t.Fatalf("while Europe waits for an approval: -want, +got:\n%s", diff)
	}
	out, err := refract(t, "rollout", "status", "deployment/web", "-n", ns)
	if err != nil {
		t.Error(err)
	}
	harness.WantAll(t, "The output shows the progress and the next step.", out, []string{
		"deployment/" + ns + "/web: Waiting: wave europe waits for an approval", "by         RolloutPolicy " + ns + "/careful",
		"canary", "rest", "→ refract rollout approve deployment/" + ns + "/web",
	})
	approve(t, ns)
	complete(t, ns)
	if diff := cmp.Diff(env.Members, h.had("shop:2")); diff != "" {
		t.Errorf("when it is complete: -want, +got:\n%s", diff)
	}
	if bake := h.since("member-1", "shop:2").Sub(h.since("member-2", "shop:2")); bake < 3*time.Second {
		t.Errorf("want the canary to have been ready for 3 s before the next cluster, got %s", bake)
	}
	for _, europe := range []string{"member-1", "member-4"} {
		for _, rest := range []string{"member-3", "member-5", "member-6"} {
			if !h.since(europe, "shop:2").Before(h.since(rest, "shop:2")) {
				t.Errorf("%s got the image at %s, want that before %s, which got it at %s", europe, h.since(europe, "shop:2"), rest, h.since(rest, "shop:2"))
			}
		}
	}

	policy := &refractv1alpha1.RolloutPolicy{}
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "careful"}, policy); err != nil {
		t.Fatal(err)
	}
	release(t, ns, "shop:broken")
	reaches(t, ns, refractv1alpha1.RolloutReverted, nil)
	harness.Eventually(t, "the canary has its former content", func(context.Context) error {
		if got := h.now("member-2"); got != "shop:2" {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:broken")); diff != "" {
		t.Errorf("members that had the broken content: -want, +got:\n%s", diff)
	}
	failed := h.since("member-2", "shop:broken").Add(10 * time.Second)
	t.Logf("broken on 1 of %d clusters; reverted %.1f s after the timeout", len(env.Members), h.since("member-2", "shop:2").Sub(failed).Seconds())
	if got := kubectl(t, "hub", "", "get", "deployment", "web", "-n", ns, "-o", "jsonpath={.spec.template.spec.containers[0].image}"); got != "shop:broken" {
		t.Errorf("want the hub's object unchanged by the revert, got image %s", got)
	}
	after := &refractv1alpha1.RolloutPolicy{}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(policy), after); err != nil || after.Generation != policy.Generation {
		t.Errorf("want the policy unchanged by the revert, got generation %d, not %d, %v", after.Generation, policy.Generation, err)
	}

	// The next edit begins a new rollout.
	release(t, ns, "shop:3")
	awaits(t, ns, 1)
	approve(t, ns)
	if out, err := refract(t, "rollout", "status", "deployment/web", "-n", ns, "--wait"); err != nil || !strings.Contains(out, "Complete") {
		t.Errorf("want refract wait to return at the end of the rollout, got %v", err)
	}
	harness.Eventually(t, "the policy counts the object", func(ctx context.Context) error {
		is := &refractv1alpha1.RolloutPolicy{}
		if err := hub.Get(ctx, client.ObjectKeyFromObject(policy), is); err != nil {
			return err
		}
		if want := (refractv1alpha1.RolloutPhases{Complete: 1}); is.Status.Objects != 1 || is.Status.Phases != want {
			return fmt.Errorf("want one object with a complete rollout, got %d, %+v", is.Status.Objects, is.Status.Phases)
		}
		return nil
	})
}

// TestStopped: a user who waits for a rollout learns the reason as soon as the rollout halts, and can resume it to
// retry the same content.
func TestStopped(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	apply(t, ns, shop, strings.ReplaceAll(careful, "Revert", "Halt"))
	complete(t, ns)
	release(t, ns, "shop:broken")
	out, err := refract(t, "wait", "deployment/web", "-n", ns, "--for", "ready", "--timeout", "5m")
	if err == nil || !strings.Contains(out, "the rollout is halted: member-2: it is not ready after 10s") {
		t.Errorf("want the failed cluster in the output, got %v", err)
	}
	if out, err := refract(t, "get", "deployments", "-n", ns); err == nil || !strings.Contains(out, "Halted") {
		t.Errorf("want the phase Halted in the output, got %v", err)
	}
	if _, err := refract(t, "rollout", "resume", "deployment/web", "-n", ns); err != nil {
		t.Error(err)
	}
	reaches(t, ns, refractv1alpha1.RolloutProgressing, nil)
	reaches(t, ns, refractv1alpha1.RolloutHalted, nil)
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:broken")); diff != "" {
		t.Errorf("members that had the broken content: -want, +got:\n%s", diff)
	}
}

// TestHeld: a cluster keeps the previous content until its wave, in spite of drift, a deleted copy, a cluster that
// leaves and rejoins, an unreachable cluster, and a second edit.
func TestHeld(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	apply(t, ns, shop, strings.ReplaceAll(careful, "{name: rest, maxConcurrent: 1}", "{name: rest, strategy: Manual}"))
	complete(t, ns)
	release(t, ns, "shop:2")
	awaits(t, ns, 1)

	kubectl(t, "member-3", "", "set", "image", "--namespace="+ns, "deployment/web", "web=shop:evil")
	harness.Eventually(t, "the drift is seen", func(context.Context) error {
		if h.since("member-3", "shop:evil").IsZero() {
			return errors.New("it is not")
		}
		return nil
	})
	h.has(t, "member-3", "shop:1")
	kubectl(t, "member-5", "", "delete", "--namespace="+ns, "deployment", "web")
	harness.Eventually(t, "the copy is there again", func(context.Context) error {
		got, err := env.Kubectl("member-5", "", "get", "--namespace="+ns, "deployment/web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
		if err == nil && got != "shop:1" {
			err = fmt.Errorf("it has %s", got)
		}
		return err
	})

	if _, err := refract(t, "unjoin", "member-6", "--yes"); err != nil {
		t.Fatal(err)
	}
	to, err := env.Access("member-6")
	if err != nil {
		t.Fatal(err)
	}
	if err := env.Join(t.Context(), "member-6", to); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it has joined again", func(context.Context) error {
		got, err := env.Kubectl("member-6", "", "get", "--namespace="+ns, "deployment/web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
		if err == nil && got != "shop:1" {
			err = fmt.Errorf("it has %s", got)
		}
		return err
	})

	if err := env.Playground.Halt("member-4", playground.APIServer); err != nil {
		t.Fatal(err)
	}
	// A second edit during a rollout starts again with the first wave.
	release(t, ns, "shop:3")
	h.has(t, "member-2", "shop:3")
	awaits(t, ns, 1)
	approve(t, ns) // The wave has the clusters in Europe, one of which, member-4, is unreachable.
	awaits(t, ns, 2)
	approve(t, ns)
	s := reaches(t, ns, refractv1alpha1.RolloutComplete, nil)
	t.Logf("complete without member-4: %+v", s.Waves)
	if err := env.Playground.Revive(t.Context(), "member-4", playground.APIServer); err != nil {
		t.Fatal(err)
	}
	h.has(t, "member-4", "shop:3")
	for _, held := range []string{"member-1", "member-3", "member-4", "member-5", "member-6"} {
		if at := h.since(held, "shop:2"); !at.IsZero() {
			t.Errorf("%s had the first edit, although its turn never came", held)
		}
	}
	reaches(t, ns, refractv1alpha1.RolloutComplete, func(s *refractv1alpha1.RolloutStatus) bool { return len(s.Offline) == 0 })
}

// TestReplaced: an object is deleted and recreated, or its Propagation is lost while no controller runs. The object
// still reaches the clusters wave by wave, and the other clusters keep their content meanwhile.
func TestReplaced(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	apply(t, ns, shop, strings.ReplaceAll(careful, "minReadySeconds: 3", "minReadySeconds: 600"))
	complete(t, ns)
	others := []string{"member-1", "member-3", "member-4", "member-5", "member-6"}
	canary := func(image string, is func(*refractv1alpha1.RolloutStatus) bool) {
		t.Helper()
		reaches(t, ns, refractv1alpha1.RolloutProgressing, func(s *refractv1alpha1.RolloutStatus) bool { return len(s.Current) == 1 && is(s) })
		for _, member := range env.Members {
			want := "shop:1"
			if !slices.Contains(others, member) {
				want = image
			}
			harness.Eventually(t, member+" has "+want, func(context.Context) error {
				got, err := env.Kubectl(member, "", "get", "--namespace="+ns, "deployment/web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
				if err == nil && got != want {
					err = fmt.Errorf("it has %s", got)
				}
				return err
			})
		}
		if diff := cmp.Diff([]string{"member-2"}, h.had(image)); diff != "" {
			t.Errorf("members that had %s: -want, +got:\n%s", image, diff)
		}
	}
	_, deployment, _ := strings.Cut(shop, "spec: {schedulingMode: Duplicate}\n---")
	kubectl(t, "hub", strings.NewReplacer("NS", ns, "shop:1", "shop:2").Replace(deployment), "replace", "--force", "-f", "-")
	canary("shop:2", func(s *refractv1alpha1.RolloutStatus) bool { return s.LastGood.Name != "found" })

	if err := controllers.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "hub", "", "delete", "propagation", "web.deployments.apps", "--namespace="+ns)
	release(t, ns, "shop:3")
	var err error
	if controllers, err = env.Replica("controllers"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are ready", controllers.Ready)
	canary("shop:3", func(s *refractv1alpha1.RolloutStatus) bool { return s.LastGood.Name == "found" })
}

// brief is the lease duration of controllers that a test kills: their failover delay. A replica that cannot renew its
// Lease for two thirds of this time ends, which may also happen on a busy machine.
const brief = "8s"

// TestKilled kills the controllers again and again during one rollout. No cluster may get the change early. A cluster
// may wait longer only as long as no replica leads.
func TestKilled(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	const bake = 8 * time.Second
	apply(t, ns, shop, `
apiVersion: refract.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: NS}
spec:
  waves:
  - {name: canary, targetClusters: {clusters: [member-2]}, minReadySeconds: 8}
  - {name: second, targetClusters: {clusters: [member-1]}, minReadySeconds: 8}
  - {name: third, targetClusters: {clusters: [member-3]}, minReadySeconds: 8}
  health: {timeoutSeconds: 120}
`)
	complete(t, ns)
	times := 5
	if os.Getenv("REFRACT_SOAK") != "" {
		times = 20
	}
	t.Cleanup(func() { restart(t, syscall.SIGTERM) })
	release(t, ns, "shop:2")
	random := rand.New(rand.NewPCG(1, 2))
	var led []interval // The times during which a replica led.
	for range times {
		began := restart(t, syscall.SIGKILL, "--lease-duration", brief)
		<-time.After(time.Duration(random.IntN(2500)) * time.Millisecond) // The controllers are killed at a random time.
		led = append(led, interval{began, time.Now()})
	}
	led = append(led, interval{restart(t, syscall.SIGKILL), time.Now().Add(time.Hour)})
	complete(t, ns)
	order := []string{"member-2", "member-1", "member-3", "member-4"}
	for i := range order[1:] {
		before, after := h.since(order[i], "shop:2"), h.since(order[i+1], "shop:2")
		late := after.Sub(due(before.Add(bake), led))
		t.Logf("%s got the change %.1f s after %s, %.1f s after a leader could release it", order[i+1], after.Sub(before).Seconds(), order[i], late.Seconds())
		if after.Sub(before) < bake {
			t.Errorf("%s got the change %s after %s: want 8 s at least", order[i+1], after.Sub(before), order[i])
		}
	}
}

// interval is a time during which a replica led.
type interval struct{ from, to time.Time }

// due returns the first time, from at on, at which a replica led.
func due(at time.Time, led []interval) time.Time {
	for _, i := range led {
		if i.to.After(at) {
			if i.from.After(at) {
				return i.from
			}
			return at
		}
	}
	return at
}

// restart ends the controllers with a signal and starts them again. It returns the time at which the new controllers
// lead.
func restart(t *testing.T, signal syscall.Signal, args ...string) time.Time {
	t.Helper()
	if err := controllers.Stop(signal); err != nil {
		t.Fatal(err)
	}
	before := holder(t)
	var err error
	if controllers, err = env.Replica("controllers", args...); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the controllers are ready", controllers.Ready)
	harness.Eventually(t, "they lead", func(context.Context) error {
		if is := holder(t); is == before || is == "" {
			return fmt.Errorf("%q leads", is)
		}
		return nil
	})
	return time.Now()
}

// TestLeaderKilled runs two replicas, and kills the leading one after the start of each wave.
func TestLeaderKilled(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	if err := controllers.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restart(t, syscall.SIGTERM) })
	replicas := map[string]*harness.Replica{}
	begin := func(name string) {
		r, err := env.Replica(name, "--lease-duration", brief)
		if err != nil {
			t.Fatal(err)
		}
		replicas[name] = r
	}
	begin("a")
	begin("b")
	for name, r := range replicas {
		harness.Eventually(t, name+" is ready", r.Ready)
	}
	apply(t, ns, shop, `
apiVersion: refract.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: NS}
spec:
  waves:
  - {name: canary, targetClusters: {clusters: [member-2]}, minReadySeconds: 2}
  - {name: second, targetClusters: {clusters: [member-1]}, minReadySeconds: 2}
  - {name: third, targetClusters: {clusters: [member-3]}, minReadySeconds: 2}
`)
	complete(t, ns)
	release(t, ns, "shop:2")
	for opened := int32(1); opened <= 3; opened++ {
		harness.Eventually(t, fmt.Sprintf("wave %d is open", opened), func(ctx context.Context) error {
			s, err := rollout(ctx, ns)
			if err == nil && s.Opened < opened && (s.Phase != refractv1alpha1.RolloutComplete || s.Target.Generation == 1) {
				err = fmt.Errorf("%d waves are open", s.Opened)
			}
			return err
		})
		leader, _, _ := strings.Cut(leads(t), "_")
		t.Logf("killing %s, which leads", leader)
		if err := replicas[leader].Stop(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		begin(leader)
	}
	complete(t, ns)
	order := []string{"member-2", "member-1", "member-3", "member-4"}
	for i := range order[1:] {
		if gap := h.since(order[i+1], "shop:2").Sub(h.since(order[i], "shop:2")); gap < 2*time.Second {
			t.Errorf("%s got the change %s after %s", order[i+1], gap, order[i])
		}
	}
	for _, r := range replicas {
		if err := r.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
}

// leads returns the name of the leading replica.
func leads(t *testing.T) string {
	t.Helper()
	var name string
	harness.Eventually(t, "a replica leads", func(context.Context) error {
		if name = holder(t); name == "" {
			return errors.New("no replica leads")
		}
		return nil
	})
	return name
}

// holder returns the holder of the leaders' Lease; empty if there is none.
func holder(t *testing.T) string {
	t.Helper()
	return kubectl(t, "hub", "", "get", "lease", "refract-leader", "-n", corev1alpha1.SystemNamespace, "-o", "jsonpath={.spec.holderIdentity}")
}

// TestFloor: a namespace names a policy, its floor, that applies to all objects in it. Users of the namespace cannot
// remove the floor or give its approvals. The floor continues to apply after the deletion of the policy.
func TestFloor(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	floor := "floor-" + ns
	t.Cleanup(func() {
		kubectl(t, "hub", "", "delete", "clusterrolloutpolicy", floor, "--ignore-not-found")
	})
	const policy = `
apiVersion: refract.dev/v1alpha1
kind: ClusterRolloutPolicy
metadata: {name: floor-NS}
spec:
  waves:
  - {name: canary, targetClusters: {clusters: [member-2]}}
  - {name: world, strategy: Manual}
`
	apply(t, ns, policy, strings.ReplaceAll(shop, "metadata: {name: NS, labels: {", "metadata: {name: NS, labels: {refract.dev/cluster-rollout-policy-name: floor-NS, "), `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: team}]
`)
	complete(t, ns)
	// The team writes its own policy, which would send changes to all clusters at once.
	harness.Eventually(t, "the team may write rollout policies", func(context.Context) error { // The new role takes a moment.
		_, err := env.Kubectl("hub", strings.ReplaceAll("{apiVersion: refract.dev/v1alpha1, kind: RolloutPolicy, metadata: {name: careful, namespace: NS}, spec: {}}", "NS", ns),
			"apply", "--as=team", "-f", "-")
		return err
	})
	// An approval is rejected while no rollout waits for one: before the object has a rollout, and while the rollout
	// runs.
	kubectl(t, "hub", "", "create", "configmap", "tried", "-n", ns)
	kubectl(t, "hub", "", "annotate", "configmap", "tried", "-n", ns, "kubeadmiral.io/dry-run=true")
	kubectl(t, "hub", "", "label", "configmap", "tried", "-n", ns, "kubeadmiral.io/propagation-policy-name=everywhere")
	harness.Eventually(t, "the tried object has a Propagation", func(context.Context) error {
		_, err := env.Kubectl("hub", "", "get", "propagation", "tried.configmaps", "-n", ns)
		return err
	})
	steers := func(record, value, want string, as ...string) {
		t.Helper()
		out, err := env.KubectlSays("hub", "", append([]string{"annotate", "propagation", record, "-n", ns, "--overwrite", value}, as...)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("annotate %s %s %v: want %q, got %v\n%s", record, value, as, want, err, out)
		}
	}
	for _, value := range []string{"refract.dev/approve-rollout=1/1/1", "refract.dev/resume-rollout=1/1/retry", "refract.dev/rollout-paused=true"} {
		steers("tried.configmaps", value, "the object has no rollout yet", "--as=team")
	}
	steers("web.deployments.apps", "refract.dev/approve-rollout=1/1/1", "the rollout waits for no approval")
	kubectl(t, "hub", "", "set", "image", "--as=team", "--namespace="+ns, "deployment/web", "web=shop:2")
	awaits(t, ns, 1)
	steers("web.deployments.apps", "refract.dev/approve-rollout=1/1/1", "this is not what the rollout waits for")
	if out, err := refract(t, "rollout", "approve", "deployment/web", "-n", ns, "--as", "team"); err == nil || !strings.Contains(out, "ClusterRolloutPolicy "+floor+": it takes the verb approve, which team does not have for it") {
		t.Errorf("want the team's approval rejected, got %v", err)
	}
	for _, patch := range []string{
		`{"spec":{"source":{"uid":"1"}}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"1"}]}}`,
	} {
		out, err := env.KubectlSays("hub", "", "patch", "propagation", "web.deployments.apps", "-n", ns, "--as=team", "--type=merge", "-p="+patch)
		if err == nil || !strings.Contains(out, "nobody else may write them") {
			t.Errorf("want only Refract to write spec and owner of the report, got %v\n%s", err, out)
		}
	}
	if out, err := env.KubectlSays("hub", "", "label", "namespace", ns, "--as=team", refractv1alpha1.ClusterRolloutPolicyLabel+"-"); err == nil {
		t.Errorf("want the team's change of the namespace's label rejected\n%s", out)
	}
	kubectl(t, "hub", "", "delete", "clusterrolloutpolicy", floor)
	reaches(t, ns, refractv1alpha1.RolloutWaiting, func(s *refractv1alpha1.RolloutStatus) bool {
		return strings.Contains(s.Message, "does not exist; nothing is released until it does")
	})
	release(t, ns, "shop:3")
	reaches(t, ns, refractv1alpha1.RolloutWaiting, func(s *refractv1alpha1.RolloutStatus) bool { return s.Target.Generation == 3 && s.Opened == 0 })
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:2")) + cmp.Diff([]string(nil), h.had("shop:3")); diff != "" {
		t.Errorf("content by member: -want, +got:\n%s", diff)
	}
	apply(t, ns, policy)
	awaits(t, ns, 1)
	approve(t, ns) // An administrator may approve.
	complete(t, ns)
}

// TestHealth: a cluster is done only when the policy's condition is true for the copy there. This also holds for kinds
// without a status, and after a restart of the controllers.
func TestHealth(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere, refract.dev/rollout-policy-name: careful}}
data: {color: VALUE}
`
	const policy = `
apiVersion: refract.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: NS}
spec:
  waves: [{name: canary, targetClusters: {clusters: [member-2]}}]
  health: {timeoutSeconds: 600, cel: "object.metadata.?annotations[?'smoke-test'].orValue('') == 'passed'"}
`
	apply(t, ns, shop, policy, strings.ReplaceAll(settings, "VALUE", "red"))
	complete(t, ns)
	objects := map[string]string{"web.deployments.apps": "deployment/web", "settings.configmaps": "configmap/settings"}
	says := func(want string) {
		t.Helper()
		for name := range objects {
			harness.Eventually(t, name+": "+want, func(context.Context) error {
				got, err := env.Kubectl("hub", "", "get", "--namespace="+ns, "propagation/"+name, "-o",
					`jsonpath={.status.rollout.phase}: {.status.clusters[?(@.name=="member-2")].readinessMessage}`)
				if err == nil && got != want {
					err = fmt.Errorf("got %s", got)
				}
				return err
			})
		}
	}
	passed := func(members ...string) {
		for _, m := range members {
			for _, object := range objects {
				kubectl(t, m, "", "annotate", "--namespace="+ns, object, "smoke-test=passed")
			}
		}
	}
	says("Complete: ") // Before a change, nothing evaluates the condition.

	release(t, ns, "shop:2")
	apply(t, ns, strings.ReplaceAll(settings, "VALUE", "blue"))
	says(`Progressing: health.cel is false: object.metadata.?annotations[?'smoke-test'].orValue('') == 'passed'`)
	restart(t, syscall.SIGKILL)
	says(`Progressing: health.cel is false: object.metadata.?annotations[?'smoke-test'].orValue('') == 'passed'`)
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:2")); diff != "" {
		t.Errorf("before the test has passed: -want, +got:\n%s", diff)
	}
	passed("member-2")
	others := []string{"member-1", "member-3", "member-4", "member-5", "member-6"}
	for _, m := range others {
		h.has(t, m, "shop:2")
	}
	passed(others...)
	complete(t, ns)
	says("Complete: ")

	apply(t, ns, strings.NewReplacer("600", "5", "metadata.?annotations[?'smoke-test'].orValue('') == 'passed'", "status.nothing == 1").Replace(policy))
	release(t, ns, "shop:3")
	reaches(t, ns, refractv1alpha1.RolloutHalted, func(s *refractv1alpha1.RolloutStatus) bool {
		return strings.Contains(s.Message, "member-2: it is not ready after 5s: health.cel: column 14: no such key: nothing")
	})
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:3")); diff != "" {
		t.Errorf("members with the unhealthy content: -want, +got:\n%s", diff)
	}
}

// TestFollowers: objects that follow a workload change with it, in the same wave, and are reverted with it.
func TestFollowers(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	const settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {color: VALUE}}"
	with := func(image, color string) []string {
		web := strings.NewReplacer(`image: "shop:1"`, `image: "`+image+`", envFrom: [{configMapRef: {name: settings}}]`).Replace(shop)
		return []string{web, strings.ReplaceAll(settings, "VALUE", color)}
	}
	colors := func() (colors []string) {
		for _, m := range env.Members {
			colors = append(colors, kubectl(t, m, "", "get", "--namespace="+ns, "configmap/settings", "--ignore-not-found", "-o", "jsonpath={.data.color}"))
		}
		return colors
	}
	are := func(want ...string) {
		t.Helper()
		harness.Eventually(t, "the settings are "+strings.Join(want, " "), func(context.Context) error {
			if got := colors(); !slices.Equal(got, want) {
				return fmt.Errorf("image and settings are %q", got)
			}
			return nil
		})
	}
	leads := func(s *refractv1alpha1.RolloutStatus) bool { return len(s.Target.Followers) == 1 }
	apply(t, ns, append(with("shop:1", "red"), careful)...)
	reaches(t, ns, refractv1alpha1.RolloutComplete, leads)
	are("red", "red", "red", "red", "red", "red")

	// Only the settings change.
	kubectl(t, "hub", "", "patch", "--namespace="+ns, "configmap/settings", "--type=merge", `-p={"data":{"color":"blue"}}`)
	awaits(t, ns, 1)
	are("red", "blue", "red", "red", "red", "red")
	kubectl(t, "member-5", "", "delete", "--namespace="+ns, "configmap", "settings")
	are("red", "blue", "red", "red", "red", "red")
	restart(t, syscall.SIGKILL)
	kubectl(t, "member-3", "", "patch", "--namespace="+ns, "configmap/settings", "--type=merge", `-p={"data":{"color":"evil"}}`)
	are("red", "blue", "red", "red", "red", "red")
	out, err := refract(t, "rollout", "status", "deployment/web", "-n", ns)
	if err != nil || !strings.Contains(out, "with       configmaps/settings") {
		t.Errorf("want the objects that change with the Deployment in the output, got %v", err)
	}
	approve(t, ns)
	reaches(t, ns, refractv1alpha1.RolloutComplete, leads)
	are("blue", "blue", "blue", "blue", "blue", "blue")

	// Both objects change, and the Deployment cannot become ready.
	apply(t, ns, with("shop:broken", "green")...)
	reaches(t, ns, refractv1alpha1.RolloutReverted, nil)
	are("blue", "blue", "blue", "blue", "blue", "blue")
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:broken")); diff != "" {
		t.Errorf("members that had the broken content: -want, +got:\n%s", diff)
	}

	// Both objects change, and both work: no cluster has only one of the changes.
	apply(t, ns, with("shop:2", "white")...)
	awaits(t, ns, 1)
	are("blue", "white", "blue", "blue", "blue", "blue")
	approve(t, ns)
	reaches(t, ns, refractv1alpha1.RolloutComplete, leads)
	are("white", "white", "white", "white", "white", "white")
	complete(t, ns)
}

// TestSecret changes a Secret. The hub stores the former content so that only users with the right to read Secrets can
// read it. Clusters keep the former content until their wave.
func TestSecret(t *testing.T) {
	ns := namespace(t)
	const secret = `
apiVersion: v1
kind: Secret
metadata: {name: db, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere, refract.dev/rollout-policy-name: careful}}
stringData: {password: VALUE}
`
	apply(t, ns, shop, strings.ReplaceAll(careful, "{name: rest, maxConcurrent: 1}", "{name: rest, strategy: Manual}"), strings.ReplaceAll(secret, "VALUE", "before-"+ns))
	standing := func() (string, error) {
		return env.Kubectl("hub", "", "get", "--namespace="+ns, "propagation/db.secrets", "-o", "jsonpath={.status.rollout.phase} {.status.rollout.waves[*].done} {.status.rollout.message}")
	}
	until := func(want string) {
		t.Helper()
		harness.Eventually(t, "the rollout is "+want, func(context.Context) error {
			got, err := standing()
			if err == nil && !strings.HasPrefix(got, want) {
				err = fmt.Errorf("it is %s", got)
			}
			return err
		})
	}
	has := func(member, want string) {
		t.Helper()
		harness.Eventually(t, member+" has what it is to have", func(context.Context) error {
			got, err := env.Kubectl(member, "", "get", "--namespace="+ns, "secret/db", "-o", "go-template={{.data.password | base64decode}}")
			if err == nil && got != want {
				err = fmt.Errorf("it has %s, want %s", got, want)
			}
			return err
		})
	}
	until("Complete")
	apply(t, ns, strings.ReplaceAll(secret, "VALUE", "after-"+ns))
	until("Waiting 1")
	has("member-2", "after-"+ns)
	kubectl(t, "member-5", "", "delete", "--namespace="+ns, "secret", "db")
	has("member-5", "before-"+ns)
	kept := kubectl(t, "hub", "", "get", "controllerrevisions", "--namespace=kube-admiral-system", "-l", refractv1alpha1.RevisionLabel, "-o", "json")
	if !strings.Contains(kept, `"sealed"`) || strings.Contains(kept, base64.StdEncoding.EncodeToString([]byte("before-"+ns))) || strings.Contains(kept, "before-"+ns) {
		t.Errorf("want the former content of the Secret sealed, got %s", kept)
	}
}
