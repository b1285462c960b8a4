package member

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	webName     = types.NamespacedName{Namespace: "d", Name: "web"}
)

const (
	firstUID  = "f2a4c9ec-3e35-4bf5-a0c4-d7fbd696edb0"
	secondUID = "0d13f7c3-3e35-4bf5-a0c4-d7fbd696edb1"
)

// told counts the calls to an observer.
type told struct{ changed, readied, listed int }

func (t *told) observer() observer {
	return observer{changed: func(Key) { t.changed++ }, readied: func(Key) { t.readied++ }, awaited: func() {}, listed: func(schema.GroupResource, bool) {
		t.listed++
	}}
}

// unobserved is for members without an observer.
var unobserved = observer{changed: func(Key) {}, readied: func(Key) {}, awaited: func() {}, listed: func(schema.GroupResource, bool) {}}

// copies are the copies of one type, with the interface for the reflector and the one for readers.
type copies struct {
	*store
	*reflected
}

// get returns a copy, even before all copies are known.
func (c copies) get(name types.NamespacedName) (Copy, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r := c.records.get(name)
	if r == nil {
		return Copy{}, false
	}
	return r.copy(c.records.key(name)), true
}

func (t *told) copies(gvr schema.GroupVersionResource) copies {
	bounds := newLimits("eu-1")
	return copiesOf(gvr, bounds, decoder{account: bounds.account}, t.observer())
}

func copiesOf(gvr schema.GroupVersionResource, bounds limits, d decoder, o observer) copies {
	s := newStore(gvr, bounds, d)
	return copies{s, &reflected{context.Background(), s, (&watches{observer: o}).notify, o.listed, turn{}}}
}

// seen returns an object in the form of a watch of metadata.
func seen(tb testing.TB, uid, version, hash, managers string) *metav1.PartialObjectMetadata {
	tb.Helper()
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: webName.Namespace, Name: webName.Name, UID: types.UID(uid), ResourceVersion: version,
		Annotations:   map[string]string{refractv1alpha1.AppliedAnnotation: hash, refractv1alpha1.SourceAnnotation: "hub/x"},
		ManagedFields: managersOf(tb, managers),
	}}
}

func TestCopiesTellWhatIsNew(t *testing.T) {
	with := func(change func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
		m := seen(t, firstUID, "11", "h1", applied)
		change(m)
		return m
	}
	now := metav1.Now()
	cases := map[string]struct {
		reason  string
		event   *metav1.PartialObjectMetadata
		want    told
		manager string
	}{
		"Nothing":    {"Labels and annotations of other managers are not reported.", with(func(m *metav1.PartialObjectMetadata) { m.Labels = map[string]string{"a": "b"} }), told{}, ""},
		"Drift":      {"Another manager took a field, which must be corrected.", seen(t, firstUID, "11", "h1", scaled), told{changed: 1}, "kubectl"},
		"OurWrite":   {"Other content has other fields, so a missing field was not taken.", seen(t, firstUID, "11", "h2", scaled), told{changed: 1}, ""},
		"Old":        {"An event older than the known version is ignored.", seen(t, firstUID, "9", "h0", scaled), told{}, ""},
		"OldObject":  {"An event about an earlier object is ignored.", seen(t, secondUID, "9", "h0", scaled), told{}, ""},
		"Another":    {"Another object of the same name is reported.", seen(t, secondUID, "11", "h1", applied), told{changed: 1}, ""},
		"Orphan":     {"The annotation that keeps the copy is known before the copy is deleted.", with(func(m *metav1.PartialObjectMetadata) { m.Annotations[refractv1alpha1.OrphanAnnotation] = "all" }), told{changed: 1}, ""},
		"Adopted":    {"The annotation of an adopted object is known, too.", with(func(m *metav1.PartialObjectMetadata) { m.Annotations[refractv1alpha1.AdoptedAnnotation] = "true" }), told{changed: 1}, ""},
		"IsDeleted":  {"An object that is being deleted is not ready.", with(func(m *metav1.PartialObjectMetadata) { m.DeletionTimestamp = &now }), told{changed: 1, readied: 1}, ""},
		"NotManaged": {"Without managedFields, Refract owns no fields.", seen(t, firstUID, "11", "h1", `[{}]`), told{changed: 1}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got told
			c := got.copies(configMaps)
			_ = c.Add(seen(t, firstUID, "10", "h1", applied))
			if diff := cmp.Diff(told{changed: 1, readied: 1}, got, cmp.AllowUnexported(told{})); diff != "" {
				t.Fatalf("Add() of a new copy: -want, +got:\n%s", diff)
			}
			got = told{}
			_ = c.Update(tc.event)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(told{})); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if who := c.conflictingManager(webName); who != tc.manager {
				t.Errorf("%s\nculprit(): want %q, got %q", tc.reason, tc.manager, who)
			}
		})
	}
}

