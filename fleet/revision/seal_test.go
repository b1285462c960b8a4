package revision

import (
	"bytes"
	"errors"
	"testing"
)

// TestSeal checks that sealed data reveals nothing, and opens only with its key and under its name.
func TestSeal(t *testing.T) {
	key, text := NewKey(), []byte(`{"content":{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}}`)
	data, err := Seal(text, key, "refract-1")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Seal(text, key, "refract-1"); err != nil || bytes.Equal(again, data) {
		t.Errorf("want different encrypted texts for the same content: %v", err)
	}
	if bytes.Contains(data, []byte("hunter2")) || bytes.Contains(data, []byte("aHVudGVyMg")) {
		t.Errorf("the sealed data contains readable text: %s", data)
	}
	if got, err := Open(data, key, "refract-1"); err != nil || !bytes.Equal(got, text) {
		t.Errorf("Open(): %s, %v", got, err)
	}
	cases := map[string]struct {
		reason string
		data   []byte
		key    []byte
		name   string
		sealed bool
	}{
		"OtherKey":  {"A new key does not open data that was sealed with an old key.", data, NewKey(), "refract-1", true},
		"OtherName": {"Data that was sealed under one name does not open under another.", data, key, "refract-2", true},
		"Changed":   {"Changes of the data are detected.", bytes.Replace(data, []byte(`"sealed":"`), []byte(`"sealed":"AAAA`), 1), key, "refract-1", true},
		"NoKey":     {"A truncated key is invalid.", data, key[:16], "refract-1", false},
		"Plain":     {"Data that is not sealed is an error.", text, key, "refract-1", true},
		"NoJSON":    {"Data that is no JSON is an error.", []byte("{"), key, "refract-1", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Open(tc.data, tc.key, tc.name)
			if err == nil || errors.Is(err, ErrSealed) != tc.sealed {
				t.Errorf("%s\nOpen(): %q, %v", tc.reason, got, err)
			}
		})
	}
}
