package propagation

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/revision"
)

// TestSealedParts: each replica can read the sealed content of a Secret as long as the key exists. Unreadable or
// changed content counts as lost, and the next store replaces it.
func TestSealedParts(t *testing.T) {
	const system = "system"
	part, err := revision.ObjectPart(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "db", "namespace": "shop"}, "data": map[string]any{"a": "aHVudGVyMg=="},
	}})
	if err != nil {
		t.Fatal(err)
	}
	at := types.NamespacedName{Namespace: system, Name: part.Name}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: revision.KeySecret}}
	cases := map[string]struct {
		reason string
		change func(t *testing.T, hub client.Client)
		lost   bool
	}{
		"Nothing": {"Another replica reads the content with the same key.", func(*testing.T, client.Client) {}, false},
		"KeyGone": {"Without the key, the content is unreadable.", func(t *testing.T, hub client.Client) {
			t.Helper()
			if err := hub.Delete(t.Context(), secret.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}, true},
		"OtherKey": {"The same with another key, which a process that knows the first one notices.", func(t *testing.T, hub client.Client) {
			t.Helper()
			other := secret.DeepCopy()
			other.Data = map[string][]byte{revision.KeyName: revision.NewKey()}
			if err := hub.Delete(t.Context(), secret.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			if err := hub.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		}, true},
		"Changed": {"Content that another client wrote does not count as the stored one.", func(t *testing.T, hub client.Client) {
			t.Helper()
			c := &appsv1.ControllerRevision{}
			if err := hub.Get(t.Context(), at, c); err != nil {
				t.Fatal(err)
			}
			c.Data.Raw = []byte(`{"sealed":"AAAA"}`)
			if err := hub.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
			replica := func() *revisions {
				return &revisions{client: hub, live: hub, system: system, cache: &parts{}, now: time.Now}
			}
			first := replica()
			if err := first.store(t.Context(), at, &part, true); err != nil {
				t.Fatal(err)
			}
			tc.change(t, hub)
			if text, err := replica().part(t.Context(), at, true); err != nil || (text == nil) != tc.lost {
				t.Errorf("%s\nanother replica reads %q, %v", tc.reason, text, err)
			}
			if err := first.store(t.Context(), at, &part, true); err != nil {
				t.Fatalf("%s\nthe content cannot be stored again: %v", tc.reason, err)
			}
			if text, err := replica().part(t.Context(), at, true); err != nil || revision.Check(text, at.Name, nil) != nil {
				t.Errorf("%s\nafter it was stored again, another replica reads %q, %v", tc.reason, text, err)
			}
		})
	}
}

// TestResealed: earlier versions stored custom resources and roles in plain text, which the role view reads. They are
// sealed, and the plain text is deleted.
func TestResealed(t *testing.T) {
	const value = "hunter2"
	for name, tc := range map[string]struct {
		reason, kind, resource, group, namespace string
	}{
		"Namespaced":    {"The content of many custom resources is confidential.", "Login", "logins", "example.com", "shop"},
		"ClusterScoped": {"The namespace of the part does not change.", "ClusterLogin", "clusterlogins", "example.com", ""},
		"Role":          {"The role view does not read roles.", "Role", "roles", "rbac.authorization.k8s.io", "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			part, err := revision.ObjectPart(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": tc.group + "/v1", "kind": tc.kind, "metadata": map[string]any{"name": "db", "namespace": tc.namespace},
				"spec": map[string]any{"password": value},
			}})
			if err != nil {
				t.Fatal(err)
			}
			text, err := part.Encode()
			if err != nil {
				t.Fatal(err)
			}
			key := Key{}
			key.Namespace, key.Name, key.Group, key.Resource = tc.namespace, "db", tc.group, tc.resource
			system := corev1alpha1.SystemNamespace
			plain := plainPlace(key, part.Name, system)
			hub, _ := hubOf(t, governedObject("new"))
			v := station(t, hub, &replica{leads: true}, interceptor.Funcs{}).reporter.revisions
			if err := v.put(t.Context(), plain, text, false); err != nil {
				t.Fatal(err)
			}
			v.cache, v.system = &parts{}, system // The cache of another process.
			status := &refractv1alpha1.RolloutStatus{
				Phase: refractv1alpha1.RolloutProgressing, Target: revision.Of("new", 0, nil), LastGood: revision.Of(part.Name, 0, nil),
			}
			current := func() map[Key]*refractv1alpha1.RolloutStatus {
				return map[Key]*refractv1alpha1.RolloutStatus{key: status}
			}
			v.rollouts, v.now = current, func() time.Time { return time.Now().Add(time.Hour) }
			// While the Propagation has the names of the earlier version, the plain text may be the only copy.
			if _, err := v.sweep(t.Context(), plain.Namespace); err != nil {
				t.Fatal(err)
			}
			if got, err := v.objectPart(t.Context(), key, part.Name); err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%s\nthe part of the earlier version is %q, %v", tc.reason, got, err)
			}
			if status, err = v.renew(t.Context(), key, status); err != nil {
				t.Fatal(err)
			}
			for _, later := range []time.Duration{time.Hour, time.Hour + leastAge} {
				v.now = func() time.Time { return time.Now().Add(later) }
				if _, err := v.sweep(t.Context(), plain.Namespace); err != nil {
					t.Fatal(err)
				}
			}
			if left := v.client.Get(t.Context(), plain, &appsv1.ControllerRevision{}); !apierrors.IsNotFound(left) {
				t.Errorf("%s\nwant the plain text deleted, got %v", tc.reason, left)
			}
			other := &revisions{client: v.client, live: v.live, system: system, cache: &parts{}, now: time.Now}
			if got, err := other.part(t.Context(), objectPlace(key, status.LastGood.Object, system), true); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s\nanother replica reads %q, %v", tc.reason, got, err)
			}
			sealed := &appsv1.ControllerRevision{}
			if err := v.live.Get(t.Context(), objectPlace(key, status.LastGood.Object, system), sealed); err != nil || bytes.Contains(sealed.Data.Raw, []byte(value)) {
				t.Errorf("%s\nthe part is stored as %s, %v", tc.reason, sealed.Data.Raw, err)
			}
		})
	}
}

