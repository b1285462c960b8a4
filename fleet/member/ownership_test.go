package member

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/tree"
)

// managedFields of a Deployment as an API server wrote them: after Refract applied it, after kubectl scale, and after
// kubectl set image.
const (
	applied = `[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:refract.dev/applied":{}},"f:labels":{"f:kubeadmiral.io/managed":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{}}}}}}},"manager":"refract","operation":"Apply","time":"2026-11-21T15:47:53Z"},` + controllers + `]`
	scaled  = `[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:refract.dev/applied":{}},"f:labels":{"f:kubeadmiral.io/managed":{}}},"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{}}}}}}},"manager":"refract","operation":"Apply","time":"2026-11-21T15:47:53Z"},` + scaler + `,` + controllers + `]`
	set     = `[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:refract.dev/applied":{}},"f:labels":{"f:kubeadmiral.io/managed":{}}},"f:spec":{"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{}}}}}}},"manager":"refract","operation":"Apply","time":"2026-11-21T15:47:53Z"},` + scaler + `,` + setter + `,` + controllers + `]`

	scaler      = `{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"manager":"kubectl","operation":"Update","subresource":"scale"}`
	setter      = `{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:image":{}}}}}}},"manager":"kubectl-set","operation":"Update","time":"2026-11-21T15:47:59Z"}`
	controllers = `{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:deployment.kubernetes.io/revision":{}}},"f:status":{"f:observedGeneration":{}}},"manager":"kube-controller-manager","operation":"Update","subresource":"status","time":"2026-11-21T15:48:00Z"}`
)

func managersOf(tb testing.TB, text string) []metav1.ManagedFieldsEntry {
	tb.Helper()
	var managers []metav1.ManagedFieldsEntry
	if err := json.Unmarshal([]byte(text), &managers); err != nil {
		tb.Fatal(err)
	}
	return managers
}

func TestOwnership(t *testing.T) {
	before := ours(managersOf(t, applied), roomy)
	// The same set as another version of the API server writes it.
	reordered := `[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:name":{},"f:image":{},"f:env":{"k:{\"name\":\"A\"}":{"f:value":{},"f:name":{},".":{}}},".":{}}}},"f:metadata":{"f:labels":{"f:a":{}}}},"f:selector":{},"f:replicas":{}},"f:metadata":{"f:labels":{"f:kubeadmiral.io\u002fmanaged":{}},"f:annotations":{"f:refract.dev/applied":{}}}},"manager":"refract","operation":"Apply","time":"2026-11-21T15:47:53Z"}]`
	cases := map[string]struct {
		reason   string
		managers string
		lost     []string
		replicas bool
		manager  string
	}{
		"Same":      {"What controllers write into the status is nothing of ours.", applied, nil, true, ""},
		"Reordered": {"The order and the escapes that an API server prefers mean nothing.", reordered, nil, true, ""},
		"Scaled": {
			"Who scales through the subresource takes the replicas, as autoscalers do.",
			scaled, []string{".spec.replicas"}, false, "kubectl",
		},
		"Set": {
			"The manager that wrote last and has one of the fields is named.",
			set, []string{".spec.replicas", `.spec.template.spec.containers[name="web"].image`}, false, "kubectl-set",
		},
		"Removed": {
			"A field that was removed has no manager: the last one to write is named, but not one that wrote the status.",
			`[{"manager":"early","operation":"Update","time":"2026-01-01T00:00:00Z"},{"manager":"late","operation":"Update","time":"2026-01-02T00:00:00Z"},` + controllers + `,` + shrunk + `]`,
			[]string{
				".metadata.annotations.refract.dev/applied", ".metadata.labels.kubeadmiral.io/managed", ".spec.selector", ".spec.template.metadata.labels.a",
				`.spec.template.spec.containers[name="web"].env[name="A"].name`, `.spec.template.spec.containers[name="web"].env[name="A"].value`,
				`.spec.template.spec.containers[name="web"].image`, `.spec.template.spec.containers[name="web"].name`,
			}, true, "late",
		},
		"Cleared": {
			"The record of managers can be removed as a whole.",
			`[{}]`,
			[]string{
				".metadata.annotations.refract.dev/applied", ".metadata.labels.kubeadmiral.io/managed", ".spec.replicas", ".spec.selector", ".spec.template.metadata.labels.a",
				`.spec.template.spec.containers[name="web"].env[name="A"].name`, `.spec.template.spec.containers[name="web"].env[name="A"].value`,
				`.spec.template.spec.containers[name="web"].image`, `.spec.template.spec.containers[name="web"].name`,
			}, false, "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			managers := managersOf(t, tc.managers)
			now := ours(managers, roomy)
			if diff := cmp.Diff(tc.lost, before.Lost(now)); diff != "" {
				t.Errorf("%s\nLost(): -want, +got:\n%s", tc.reason, diff)
			}
			if got := now.MayHave(replicas); got != tc.replicas {
				t.Errorf("%s\nMayHave(/spec/replicas): want %t, got %t", tc.reason, tc.replicas, got)
			}
			if same := len(tc.lost) == 0; (now == before) != same || (now.Hash() == before.Hash()) != same {
				t.Errorf("%s\nwant equal %t: %s, %s", tc.reason, same, before.Hash(), now.Hash())
			}
			if len(tc.lost) == 0 {
				return
			}
			if got := conflictingManager(before.without(now), managers); got != tc.manager {
				t.Errorf("%s\nculprit(): want %q, got %q", tc.reason, tc.manager, got)
			}
		})
	}
}

