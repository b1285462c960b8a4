package diff

import (
	"encoding/json"

	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

func TestStepsBetween(t *testing.T) {
	cases := map[string]struct {
		reason        string
		before, after string
		want          []string
	}{
		"Same": {reason: "Equal objects need no steps.", before: "{a: [1, {b: c}]}", after: "{a: [1, {b: c}]}"},
		"Members": {
			reason: "Members are compared in the order of their keys, and a step names the deepest changed place.",
			before: "{b: {x: 1, y: 1}, c: 1}", after: "{a: 1, b: {x: 2, y: 1}}",
			want: []string{"+ /a 1", "~ /b/x 1 → 2", "- /c 1"},
		},
		"Escaped": {reason: "Slashes and tildes in keys are escaped.", before: "{}", after: "{a/b~c: 1}", want: []string{"+ /a~1b~0c 1"}},
		"OtherType": {
			reason: "A value that becomes a value of another type is replaced as a whole.",
			before: "{a: {b: 1}, c: [1], d: null}", after: "{a: [1], c: {}, d: {}}",
			want: []string{`~ /a {"b":1} → [1]`, "~ /c [1] → {}", "~ /d null → {}"},
		},
		"Null": {reason: "A member that is null is not an absent member.", before: "{a: null}", after: "{b: null}", want: []string{"- /a null", "+ /b null"}},
		"Sidecar": {
			reason: "An inserted element is one change; the elements behind it do not change.",
			before: "{c: [{name: a, image: v1}, {name: b, image: v1}]}",
			after:  "{c: [{name: proxy}, {name: a, image: v1}, {name: b, image: v2}]}",
			want:   []string{`+ /c/0 {"name":"proxy"}`, `~ /c/2/image "v1" → "v2"`},
		},
		"Removed": {
			reason: "Elements are removed from the end, so that the indexes of the others stay valid.",
			before: "{c: [{name: a}, {name: b}, {name: c, x: 1}, {name: d}]}",
			after:  "{c: [{name: b}, {name: c, x: 2}]}",
			want:   []string{`- /c/3 {"name":"d"}`, `- /c/0 {"name":"a"}`, "~ /c/1/x 1 → 2"},
		},
		"Moved": {
			reason: "A moved element is removed and inserted.",
			before: "{c: [{name: a}, {name: b}, {name: c}]}",
			after:  "{c: [{name: c}, {name: a}, {name: b}]}",
			want:   []string{`- /c/2 {"name":"c"}`, `+ /c/0 {"name":"c"}`},
		},
		"Ports": {
			reason: "Ports without names are identified by number and protocol.",
			before: "{p: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]}",
			after:  "{p: [{containerPort: 80}, {containerPort: 53}, {containerPort: 53, protocol: UDP, name: dns}]}",
			want:   []string{`+ /p/0 {"containerPort":80}`, `+ /p/2/name "dns"`},
		},
		"Args": {
			reason: "Arguments are compared one by one, so that a change at the end of a long list is visible.",
			before: "{args: [--a, --b, --c]}", after: "{args: [--a, --x, --c, --d]}",
			want: []string{`+ /args/3 "--d"`, `~ /args/1 "--b" → "--x"`},
		},
		"Repeated": {
			reason: "Elements without a key are compared by their values.",
			before: "{l: [{key: a, e: 1}, {key: a, e: 2}]}", after: "{l: [{key: a, e: 2}]}",
			want: []string{`- /l/0 {"e":1,"key":"a"}`},
		},
		"Nested":  {reason: "Arrays may hold arrays.", before: "{l: [[1, 2], [3]]}", after: "{l: [[1], [3, 4]]}", want: []string{"- /l/0/1 2", "+ /l/1/1 4"}},
		"Integer": {reason: "A large integer keeps its last digit, which a float would lose.", before: "{big: 9007199254740993}", after: "{big: 9007199254740992}", want: []string{"~ /big 9007199254740993 → 9007199254740992"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := parse(t, tc.before), parse(t, tc.after)
			var got []string
			steps := stepsBetween(before, after)
			for i := range steps {
				got = append(got, render.TextOf(&steps[i].Change))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nstepsBetween(): -want, +got:\n%s", tc.reason, diff)
			}
			checkLaw(t, before, after)
			checkLaw(t, after, before)
			if diff := cmp.Diff(parse(t, tc.before), before); diff != "" {
				t.Errorf("stepsBetween() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// FuzzStepsBetween verifies that the steps, applied in order, turn one object into the other.
func FuzzStepsBetween(f *testing.F) {
	f.Add(`{"a":[{"name":"x"},{"name":"y","v":1}]}`, `{"a":[{"name":"y","v":2},{"name":"z"}]}`)
	f.Add(`{"a":[1,2,3,2]}`, `{"a":[2,3,2,4]}`)
	f.Add(`{"a":[{"port":1},{"port":"1"}]}`, `{"a":[{"port":1,"protocol":""}]}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		var b, a map[string]any
		if utiljson.Unmarshal([]byte(before), &b) != nil || utiljson.Unmarshal([]byte(after), &a) != nil || b == nil || a == nil {
			t.Skip("no objects")
		}
		if strings.Contains(before+after, `""`) {
			t.Skip("the other implementation reads an empty key as the whole document")
		}
		checkLaw(t, b, a)
	})
}

// checkLaw applies the steps with another implementation of RFC 6902.
func checkLaw(t *testing.T, before, after map[string]any) {
	t.Helper()
	steps := stepsBetween(before, after)
	if len(steps) == 0 != tree.Equal(before, after) {
		t.Fatalf("%d steps lead from %v to %v", len(steps), before, after)
	}
	type operation struct {
		Op    tree.Op `json:"op"`
		Path  string  `json:"path"`
		Value any     `json:"value"`
	}
	operations := make([]operation, len(steps))
	for i, s := range steps {
		operations[i] = operation{s.Op, s.Path, s.After}
	}
	patch, err := jsonpatch.DecodePatch(encode(t, operations))
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Apply(encode(t, before))
	if err != nil {
		t.Fatalf("steps from %v to %v: %v", before, after, err)
	}
	if !jsonpatch.Equal(got, encode(t, after)) {
		t.Errorf("the steps lead from %v to %s, want %v", before, got, after)
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := utiljson.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
