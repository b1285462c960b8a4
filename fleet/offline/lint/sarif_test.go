package lint

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// checkSARIF verifies the requirements of the SARIF schema and of the code hosts that read such logs.
func checkSARIF(t *testing.T, r *Result) {
	t.Helper()
	var text bytes.Buffer
	if err := WriteSARIF(&text, r); err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	d := json.NewDecoder(&text)
	d.DisallowUnknownFields()
	if err := d.Decode(&log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" || log.Runs[0].Results == nil {
		t.Fatalf("not a SARIF log: %+v", log)
	}
	rules := log.Runs[0].Tool.Driver.Rules
	prints := map[string]bool{}
	for i, result := range log.Runs[0].Results {
		switch {
		case result.RuleIndex < 0 || rules[result.RuleIndex].ID != result.RuleID:
			t.Errorf("result %d: rule %d is not %s", i, result.RuleIndex, result.RuleID)
		case !slices.Contains([]Severity{Error, Warning}, result.Level) || result.Message.Text == "" || len(result.Locations) != 1:
			t.Errorf("result %d lacks a level, a message or a place: %+v", i, result)
		case prints[result.PartialFingerprints[fingerprint]]:
			t.Errorf("result %d has the fingerprint of another", i)
		}
		prints[result.PartialFingerprints[fingerprint]] = true
		for _, l := range append(result.Locations, result.RelatedLocations...) {
			uri := l.Physical.Artifact.URI
			if uri == "" || strings.HasPrefix(uri, "/") || strings.Contains(uri, `\`) || (l.Physical.Region != nil && l.Physical.Region.StartLine < 1) {
				t.Errorf("result %d: wrong place %+v", i, l)
			}
		}
	}
}