const shrunk = `{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"manager":"refract","operation":"Apply"}`

// replicas is a field that is often left to a cluster.
var replicas = tree.MustParsePattern("/spec/replicas")

// TestLostWithin: fields that are left to a cluster may be lost.
func TestLostWithin(t *testing.T) {
	before := ours(managersOf(t, applied), roomy)
	cases := map[string]struct {
		reason string
		now    string
		fields []string
		want   bool
	}{
		"Same":     {"Nothing is lost.", applied, nil, true},
		"Left":     {"All that is lost is left to the cluster.", `[` + shrunk + `]`, []string{"/metadata", "/spec/selector", "/spec/template/*"}, true},
		"More":     {"Something else is lost too.", `[` + shrunk + `]`, []string{"/spec/selector"}, false},
		"Elements": {"* stands for an element of a list.", `[` + shrunk + `]`, []string{"/metadata/*", "/spec/selector", "/spec/template/metadata", "/spec/template/spec/containers/*/image", "/spec/template/spec/containers/*/name", "/spec/template/spec/containers/*/env"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var fields []tree.Pattern
			for _, f := range tc.fields {
				fields = append(fields, tree.MustParsePattern(f))
			}
			if got := before.LostWithin(ours(managersOf(t, tc.now), roomy), fields); got != tc.want {
				t.Errorf("%s\nLostWithin() is %t", tc.reason, got)
			}
		})
	}
}