// TestCopyThatWasMadeAgain: a late event about a deleted object does not remove the new object of the same name.
func TestCopyThatWasMadeAgain(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	_ = c.Add(seen(t, secondUID, "12", "h1", applied))
	got = told{}
	_ = c.Delete(seen(t, firstUID, "11", "h1", applied))
	if item, ok := c.get(webName); !ok || item.UID != secondUID || got != (told{}) {
		t.Errorf("late deletion event of the previous object: want the new one kept, and no report, got %t, %+v", ok, got)
	}
	_ = c.Delete(seen(t, secondUID, "13", "h1", applied))
	if _, ok := c.get(webName); ok || got != (told{changed: 1}) {
		t.Errorf("deletion event: want the object gone, and a report, got %t, %+v", ok, got)
	}
}

// TestNativeCopies: a mark of the cluster shows that the cluster itself now maintains an object that was a copy.
func TestNativeCopies(t *testing.T) {
	var got told
	c := got.copies(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"})
	_ = c.Add(seen(t, firstUID, "10", "h1", applied))
	if item, _ := c.get(webName); item.Native {
		t.Error("want a Role without the mark not native")
	}
	got = told{}
	marked := seen(t, firstUID, "11", "h1", applied)
	marked.Labels = map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
	_ = c.Update(marked)
	if item, _ := c.get(webName); !item.Native || got != (told{changed: 1}) {
		t.Errorf("want a Role with the mark native, and a report: got %t, %+v", item.Native, got)
	}
}

func TestDriftIsForgottenWhenItIsCorrected(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	_ = c.Add(seen(t, firstUID, "10", "h1", applied))
	_ = c.Update(seen(t, firstUID, "11", "h1", scaled))
	_ = c.Update(seen(t, firstUID, "12", "h1", applied)) // The event of Refract's own write comes before its answer.
	if who := c.conflictingManager(webName); who != "kubectl" {
		t.Errorf("conflicting manager: want it known until the answer arrives, got %q", who)
	}
	c.remember(webName, copyOf(seen(t, firstUID, "12", "h1", applied), configMaps.GroupResource(), c.decode.account), true)
	if who := c.conflictingManager(webName); who != "" {
		t.Errorf("conflicting manager: want none after a write, got %q", who)
	}
	got = told{}
	_ = c.Update(seen(t, firstUID, "11", "h1", scaled))
	if item, _ := c.get(webName); !item.Owned.MayHave(replicas) || got != (told{}) {
		t.Error("want an event older than the answer to a write ignored")
	}
}

// TestFieldsGivenBack: a client that gives fields back to Refract in managedFields has not restored their values.
func TestFieldsGivenBack(t *testing.T) {
	const (
		less  = `[{"manager":"refract","operation":"Apply","time":"2026-11-21T13:07:53Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:a":{}}}}]`
		all   = `[{"manager":"refract","operation":"Apply","time":"2026-11-21T13:07:53Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:a":{},"f:b":{}}}}]`
		later = `[{"manager":"refract","operation":"Apply","time":"2026-11-21T13:07:54Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:a":{},"f:b":{}}}}]`
		none  = `[{"manager":"else","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:b":{}}}}]`
	)
	note := func(version, managers string) *metav1.PartialObjectMetadata {
		m := seen(t, firstUID, version, "h1", strings.TrimSuffix(managers, "]")+`,{"manager":"else","operation":"Update","time":"2026-11-21T14:00:00Z"}]`)
		m.Labels = map[string]string{"note": version}
		return m
	}
	answer := func(version, managers string) Copy {
		return copyOf(seen(t, firstUID, version, "h1", managers), configMaps.GroupResource(), newAccount())
	}
	cases := map[string]struct {
		reason string
		do     func(copies)
		want   bool
		told   int
	}{
		"Taken":    {"A lost field is drift, and corrected as such.", func(c copies) { _ = c.Update(seen(t, firstUID, "11", "h1", less)) }, false, 1},
		"NoneLeft": {"The loss of all fields is drift, too.", func(c copies) { _ = c.Update(seen(t, firstUID, "11", "h1", none)) }, false, 1},
		"Others":   {"Fields of other managers do not matter.", func(c copies) { _ = c.Update(note("11", all)); _ = c.Update(note("12", all)) }, false, 0},
		"GivenBack": {"The fields belonged to another client meanwhile, which may have changed their values.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", less))
			_ = c.Update(seen(t, firstUID, "12", "h1", all))
		}, true, 2},
		"AllGivenBack": {"All fields belonged to another client meanwhile.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", none))
			_ = c.Update(seen(t, firstUID, "12", "h1", all))
		}, true, 2},
		"TimeGivenBack": {"A client that applied under the name of Refract restores the earlier time.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", later))
			_ = c.Update(seen(t, firstUID, "12", "h1", all))
		}, true, 2},
		"ThenANote": {"The doubt stays after later events.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", less))
			_ = c.Update(seen(t, firstUID, "12", "h1", all))
			_ = c.Update(note("13", all))
			c.remember(webName, answer("13", all), false)
		}, true, 2},
		"ThenCorrected": {"A write of Refract ends the doubt.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", less))
			_ = c.Update(seen(t, firstUID, "12", "h1", all))
			c.remember(webName, answer("12", all), true)
			_ = c.Update(note("13", all))
		}, false, 2},
		"Answer": {"The answer to the correction comes before its event.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", less))
			c.remember(webName, answer("12", later), true)
			_ = c.Update(seen(t, firstUID, "12", "h1", later))
		}, false, 1},
		"Event": {"The answer to the correction comes after its event.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", less))
			_ = c.Update(seen(t, firstUID, "12", "h1", later))
			c.remember(webName, answer("12", later), true)
		}, false, 2},
		"Another": {"Another object has the same name.", func(c copies) {
			_ = c.Update(seen(t, firstUID, "11", "h1", less))
			_ = c.Update(seen(t, secondUID, "12", "h1", all))
		}, false, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got told
			c := got.copies(configMaps)
			_ = c.Add(seen(t, firstUID, "10", "h1", all))
			got = told{}
			tc.do(c)
			if item, _ := c.get(webName); item.Doubted != tc.want || item.Hash != "h1" || got.changed != tc.told {
				t.Errorf("%s\nwant doubted %t and %d reports, got %t and %d", tc.reason, tc.want, tc.told, item.Doubted, got.changed)
			}
		})
	}
}

