package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestObjectsAgain: of what the hub holds only that is another object which has changed, so
// that one policy's changes are not everybody's work; and nobody waits for longer than he
// has time.
func TestObjectsAgain(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i := range 3 {
		p := &corev1alpha1.OverridePolicy{}
		p.Namespace, p.Name, p.UID = "shop", fmt.Sprint("p", i), types.UID(fmt.Sprint(i))
		b.WithObjects(p)
	}
	c := &Controller{client: b.Build(), ledger: newLedger(), sources: &sources{}}
	c.primed.Store(true)
	objects := func() map[string]*unstructured.Unstructured {
		t.Helper()
		list, err := c.Objects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]*unstructured.Unstructured{}
		for _, o := range list {
			out[o.GetName()] = o
		}
		return out
	}
	first := objects()
	changed := &corev1alpha1.OverridePolicy{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "p1"}, changed); err != nil {
		t.Fatal(err)
	}
	changed.Labels = map[string]string{"a": "b"}
	if err := c.client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	c.epoch.Add(1)
	ended, cancel := context.WithCancelCause(t.Context())
	late := errors.New("it takes too long")
	cancel(late)
	if _, err := c.Objects(ended); !errors.Is(err, late) {
		t.Errorf("Without time: want the cause, got %v", err)
	}
	second := objects()
	var same []string
	for name, o := range first {
		if second[name] == o {
			same = append(same, name)
		}
	}
	slices.Sort(same)
	if !slices.Equal(same, []string{"p0", "p2"}) || second["p1"].GetLabels()["a"] != "b" {
		t.Errorf("want all the same but p1, which has changed, got %v, and %v", same, second["p1"])
	}
}
