package injection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// TestUntouched: new policies match Deployments whose pods the API server would reject with the injected items. The
// Deployments stay unchanged, and the status names the reason.
func TestUntouched(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, objects, pod, policy, want string
		skipped, stale                     int32
	}{
		"Quota": {
			reason:  "The quota has no room for further pods.",
			objects: `{apiVersion: v1, kind: ResourceQuota, metadata: {name: two}, spec: {hard: {pods: "2"}}}`,
			pod:     app, policy: port,
			want: "exceeded quota", stale: 2,
		},
		"Conflict": {
			reason: "The policy conflicts with these pods.",
			pod:    `{terminationGracePeriodSeconds: 0, containers: [{name: app, image: i, env: [{name: DB_PORT, value: "7000"}]}]}`,
			policy: port,
			want:   "EnvConflict", skipped: 2,
		},
		"Reject": {
			reason: "The policy would make the API server reject the pods.",
			pod:    `{terminationGracePeriodSeconds: 0, containers: [{name: app, image: i, env: [{name: DB_PORT, value: "7000"}]}]}`,
			policy: "onConflict: Reject, " + port,
			want:   "EnvConflict", skipped: 2,
		},
		"Audit": {
			reason: "The policy has mode Audit.",
			pod:    app,
			policy: "mode: Audit, " + port,
			want:   "Audit", skipped: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			s.deployments("", tc.pod, "web")
			if tc.objects != "" {
				s.apply(tc.objects)
			}
			s.until("the quota counts both pods", func(ctx context.Context) error {
				quota := &corev1.ResourceQuota{}
				err := s.api.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "two"}, quota)
				if used := quota.Status.Used["pods"]; err == nil && used.Value() != 2 {
					err = fmt.Errorf("it counts %d pods", used.Value())
				}
				return client.IgnoreNotFound(err)
			})
			s.apply(sip("db", `{selector: {matchLabels: {role: web}}, `+tc.policy+`}`))
			s.untilPolicy("db", "names the reason", func(p *refractv1beta1.ServiceInjectionPolicy) error {
				if p.Status.Matched != 2 || p.Status.Stale != tc.stale || p.Status.Skipped != tc.skipped {
					return fmt.Errorf("want %d of 2 stale and %d skipped", tc.stale, tc.skipped)
				}
				if !strings.Contains(inJSON(p.Status), tc.want) {
					return fmt.Errorf("want %s in the status", tc.want)
				}
				return nil
			})
			s.stays(tc.reason, aWhile/2, s.generationsStay(1))
		})
	}
}

// TestPodSecurity: the webhook rejects a policy with items that the Pod Security level of the namespace does not allow.
// If the level becomes stricter later, pods that would then be rejected are not recreated.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	policy := sip("db", `{selector: {matchLabels: {role: web}}, volumes: [{name: h, hostPath: {path: /dev}}], volumeMounts: [{name: h, mountPath: /h}], rollout: {strategy: Manual}}`)
	s.apply(policy)
	s.untilPolicy("db", "awaits approval", phase(refractv1beta1.PhaseAwaitingApproval))
	s.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + s.ns + `, labels: {pod-security.kubernetes.io/enforce: baseline}}}`)
	s.rollout(0, "approve", "db")
	s.untilPolicy("db", "names the reason for the wait", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Stale != 2 || !strings.Contains(inJSON(p.Status), "PodSecurity") {
			return errors.New("want two stale pods, and PodSecurity as the reason")
		}
		return nil
	})
	s.stays("no pod is recreated", aWhile, s.generationsStay(1))
	s.until("a policy with items that the namespace does not allow is rejected", func(ctx context.Context) error { // The check of the webhook has a time limit.
		err := s.api.Create(ctx, s.read(strings.Replace(policy, "name: db", "name: another", 1))[0], client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "PodSecurity") {
			return errors.Join(errors.New("want it rejected because of PodSecurity"), err)
		}
		return nil
	})
	s.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + s.ns + `}}`)
	s.untilPolicy("db", "is rolled out when the namespace allows it", rolledOut(2))
}

// begun waits until the rollout has changed the Deployments of the namespace this many times.
func (s *scene) begun(want int64) {
	s.Helper()
	s.until("the rollout has begun", func(ctx context.Context) error {
		all, err := s.generations(ctx)
		sum := -int64(len(all))
		for _, generation := range all {
			sum += generation
		}
		if err == nil && sum < want {
			err = fmt.Errorf("%d changes", sum)
		}
		return err
	})
}