// deployment returns a Deployment in the form of a watch of whole objects.
func deployment(tb testing.TB, version string, generation, observed, ready int64) *received {
	tb.Helper()
	return objectOf(tb, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"namespace": webName.Namespace, "name": webName.Name, "uid": firstUID, "resourceVersion": version, "generation": generation,
			"annotations": map[string]any{refractv1alpha1.AppliedAnnotation: fmt.Sprint("h", generation)},
		},
		"spec": map[string]any{"replicas": int64(2)},
		"status": map[string]any{
			"observedGeneration": observed, "replicas": int64(2), "updatedReplicas": int64(2), "readyReplicas": ready, "availableReplicas": ready,
			"conditions": []any{map[string]any{"type": "Available", "status": "True"}},
		},
	})
}

func TestReadiness(t *testing.T) {
	var got told
	c := got.copies(deployments)
	answer := func(version string, generation int64) Copy {
		m := seen(t, firstUID, version, fmt.Sprint("h", generation), applied)
		m.Generation = generation
		return copyOf(m, deployments.GroupResource(), c.decode.account)
	}
	steps := []struct {
		reason string
		do     func()
		want   string
		told   told
	}{
		{"A new object is not ready before its status was seen.", func() { c.remember(webName, answer("10", 1), true) }, "InProgress " + notSeenYet, told{}},
		{"The answer had no status; the event of the same version has it.", func() { _ = c.Add(deployment(t, "10", 1, 0, 0)) },
			"InProgress Deployment generation is 1, but latest observed generation is 0", told{readied: 1}},
		{"A changed status requires no write.", func() { _ = c.Update(deployment(t, "11", 1, 1, 1)) }, "InProgress Available: 1/2", told{readied: 1}},
		{"The copy becomes ready.", func() { _ = c.Update(deployment(t, "12", 1, 1, 2)) }, "Ready ", told{readied: 1}},
		{"An equivalent status is not reported.", func() { _ = c.Update(deployment(t, "13", 1, 1, 2)) }, "Ready ", told{}},
		{"A write without a change of the spec leaves the object ready.", func() { c.remember(webName, answer("14", 1), true) }, "Ready ", told{}},
		{"A write that changes the spec resets the readiness.", func() { c.remember(webName, answer("15", 2), true) }, "InProgress " + notSeenYet, told{}},
		{"The cluster has reached the new state.", func() { _ = c.Update(deployment(t, "16", 2, 2, 2)) }, "Ready ", told{readied: 1, changed: 1}},
	}
	for i, s := range steps {
		got = told{}
		s.do()
		item, _ := c.get(webName)
		if have := string(item.Readiness) + " " + item.ReadinessMessage; have != s.want {
			t.Errorf("step %d: %s\nwant %q, got %q", i, s.reason, s.want, have)
		}
		if got.readied != s.told.readied {
			t.Errorf("step %d: %s\nwant %+v, got %+v", i, s.reason, s.told, got)
		}
	}
}

