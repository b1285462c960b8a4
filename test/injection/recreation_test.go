package injection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// workload returns the manifest of an object with a pod template. Its pods have the labels role: web and app: NAME. The
// text more is added to its spec, and pod is the spec of its pods.
func workload(kind, name, more, pod string) string {
	group := map[string]string{"Job": "batch/v1"}[kind]
	selector := fmt.Sprintf("selector: {matchLabels: {app: %s}}, ", name)
	if group == "" {
		group = "apps/v1"
	} else {
		selector = ""
	}
	return fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: %s}, spec: {%s%stemplate: {metadata: {labels: {app: %s, role: web}}, spec: %s}}}`,
		group, kind, name, selector, more, name, pod)
}

const app = `{terminationGracePeriodSeconds: 0, containers: [{name: app, image: i}]}`

// recreated are workloads of all kinds, with their numbers of pods.
var recreated = map[string]int{
	"three": 3, "first": 2, "second": 2, "third": 2, "ordered": 2, "agents": 2, "bare-set": 3, "same": 2,
	"paused": 2, "on-delete": 2, "opted-out": 2, "running": 1, "lone": 1, "excluded": 2,
}

// existing returns the manifests of all objects that are created before the policy.
func existing() string {
	const slow = "minReadySeconds: 1, "
	return workload("Deployment", "three", slow+"replicas: 3, ", app) + "\n---\n" +
		workload("Deployment", "first", slow+"replicas: 2, ", app) + "\n---\n" +
		workload("Deployment", "second", slow+"replicas: 2, ", app) + "\n---\n" +
		workload("Deployment", "third", slow+"replicas: 2, ", app) + "\n---\n" +
		workload("StatefulSet", "ordered", "serviceName: ordered, replicas: 2, ", app) + "\n---\n" +
		workload("DaemonSet", "agents", "", app) + "\n---\n" +
		workload("ReplicaSet", "bare-set", "replicas: 3, ", app) + "\n---\n" +
		"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: bare-set}, spec: {minAvailable: 2, selector: {matchLabels: {app: bare-set}}}}" + "\n---\n" +
		workload("Deployment", "same", "replicas: 2, ", `{terminationGracePeriodSeconds: 0, containers: [{name: app, image: i, `+port+`}]}`) + "\n---\n" +
		workload("Deployment", "paused", "replicas: 2, ", app) + "\n---\n" +
		workload("StatefulSet", "on-delete", "serviceName: on-delete, replicas: 2, updateStrategy: {type: OnDelete}, ", app) + "\n---\n" +
		workload("Deployment", "opted-out", "replicas: 2, ", app) + "\n---\n" +
		// On the simulated Nodes, scheduled pods of a Job complete at once.
		workload("Job", "running", "", `{restartPolicy: Never, schedulerName: nobody, containers: [{name: app, image: i}]}`) + "\n---\n" +
		`{apiVersion: batch/v1, kind: CronJob, metadata: {name: cron}, spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {metadata: {labels: {app: cron, role: web}},
			spec: {restartPolicy: Never, schedulerName: nobody, containers: [{name: app, image: i}]}}}}}}` + "\n---\n" +
		`{apiVersion: v1, kind: Pod, metadata: {name: lone, labels: {app: lone, role: web}}, spec: ` + app + `}` + "\n---\n" +
		workload("Deployment", "excluded", "replicas: 2, ", app)
}

// TestRecreation is case 25: a new policy applies to existing workloads of all kinds.
func TestRecreation(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.apply(existing())
	s.patch(&appsv1.Deployment{}, "excluded", `{"spec":{"template":{"metadata":{"annotations":{"refract.dev/inject":"false"}}}}}`)
	s.patch(&appsv1.Deployment{}, "opted-out", `{"metadata":{"annotations":{"refract.dev/rollout":"false"}}}`)
	s.settled(recreated)
	s.patch(&appsv1.Deployment{}, "paused", `{"spec":{"paused":true}}`)
	before := s.templates()
	was := s.uids()
	follow, rolls := s.readiness(), s.rolling()

	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {maxConcurrent: 2}}`))
	const all, injected, waits, excluded = 28, 18, 8, 2
	s.untilPolicy("db", "is rolled out as far as possible", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		got := []int32{p.Status.Matched, p.Status.Injected, p.Status.Stale, p.Status.Skipped, p.Status.Excluded, p.Status.Manual}
		if diff := cmp.Diff([]int32{all, injected, waits, 0, excluded, waits}, got); diff != "" {
			return fmt.Errorf("matched, injected, stale, skipped, excluded, manual: -want, +got:\n%s", diff)
		}
		want := map[string]string{
			"Deployment/paused": "WaitingForOwner 2", "StatefulSet/on-delete": "WaitingForOwner 2", "Deployment/opted-out": "WaitingForOwner 2",
			"Job/running": "ManualRestartRequired 1", "Pod/lone": "ManualRestartRequired 1",
		}
		if diff := cmp.Diff(want, standings(p, "ManualRestartRequired", "WaitingForOwner")); diff != "" {
			return fmt.Errorf("workloads: -want, +got:\n%s", diff)
		}
		if p.Status.Rollout == nil || p.Status.Rollout.Phase != refractv1beta1.PhaseComplete {
			return errors.New("the rollout is not complete")
		}
		return nil
	})

	among := func(workload string) bool {
		return !slices.Contains([]string{"Deployment/paused", "StatefulSet/on-delete", "Deployment/opted-out"}, workload)
	}
	began, most, first := rolls.most(among)
	slices.Sort(began)
	if diff := cmp.Diff([]string{"DaemonSet/agents", "Deployment/first", "Deployment/second", "Deployment/third", "Deployment/three", "StatefulSet/ordered"}, began); diff != "" {
		t.Errorf("Rolled workloads: -want, +got:\n%s", diff)
	}
	if most != 2 || first != 1 {
		t.Errorf("%d workloads rolled at a time, and %d until the first was done; want 2 and 1", most, first)
	}
	for app, want := range map[string]int{
		"three": 3, "first": 2, "second": 2, "third": 2, "ordered": 1, "agents": 1, "bare-set": 2, "same": 2,
		"paused": 2, "on-delete": 2, "opted-out": 2, "lone": 1, "excluded": 2,
	} {
		if got := follow.least(app); got < want {
			t.Errorf("%s: %d pods were ready at a time, want at least %d", app, got, want)
		}
	}
	recreates := []string{"agents", "bare-set", "first", "ordered", "second", "third", "three"}
	for _, app := range slices.Sorted(maps.Keys(recreated)) {
		pods := s.appPods(app)
		for i := range pods {
			_, has := pods[i].Annotations[refractv1beta1.ServicePrefix+"db"]
			if again := !was[pods[i].UID]; again != slices.Contains(recreates, app) || has != again {
				t.Errorf("Pod %s: recreated %t, injected %t", pods[i].Name, again, has)
			}
		}
	}
	if diff := cmp.Diff(before, s.templates()); diff != "" {
		t.Errorf("Templates without the hash: -before, +after:\n%s", diff)
	}
	s.nextRun()
	s.ownersAct(all, injected, waits)
}

