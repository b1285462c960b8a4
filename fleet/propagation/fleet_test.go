package propagation

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestObjectsAgain: only changed objects of the hub are returned as new objects, so that a change of one policy causes
// no work for the others. The call ends with its context.
func TestObjectsAgain(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := connected(t, fake.NewClientBuilder().WithScheme(scheme).Build(), nil, Options{Leadership: &replica{leads: true}})
	view := &policyView{policies: c.decider.policies, kind: corev1alpha1.KindOverridePolicy}
	see := func(name, version string, labels map[string]string) {
		t.Helper()
		p := &corev1alpha1.OverridePolicy{}
		p.Namespace, p.Name, p.UID, p.ResourceVersion, p.Labels = "shop", name, types.UID(name), version, labels
		if err := view.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"p0", "p1", "p2"} {
		see(name, "1", nil)
	}
	c.started.Store(true)
	c.known.Store(true)
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
	see("p1", "2", map[string]string{"a": "b"})
	c.state.epoch.Add(1)
	ended, cancel := context.WithCancelCause(t.Context())
	late := errors.New("it takes too long")
	cancel(late)
	if _, err := c.Objects(ended); !errors.Is(err, late) {
		t.Errorf("after the end of the context: want its cause, got %v", err)
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
		t.Errorf("want all objects reused except p1, which has changed, got %v, and %v", same, second["p1"])
	}
}

// TestObjectsThatAreThere: objects that are gone from the hub are not returned, even while copies of them are being
// removed. The same slice is returned until something changes.
func TestObjectsThatAreThere(t *testing.T) {
	s, _ := hubOf(t, sourceObject("v1", "ConfigMap", "web", "pp"))
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	if _, err := c.Objects(t.Context()); err == nil {
		t.Error("Objects(): want an error before all objects are decided")
	}
	c.started.Store(true)
	c.known.Store(true)
	there, gone := keyOf("configmaps", "web"), keyOf("configmaps", "gone")
	c.state.setDesired(there, &desiredState{uid: "1", gvr: configMaps, kind: "ConfigMap", placed: on("eu-1")}, previous{}, nil)
	c.state.setDesired(gone, &desiredState{gvr: configMaps, kind: "ConfigMap", gone: true, cause: causeDeleted}, previous{placed: on("eu-1")}, nil)
	objects := func() (all []*unstructured.Unstructured, names []string) {
		t.Helper()
		all, err := c.Objects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			names = append(names, o.GetKind()+" "+o.GetName())
		}
		slices.Sort(names)
		return all, names
	}
	first, got := objects()
	want := []string{"ConfigMap web", "FederatedCluster eu-1", "FederatedCluster us-1", "Propagation web.configmaps"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Objects(): -want, +got:\n%s", diff)
	}
	if again, _ := objects(); &again[0] != &first[0] {
		t.Error("Objects(): want the same slice while nothing changes")
	}
	c.state.setDesired(there, &desiredState{gvr: configMaps, kind: "ConfigMap", gone: true, cause: causeDeleted}, previous{}, nil)
	if _, got := objects(); slices.Contains(got, "Propagation web.configmaps") {
		t.Errorf("Objects(): want no report on an object that is gone, got %v", got)
	}
}
