package policies

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// brings returns a policy that brings in a Secret.
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

// markOn returns the mark that the policy has on the hub.
func markOn(t *testing.T, c client.Client) *corev1alpha1.CheckedReferences {
	t.Helper()
	p := &corev1alpha1.OverridePolicy{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, p); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return p.Status.References
}

// TestMark has a policy written while it is admitted, and before or after that: the
// mark is about what was admitted, or not there.
func TestMark(t *testing.T) {
	created, updated := brings("db", 1, "1"), brings("db", 2, "1")
	marked := func(generation int64) *corev1alpha1.CheckedReferences {
		return &corev1alpha1.CheckedReferences{ObservedGeneration: generation, Items: []corev1alpha1.CheckedReference{{Kind: "Secret", Name: "db"}}}
	}
	approved := brings("db", 1, "1")
	approved.SetAnnotations(map[string]string{refractv1alpha1.ApproveReferencesAnnotation: "1"})
	cases := map[string]struct {
		reason   string
		was, now *unstructured.Unstructured
		before   *unstructured.Unstructured // On the hub while it is admitted.
		stored   *unstructured.Unstructured // What is stored then; nil for nothing.
		dryRun   bool
		fails    error // Of the first write of a status.
		want     *corev1alpha1.CheckedReferences
	}{
		"Created":        {reason: "It is stored a moment after it was admitted.", now: created, stored: created, want: marked(1)},
		"Updated":        {reason: "So is a change.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: updated, want: marked(2)},
		"NeverStored":    {reason: "Another webhook may refuse it.", now: created},
		"DryRun":         {reason: "An administrator may try out what somebody else writes then.", now: created, stored: created, dryRun: true},
		"ChangedSince":   {reason: "That was admitted by itself.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: brings("theirs", 3, "1")},
		"AnotherOfName":  {reason: "The one that was admitted is gone.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: brings("db", 2, "2")},
		"SameGeneration": {reason: "Two were admitted, and the other was stored.", was: brings("other", 1, "1"), now: updated, before: brings("other", 1, "1"), stored: brings("theirs", 2, "1")},
		"Approved":       {reason: "Nothing changes but the annotation.", was: created, now: approved, before: created, want: marked(1)},
		"Conflict": {
			reason: "Somebody wrote the status at the same time.", now: created, stored: created, want: marked(1),
			fails: apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("another version")),
		},
		"Fault": {reason: "The API server may be away for a moment.", now: created, stored: created, want: marked(1), fails: errors.New("connection refused")},
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

// TestMarksPending: who has very much written at once has no memory taken for it
// without end, and is told.
func TestMarksPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := New(Options{Client: hubWith(t).Build(), Log: logr.Discard(), Allowed: func(
			context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes,
		) (bool, error) {
			return true, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range mostPending + 1 {
			want := 0
			if i == mostPending {
				want = 1
			}
			if got := ask(t, h, review(t, nil, brings("db", 1, "1"))); !got.Allowed || len(got.Warnings) != want {
				t.Fatalf("Write %d: want %d warnings, got %v", i, want, got)
			}
		}
		<-time.After(2 * storing)
		synctest.Wait()
		if got := ask(t, h, review(t, nil, brings("db", 1, "1"))); len(got.Warnings) != 0 {
			t.Errorf("There is room again: got %v", got.Warnings)
		}
		<-time.After(2 * storing)
	})
}
