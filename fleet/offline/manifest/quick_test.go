package manifest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	yaml "go.yaml.in/yaml/v3"
	utiljson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

func TestDecodeQuickly(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		quick  bool
	}{
		"Manifest":     {reason: "Usual manifests are decoded quickly.", in: fleet(1, 0, 0)[0], quick: true},
		"Numbers":      {reason: "Numbers have the values that they have after a conversion to JSON.", in: "a: [1, -1, 0, -0, 0.0, -0.0, 1.5, 1e3, 1E3, 1e-7, 0.000001, 1e20, 1e21, 1e22, 4611686018427387904.0, 9007199254740993, 9007199254740993.0, 9223372036854775807, 9223372036854775808, 18446744073709551615, 18446744073709551616, -9223372036854775808, -9223372036854775809, 9.223372036854775e18, 010, 0o10, 0x1F, 0b11, -0b11, 1_000, 1_0.5, +1, 5e-324, 1.7976931348623157e308]", quick: true},
		"Words":        {reason: "Words have the same values as for kubectl.", in: "a: [yes, No, on, OFF, y, n, true, 'true', ~, null, Null, '', =, 2026-01-02, 2026-01-02T03:04:05Z, '12:30', .5, ., 1.2.3, 0x, 1e, e1]", quick: true},
		"Strings":      {reason: "Strings keep their value, even if JSON escapes their characters.", in: "a: \"<&>\\u2028\\0\\x01\\xe9\\U0001F600\"\nb: |\n  ---x\n  \ttab\n\nc: >-\n  folded\n  text\nd: 'it''s'\n", quick: true},
		"Aliases":      {reason: "Each alias gets a copy of its target.", in: "a: &x {b: [1]}\nc: *x\nd: [*x, *x]\n", quick: true},
		"Tags":         {reason: "Tags determine the types.", in: "a: !!str 1\nb: !!int \"3\"\nc: !!float 1\nd: !!binary aGk=\ne: !unknown x\n", quick: true},
		"EmptyMembers": {reason: "An empty value is null, but an empty object is not.", in: "a:\nb: {}\nc: []\n", quick: true},
		"Merge":        {reason: "A direct key may override a merged one, so merges are left to the slow decoder.", in: "a: &x {b: 1}\nc: {<<: *x, b: 2}\n"},
		"NumberAsKey":  {reason: "Two keys may become the same string.", in: "{1: a, '1': b}"},
		"BooleanAsKey": {reason: "The same applies to booleans.", in: "{yes: a, 'true': b}"},
		"NullAsKey":    {reason: "JSON has no null key.", in: "{~: a}"},
		"Twice":        {reason: "A duplicate key is left to the slow decoder, which reports it.", in: "{a: 1, b: {c: 1, c: 2}}"},
		"Infinite":     {reason: "JSON has no infinite number.", in: "a: .inf"},
		"NotANumber":   {reason: "JSON has no NaN.", in: "a: .nan"},
		"NotText":      {reason: "JSON replaces bytes that are not UTF-8.", in: "a: !!binary gIE="},
		"NotTextKey":   {reason: "The same applies to keys.", in: "!!binary gIE=: a"},
		"Timestamp":    {reason: "A date is a string, even with the tag of a timestamp.", in: "a: !!timestamp 2026-01-02", quick: true},
		"Deep":         {reason: "The depth is limited.", in: "a: " + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)},
		"Array":        {reason: "A document that is not an object is a mistake.", in: "[a]"},
		"Nothing":      {reason: "A document with only a comment is empty.", in: "# only a comment\n"},
		"Broken":       {reason: "Syntax errors are left to the slow decoder, which reports them.", in: "a: b: c"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, quick := decodeQuickly([]byte(tc.in))
			if quick != tc.quick {
				t.Fatalf("%s\ndecodeQuickly(): quick is %t, want %t", tc.reason, quick, tc.quick)
			}
			if !quick {
				return
			}
			if diff := cmp.Diff(asKubectl(t, []byte(tc.in)), got); diff != "" {
				t.Errorf("%s\ndecodeQuickly(): -as kubectl, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// asKubectl decodes YAML like kubectl: through JSON.
func asKubectl(t *testing.T, text []byte) any {
	t.Helper()
	data, err := kyaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, data)
}

func fromJSON(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestBegin(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   int // 0 if it is not certain.
	}{
		"First":     {reason: "The content may begin on the first line.", in: "a: 1\n", want: 7},
		"Marker":    {reason: "A marker is not content.", in: "---\na: 1\n", want: 8},
		"Behind":    {reason: "The content may be on the line of the marker.", in: "--- {a: 1}\n", want: 7},
		"Comments":  {reason: "Comments and empty lines are not content.", in: "--- # \u4e00\n\t\n  # more\n  a: 1", want: 10},
		"Windows":   {reason: "Lines may end with CRLF.", in: "---\r\n# one\r\na: 1\r\n", want: 9},
		"Nothing":   {reason: "A text may have no content.", in: "# one\n", want: 0},
		"OldMac":    {reason: "YAML ends a line at a lone carriage return, and the file does not.", in: "# one\ra: 1\n", want: 0},
		"Separator": {reason: "YAML also ends a line at a Unicode line separator.", in: "\u2028a: 1\n", want: 0},
		"Inside":    {reason: "A separator after the beginning of the content does not matter.", in: "a: \"\u2028\"\n", want: 7},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			line, certain := chunk{text: []byte(tc.in), line: 7}.begin()
			if line != tc.want || certain != (tc.want > 0) {
				t.Errorf("%s\nbegin() = %d, %t, want %d", tc.reason, line, certain, tc.want)
			}
		})
	}
}

