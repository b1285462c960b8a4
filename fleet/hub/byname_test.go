package hub

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestByName: an object is read by a list request for its name, and never by a get. Other objects in the list are
// ignored. An incomplete list does not prove that the object is missing.
func TestByName(t *testing.T) {
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{"key": []byte(name)}}
	}
	whole := true
	of := ByName(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret("db"), secret("db-2")).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("a get is forbidden")
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if name, exact := o.FieldSelector.RequiresExactMatch("metadata.name"); !exact || name == "" || o.Namespace != "shop" {
				t.Errorf("want a list request for one name in the namespace, got %+v", o)
			}
			o.FieldSelector = nil // This server ignores selectors.
			err := c.List(ctx, list, o)
			if !whole {
				list.SetContinue("more")
			}
			return err
		},
	}).Build())
	got := &corev1.Secret{}
	if err := of.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db"}, got); err != nil || string(got.Data["key"]) != "db" {
		t.Errorf("want the Secret, got %v, %v", got, err)
	}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := of.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db-2"}, meta); err != nil || meta.Name != "db-2" {
		t.Errorf("want the metadata of the Secret, got %v, %v", meta, err)
	}
	if err := of.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "none"}, got); !apierrors.IsNotFound(err) {
		t.Errorf("want NotFound, got %v", err)
	}
	whole = false
	if err := of.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "none"}, got); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("want an error for a part of a list, got %v", err)
	}
}
