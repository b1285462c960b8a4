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
		"Text":        {reason: "As it stands.", json: `"6379"`, want: "6379"},
		"Number":      {reason: "Its digits.", json: `6379`, want: "6379"},
		"Negative":    {reason: "And sign.", json: `-1`, want: "-1"},
		"Greatest":    {reason: "Nobody rounds this.", json: `9007199254740991`, want: "9007199254740991"},
		"Least":       {reason: "Nor this.", json: `-9007199254740991`, want: "-9007199254740991"},
		"Beyond":      {reason: "It may have been 2^53+1.", json: `9007199254740992`, err: "put quotes around the number: it is beyond ±9007199254740991"},
		"Long":        {reason: "It does not fit an int64, either.", json: `12345678901234567890`, err: "put quotes around the number"},
		"Rounded":     {reason: "As Go writes what it has rounded.", json: `1.2345678901234567e+21`, err: "put quotes around the number"},
		"NoFloat":     {reason: "It is no float, either.", json: `1e999`, err: "put quotes around the number"},
		"LongText":    {reason: "Texts are not rounded.", json: `"12345678901234567890"`, want: "12345678901234567890"},
		"NotWhole":    {reason: "There are many ways to write it.", json: `1.5`, err: "want a string or a whole number, got 1.5"},
		"Exponential": {reason: "Nor is it said how this would be written.", json: `1e3`, err: "want a string or a whole number, got 1e3"},
		"Boolean":     {reason: "It is true, yes or on.", json: `true`, err: "want a string or a whole number, got true"},
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
