package member

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Records of a Deployment's managers as an API server wrote them: after it was
// applied, after kubectl scale, and after kubectl set image.
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
	before := ours(managersOf(t, applied))
	// What another version of the API server makes of the same set.
	reordered := `[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{"f:name":{},"f:image":{},"f:env":{"k:{\"name\":\"A\"}":{"f:value":{},"f:name":{},".":{}}},".":{}}}},"f:metadata":{"f:labels":{"f:a":{}}}},"f:selector":{},"f:replicas":{}},"f:metadata":{"f:labels":{"f:kubeadmiral.io\u002fmanaged":{}},"f:annotations":{"f:refract.dev/applied":{}}}},"manager":"refract","operation":"Apply","time":"2026-11-21T15:47:53Z"}]`
	cases := map[string]struct {
		reason   string
		managers string
		lost     []string
		replicas bool
		culprit  string
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
			now := ours(managers)
			if diff := cmp.Diff(tc.lost, before.Lost(now)); diff != "" {
				t.Errorf("%s\nLost(): -want, +got:\n%s", tc.reason, diff)
			}
			if got := now.Replicas(); got != tc.replicas {
				t.Errorf("%s\nReplicas(): want %t, got %t", tc.reason, tc.replicas, got)
			}
			if same := len(tc.lost) == 0; (now == before) != same || (now.Hash() == before.Hash()) != same {
				t.Errorf("%s\nwant equal %t: %s, %s", tc.reason, same, before.Hash(), now.Hash())
			}
			if len(tc.lost) == 0 {
				return
			}
			if got := culprit(before.without(now), managers); got != tc.culprit {
				t.Errorf("%s\nculprit(): want %q, got %q", tc.reason, tc.culprit, got)
			}
		})
	}
}

const shrunk = `{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"manager":"refract","operation":"Apply"}`

func TestNoOwnership(t *testing.T) {
	var none Ownership
	if none.Hash() != "" || none.Replicas() || none.Lost(none) != nil {
		t.Error("the zero Ownership has no fields")
	}
	if h, seconds, _ := strings.Cut(ours(managersOf(t, applied)).Hash(), "@"); len(h) != 16 || seconds != "1795276073" {
		t.Errorf("Hash(): want 16 characters, as it is kept in reports, and the time, got %q and %q", h, seconds)
	}
	broken := []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"x":`)}}
	if o := ours(broken); o == none || o.Replicas() || o != ours(broken) {
		t.Error("a set that cannot be read is equal to itself, and has no fields")
	}
}

func TestOwnershipCacheIsBounded(t *testing.T) {
	c := ownershipCache{sets: map[[32]byte]text{}}
	for i := range knownOwnerships + 10 {
		c.of(fmt.Appendf(nil, `{"f:data":{"f:%d":{}}}`, i))
	}
	if len(c.sets) > knownOwnerships {
		t.Errorf("want at most %d sets, got %d", knownOwnerships, len(c.sets))
	}
}

// TestAppliedInOurName has somebody apply the very fields that Refract does, under its
// name.
func TestAppliedInOurName(t *testing.T) {
	before := ours(managersOf(t, applied))
	entry := func(manager, operation, subresource, seconds string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":%q,"subresource":%q,"time":"2026-11-21T15:47:%sZ","fieldsV1":{"f:data":{}}}`, manager, operation, subresource, seconds)
	}
	later := ours(managersOf(t, strings.Replace(applied, "15:47:53Z", "15:47:54Z", 1)))
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
