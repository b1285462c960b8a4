package member

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// whole is an object that was read as a whole.
func whole(tb testing.TB, uid, version, color string) *received {
	tb.Helper()
	return objectOf(tb, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"color": color},
		"metadata": map[string]any{
			"namespace": webName.Namespace, "name": webName.Name, "uid": uid, "resourceVersion": version,
			"annotations": map[string]any{refractv1alpha1.AppliedAnnotation: "h1", refractv1alpha1.SourceAnnotation: "hub/x"},
		},
	})
}

// TestJudged: the result of a check, with the version of its criterion, stays until the next result.
func TestJudged(t *testing.T) {
	asked := &Health{Version: 7, Check: func(o map[string]any) error {
		if color, _, _ := unstructured.NestedString(o, "data", "color"); color != "blue" {
			return errors.New("it is not blue")
		}
		return nil
	}}
	var heard told
	bounds := newLimits("eu-1")
	d := decoder{account: bounds.account, health: func(Key) *Health { return asked }}
	c := copiesOf(configMaps, bounds, d, heard.observer())
	is := func(what string, readiness refractv1alpha1.Readiness, judged uint32, readied int) {
		t.Helper()
		got, _ := c.get(webName)
		if diff := cmp.Diff([]any{readiness, judged, readied}, []any{got.Readiness, got.Judged, heard.readied}); diff != "" {
			t.Errorf("%s: readiness, criterion, reports: -want, +got:\n%s", what, diff)
		}
	}
	read := func(o *received) error {
		t.Helper()
		e := d.copyEventOf(o, configMaps.GroupResource())
		difference, err := c.onRead(e)
		c.tell(e, difference)
		return err
	}
	_ = c.Add(seen(t, firstUID, "10", "h1", applied))
	is("A watch of metadata checks nothing.", refractv1alpha1.ReadinessReady, 0, 1)
	if err := read(whole(t, firstUID, "10", "red")); err != nil {
		t.Error(err)
	}
	is("A read object is checked.", refractv1alpha1.ReadinessInProgress, 7, 2)
	_ = c.Update(seen(t, firstUID, "10", "h1", applied))
	is("An event of the same version changes nothing.", refractv1alpha1.ReadinessInProgress, 7, 2)
	_ = c.Update(seen(t, firstUID, "11", "h1", applied))
	is("Another version was not checked yet.", refractv1alpha1.ReadinessReady, 0, 3)
	if err := read(whole(t, firstUID, "10", "blue")); !errors.Is(err, errOld) {
		t.Errorf("want errOld for an older answer, got %v", err)
	}
	is("An older answer is ignored.", refractv1alpha1.ReadinessReady, 0, 3)
	if err := read(whole(t, secondUID, "12", "red")); err != nil {
		t.Error(err)
	}
	is("An answer about another object is ignored.", refractv1alpha1.ReadinessReady, 0, 3)
	if err := read(whole(t, firstUID, "11", "blue")); err != nil {
		t.Error(err)
	}
	is("It is healthy.", refractv1alpha1.ReadinessReady, 7, 4)
	asked = &Health{Version: 8, Check: func(map[string]any) error { panic("who has written that") }}
	if err := read(whole(t, firstUID, "11", "blue")); err != nil {
		t.Error(err)
	}
	is("After a panic of a check, the object does not count as healthy.", refractv1alpha1.ReadinessInProgress, 8, 5)
}