// TestLostPointers: the pointers can be copied into the annotation that leaves fields to members.
func TestLostPointers(t *testing.T) {
	before := ours(managersOf(t, applied), roomy)
	cases := map[string]struct {
		reason string
		now    string
		but    []string
		want   []string
	}{
		"Same":     {"Nothing is lost.", applied, nil, nil},
		"Scaled":   {"A field is named by its pointer.", scaled, nil, []string{"/spec/replicas"}},
		"Elements": {"* stands for an element of a list.", set, nil, []string{"/spec/replicas", "/spec/template/spec/containers/*/image"}},
		"But":      {"What is left to the cluster is not in the way.", set, []string{"/spec/replicas"}, []string{"/spec/template/spec/containers/*/image"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var but []tree.Pattern
			for _, f := range tc.but {
				but = append(but, tree.MustParsePattern(f))
			}
			if diff := cmp.Diff(tc.want, before.LostPointers(ours(managersOf(t, tc.now), roomy), but...)); diff != "" {
				t.Errorf("%s\nLostPointers(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNoOwnership(t *testing.T) {
	var none Ownership
	if none.Hash() != "" || none.MayHave(replicas) || none.Lost(none) != nil {
		t.Error("the zero Ownership has no fields")
	}
	if h, seconds, _ := strings.Cut(ours(managersOf(t, applied), roomy).Hash(), "@"); len(h) != 16 || seconds != "1795276073" {
		t.Errorf("Hash(): want 16 characters, as it is kept in reports, and the time, got %q and %q", h, seconds)
	}
	broken := []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"x":`)}}
	if o := ours(broken, roomy); o == none || o != ours(broken, roomy) {
		t.Error("a set that cannot be read is equal to itself, and has no fields")
	}
}

// roomy has room for all data about copies.
var roomy = newAccount()

// setOf is a set of n fields of a ConfigMap that no other test has.
func setOf(name string, n int) string {
	var b strings.Builder
	b.WriteString(`{"f:data":{`)
	for i := range n {
		fmt.Fprintf(&b, `"f:%s-%06d":{},`, name, i)
	}
	return strings.TrimSuffix(b.String(), ",") + "}}"
}

// TestKnownSetsAreBounded in bytes, and the sets of a member go with it.
func TestKnownSetsAreBounded(t *testing.T) {
	known := func(f *fieldSets) (n, size int) {
		for _, m := range f.lately {
			size += m.bytes
		}
		if size != f.bytes {
			t.Errorf("want %d bytes counted, got %d", size, f.bytes)
		}
		return len(f.lately), size
	}
	f, by := newFieldSets(), newAccount()
	const most = mostKnown / setBytes
	for i := range most {
		f.of(fmt.Appendf(nil, `no set %d`, i), by)
	}
	if n, _ := known(f); n != most {
		t.Errorf("at the bound: want %d sets, got %d", most, n)
	}
	f.of([]byte(`no set either`), by)
	if n, _ := known(f); n != 1 {
		t.Errorf("above the bound: want the cache to be cleared, got %d", n)
	}
	f, by = newFieldSets(), newAccount()
	for i := range 2 * mostKnown / mostFields {
		f.of([]byte(setOf(fmt.Sprint(i), mostFields/20)), by)
		if _, size := known(f); size > mostKnown {
			t.Fatalf("want at most %d bytes, got %d", mostKnown, size)
		}
	}
	other := newAccount()
	f.of([]byte(setOf("other", 1)), other)
	f.forget(by)
	if n, _ := known(f); n != 1 {
		t.Errorf("when a member is gone: want what the other brought, got %d", n)
	}
}

// TestSetsAreCounted: a set counts for the member that had it first, as long as any copy has it.
func TestSetsAreCounted(t *testing.T) {
	f, by, other := newFieldSets(), newAccount(), newAccount()
	raw := []byte(setOf("counted", 100))
	a := f.of(raw, by)
	if b := f.of(append([]byte(" "), raw...), other); a != b || a.json.Load() == nil {
		t.Error("want one set, however it is written")
	}
	if want := setBytes + len(*a.json.Load()); by.kept != want || other.kept != 0 {
		t.Errorf("want %d bytes for who brought it, got %d, and %d for another", want, by.kept, other.kept)
	}
	f.forget(by)
	f.forget(other)
	runtime.KeepAlive(a)
	eventually(t, "it is forgotten when nobody has it", func() bool {
		runtime.GC()
		by.mu.Lock()
		defer by.mu.Unlock()
		return by.kept == 0 && by.fields == 0
	})
	if len(f.all) != 0 {
		t.Errorf("want nothing left, got %d sets", len(f.all))
	}
}

// TestLongSets: of a set that is too long to be kept, changes are known, and whether the replicas may be in it.
func TestLongSets(t *testing.T) {
	owned := func(raw string, by *account) Ownership { return Ownership{fields: ownerships.of([]byte(raw), by)} }
	fit := mostFields / len(`"f:fits-000000":{},`)
	at, above := setOf("fits", fit-1), setOf("fits", fit+1)
	if len(at) > mostFields || len(above) <= mostFields {
		t.Fatalf("want sets at the bound, got %d and %d bytes", len(at), len(above))
	}
	by := newAccount()
	o := owned(at, by)
	if lost := o.Lost(owned(setOf("fits", fit-2), by)); len(lost) != 1 || !strings.HasPrefix(lost[0], ".data.fits-") {
		t.Errorf("at the bound: want the field named, got %q", lost)
	}
	long := owned(above, by)
	if lost := long.Lost(o); !slices.Equal(lost, []string{unnamed}) {
		t.Errorf("above the bound: want it said that something changed, got %q", lost)
	}
	if lost := o.Lost(long); !slices.Equal(lost, []string{unnamed}) || long.Lost(long) != nil {
		t.Errorf("above the bound: want it said that something changed, got %q", lost)
	}
	if long.Hash() == o.Hash() || long.Hash() != owned(" "+above, by).Hash() {
		t.Error("above the bound: want it known whether it changed")
	}
	if !long.MayHave(replicas) {
		t.Error("above the bound: want any field possible")
	}

	full := newAccount()
	if !full.keepFields(mostOfFields - 10) {
		t.Fatal("want room")
	}
	first := owned(setOf("full", 2), full)
	if first.named() {
		t.Error("want no names kept that there is no room for")
	}
	if named := owned(setOf("full", 2), newAccount()); named != first || !named.named() {
		t.Error("want the same set, with names, for a member that has room")
	}
}

// TestAppliedInOurName: another client applies exactly the fields of Refract, under the name of Refract.
func TestAppliedInOurName(t *testing.T) {
	before := ours(managersOf(t, applied), roomy)
	entry := func(manager, operation, subresource, seconds string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":%q,"subresource":%q,"time":"2026-11-21T15:47:%sZ","fieldsV1":{"f:data":{}}}`, manager, operation, subresource, seconds)
	}
	later := ours(managersOf(t, strings.Replace(applied, "15:47:53Z", "15:47:54Z", 1)), roomy)
	if later == before || later.Is(before.Hash()) || !later.HasFieldsOf(before.Hash()) || later.AppliedWith(before) || before.Lost(later) != nil {
		t.Errorf("The same fields, applied later, are another Ownership: %s, %s", before.Hash(), later.Hash())
	}
	if old, _, _ := strings.Cut(before.Hash(), "@"); !before.Is(old) || !later.Is(old) || later.Is("") || later.Is("0123456789abcdef") {
		t.Error("A hash that was kept without a time is one of fields")
	}
	ourEntry := entry("refract", "Apply", "", "53")
	for name, tc := range map[string]struct {
		reason          string
		others          string
		otherThanStatus bool
		want            bool
	}{
		"Nobody":      {"Nobody else has left a trace: it is somebody in our name.", "", false, true},
		"Status":      {"A controller has written a status in the same second.", entry("controller", "Update", "status", "53"), false, false},
		"MoreStatus":  {"A controller has written a status, and somebody more than that.", entry("controller", "Update", "status", "53"), true, true},
		"Other":       {"Who writes something of their own says so.", entry("kubectl", "Update", "", "58"), true, false},
		"Before":      {"Who wrote something before did not now.", entry("kubectl", "Update", "", "50"), true, true},
		"Clock":       {"The API server that another asks may be behind.", entry("kubectl", "Update", "", "52"), true, false},
		"OurUpdate":   {"An update in our name is one of another manager, and takes fields from us.", entry("refract", "Update", "", "53"), true, false},
		"WithoutTime": {"When it was is not known.", `{"manager":"kubectl","operation":"Update","subresource":"scale"}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			managers := ourEntry
			if tc.others != "" {
				managers += "," + tc.others
			}
			if got := before.unsigned(managersOf(t, "["+managers+"]"), tc.otherThanStatus); got != tc.want {
				t.Errorf("%s\nunsigned(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