// FuzzDecodeQuickly verifies that the quick decoder returns the same content as kubectl, and the same places as the
// slow decoder.
func FuzzDecodeQuickly(f *testing.F) {
	for _, text := range fleet(1, 1, 1) {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		"--- # comment\n\n  # more\r\na: [yes, 010, 1e3, -0.0, 1e20, 18446744073709551615]\n", "---\t{a: .5e1, b: !!float 3}", "a: &x [1]\nb: *x\n",
		"# \u2028\na: \"\\u2028\"\n", "# one\r# two\ra: 1\r", "--- &anchor\na: ~\n", "--- !!map\n? a\n: b\n", "\uFEFFa: 1", "- 2026-01-02\n- 1_0\n- 0b1\n- '1'\n",
	} {
		f.Add([]byte(text))
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, in := range archive.Files {
			for _, c := range split(in.Data) {
				f.Add(c.text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := decodeQuickly(data)
		if !ok {
			return
		}
		if diff := cmp.Diff(asKubectl(t, data), got); diff != "" {
			t.Errorf("decodeQuickly(): -as kubectl, +got:\n%s", diff)
		}
		c := chunk{text: data, line: 1}
		line, certain := c.begin()
		if yaml.Unmarshal(data, &yaml.Node{}) != nil || !certain {
			return // There is nothing to compare with.
		}
		slow := decoder{file: "a.yaml", chunk: c}
		slow.yamlSlowly(c)
		if len(slow.problems) > 0 || len(slow.documents) != 1 {
			t.Fatalf("yamlSlowly(): %d documents, problems %v", len(slow.documents), slow.problems)
		}
		if diff := cmp.Diff(slow.documents[0].place, slow.documents[0].lines.at(Place{File: "a.yaml", Line: line, Document: 1}, "")); diff != "" {
			t.Errorf("lines: -want, +got:\n%s", diff)
		}
		if line != slow.documents[0].place.Line {
			t.Errorf("begin() = %d, want %d", line, slow.documents[0].place.Line)
		}
	})
}

// FuzzAtMost verifies that no value is longer as JSON than atMost says.
func FuzzAtMost(f *testing.F) {
	for _, text := range []string{
		`{"a": [1, -1.5e-6, -0.0000012345678901234567, 1.7976931348623157e308, -9223372036854775808, true, false, null, "", {}, []]}`,
		`"<>&\u2028\u0000\u001f\"\\\ud800"`, `{"<": {"\u0001": [[], [[]], {}]}}`, `1e20`, `-123456789012345680000`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var value any
		if utiljson.UnmarshalCaseSensitivePreserveInts(text, &value) != nil {
			return
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > atMost(value) {
			t.Errorf("atMost() = %d for %d bytes: %s", atMost(value), len(data), data)
		}
	})
}

// TestReadInOrder verifies that the result has the order of the input for any number of processors.
func TestReadInOrder(t *testing.T) {
	in := fstest.MapFS{}
	for i := range 40 {
		text := fmt.Sprintf("a: b: c\n---\n%s---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: same, labels: {a: 'b c', -: d}}}\n", fleet(i+1, 0, 0)[i])
		in[fmt.Sprintf("%02d.yaml", i)] = &fstest.MapFile{Data: []byte(text)}
	}
	read := func(processors int) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		return describe(ReadFS(in))
	}
	want := read(1)
	for range 5 {
		if diff := cmp.Diff(want, read(8)); diff != "" {
			t.Fatalf("ReadFS(): -on one processor, +on eight:\n%s", diff)
		}
	}
}
