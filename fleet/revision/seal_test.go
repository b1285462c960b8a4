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
		t.Errorf("The same content is sealed to the same text, which tells that it is the same: %v", err)
	}
	if bytes.Contains(data, []byte("hunter2")) || bytes.Contains(data, []byte("aHVudGVyMg")) {
		t.Errorf("What is sealed can be read: %s", data)
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
		"OtherKey":  {"A key that was made anew opens nothing that was sealed before.", data, NewKey(), "refract-1", true},
		"OtherName": {"What was sealed under one name is not taken for another.", data, key, "refract-2", true},
		"Changed":   {"Nobody changes it unnoticed.", bytes.Replace(data, []byte(`"sealed":"`), []byte(`"sealed":"AAAA`), 1), key, "refract-1", true},
		"NoKey":     {"A key that is cut is none.", data, key[:16], "refract-1", false},
		"Plain":     {"What is not sealed is not taken.", text, key, "refract-1", true},
		"NoJSON":    {"What is no JSON is no revision.", []byte("{"), key, "refract-1", true},
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