// TestPolicyGone deletes a policy during its rollout: the Deployments that it has not reached stay unchanged.
func TestPolicyGone(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("minReadySeconds: 2, ", app, "a", "b", "c")
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {maxConcurrent: 1}}`))
	s.begun(1)
	s.must(s.api.Delete(t.Context(), &refractv1beta1.ServiceInjectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "db"}}))
	s.stays("no other Deployment is changed", 2*aWhile, func(ctx context.Context) error {
		all, err := s.generations(ctx)
		if err == nil && all[0]+all[1]+all[2] != 4 {
			err = fmt.Errorf("generations are %v", all)
		}
		return err
	})
}

// TestChangedMidway changes a policy during its rollout. At the end, all pods have the new value, and Deployments that
// the rollout had not reached before the change were rolled out only once.
func TestChangedMidway(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("minReadySeconds: 2, ", app, "a", "b", "c")
	rolls := s.rolling()
	// The first Deployment keeps the only place until the change.
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {maxConcurrent: 1, minReadySeconds: 3600}}`))
	s.begun(1)
	s.patch(&refractv1beta1.ServiceInjectionPolicy{}, "db", `{"spec":{"env":[{"name":"DB_PORT","value":7000}],"rollout":{"minReadySeconds":0}}}`)
	s.untilPolicy("db", "is rolled out", rolledOut(6))
	for _, name := range []string{"a", "b", "c"} {
		s.has(name, "db: db\napp: env DB_PORT=7000")
	}
	all, err := s.generations(t.Context())
	s.must(err)
	if sum := all[0] + all[1] + all[2]; sum > 7 {
		t.Errorf("generations are %v: want at most one Deployment rolled twice", all)
	}
	if _, most, _ := rolls.most(func(string) bool { return true }); most != 1 {
		t.Errorf("%d workloads rolled at a time, want 1", most)
	}
}

// TestClaims: a policy mounts the volume of a StatefulSet's volume claim a second time.
func TestClaims(t *testing.T) {
	t.Parallel()
	s := begin(t)
	const claim = `accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}`
	s.apply(
		fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
			storageClassName: "", hostPath: {path: /data}, claimRef: {namespace: %s, name: data-web-0}}}`, s.ns, s.ns),
		workload("StatefulSet", "web", "serviceName: web, replicas: 1, volumeClaimTemplates: [{metadata: {name: data}, spec: {"+claim+"}}], ",
			`{terminationGracePeriodSeconds: 0, containers: [{name: app, image: i, volumeMounts: [{name: data, mountPath: /data}]}]}`),
	)
	t.Cleanup(func() {
		s.must(s.api.Delete(context.WithoutCancel(t.Context()), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}))
	})
	s.settled(map[string]int{"web": 1})
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, volumeMounts: [{name: data, mountPath: /more, subPath: more}]}`))
	s.untilPolicy("db", "is rolled out", rolledOut(1))
	s.has("web", "db: db\nvolume data: claim/data-web-0\napp: mount /data=data /more=data/more")
}

// TestUndone: a user undoes a rollout with kubectl. The pods still get the injected items, and no further rollout
// begins.
func TestUndone(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.deployments("", app, "web")
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`}`))
	s.untilPolicy("db", "is rolled out", rolledOut(2))
	if _, err := shared.Kubectl(s.cluster, "", "rollout", "undo", "deployment/web", "-n", s.ns); err != nil {
		t.Fatal(err)
	}
	s.until("the rollout is undone", s.generationsStay(3))
	s.settled(map[string]int{"web": 2})
	s.has("web", "db: db\napp: env DB_PORT=6379")
	s.untilPolicy("db", "has nothing left to do", rolledOut(2))
	s.stays("there is no further rollout", aWhile, s.generationsStay(3))
}

// TestLeaderKilled kills the leading replica during a rollout: the other one continues it.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.deployments("minReadySeconds: 2, ", app, "a", "b", "c", "d", "e")
	rolls := s.rolling()
	s.apply(sip("db", `{service: db, selector: {matchLabels: {role: web}}, `+port+`, rollout: {maxConcurrent: 2}}`))
	s.begun(2)
	lease := &coordinationv1.Lease{}
	s.must(s.api.Get(t.Context(), leaseKey, lease))
	killed := false
	for _, slot := range s.injectors.slots {
		if slot.holds(lease) {
			s.must(s.injectors.kill(slot))
			killed = true
		}
	}
	if !killed {
		t.Fatalf("no replica has the leader's identity %s", *lease.Spec.HolderIdentity)
	}
	s.untilPolicy("db", "is rolled out", func(p *refractv1beta1.ServiceInjectionPolicy) error {
		if p.Status.Rollout == nil || p.Status.Rollout.Workloads != p.Status.Rollout.Done {
			return errors.New("want all workloads done")
		}
		return rolledOut(10)(p)
	})
	s.must(s.generationsStay(2, 2, 2, 2, 2)(t.Context()))
	if _, most, first := rolls.most(func(string) bool { return true }); most > 2 || first != 1 {
		t.Errorf("%d workloads rolled at a time, and %d until the first was done; want at most 2 and 1", most, first)
	}
	s.stays("there is no further rollout", time.Second, s.generationsStay(2, 2, 2, 2, 2))
}
