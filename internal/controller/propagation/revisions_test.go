package propagation

import (
	"bytes"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/revision"
)

// TestSealedParts: what a Secret was is read again by every replica, as long as the key is there that it was sealed with. What
// cannot be read any more, or was changed, counts as gone, and is put right when it is stored the next time.
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
		"Nothing": {"Another replica reads it with the same key.", func(*testing.T, client.Client) {}, false},
		"KeyGone": {"Without the key nobody reads it.", func(t *testing.T, hub client.Client) {
			t.Helper()
			if err := hub.Delete(t.Context(), secret.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}, true},
		"OtherKey": {"Nor with another key, which who has read the first one learns of.", func(t *testing.T, hub client.Client) {
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
		"Changed": {"What somebody wrote in its place is not taken for it.", func(t *testing.T, hub client.Client) {
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
				t.Fatalf("%s\nit cannot be stored again: %v", tc.reason, err)
			}
			if text, err := replica().part(t.Context(), at, true); err != nil || revision.Check(text, at.Name) != nil {
				t.Errorf("%s\nstored again, another replica reads %q, %v", tc.reason, text, err)
			}
		})
	}
}

// TestResealed: earlier versions kept custom resources and roles in plain text, which the role view reads. They are sealed, and
// the plain text is gone.
func TestResealed(t *testing.T) {
	const value = "hunter2"
	for name, tc := range map[string]struct {
		reason, kind, resource, group, namespace string
	}{
		"Namespaced":    {"Many custom resources hold what only some may read.", "Login", "logins", "example.com", "shop"},
		"ClusterScoped": {"Its part stays where it was.", "ClusterLogin", "clusterlogins", "example.com", ""},
		"Role":          {"The role view reads no roles.", "Role", "roles", "rbac.authorization.k8s.io", "shop"},
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
			v.cache, v.system = &parts{}, system // The cache is that of another process.
			if tc.namespace == "" {
				if got, err := v.objectPart(t.Context(), key, part.Name); err != nil || !bytes.Equal(got, text) {
					t.Fatalf("%s\nthe part of the earlier version is %q, %v", tc.reason, got, err)
				}
			}
			// What is not read is sealed before the plain text is deleted.
			status := &refractv1alpha1.RolloutStatus{
				Phase: refractv1alpha1.RolloutProgressing, Target: revision.Of("new", 0, nil), LastGood: revision.Of(part.Name, 0, nil),
			}
			v.rollouts = func() map[Key]*refractv1alpha1.RolloutStatus {
				return map[Key]*refractv1alpha1.RolloutStatus{key: status}
			}
			v.now = func() time.Time { return time.Now().Add(time.Hour) }
			if _, err := v.sweep(t.Context(), plain.Namespace); err != nil {
				t.Fatal(err)
			}
			if left := v.client.Get(t.Context(), plain, &appsv1.ControllerRevision{}); tc.namespace != "" && !apierrors.IsNotFound(left) {
				t.Errorf("%s\nwant the plain text to be gone, got %v", tc.reason, left)
			}
			other := &revisions{client: v.client, live: v.live, system: system, cache: &parts{}, now: time.Now}
			if got, err := other.part(t.Context(), objectPlace(key, part.Name, system), true); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s\nanother replica reads %q, %v", tc.reason, got, err)
			}
			sealed := &appsv1.ControllerRevision{}
			if err := v.live.Get(t.Context(), objectPlace(key, part.Name, system), sealed); err != nil || bytes.Contains(sealed.Data.Raw, []byte(value)) {
				t.Errorf("%s\nit is kept as %s, %v", tc.reason, sealed.Data.Raw, err)
			}
		})
	}
}
