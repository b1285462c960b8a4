package propagation

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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