// nextRun runs the CronJob. Its pods are injected although the CronJob is unchanged.
func (s *scene) nextRun() {
	s.Helper()
	cron := &batchv1.CronJob{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "cron"}, cron))
	if cron.Generation != 1 {
		s.Errorf("The CronJob was changed: generation %d", cron.Generation)
	}
	if _, err := shared.Kubectl(s.cluster, "", "create", "job", "next", "--from=cronjob/cron", "-n", s.ns); err != nil {
		s.Fatal(err)
	}
	s.until("the pod of the next run is injected", func(ctx context.Context) error {
		pods, err := s.pods(ctx, client.MatchingLabels{"app": "cron"})
		if err != nil {
			return err
		}
		if len(pods) != 1 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		if pods[0].Annotations[refractv1beta1.ServicePrefix+"db"] != "db" {
			return fmt.Errorf("its annotations are %v", pods[0].Annotations)
		}
		return nil
	})
	s.must(s.api.Delete(s.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "next"}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// ownersAct does what the owners of the remaining workloads must do: resume a Deployment, remove an opt-out, and delete
// pods.
func (s *scene) ownersAct(all, injected, waits int32) {
	s.Helper()
	s.patch(&appsv1.Deployment{}, "paused", `{"spec":{"paused":false}}`)
	s.patch(&appsv1.Deployment{}, "opted-out", `{"metadata":{"annotations":{"refract.dev/rollout":null}}}`)
	s.must(s.api.DeleteAllOf(s.Context(), &corev1.Pod{}, client.InNamespace(s.ns), client.MatchingLabels{"app": "on-delete"}))
	s.must(s.api.Delete(s.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "lone"}}))
	s.untilPolicy("db", "reports the recreated pods", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		got := []int32{p.Status.Matched, p.Status.Injected, p.Status.Stale, p.Status.Manual}
		if diff := cmp.Diff([]int32{all - 1, injected + waits - 2, 1, 1}, got); diff != "" { // The pod without an owner is gone, and the pod of the Job stays.
			return fmt.Errorf("matched, injected, stale, manual: -want, +got:\n%s", diff)
		}
		return nil
	})
}

