package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// TestReadRecord reads the record of an injection.
func TestReadRecord(t *testing.T) {
	set := testSet(t, `{selector: {}, service: db, env: [{name: A, value: "1"}, {name: "<&>", value: x}], envFrom: [{secretRef: {name: s}}],
		volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}], containers: {initContainers: false}}`,
		`{selector: {}, env: [{name: A, value: "2"}]}`)
	pod := []byte(`{"metadata":{},"spec":{"initContainers":[{"name":"i"}],"containers":[{"name":"a"},{"name":"b","env":[{"name":"A","value":"1"}]}]}}`)
	record := recordOf(t, patched(t, set, pod))
	p0, p1 := set.Policies()[0], set.Policies()[1]
	want := &Record{
		Version:    1,
		Hash:       hashOf([]Applied{{Policy: p0}}),
		Containers: []string{"i", "a", "b"},
		Applied: []RecordApplied{{
			Policy: "p0", Hash: p0.Hash(), Env: []string{"A", "<&>"}, EnvFrom: []string{":Secret/s"}, Volumes: []string{"v"}, Mounts: []string{"/v"},
			Containers: []string{"a", "b"}, Had: []string{"b:env:A"},
		}},
		Skipped: []RecordSkipped{{Policy: p1.Name(), Reason: ReasonEnvConflict, Message: `container "a" has another variable A`}},
	}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("ReadRecord(): -want, +got:\n%s", diff)
	}
}

func TestReadRecordFails(t *testing.T) {
	var syntax *json.SyntaxError
	if r, err := ReadRecord("x"); !errors.As(err, &syntax) {
		t.Errorf("ReadRecord(x) = %v, %v", r, err)
	}
	for _, text := range []string{`{}`, `{"v":2,"hash":""}`, `null`} {
		if r, err := ReadRecord(text); !errors.Is(err, errVersion) {
			t.Errorf("ReadRecord(%s) = %v, %v", text, r, err)
		}
	}
}

// recordOf returns the record of a pod; nil without a record.
func recordOf(t *testing.T, pod []byte) *Record {
	t.Helper()
	text, ok := annotationsOf(t, pod)[refractv1beta1.InjectionAnnotation]
	if !ok {
		return nil
	}
	record, err := ReadRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func annotationsOf(t *testing.T, pod []byte) map[string]string {
	t.Helper()
	var head struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(pod, &head); err != nil {
		t.Fatal(err)
	}
	return head.Metadata.Annotations
}

// TestRoom: all annotations together have at most 256 KiB. If there is not enough room, the lists of the record are
// omitted first, and then whole annotations. The pod is injected in any case, and a second injection adds nothing.
func TestRoom(t *testing.T) {
	var env strings.Builder
	for i := range 100 {
		fmt.Fprintf(&env, `{name: VARIABLE_%03d, value: "1"}, `, i)
	}
	set := testSet(t, fmt.Sprintf(`{selector: {}, service: db, env: [%s]}`, env.String()))
	const service = len("serviceinjectionpolicy.k8s.io/db") + len("p0")
	full := len(annotationsOf(t, patched(t, set, podWithRoom(100_000)))[refractv1beta1.InjectionAnnotation]) + len(refractv1beta1.InjectionAnnotation)
	cases := map[string]struct {
		reason string
		room   int
		// The annotations that fit.
		service, record, trimmed bool
	}{
		"Plenty":     {reason: "There is room for all annotations.", room: 100_000, service: true, record: true},
		"Enough":     {reason: "A few bytes remain free.", room: service + full + 15, service: true, record: true},
		"NotEnough":  {reason: "The lists of the record are omitted first.", room: service + full - 1, service: true, record: true, trimmed: true},
		"Little":     {reason: "The record is omitted next.", room: service + 20, service: true},
		"TooLittle":  {reason: "Without room, all annotations are omitted.", room: service - 1},
		"None":       {reason: "Without any room, all annotations are omitted.", room: 0},
		"LessThanNo": {reason: "If the pod's own annotations exceed the limit, the API server rejects the pod. The injection does not.", room: -10},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := podWithRoom(tc.room)
			checkLaws(t, set, pod)
			after := patched(t, set, pod)
			if !strings.Contains(string(after), "VARIABLE_099") {
				t.Fatalf("%s\nthe pod was not injected", tc.reason)
			}
			annotations := annotationsOf(t, after)
			if got := annotations["serviceinjectionpolicy.k8s.io/db"] == "p0"; got != tc.service {
				t.Errorf("%s\nthe annotation of the service is there: %t", tc.reason, got)
			}
			record := recordOf(t, after)
			if got := record != nil; got != tc.record {
				t.Fatalf("%s\nthe record is there: %t", tc.reason, got)
			}
			if record != nil && (record.Trimmed != tc.trimmed || record.Trimmed != (record.Applied[0].Env == nil)) {
				t.Errorf("%s\nthe record is %+v", tc.reason, record)
			}
			size := 0
			for key, value := range annotations {
				size += len(key) + len(value)
			}
			if size > apivalidation.TotalAnnotationSizeLimitB && tc.room >= 0 {
				t.Errorf("annotations have %d bytes", size)
			}
		})
	}
}

// podWithRoom returns a pod with room for this many bytes of annotations.
func podWithRoom(room int) []byte {
	return fmt.Appendf(nil, `{"metadata":{"annotations":{"long":%q}},"spec":{"containers":[{"name":"a"}]}}`,
		strings.Repeat("x", apivalidation.TotalAnnotationSizeLimitB-len("long")-room))
}

// TestResultHash: the hash of a result depends only on the applied policies, their content and their order.
func TestResultHash(t *testing.T) {
	pod := []byte(`{"metadata":{},"spec":{"containers":[{"name":"a"}]}}`)
	hash := func(specs ...string) string {
		t.Helper()
		result, err := testSet(t, specs...).Inject(pod)
		if err != nil {
			t.Fatal(err)
		}
		return result.Hash
	}
	const a, b = `{selector: {}, env: [{name: A, value: "1"}]}`, `{selector: {}, env: [{name: B, value: "1"}]}`
	first := hash(a, b)
	if len(first) != 16 || first != hash(a, b) || first != hash(a, `{selector: {matchExpressions: [{key: x, operator: DoesNotExist}]}, onConflict: Reject, env: [{name: B, value: "1"}]}`) {
		t.Errorf("%q changes without a reason", first)
	}
	for _, other := range []string{hash(a), hash(b, a), hash(a, `{selector: {}, env: [{name: B, value: "2"}]}`), hash(a, `{selector: {}, env: [{name: B, value: "1"}], envPosition: Prepend}`)} {
		if other == first {
			t.Errorf("%q stays", first)
		}
	}
	if first != hash(a, b, `{selector: {}, env: [{name: A, value: "2"}]}`, `{selector: {}, mode: Audit, env: [{name: C, value: "2"}]}`) {
		t.Error("a policy that does not hold counts")
	}
}
