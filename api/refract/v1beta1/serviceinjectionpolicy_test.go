package v1beta1

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEnvValue(t *testing.T) {
	cases := map[string]struct {
		reason, json string
		want         EnvValue
		err          string // Part of the expected error; empty for success.
	}{
		"Text":     {reason: "A string stays unchanged.", json: `"6379"`, want: "6379"},
		"Number":   {reason: "A number becomes its digits.", json: `6379`, want: "6379"},
		"Negative": {reason: "The sign is kept.", json: `-1`, want: "-1"},
		"Greatest": {reason: "The largest exact float64 is accepted.", json: `9007199254740991`, want: "9007199254740991"},
		"Least":    {reason: "The smallest exact float64 is accepted.", json: `-9007199254740991`, want: "-9007199254740991"},
		"Beyond": {
			reason: "The original number may have been 2^53+1.",
			json:   `9007199254740992`, err: "put quotes around the number: it is beyond ±9007199254740991",
		},
		"Long":        {reason: "A number beyond int64 is rejected.", json: `12345678901234567890`, err: "put quotes around the number"},
		"Rounded":     {reason: "Go writes rounded numbers in this form.", json: `1.2345678901234567e+21`, err: "put quotes around the number"},
		"NoFloat":     {reason: "A number beyond float64 is rejected.", json: `1e999`, err: "put quotes around the number"},
		"LongText":    {reason: "The digits of a string stay unchanged.", json: `"12345678901234567890"`, want: "12345678901234567890"},
		"NotWhole":    {reason: "A fraction has no unique text.", json: `1.5`, err: "want a string or a whole number, got 1.5"},
		"Exponential": {reason: "An exponent has no unique text.", json: `1e3`, err: "want a string or a whole number, got 1e3"},
		"Boolean":     {reason: "A boolean in YAML may have been true, yes or on.", json: `true`, err: "want a string or a whole number, got true"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got EnvValue
			err := json.Unmarshal([]byte(tc.json), &got)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%s\nerror: got %v, want %q", tc.reason, err, tc.err)
			}
			if got != tc.want {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