func TestReadinessOf(t *testing.T) {
	custom := func(status map[string]any) *received {
		return objectOf(t, map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}, "status": status})
	}
	condition := func(kind, state string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": kind, "status": state, "reason": "R", "message": "why"}}}
	}
	going := custom(nil)
	now := metav1.Now()
	going.SetDeletionTimestamp(&now)
	cases := map[string]struct {
		reason  string
		object  *received
		want    refractv1alpha1.Readiness
		message string
	}{
		"Silent":     {"An object without a status is ready as soon as it exists.", custom(nil), refractv1alpha1.ReadinessReady, ""},
		"NotReady":   {"The condition Ready counts.", custom(condition("Ready", "False")), refractv1alpha1.ReadinessInProgress, "why"},
		"Stalled":    {"The condition Stalled is a failure.", custom(condition("Stalled", "True")), refractv1alpha1.ReadinessFailed, "why"},
		"Going":      {"An object that is being deleted is not ready.", going, refractv1alpha1.ReadinessInProgress, isGoing},
		"Unreadable": {"A custom status with an unexpected type is ignored.", custom(map[string]any{"conditions": "many"}), refractv1alpha1.ReadinessUnknown, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, message := decoder{}.readinessOf(tc.object)
			if got != tc.want || (tc.message != "" && message != tc.message) {
				t.Errorf("%s\nreadinessOf(): want %s %q, got %s %q", tc.reason, tc.want, tc.message, got, message)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	named := func(name, version string) *metav1.PartialObjectMetadata {
		m := seen(t, firstUID, version, "h1", applied)
		m.Name = name
		return m
	}
	has := func() string {
		var names []string
		for _, name := range []string{"gone", "stays", "written", "new"} {
			if _, ok := c.get(types.NamespacedName{Namespace: "d", Name: name}); ok {
				names = append(names, name)
			}
		}
		return fmt.Sprint(strings.Join(names, " "), " ", c.len(), c.inNamespace("d"))
	}
	_ = c.Replace([]any{named("gone", "10"), named("stays", "11")}, "20")
	if !c.synced.isClosed() || has() != "gone stays 2 2" {
		t.Errorf("Replace(): want the list, got %q", has())
	}
	c.remember(types.NamespacedName{Namespace: "d", Name: "written"}, copyOf(named("written", "31"), configMaps.GroupResource(), c.decode.account), true)
	got = told{}
	listed, _ := c.Transformer()(named("new", "25")) // The items of a streamed list are kept nowhere else.
	if got != (told{}) {
		t.Errorf("Transformer(): want no report before the end of the list, got %+v", got)
	}
	_ = c.Replace([]any{listed, named("stays", "11")}, "30")
	if has() != "stays written new 3 3" {
		t.Errorf("Replace(): want the listed copies, and those written after the list was made; got %q", has())
	}
	if want := (told{changed: 2, readied: 1, listed: 1}); got != want {
		t.Errorf("Replace(): want %+v for the list, the removed and the added copies, got %+v", want, got)
	}
	_ = c.Replace([]any{named("stays", "5")}, "7")
	if item, _ := c.get(types.NamespacedName{Namespace: "d", Name: "stays"}); has() != "stays 1 1" || item.version != 5 {
		t.Errorf("Replace(): want the list of an API server that was restored from a backup; got %q", has())
	}
	_ = c.Delete(named("stays", "8"))
	if has() != " 0 0" {
		t.Errorf("Delete(): want no copies, got %q", has())
	}
	n := 0
	c.each(func(Key, Copy) bool { n++; return true })
	if n != 0 {
		t.Errorf("each(): want no calls, got %d", n)
	}
}

func TestUID(t *testing.T) {
	for _, id := range []types.UID{"", firstUID, "not-a-uid", "F2A4C9EC-3E35-4BF5-A0C4-D7FBD696EDB0", "00000000-0000-0000-0000-000000000000", "f2a4c9ec-3e35-4bf5-a0c4-d7fbd696edbx"} {
		if got := uidOf(id).String(); got != id {
			t.Errorf("uidOf(%q): got %q", id, got)
		}
	}
}

func TestSource(t *testing.T) {
	key := Key{deployments.GroupResource(), webName}
	for name, s := range map[string]string{
		"OfThisCopy":    firstUID + "/" + secondUID + "/deployments.apps/d/web",
		"OfAnotherCopy": firstUID + "/" + secondUID + "/deployments.apps/d/other",
		"WithoutUIDs":   "hub/object/deployments.apps/d/web",
		"WithoutObject": "hub/deployments.apps/d/web",
		"None":          "",
	} {
		if got := originOf(key, s).of(key); got != s {
			t.Errorf("%s: want the source unchanged: %q, got %q", name, s, got)
		}
	}
	if originOf(key, "hub/a/deployments.apps/d/web") == originOf(key, "hub/b/deployments.apps/d/web") {
		t.Error("want different sources for copies of two objects")
	}
}

// TestMemoryOfCopies bounds the memory of a large fleet. It includes the strings that name the copy and its source;
// other members with the same copies share these strings.
func TestMemoryOfCopies(t *testing.T) {
	const n, bound = 20000, 400
	if got := bytesPerCopy(t, n); got > bound {
		t.Errorf("want at most %d bytes for a copy, got %d", bound, got)
	}
}

// BenchmarkMemory reports the bytes for each copy of a member with 100,000 copies.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(bytesPerCopy(b, 100000)), "B/copy")
	}
}

func bytesPerCopy(tb testing.TB, n int) int {
	tb.Helper()
	managers := managersOf(tb, applied)
	before := heap()
	c := (&told{}).copies(configMaps)
	for i := range n {
		_ = c.Add(written(i, managers))
	}
	after := heap()
	runtime.KeepAlive(c)
	return int(after-before) / n
}

// written returns the i-th of many copies in the form in which Refract writes them.
func written(i int, managers []metav1.ManagedFieldsEntry) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("application-%d", i), UID: types.UID(fmt.Sprintf("f2a4c9ec-3e35-4bf5-a0c4-%012x", i)),
		ResourceVersion: fmt.Sprint(i),
		Annotations: map[string]string{
			refractv1alpha1.AppliedAnnotation: fmt.Sprintf("%032x", i/10),
			refractv1alpha1.SourceAnnotation:  fmt.Sprintf("%s/f2a4c9ec-3e35-4bf5-a0c4-%012x/configmaps/team-%d/application-%d", firstUID, i, i%100, i),
		},
		ManagedFields: managers,
	}}
}