// TestRevisionIsVerified: a revision counts as stored only when the hub has its content and does not delete it. A
// successful request is not enough. No content is released before.
func TestRevisionIsVerified(t *testing.T) {
	part, err := revision.ObjectPart(governedObject("new"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := part.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const hold = "example.com/hold"
	named := func(data []byte, finalizers ...string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: part.Name, Finalizers: finalizers}, Data: runtime.RawExtension{Raw: data}, Revision: 1,
		}
	}
	deleted := func(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
		r.DeletionTimestamp = new(metav1.Now())
		return r
	}
	other := []byte(`{"x":1}`)
	for name, tc := range map[string]struct {
		reason string
		has    *appsv1.ControllerRevision
		late   bool   // Whether the ControllerRevision appears between the check and the creation.
		change []byte // The content that a policy engine puts into it.
		want   string
	}{
		"Changed":       {"A policy engine changes the stored content.", nil, false, other, "does not have the sent content"},
		"Imposter":      {"The other object has a finalizer, so it cannot be replaced.", named(other, hold), false, nil, `finalizers ["example.com/hold"] keep it`},
		"Leaving":       {"The part is in deletion.", deleted(named(data, hold)), false, nil, `finalizers ["example.com/hold"] keep it`},
		"LateImposter":  {"Another client is faster.", named(other), true, nil, "does not have the sent content"},
		"Kept":          {"The part exists.", named(data), false, nil, ""},
		"KeptAndHeld":   {"The finalizer keeps the part.", named(data, hold), false, nil, ""},
		"KeptByAnother": {"Another writer stores the same part.", named(data), true, nil, ""},
		"Replaced":      {"Another object without a finalizer is replaced.", named(other), false, nil, ""},
		"New":           {"There is no object of the name.", nil, false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			key := keyOf("configmaps", "web")
			on := interceptor.Funcs{Create: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.CreateOption) error {
				r, is := obj.(*appsv1.ControllerRevision)
				if is && tc.late {
					if err := w.Create(ctx, tc.has.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
						return err
					}
				}
				if is && tc.change != nil {
					r.Data.Raw = tc.change
				}
				return w.Create(ctx, obj, o...)
			}}
			var objects []client.Object
			if tc.has != nil && !tc.late {
				objects = append(objects, tc.has.DeepCopy())
			}
			s, _ := hubOf(t, governedObject("new"))
			c := station(t, s, &replica{leads: true}, on, objects...)
			duplicated(c)
			canaryOn(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			now := time.Now()
			c.revisions.now = func() time.Time { return now }
			for range 3 { // The store is repeated.
				now = now.Add(refusedFor)
				if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
					t.Fatal(err)
				}
				p := c.state.desired(key)
				for _, cluster := range []string{"eu-1", "us-1"} {
					c.state.report(key, cluster, clusterStatus{seq: p.seq, state: refractv1alpha1.StatePending, reason: reasonAwaitsRollout})
				}
				if _, err := c.reporter.reportOne(t.Context(), key); (err == nil) != (tc.want == "") {
					t.Errorf("%s\nwant a retry of the report: %t, got %v", tc.reason, tc.want != "", err)
				}
				see(t, c, key)
			}
			k, _ := c.reporter.records.get(key)
			if waits := k.rollout.Phase == refractv1alpha1.RolloutWaiting; waits != (tc.want != "") ||
				waits && (!strings.HasPrefix(k.rollout.Message, "the revision cannot be stored: ") || !strings.Contains(k.rollout.Message, tc.want)) {
				t.Errorf("%s\nthe rollout is %s: %s", tc.reason, k.rollout.Phase, k.rollout.Message)
			}
			if tc.want == "" {
				after := &revisions{live: c.reporter.live, cache: &parts{}, system: "sys"} // A restart.
				text, err := after.part(t.Context(), types.NamespacedName{Namespace: "shop", Name: part.Name}, false)
				if err != nil || revision.Check(text, part.Name, nil) != nil {
					t.Errorf("%s\nafter a restart the part is %q, %v", tc.reason, text, err)
				}
			}
		})
	}
}