// standings returns the reason and the count of each workload in the status with one of these reasons, by KIND/NAME.
func standings(p *refractv1beta1.ServiceInjectionPolicy, reasons ...string) map[string]string {
	all := map[string]string{}
	for i := range p.Status.Workloads {
		if w := &p.Status.Workloads[i]; slices.Contains(reasons, w.Reason) {
			all[w.Kind+"/"+w.Name] = fmt.Sprintf("%s %d", w.Reason, w.Pods)
		}
	}
	return all
}

// settled waits until all apps have their pods, and all pods with a scheduler are ready.
func (s *scene) settled(apps map[string]int) {
	s.Helper()
	s.until("all pods exist and are ready", func(ctx context.Context) error {
		for app, n := range apps {
			pods, err := s.pods(ctx, client.MatchingLabels{"app": app})
			if err != nil {
				return err
			}
			if len(pods) != n {
				return fmt.Errorf("%s has %d pods, want %d", app, len(pods), n)
			}
			for i := range pods {
				if p := &pods[i]; !ready(p) && p.Spec.SchedulerName != "nobody" {
					return fmt.Errorf("pod %s is not ready", p.Name)
				}
			}
		}
		list := &appsv1.DeploymentList{}
		if err := s.api.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if !complete(&list.Items[i]) {
				return fmt.Errorf("Deployment %s is not complete", list.Items[i].Name)
			}
		}
		return nil
	})
}

// appPods returns the pods of an app.
func (s *scene) appPods(app string) []corev1.Pod {
	s.Helper()
	pods, err := s.pods(s.Context(), client.MatchingLabels{"app": app})
	s.must(err)
	return pods
}

// uids returns the UIDs of all pods.
func (s *scene) uids() map[any]bool {
	s.Helper()
	pods, err := s.pods(s.Context(), nil)
	s.must(err)
	all := map[any]bool{}
	for i := range pods {
		all[pods[i].UID] = true
	}
	return all
}

// templates returns the specs of all workloads, without the hash in the template.
func (s *scene) templates() map[string]any {
	s.Helper()
	all := map[string]any{}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind + "List"))
		s.must(s.api.List(s.Context(), list, client.InNamespace(s.ns)))
		for i := range list.Items {
			u := &list.Items[i]
			if len(u.GetOwnerReferences()) > 0 {
				continue
			}
			annotations := []string{"spec", "template", "metadata", "annotations"}
			unstructured.RemoveNestedField(u.Object, append(annotations, refractv1beta1.HashAnnotation)...)
			if left, _, _ := unstructured.NestedMap(u.Object, annotations...); len(left) == 0 {
				unstructured.RemoveNestedField(u.Object, annotations...)
			}
			all[kind+"/"+u.GetName()] = u.Object["spec"]
		}
	}
	return all
}
