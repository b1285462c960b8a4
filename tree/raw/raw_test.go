package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// documents are valid JSON and texts with one defect each.
var documents = map[string]struct {
	reason string
	text   string
	err    error
}{
	"Empty":            {reason: "A document needs a value.", text: ``, err: ErrSyntax},
	"Space":            {reason: "White space is not a value.", text: " \n", err: ErrSyntax},
	"Nothing":          {reason: "An object may be empty.", text: `{}`},
	"Spaced":           {reason: "White space is allowed between all tokens.", text: " {\t\"a\" :\r\n[ 1 , 2 ] , \"b\" : { } } "},
	"Types":            {reason: "Values of all types are skipped.", text: `{"a":"x","b":-1.5e+3,"c":true,"d":false,"e":null,"f":[],"g":{"h":[{}]}}`},
	"Zero":             {reason: "A number may begin with 0 if no digit follows.", text: `{"a":0,"b":-0,"c":0.5}`},
	"LeadingZero":      {reason: "A number has no leading zero.", text: `{"a":01}`, err: ErrSyntax},
	"NoFraction":       {reason: "A decimal point needs digits after it.", text: `{"a":1.}`, err: ErrSyntax},
	"NoExponent":       {reason: "An exponent needs digits.", text: `{"a":1e}`, err: ErrSyntax},
	"OnlyMinus":        {reason: "A sign alone is not a number.", text: `{"a":-}`, err: ErrSyntax},
	"Plus":             {reason: "A number has no plus sign.", text: `{"a":+1}`, err: ErrSyntax},
	"Literal":          {reason: "true, false and null are the only literals.", text: `{"a":nul}`, err: ErrSyntax},
	"LiteralTooLong":   {reason: "No letter may follow a literal.", text: `{"a":nulll}`, err: ErrSyntax},
	"CommaMissing":     {reason: "Members are separated by commas.", text: `{"a":1 "b":2}`, err: ErrSyntax},
	"CommaTooMany":     {reason: "A member follows each comma.", text: `{"a":1,}`, err: ErrSyntax},
	"CommaInArray":     {reason: "An element follows each comma.", text: `{"a":[1,]}`, err: ErrSyntax},
	"CommaFirst":       {reason: "An element precedes each comma.", text: `{"a":[,1]}`, err: ErrSyntax},
	"ColonMissing":     {reason: "A colon separates key and value.", text: `{"a" 1}`, err: ErrSyntax},
	"KeyUnquoted":      {reason: "Keys are strings.", text: `{a:1}`, err: ErrSyntax},
	"Unclosed":         {reason: "Arrays and objects must be closed.", text: `{"a":[1,2`, err: ErrSyntax},
	"UnclosedString":   {reason: "A string must be closed.", text: `{"a":"x}`, err: ErrSyntax},
	"UnclosedEscape":   {reason: "A backslash needs a character after it.", text: `{"a":"x\`, err: ErrSyntax},
	"WrongBracket":     {reason: "Brackets match.", text: `{"a":[1}`, err: ErrSyntax},
	"Escapes":          {reason: "All nine escapes are read.", text: `{"a":"\"\\\/\b\f\n\r\t\u00e9"}`},
	"UnknownEscape":    {reason: "Other escapes are errors.", text: `{"a":"\x"}`, err: ErrSyntax},
	"ShortUnicode":     {reason: "A Unicode escape has four digits.", text: `{"a":"\u00e"}`, err: ErrSyntax},
	"ControlCharacter": {reason: "Control characters are escaped.", text: "{\"a\":\"long enough to be looked at in words \n\"}", err: ErrSyntax},
	"Delete":           {reason: "Bytes above 0x7e have no special meaning.", text: "{\"a\":\"\x7f\u0080\u00ff€😀 long enough to be looked at\"}"},
	"Behind":           {reason: "A document has only one value.", text: `{} {}`, err: ErrSyntax},
	"Deep": {
		reason: "A document may have exactly the maximum depth.",
		text:   `{"a":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + `}`,
	},
	"TooDeep": {
		reason: "A deeper document is an error.",
		text:   `{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`, err: ErrSyntax,
	},
	"MuchTooDeep": {reason: "A very deep document does not exhaust the stack.", text: strings.Repeat(`{"a":[`, 1_000_000), err: ErrSyntax},
	"Array":       {reason: "An array is not an object.", text: `[]`, err: ErrSyntax},
	"Null":        {reason: "null is not an object.", text: `null`, err: ErrSyntax},
}

// TestMembers reads documents as objects, and compares the results with encoding/json.
func TestMembers(t *testing.T) {
	for name, tc := range documents {
		t.Run(name, func(t *testing.T) {
			got := map[string]json.RawMessage{}
			err := Members([]byte(tc.text), func(key, value []byte) bool {
				got[string(key)] = value
				return true
			})
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("%s\nMembers() error: -want, +got:\n%s", tc.reason, diff)
			}
			if err != nil {
				return
			}
			want := map[string]json.RawMessage{}
			if err := json.Unmarshal([]byte(tc.text), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\nMembers(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMembersKeys(t *testing.T) {
	var keys []string
	err := Members([]byte(`{"b":1,"a\/é\u00e9":2,"":3,"b":4}`), func(key, value []byte) bool {
		keys = append(keys, fmt.Sprintf("%s=%s", key, value))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b=1", "a/éé=2", "=3", "b=4"}, keys); diff != "" {
		t.Errorf("unquoted keys, in order, with duplicates: -want, +got:\n%s", diff)
	}
}

func TestElements(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   []string
		err    error
	}{
		"Empty":  {reason: "An array may be empty.", text: `[]`},
		"Some":   {reason: "The bytes of elements stay unchanged.", text: ` [ 1, "a" ,{"b": 2} ,[ ] ]`, want: []string{"1", `"a"`, `{"b": 2}`, "[ ]"}},
		"Object": {reason: "An object is not an array.", text: `{}`, err: ErrSyntax},
		"Broken": {reason: "The whole document must be JSON.", text: `[1,`, err: ErrSyntax, want: []string{"1"}},
		"Behind": {reason: "A document has only one value.", text: `[1]]`, err: ErrSyntax, want: []string{"1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := Elements([]byte(tc.text), func(i int, value []byte) bool {
				if i != len(got) {
					t.Errorf("element %d has index %d", len(got), i)
				}
				got = append(got, string(value))
				return true
			})
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s\nElements() error: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nElements(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestStop verifies that Members and Elements do not read or check the rest after yield has returned false.
func TestStop(t *testing.T) {
	if err := Members([]byte(`{"a":1,"b`), func([]byte, []byte) bool { return false }); err != nil {
		t.Errorf("Members() after yield returned false: %v", err)
	}
	if err := Elements([]byte(`[1,`), func(int, []byte) bool { return false }); err != nil {
		t.Errorf("Elements() after yield returned false: %v", err)
	}
}

func TestField(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   string
		err    error
	}{
		"There":  {reason: "The value is a part of the document.", text: `{"a": {"b": 1} }`, want: `{"b": 1}`},
		"First":  {reason: "The text after the first match is not read.", text: `{"a":1,"a":2,`, want: "1"},
		"Absent": {reason: "A missing value is nil.", text: `{"b":1}`},
		"Broken": {reason: "The text before the match must be JSON.", text: `{"b":}`, err: ErrSyntax},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Field([]byte(tc.text), "a")
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s\nField() error: -want, +got:\n%s", tc.reason, diff)
			}
			if string(got) != tc.want {
				t.Errorf("%s\nField() = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	got, err := String([]byte(` "a\u0041\n\"" `))
	if err != nil || got != "aA\n\"" {
		t.Errorf("String() = %q, %v", got, err)
	}
	for _, text := range []string{``, `1`, `null`, `"a" "b"`, `"a`, `{"a":"b"}`} {
		if got, err := String([]byte(text)); !errors.Is(err, ErrSyntax) {
			t.Errorf("String(%s) = %q, %v, want ErrSyntax", text, got, err)
		}
	}
}

func TestIsNull(t *testing.T) {
	cases := []struct {
		text string
		want bool
	}{
		{"", true},
		{" null\n", true},
		{`"null"`, false},
		{"{}", false},
		{"nul", false},
	}
	for _, tc := range cases {
		if got := IsNull([]byte(tc.text)); got != tc.want {
			t.Errorf("IsNull(%q) = %t", tc.text, got)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, text := range []string{"", "plain", `"quoted" \ `, "<&>", "é\n\x00\x7f", "broken \xff", "\u2028"} {
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendString([]byte("x"), text); string(got) != "x"+string(want) {
			t.Errorf("AppendString(%q) = %s, want x%s", text, got, want)
		}
	}
}

// TestScanner reads selected values in place, and skips the rest.
func TestScanner(t *testing.T) {
	const text = `{"skipped":[{"a":1}],"list":[{"name":"x","more":{}},null,{"name":"y"}],"none":null,"text":"z"}`
	var names []string
	var pieces []string
	s := New([]byte(text))
	s.Object(func(key []byte) {
		switch string(key) {
		case "list":
			s.Array(func(i int) {
				if s.Null() {
					return
				}
				start := s.Offset()
				s.Object(func(key []byte) {
					if string(key) == "name" {
						names = append(names, fmt.Sprintf("%d %s", i, s.Text()))
					}
				})
				pieces = append(pieces, string(s.Since(start)))
			})
		case "text":
			names = append(names, string(s.Value()))
		}
	})
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0 x", "2 y", `"z"`}, names); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{`{"name":"x","more":{}}`, `{"name":"y"}`}, pieces); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestScannerFails verifies three properties: an error contains the place and the reason, the first error stays, and
// the scanner reads no value after an error.
func TestScannerFails(t *testing.T) {
	s := New([]byte(`{"a":[1],"b":2}`))
	s.Object(func(key []byte) {
		if string(key) != "a" {
			t.Errorf("reached %s", key)
		}
		s.Text()
		s.Fail(errors.New("another one"))
		if s.Value() != nil || s.Null() || s.Since(0) != nil {
			t.Error("a value was read after an error")
		}
	})
	const want = "invalid JSON at byte 5: want a string, got an array"
	if err := s.End(); err == nil || err.Error() != want {
		t.Errorf("End() = %v, want %s", err, want)
	}
	own := errors.New("not wanted")
	s = New([]byte(`[1]`))
	s.Array(func(int) { s.Fail(own) })
	if !errors.Is(s.Err(), own) {
		t.Errorf("Err() = %v", s.Err())
	}
}

// FuzzMembers verifies that Members accepts the same objects as encoding/json and nothing else, and that the members
// are the same and are parts of the document.
func FuzzMembers(f *testing.F) {
	for _, tc := range documents {
		if len(tc.text) < 10_000 {
			f.Add([]byte(tc.text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > MaxDepth {
			return // encoding/json allows more.
		}
		before := bytes.Clone(data)
		got := map[string]json.RawMessage{}
		err := Members(data, func(key, value []byte) bool {
			got[string(key)] = slices.Clone(value)
			return true
		})
		if !bytes.Equal(before, data) {
			t.Fatalf("the document was modified")
		}
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(data, &want)
		if want == nil && wantErr == nil {
			return // null
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil || !utf8.Valid(data) { // encoding/json replaces invalid UTF-8 in keys.
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-want, +got:\n%s", diff)
		}
	})
}

// TestScannerSteps reads all documents step by step, and compares the results with Members.
func TestScannerSteps(t *testing.T) {
	type member struct {
		At    int
		Value string
	}
	for name, tc := range documents {
		t.Run(name, func(t *testing.T) {
			var want []string
			wantErr := Members([]byte(tc.text), func(key, value []byte) bool {
				want = append(want, string(key)+"="+string(value))
				return true
			})
			s := new(Scanner)
			s.Reset([]byte(tc.text))
			var got []string
			var members []member
			if s.OpenObject() {
				for first := true; ; first = false {
					key, at, ok := s.NextKey(first)
					if !ok {
						break
					}
					start := s.Offset()
					members = append(members, member{At: at, Value: string(s.Next())})
					value := s.Value()
					if s.Err() == nil {
						got = append(got, string(key)+"="+string(value))
						if s.Position() != start+len(value) {
							t.Errorf("%s\nPosition() = %d behind %q at %d", tc.reason, s.Position(), value, start)
						}
					}
				}
			}
			err := s.End()
			if fmt.Sprint(wantErr) != fmt.Sprint(err) {
				t.Fatalf("%s\nerror %v, want %v", tc.reason, err, wantErr)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if err != nil {
				return
			}
			for i, m := range members {
				if tc.text[m.At] != '"' || !strings.HasPrefix(strings.SplitN(got[i], "=", 2)[1], m.Value) {
					t.Errorf("%s\nmember %d is not at byte %d, or its value does not begin with %s", tc.reason, i, m.At, m.Value)
				}
			}
		})
	}
}

func TestScannerElements(t *testing.T) {
	s := New([]byte(` [ 1, [ ], {"a": [ "b" ]} ] `))
	var got []string
	s.OpenArray()
	for first := true; s.NextElement(first); first = false {
		got = append(got, string(s.Next())+" "+string(s.Value()))
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1 1", "[ [ ]", `{ {"a": [ "b" ]}`}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if s.Next() != 0 || string(s.Document()) != ` [ 1, [ ], {"a": [ "b" ]} ] ` {
		t.Errorf("want no next value at the end, got %q of %s", s.Next(), s.Document())
	}
	s.Reset([]byte(`[1,]`))
	s.OpenArray()
	for first := true; s.NextElement(first); first = false {
		s.Value()
	}
	if !errors.Is(s.Err(), ErrSyntax) || s.NextElement(false) || s.Next() != 0 {
		t.Errorf("want a syntax error and no further value, got error %v", s.Err())
	}
	if _, _, ok := s.NextKey(true); ok {
		t.Error("NextKey() after an error returned a key")
	}
}