// TestSweepWaits: a revision is deleted after this replica has seen it without a reference for a minute. Its creation
// time does not count: the former leader may have stored it a moment ago, and the clock of that machine may differ.
func TestSweepWaits(t *testing.T) {
	part, err := revision.ObjectPart(governedObject("new"))
	if err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{-15 * time.Minute, 0, 15 * time.Minute} {
		kept := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: part.Name, UID: "r", CreationTimestamp: metav1.Now(), Labels: map[string]string{refractv1alpha1.RevisionLabel: "true"},
		}}
		s, _ := hubOf(t)
		v := station(t, s, &replica{leads: true}, interceptor.Funcs{}, kept).reporter.revisions
		began, rollouts := time.Now().Add(ahead), map[Key]*refractv1alpha1.RolloutStatus{}
		v.rollouts = func() map[Key]*refractv1alpha1.RolloutStatus { return rollouts }
		for _, step := range []struct {
			reason string
			after  time.Duration
			named  bool
			gone   bool
		}{
			{"The revision is about to be named.", 0, false, false},
			{"A minute is not over.", leastAge - time.Second, false, false},
			{"A rollout names the revision.", leastAge, true, false},
			{"No rollout names the revision any more.", leastAge + time.Second, false, false},
			{"The reference was removed less than a minute ago.", 2 * leastAge, false, false},
			{"The reference was removed more than a minute ago.", 2*leastAge + time.Second, false, true},
		} {
			clear(rollouts)
			if step.named {
				rollouts[keyOf("configmaps", "web")] = &refractv1alpha1.RolloutStatus{Target: revision.Of(part.Name, 0, nil)}
			}
			v.now = func() time.Time { return began.Add(step.after) }
			if _, err := v.sweep(t.Context(), "shop"); err != nil {
				t.Fatal(err)
			}
			err := v.live.Get(t.Context(), client.ObjectKeyFromObject(kept), &appsv1.ControllerRevision{})
			if gone := apierrors.IsNotFound(err); gone != step.gone {
				t.Errorf("a clock that is %s ahead, after %s: %s\nwant the revision deleted: %t, got %v", ahead, step.after, step.reason, step.gone, err)
			}
		}
	}
}
