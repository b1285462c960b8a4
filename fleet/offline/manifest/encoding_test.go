package manifest

import (
	"encoding/binary"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	kyaml "sigs.k8s.io/yaml"

	"refract.dev/internal/golden"
)

// utf16Of encodes a text as UTF-16 with a byte order mark.
func utf16Of(order binary.AppendByteOrder, text string) string {
	var out []byte
	for _, unit := range append([]uint16{0xFEFF}, utf16.Encode([]rune(text))...) {
		out = order.AppendUint16(out, unit)
	}
	return string(out)
}

func TestText(t *testing.T) {
	cases := map[string]struct {
		reason, in, want, err string
	}{
		"Plain":       {reason: "Most files are UTF-8.", in: "a: é\r\nb: 🙂\n", want: "a: é\r\nb: 🙂\n"},
		"Mark":        {reason: "A byte order mark is not part of the text.", in: "\uFEFFa: 1\n", want: "a: 1\n"},
		"LittleEnd":   {reason: "PowerShell writes this encoding for >.", in: utf16Of(binary.LittleEndian, "a: é\r\nb: 🙂\n"), want: "a: é\r\nb: 🙂\n"},
		"BigEnd":      {reason: "Other systems write this encoding.", in: utf16Of(binary.BigEndian, "a: 1\n"), want: "a: 1\n"},
		"CutOff":      {reason: "A text cannot end with half a character.", in: utf16Of(binary.LittleEndian, "a: 1")[:9], err: "line 1 begins UTF-16 that ends with half a character: the file was cut off; save the file as UTF-8"},
		"Surrogate":   {reason: "Half a pair is no character.", in: "\xFF\xFEa\x00\n\x00\x3D\xD8", err: "line 2 is not valid UTF-16: save the file as UTF-8"},
		"ZeroInUTF16": {reason: "A text contains no zero characters.", in: utf16Of(binary.BigEndian, "a\x00"), err: "line 1 has a zero character, so it is not text: save the file as UTF-8"},
		"UTF32":       {reason: "The byte order mark of UTF-32 begins like that of UTF-16.", in: "\xFF\xFE\x00\x00a\x00\x00\x00", err: "line 1 is UTF-32: save the file as UTF-8"},
		"UTF32BigEnd": {reason: "The byte order may be reversed.", in: "\x00\x00\xFE\xFF\x00\x00\x00a", err: "line 1 is UTF-32: save the file as UTF-8"},
		"NoMark":      {reason: "Without a mark, the byte order is not known.", in: "a\x00:\x00", err: "line 1 has a zero byte, so it is not text, or UTF-16 without a byte order mark: save the file as UTF-8"},
		"Latin1":      {reason: "The encoding of such a byte is not known, and a guess could change a value.", in: "a: 1\nb: \xE9\n", err: "line 2 has the byte 0xE9, which is not UTF-8: save the file as UTF-8"},
		"LoneReturn":  {reason: "YAML ends a line at a lone carriage return, and other readers do not.", in: "a: 1\n---\rb: 2\n", err: "line 2 ends with a carriage return alone, where readers disagree: save the file with line feeds, or with both (LF or CRLF)"},
		"LastReturn":  {reason: "The same applies at the end of the file.", in: "a: 1\r", err: "line 1 ends with a carriage return alone, where readers disagree: save the file with line feeds, or with both (LF or CRLF)"},
		"Empty":       {reason: "An empty file is text."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Text([]byte(tc.in))
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff([]string{tc.want, tc.err}, []string{string(got), message}); diff != "" {
				t.Errorf("%s\nText(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzEncodings writes the same objects in every encoding, with every line ending, as YAML and as JSON, with different
// markers between them. It verifies that all texts are read as the same objects.
func FuzzEncodings(f *testing.F) {
	f.Add("a", "b", "1", uint8(0))
	f.Add("on", "é🙂", "---", uint8(1))
	f.Add("a.b", " x\ny", "...", uint8(2))
	f.Add("k", "é\x00", "{{", uint8(3))
	f.Add("k", "a\u2028b", "\uFEFF", uint8(4))
	f.Fuzz(func(t *testing.T, key, first, second string, n uint8) {
		objects := make([]map[string]any, 1+n%3)
		for i := range objects {
			objects[i] = map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c" + string(rune('a'+i)), "namespace": "shop"},
				"data": map[string]any{key: first, "k" + second: second},
			}
		}
		var yamls, jsons []string
		for _, o := range objects {
			asJSON, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			asYAML, err := kyaml.JSONToYAML(asJSON)
			if err != nil {
				asYAML = slices.Concat(asJSON, []byte("\n")) // YAML cannot express the object.
			}
			yamls, jsons = append(yamls, string(asYAML)), append(jsons, string(asJSON)+"\n")
		}
		forms := map[string]string{
			"YAML": strings.Join(yamls, "---\n"), "JSON": strings.Join(jsons, ""), "JSON behind markers": "---\n" + strings.Join(jsons, "---\n"),
			"markers": "# begin\n---\n" + strings.Join(yamls, "...\n---\n# next\n") + "...\n", "noted ends": strings.Join(yamls, "... # end\n"),
			"list": `{"apiVersion": "v1", "kind": "List", "items": [` + strings.Join(jsons, ",") + "]}",
		}
		// The YAML library treats these characters as line endings, also in quotes, and writes them without escapes.
		odd := strings.ContainsAny(key+first+second, "\u0085\u2028\u2029\uFEFF")
		want, problems := readText(forms["JSON"])
		for name, text := range forms {
			if odd && !strings.Contains(name, "JSON") {
				want, problems = readText(text)
			}
			for encoding, encoded := range map[string]string{
				"UTF-8": text, "marked": "\uFEFF" + text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n"),
				"UTF-16LE": utf16Of(binary.LittleEndian, text), "UTF-16BE": utf16Of(binary.BigEndian, strings.ReplaceAll(text, "\n", "\r\n")),
			} {
				got, found := readText(encoded)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s: -want, +got:\n%s%q", name, encoding, diff, encoded)
				}
				if diff := cmp.Diff(facts(problems), facts(found)); diff != "" {
					t.Errorf("%s, %s: problems: -want, +got:\n%s", name, encoding, diff)
				}
			}
		}
	})
}

// facts returns the problems without their places, which depend on the notation of objects.
func facts(problems []*Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Field+": "+p.Fact)
	}
	return all
}

// TestSameEveryTime reads the input of each golden file of the offline commands 20 times. A result that depends on the
// order of a map shows up as a difference.
func TestSameEveryTime(t *testing.T) {
	files, err := filepath.Glob("../*/testdata/*.txtar")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	read := func(archive *txtar.Archive) string {
		set, problems := ReadFS(golden.FS(golden.Inputs(archive)))
		text, err := json.Marshal([]any{set.Manifests, set.Notes, problems})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := read(archive)
		for range 19 {
			if diff := cmp.Diff(want, read(archive)); diff != "" {
				t.Fatalf("%s: read once, and again:\n%s", file, diff)
			}
		}
	}
}

// FuzzSameEveryTime reads arbitrary texts repeatedly. If a text with two keys that are equal in JSON were accepted, its
// value would vary.
func FuzzSameEveryTime(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/equal-keys.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files[:2] {
		for _, c := range split(file.Data) {
			f.Add(string(c.text))
		}
	}
	f.Add("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {<<: [{on: a}, {\"true\": b}], ? !!binary b24= : c}\n")
	f.Fuzz(func(t *testing.T, text string) {
		want, problems := readText(text)
		for range 8 {
			got, found := readText(text)
			if diff := cmp.Diff(want, got) + cmp.Diff(facts(problems), facts(found)); diff != "" {
				t.Fatalf("read once, and again:\n%s", diff)
			}
		}
	})
}

// readText returns the objects of a file, and its problems.
func readText(text string) (objects []map[string]any, problems []*Problem) {
	set, problems := ReadFS(fstest.MapFS{"f.yaml": {Data: []byte(text)}})
	for i := range set.Objects {
		objects = append(objects, set.Objects[i].Content.Object)
	}
	return objects, problems
}
