package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/kit/webhook/admission"
)

// brings returns a policy that adds a reference to a Secret.
func brings(secret string, generation int64, uid string) *unstructured.Unstructured {
	p := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindOverridePolicy,
		"spec": map[string]any{"overrideRules": []any{map[string]any{"overriders": map[string]any{"envs": []any{map[string]any{
			"containerName": "web", "operator": "addIfAbsent", "value": []any{map[string]any{
				"name": "A", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": secret, "key": "a"}},
			}},
		}}}}}},
	}}
	p.SetNamespace("shop")
	p.SetName("web")
	p.SetGeneration(generation)
	p.SetUID(types.UID(uid))
	return p
}

func hubWith(t *testing.T, objects ...*unstructured.Unstructured) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1alpha1.OverridePolicy{})
	for _, o := range objects {
		b.WithObjects(o.DeepCopy())
	}
	return b
}

// markOn returns the mark of the policy on the hub.
func markOn(t *testing.T, c client.Client) *corev1alpha1.CheckedReferences {
	t.Helper()
	p := &corev1alpha1.OverridePolicy{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, p); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return p.Status.References
}

// TestMark admits a policy, with other versions stored before or after. The stored policy gets the mark only if it is
// the admitted one.
func TestMark(t *testing.T) {
	created, updated := brings("db", 1, "1"), brings("db", 2, "1")
	marked := func(generation int64) *corev1alpha1.CheckedReferences {
		return &corev1alpha1.CheckedReferences{ObservedGeneration: generation, Items: []corev1alpha1.CheckedReference{{Kind: "Secret", Name: "db"}}}
	}
	approved := approving(brings("db", 1, "1"))
	approval := marked(1)
	approval.Approval = "1"
	cases := map[string]struct {
		reason   string
		was, now *unstructured.Unstructured
		before   *unstructured.Unstructured // The stored policy during admission.
		stored   *unstructured.Unstructured // The policy that is stored after that; nil for none.
		dryRun   bool
		fails    error // Error of the first write of a status.
		want     *corev1alpha1.CheckedReferences
	}{
		"Created": {reason: "A new policy is stored a moment after its admission.", now: created, stored: created, want: marked(1)},
		"Updated": {
			reason: "A change is stored a moment after its admission.",
			was:    brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: updated, want: marked(2),
		},
		"NeverStored":    {reason: "Another webhook may reject the policy.", now: created},
		"DryRun":         {reason: "A dry run writes no mark: another user could write the same policy afterwards.", now: created, stored: created, dryRun: true},
		"ChangedSince":   {reason: "Another change was stored, which has a review of its own.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: brings("theirs", 3, "1")},
		"AnotherOfName":  {reason: "The admitted policy is gone, and another one has its name.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: brings("db", 2, "2")},
		"SameGeneration": {reason: "Two writes were admitted, and the other one was stored.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: brings("theirs", 2, "1")},
		"Approved":       {reason: "Only the annotation with the approval changes.", was: created, now: approved, before: created, stored: approved, want: approval},
		"NotApproved":    {reason: "Another webhook may reject the approval.", was: created, now: approved, before: created},
		"Conflict": {
			reason: "Another client wrote the status at the same time.", now: created, stored: created, want: marked(1),
			fails: apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("another version")),
		},
		"Fault": {reason: "The API server may be unreachable for a moment.", now: created, stored: created, want: marked(1), fails: errors.New("connection refused")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var there []*unstructured.Unstructured
				if tc.before != nil {
					there = append(there, tc.before)
				}
				failing := tc.fails
				c := hubWith(t, there...).WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
					ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
				) error {
					if err := failing; err != nil {
						failing = nil
						return err
					}
					return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
				}}).Build()
				body := review(t, tc.was, tc.now)
				if tc.dryRun {
					body = dryRun(t, body)
				}
				if got := shown(post(t, Options{Client: c, Log: logr.Discard()}, body)); got != "allowed\n" {
					t.Fatal(got)
				}
				<-time.After(100 * time.Millisecond)
				synctest.Wait()
				if tc.stored != nil {
					if tc.before != nil {
						if err := c.Delete(t.Context(), tc.before.DeepCopy()); err != nil {
							t.Fatal(err)
						}
					}
					if err := c.Create(t.Context(), tc.stored.DeepCopy()); err != nil {
						t.Fatal(err)
					}
				}
				<-time.After(2 * storing)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, markOn(t, c)); diff != "" {
					t.Errorf("%s\nThe mark: -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// approving returns the policy with the approval annotation.
func approving(p *unstructured.Unstructured) *unstructured.Unstructured {
	p = p.DeepCopy()
	p.SetAnnotations(map[string]string{refractv1alpha1.ApproveReferencesAnnotation: "1"})
	return p
}

// forgery is a hub where mallory writes a policy that makes a Deployment refer to the Secret "theirs", if the
// Deployment exists. Mallory may not read that Secret, and sends reviews of the policy in the name of an administrator.
type forgery struct {
	t        *testing.T
	hub      client.Client
	fleet    *hub
	workload []*unstructured.Unstructured
	replicas []http.Handler
	since    time.Time // Time of the webhook's registration.
}

const misled = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu-1}
spec: {apiEndpoint: https://eu-1.example, secretRef: {name: eu-1}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {kubeadmiral.io/override-policy-name: web}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: registry.example/web:1.0}]
      volumes: [{name: v, secret: {secretName: mine}}]
`

func forging(t *testing.T) *forgery {
	t.Helper()
	f := &forgery{t: t, hub: hubWith(t).Build(), fleet: &hub{}, workload: objects(t, []byte(misled), true), since: time.Now().Add(-time.Hour)}
	for range 2 {
		h, err := New(Options{
			Client: f.hub, Fleet: f.fleet, Log: logr.Discard(), Patience: time.Minute,
			Registered: func(context.Context) (time.Time, error) { return f.since, nil },
			Allowed: func(_ context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
				return user.Username == "admin" || what.Name != "theirs", nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.replicas = append(f.replicas, h)
	}
	return f
}

// misleading returns the policy with a comment, so that its spec differs.
func misleading(generation int64, comment string) *unstructured.Unstructured {
	p := brings("", generation, "1")
	p.Object["spec"] = map[string]any{"overrideRules": []any{map[string]any{"overriders": map[string]any{
		"annotations": []any{map[string]any{"operator": "addIfAbsent", "value": map[string]any{"comment": comment}}},
		"image": []any{map[string]any{"imagePath": "/spec/template/spec/volumes/0/secret/secretName", "operations": []any{
			map[string]any{"imageComponent": "Repository", "operator": "overwrite", "value": "theirs"},
		}}},
	}}}}
	return p
}

// there adds or removes the Deployment.
func (f *forgery) there(is bool) {
	f.fleet.objects = f.workload
	if !is {
		f.fleet.objects = f.workload[:1]
	}
}

// asks sends the review of a user's write to a replica, and reports whether the replica admits the write.
func (f *forgery) asks(replica int, user string, was, now *unstructured.Unstructured) bool {
	f.t.Helper()
	var of admissionv1.AdmissionReview
	if err := json.Unmarshal(review(f.t, was, now), &of); err != nil {
		f.t.Fatal(err)
	}
	of.Request.UserInfo = authenticationv1.UserInfo{Username: user}
	body, err := json.Marshal(&of)
	if err != nil {
		f.t.Fatal(err)
	}
	return ask(f.t, f.replicas[replica], body).Allowed
}

// forges sends a review to a replica in the administrator's name.
func (f *forgery) forges(replica int, was, now *unstructured.Unstructured) {
	f.t.Helper()
	if !f.asks(replica, "admin", was, now) {
		f.t.Error("want every write of an administrator admitted")
	}
}

// writes makes the API server send a review of mallory's write to the first replica, and store the policy.
func (f *forgery) writes(was, now *unstructured.Unstructured) {
	f.t.Helper()
	if !f.asks(0, "mallory", was, now) {
		f.t.Fatal("want a permitted write of mallory admitted")
	}
	f.pass(20 * time.Millisecond)
	f.store(now)
}

// store stores a policy.
func (f *forgery) store(p *unstructured.Unstructured) {
	f.t.Helper()
	p = p.DeepCopy()
	is := &corev1alpha1.OverridePolicy{}
	err := f.hub.Get(f.t.Context(), client.ObjectKeyFromObject(p), is)
	if err == nil {
		p.SetResourceVersion(is.ResourceVersion)
		err = f.hub.Update(f.t.Context(), p)
	} else if err = client.IgnoreNotFound(err); err == nil {
		err = f.hub.Create(f.t.Context(), p)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *forgery) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestForgedReviews: a client that reaches the webhook and sends reviews in another user's name gets nothing approved,
// in any order of the steps.
func TestForgedReviews(t *testing.T) {
	const blink = 300 * time.Millisecond
	first, second, other := misleading(1, "a"), misleading(2, "b"), misleading(2, "c")
	empty := func(generation int64, approval string) *corev1alpha1.CheckedReferences {
		return &corev1alpha1.CheckedReferences{ObservedGeneration: generation, Approval: approval}
	}
	theirs := func(generation int64, approval string) *corev1alpha1.CheckedReferences {
		mark := empty(generation, approval)
		mark.Items = []corev1alpha1.CheckedReference{{Kind: "Secret", Name: "theirs"}}
		return mark
	}
	cases := map[string]struct {
		reason string
		do     func(*forgery)
		want   *corev1alpha1.CheckedReferences
	}{
		"Honest": {
			reason: "The policy of an administrator gets a mark with its references.",
			do: func(f *forgery) {
				f.there(true)
				f.forges(0, nil, first)
				f.store(first)
			},
			want: theirs(1, ""),
		},
		"HonestApproval": {
			reason: "An administrator may approve the references later, too.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				f.pass(blink)
				f.forges(0, first, approving(first))
				f.store(approving(first))
			},
			want: theirs(1, "1"),
		},
		"Stored": {
			reason: "A review of a stored policy is too late.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				for range 2 {
					f.forges(0, nil, first)
					f.forges(1, nil, first)
					f.forges(1, second, first)
					f.pass(time.Minute)
				}
			},
		},
		"StoredUpdate": {
			reason: "A review of a stored change is too late.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.writes(first, second)
				f.there(true)
				f.forges(0, first, second)
				f.forges(1, first, second)
				f.forges(1, nil, second)
			},
			want: empty(2, ""),
		},
		"InAdvance": {
			reason: "A forged review before that of the API server adds no references.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				f.forges(0, first, second)
				f.there(false)
				f.pass(blink)
				f.writes(first, second)
				f.there(true)
			},
			want: empty(2, ""),
		},
		"InBetween": {
			reason: "A forged review adds no references while another webhook delays the write.",
			do: func(f *forgery) {
				f.writes(nil, first)
				if !f.asks(0, "mallory", first, second) {
					f.t.Error("want the write admitted without the Deployment")
				}
				f.there(true)
				f.pass(blink)
				f.forges(0, first, second)
				f.pass(blink)
				f.store(second)
			},
			want: empty(2, ""),
		},
		"Elsewhere": {
			reason: "A forged review adds no references if another replica gets it before the real one.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				f.forges(1, first, second)
				f.there(false)
				f.pass(blink)
				f.writes(first, second)
				f.there(true)
			},
			want: empty(2, ""),
		},
		"ElsewhereInBetween": {
			reason: "A forged review adds no references if another replica gets it at the same time as the real one.",
			do: func(f *forgery) {
				f.writes(nil, first)
				if !f.asks(0, "mallory", first, second) {
					f.t.Error("want the write admitted without the Deployment")
				}
				f.pass(10 * time.Second)
				f.there(true)
				f.forges(1, first, second)
				f.pass(time.Millisecond)
				f.store(second)
			},
			want: empty(2, ""),
		},
		"ElsewhereAfter": {
			reason: "A forged review adds no references if another replica gets it after the real one.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.writes(first, second)
				f.there(true)
				f.forges(1, first, second)
			},
			want: empty(2, ""),
		},
		"Another": {
			reason: "A review of another spec does not affect the mark.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				f.forges(0, first, other)
				f.there(false)
				f.writes(first, second)
			},
			want: empty(2, ""),
		},
		"Approval": {
			reason: "A forged review of an approval has no effect if the approval is not stored.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				f.forges(0, first, approving(first))
			},
		},
		"ApprovalInAdvance": {
			reason: "The review of the author of the approval decides about its references.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(true)
				f.forges(0, first, approving(first))
				f.there(false)
				f.pass(blink)
				f.writes(first, approving(first))
				f.there(true)
				f.pass(time.Minute)
				f.forges(0, first, approving(first))
				f.forges(1, first, approving(first))
			},
			want: empty(1, "1"),
		},
		"ApprovalTaken": {
			reason: "A reused value of the approval allows no more references than at its first use.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.writes(first, approving(first))
				f.pass(blink)
				f.store(first) // The API server sends no review of this.
				f.there(true)
				f.forges(0, first, approving(first))
				f.pass(blink)
				f.store(approving(first))
			},
			want: empty(1, "1"),
		},
		"Deletion": {
			reason: "A deletion increments the generation without a review.",
			do: func(f *forgery) {
				kept := first.DeepCopy()
				kept.SetFinalizers([]string{"example.com/keep"})
				f.writes(nil, kept)
				f.there(true)
				going := kept.DeepCopy()
				going.SetGeneration(2)
				going.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
				f.forges(0, kept, going)
				going.SetDeletionTimestamp(nil)
				f.forges(0, kept, going)
				f.store(going)
				if err := f.hub.Delete(f.t.Context(), going); err != nil {
					f.t.Error(err)
				}
			},
		},
		"Unregistered": {
			reason: "Before the webhook is registered, any client can forge the first review of a write.",
			do: func(f *forgery) {
				f.since = time.Time{}
				f.writes(nil, first)
				f.there(true)
				f.forges(0, first, second)
				f.store(second)
			},
		},
		"JustRegistered": {
			reason: "The API server calls a newly registered webhook only after a moment.",
			do: func(f *forgery) {
				f.since = time.Now().Add(-heeded + time.Second)
				f.writes(nil, first)
				f.there(true)
				f.forges(0, first, second)
				f.store(second)
			},
		},
		"GivenUp": {
			reason: "Many forged reviews do not replace the review of the API server.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.there(false)
				if !f.asks(0, "mallory", first, second) {
					f.t.Error("want the write admitted without the Deployment")
				}
				for i := range mostPending {
					f.pass(2 * recent / mostPending)
					f.forges(0, first, misleading(2, fmt.Sprint(i)))
				}
				f.there(true)
				f.forges(0, first, second)
				f.store(second)
			},
		},
		"NoRoom": {
			reason: "The claim of a write that may be stored at this moment is not dropped.",
			do: func(f *forgery) {
				f.writes(nil, first)
				f.pass(blink)
				if !f.asks(0, "mallory", first, second) {
					f.t.Error("want the write admitted without the Deployment")
				}
				for i := range mostPending - 1 {
					f.forges(0, first, misleading(2, fmt.Sprint(i)))
				}
				if f.asks(0, "admin", first, other) {
					f.t.Error("want a write without room for its claim rejected")
				}
				f.there(true)
				f.forges(0, first, second)
				f.store(second)
			},
			want: empty(2, ""),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := forging(t)
				f.there(false)
				done := make(chan struct{})
				go func() { // The mark never has more references, not even temporarily.
					for {
						select {
						case <-done:
							return
						case <-time.After(50 * time.Millisecond):
						}
						if got := markOn(t, f.hub); got != nil && len(got.Items) > 0 && (tc.want == nil || len(tc.want.Items) == 0) {
							t.Errorf("%s\nthe mark had references temporarily: %v", tc.reason, got)
							return
						}
					}
				}()
				tc.do(f)
				f.pass(2 * storing)
				close(done)
				if diff := cmp.Diff(tc.want, markOn(t, f.hub)); diff != "" {
					t.Errorf("%s\nThe mark: -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestRoomForMarks: many reviews of policies that are never stored take only bounded memory, and other policies still
// get their marks.
func TestRoomForMarks(t *testing.T) {
	cases := map[string]struct {
		reason string
		forge  func(i int) *unstructured.Unstructured
	}{
		"Elsewhere": {"The reviews name many namespaces, which may not exist.", func(i int) *unstructured.Unstructured {
			p := brings("db", 1, fmt.Sprint(i))
			p.SetNamespace(fmt.Sprint("forged-", i%100))
			return p
		}},
		"Everywhere": {"Each review names a different namespace.", func(i int) *unstructured.Unstructured {
			p := brings("db", 1, fmt.Sprint(i))
			p.SetNamespace(fmt.Sprint("forged-", i))
			return p
		}},
		"Here": {"The reviews name the same namespace.", func(i int) *unstructured.Unstructured {
			p := brings("db", 1, fmt.Sprint(i))
			p.SetName(fmt.Sprint("forged-", i))
			return p
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := hubWith(t).Build()
				v := newValidator(Options{Client: c, Log: logr.Discard(), Allowed: everything, Patience: time.Minute})
				h := admission.Handler(v.handle)
				for i := range mostAwaited + 100 {
					if got := ask(t, h, review(t, nil, tc.forge(i))); !got.Allowed {
						t.Fatal(shown(got))
					}
					<-time.After(time.Nanosecond) // Gives each claim a distinct age.
				}
				synctest.Wait()
				if n := len(v.marker.claims); n > mostAwaited || n != v.marker.awaited {
					t.Errorf("%s\nwant at most %d claims, got %d, of which %d were counted", tc.reason, mostAwaited, n, v.marker.awaited)
				}
				policy := brings("db", 1, "real")
				ask(t, h, review(t, nil, policy))
				<-time.After(time.Nanosecond)
				for i := range mostPending / 2 {
					ask(t, h, review(t, nil, tc.forge(3*mostAwaited+i)))
				}
				if err := c.Create(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
				synctest.Wait()
				if got := markOn(t, c); got == nil || len(got.Items) != 1 {
					t.Errorf("%s\nwant the mark of the stored policy, got %v", tc.reason, got)
				}
				if name != "Here" { // Few claims are left in this case.
					v.marker.mu.Lock()
					for _, c := range v.marker.claims {
						c.stop()
					}
					v.marker.mu.Unlock()
				}
				<-time.After(2 * storing)
				synctest.Wait()
				if n := len(v.marker.claims) + len(v.marker.pending) + v.marker.awaited; n != 0 {
					t.Errorf("%s\nwant no claims left, got %d", tc.reason, n)
				}
			})
		})
	}
}

// TestNotKnownWhetherStored: a policy without a claim is not admitted, because a forged claim would then be the only
// one.
func TestNotKnownWhetherStored(t *testing.T) {
	c := hubWith(t).WithInterceptorFuncs(interceptor.Funcs{Get: func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
	) error {
		return errors.New("connection refused")
	}}).Build()
	got := post(t, Options{Client: c, Log: logr.Discard()}, review(t, nil, brings("db", 1, "1")))
	if got.Allowed || got.Result.Code != http.StatusServiceUnavailable {
		t.Errorf("want the policy rejected for now, got %s", shown(got))
	}
}
