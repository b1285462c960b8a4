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

	"refract.dev/internal/poll"
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
		"Same":      {"Changes of the status do not matter.", applied, nil, true, ""},
		"Reordered": {"The order and the escapes of an API server do not matter.", reordered, nil, true, ""},
		"Scaled": {
			"A client that scales through the subresource takes the replicas, as autoscalers do.",
			scaled, []string{".spec.replicas"}, false, "kubectl",
		},
		"Set": {
			"Among the managers that own a lost field, the last writer is named.",
			set, []string{".spec.replicas", `.spec.template.spec.containers[name="web"].image`}, false, "kubectl-set",
		},
		"Removed": {
			"A removed field has no manager: the last writer is named, except for writers of the status.",
			`[{"manager":"early","operation":"Update","time":"2026-01-01T00:00:00Z"},{"manager":"late","operation":"Update","time":"2026-01-02T00:00:00Z"},` + controllers + `,` + shrunk + `]`,
			[]string{
				".metadata.annotations.refract.dev/applied", ".metadata.labels.kubeadmiral.io/managed", ".spec.selector", ".spec.template.metadata.labels.a",
				`.spec.template.spec.containers[name="web"].env[name="A"].name`, `.spec.template.spec.containers[name="web"].env[name="A"].value`,
				`.spec.template.spec.containers[name="web"].image`, `.spec.template.spec.containers[name="web"].name`,
			}, true, "late",
		},
		"Cleared": {
			"A client may remove managedFields as a whole.",
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

// replicas is a field that users often leave to a cluster.
var replicas = tree.MustParsePattern("/spec/replicas")

// TestLostWithin: fields that are left to the cluster may be lost.
func TestLostWithin(t *testing.T) {
	before := ours(managersOf(t, applied), roomy)
	cases := map[string]struct {
		reason string
		now    string
		fields []string
		want   bool
	}{
		"Same":     {"No field is lost.", applied, nil, true},
		"Left":     {"All lost fields are left to the cluster.", `[` + shrunk + `]`, []string{"/metadata", "/spec/selector", "/spec/template/*"}, true},
		"More":     {"Another field is lost, too.", `[` + shrunk + `]`, []string{"/spec/selector"}, false},
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
		"Same":     {"No field is lost.", applied, nil, nil},
		"Scaled":   {"A lost field is returned as a JSON pointer.", scaled, nil, []string{"/spec/replicas"}},
		"Elements": {"* stands for an element of a list.", set, nil, []string{"/spec/replicas", "/spec/template/spec/containers/*/image"}},
		"But":      {"Fields that are left to the cluster are not returned.", set, []string{"/spec/replicas"}, []string{"/spec/template/spec/containers/*/image"}},
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
		t.Error("want no fields in the zero Ownership")
	}
	if h, seconds, _ := strings.Cut(ours(managersOf(t, applied), roomy).Hash(), "@"); len(h) != 16 || seconds != "1795276073" {
		t.Errorf("Hash(): want 16 characters, because reports keep it, and the time, got %q and %q", h, seconds)
	}
	broken := []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"x":`)}}
	if o := ours(broken, roomy); o == none || o != ours(broken, roomy) {
		t.Error("want an unreadable set equal to itself, and without fields")
	}
}

// roomy is an account with enough room for all tests.
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

// TestKnownSetsAreBounded: the size of the cached sets is bounded, and the sets of a removed member are dropped.
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
		t.Errorf("after the removal of a member: want the sets of the other member, got %d", n)
	}
}

// TestSetsAreCounted: the memory of a set of fields is charged to the member that had the set first, until no copy uses
// the set.
func TestSetsAreCounted(t *testing.T) {
	f, by, other := newFieldSets(), newAccount(), newAccount()
	raw := []byte(setOf("counted", 100))
	a := f.of(raw, by)
	if b := f.of(append([]byte(" "), raw...), other); a != b || a.json.Load() == nil {
		t.Error("want one set for both spellings")
	}
	if want := setBytes + len(*a.json.Load()); by.kept != want || other.kept != 0 {
		t.Errorf("want %d bytes for the member that had it first, got %d, and %d for the other one", want, by.kept, other.kept)
	}
	f.forget(by)
	f.forget(other)
	runtime.KeepAlive(a)
	poll.Until(t, "the set is forgotten when no copy uses it", func() bool {
		runtime.GC()
		by.mu.Lock()
		defer by.mu.Unlock()
		return by.kept == 0 && by.fields == 0
	})
	if len(f.all) != 0 {
		t.Errorf("want no sets left, got %d", len(f.all))
	}
}

// TestLongSets: for a set that is too long to be kept, it is known whether it has changed, but not which fields.
func TestLongSets(t *testing.T) {
	owned := func(raw string, by *account) Ownership { return Ownership{fields: ownerships.of([]byte(raw), by)} }
	fit := mostFields / len(`"f:fits-000000":{},`)
	at, above := setOf("fits", fit-1), setOf("fits", fit+1)
	if len(at) > mostFields || len(above) <= mostFields {
		t.Fatalf("want sets just below and above the bound, got %d and %d bytes", len(at), len(above))
	}
	by := newAccount()
	o := owned(at, by)
	if lost := o.Lost(owned(setOf("fits", fit-2), by)); len(lost) != 1 || !strings.HasPrefix(lost[0], ".data.fits-") {
		t.Errorf("at the bound: want the field named, got %q", lost)
	}
	long := owned(above, by)
	if lost := long.Lost(o); !slices.Equal(lost, []string{unnamed}) {
		t.Errorf("above the bound: want only the fact of a change, got %q", lost)
	}
	if lost := o.Lost(long); !slices.Equal(lost, []string{unnamed}) || long.Lost(long) != nil {
		t.Errorf("above the bound: want only the fact of a change, got %q", lost)
	}
	if long.Hash() == o.Hash() || long.Hash() != owned(" "+above, by).Hash() {
		t.Error("above the bound: want different sets distinguished")
	}
	if !long.MayHave(replicas) {
		t.Error("above the bound: want MayHave true for any field")
	}

	full := newAccount()
	if !full.keepFields(mostOfFields - 10) {
		t.Fatal("want room")
	}
	first := owned(setOf("full", 2), full)
	if first.named() {
		t.Error("want no names kept without room")
	}
	if named := owned(setOf("full", 2), newAccount()); named != first || !named.named() {
		t.Error("want the same set, with names, for a member that has room")
	}
}

// TestAppliedInOurName: another client applies the same fields as Refract, under the name of Refract.
func TestAppliedInOurName(t *testing.T) {
	before := ours(managersOf(t, applied), roomy)
	entry := func(manager, operation, subresource, seconds string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":%q,"subresource":%q,"time":"2026-11-21T15:47:%sZ","fieldsV1":{"f:data":{}}}`, manager, operation, subresource, seconds)
	}
	later := ours(managersOf(t, strings.Replace(applied, "15:47:53Z", "15:47:54Z", 1)), roomy)
	if later == before || later.Is(before.Hash()) || !later.HasFieldsOf(before.Hash()) || later.AppliedWith(before) || before.Lost(later) != nil {
		t.Errorf("want another Ownership for the same fields after a later apply: %s, %s", before.Hash(), later.Hash())
	}
	if old, _, _ := strings.Cut(before.Hash(), "@"); !before.Is(old) || !later.Is(old) || later.Is("") || later.Is("0123456789abcdef") {
		t.Error("want a hash without a time compared by fields")
	}
	ourEntry := entry("refract", "Apply", "", "53")
	for name, tc := range map[string]struct {
		reason          string
		others          string
		otherThanStatus bool
		want            bool
	}{
		"Nobody":     {"No other manager has an entry: a client wrote under the name of Refract.", "", false, true},
		"Status":     {"A controller wrote the status in the same second.", entry("controller", "Update", "status", "53"), false, false},
		"MoreStatus": {"A controller wrote the status, and another write changed more than the status.", entry("controller", "Update", "status", "53"), true, true},
		"Other":      {"A client that writes its own fields has an entry.", entry("kubectl", "Update", "", "58"), true, false},
		"Before":     {"An earlier entry of a client does not explain the write.", entry("kubectl", "Update", "", "50"), true, true},
		"Clock":      {"The clock of another API server may be behind.", entry("kubectl", "Update", "", "52"), true, false},
		"OurUpdate": {
			"An Update under the name of Refract is a separate entry, and takes fields from the Apply entry.",
			entry("refract", "Update", "", "53"), true, false,
		},
		"WithoutTime": {"The time of the entry is unknown.", `{"manager":"kubectl","operation":"Update","subresource":"scale"}`, true, false},
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
