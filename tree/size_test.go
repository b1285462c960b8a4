package tree

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	cases := map[string]struct {
		reason string
		value  any
	}{
		"Null":      {"null has four bytes.", nil},
		"Booleans":  {"Booleans are literals.", []any{true, false}},
		"Numbers":   {"Numbers can have any length and sign.", []any{int64(0), int64(-1), int64(1 << 62), 1.5, 1e300, -0.25}},
		"Empty":     {"Empty values consist of their brackets or quotes.", []any{map[string]any{}, []any{}, ""}},
		"Absent":    {"A nil map or slice is null.", []any{map[string]any(nil), []any(nil)}},
		"Object":    {"Keys, colons and commas count.", map[string]any{"a": "b", "c": map[string]any{"d": int64(1)}, "e<": nil}},
		"Bytes":     {"An escaped character takes more bytes than the character.", string(every)},
		"Runes":     {"Characters outside ASCII are not escaped, except the two line separators.", "ä 中 🙂 \u2028 \u2029 \ufffd"},
		"BadRunes":  {"Each byte of a truncated character is replaced.", "中"[:2] + "x" + "🙂"[:3]},
		"Long":      {"A long string is counted completely.", strings.Repeat("x<", 10_000)},
		"OtherKind": {"Other types count as encoding/json writes them.", map[string]any{"n": json.Number("12")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(tc.value)
			if err != nil {
				t.Fatal(err)
			}
			if got := Size(tc.value); got != len(text) {
				t.Errorf("%s\nSize(): want %d, got %d, of %.200s", tc.reason, len(text), got, text)
			}
		})
	}
}

// FuzzSize compares Size with the size of the JSON that encoding/json writes.
func FuzzSize(f *testing.F) {
	f.Add(`{"a": ["<b>", 1, 1.5e9, null, true], "c\n": {"d": "\u2028"}}`)
	f.Add("\"\xff\"")
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			v = text
		}
		written, err := json.Marshal(v)
		if err != nil {
			t.Skip()
		}
		if got := Size(v); got != len(written) {
			t.Errorf("Size(): want %d, got %d, of %q", len(written), got, written)
		}
	})
}

func TestValues(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         int
	}{
		"Nothing":  {"An empty text has no values.", "", 0},
		"Scalar":   {"A scalar has no members.", "17", 0},
		"Empty":    {"Each empty object counts one more.", `[{},{},{}]`, 6},
		"Members":  {"Each member and element counts one.", `{"a":1,"b":[2,3]}`, 4},
		"Text":     {"Brackets and commas inside strings do not count.", `{"a":"{[,\"{[,","b\\":"\\"}`, 2},
		"Unclosed": {"A text that is not JSON gets an arbitrary number, and no panic.", `{"a":"`, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Values([]byte(tc.text)); got != tc.want {
				t.Errorf("%s\nValues(%s): got %d, want %d", tc.reason, tc.text, got, tc.want)
			}
		})
	}
}
