package lint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"refract.dev/fleet/offline/manifest"
)

// The used parts of a SARIF log.
//
// Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   Code         `json:"id"`
		ShortDescription     sarifText    `json:"shortDescription"`
		FullDescription      sarifText    `json:"fullDescription"`
		Help                 sarifText    `json:"help"`
		DefaultConfiguration sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level Severity `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID              Code              `json:"ruleId"`
		RuleIndex           int               `json:"ruleIndex"`
		Level               Severity          `json:"level"`
		Message             sarifText         `json:"message"`
		Locations           []sarifLocation   `json:"locations"`
		RelatedLocations    []sarifLocation   `json:"relatedLocations,omitempty"`
		PartialFingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
)

// fingerprint is the name of the fingerprints, with their version: another way to compute them needs another name.
const fingerprint = "refract/v1"

// WriteSARIF writes the result as a SARIF 2.1.0 log, a format that code hosts accept for the findings of a CI run. The
// level of a finding is its severity. The fingerprints of findings do not change when lines move.
func WriteSARIF(w io.Writer, r *Result) error { return WriteSARIFOf(w, Codes, r.Findings) }

// WriteSARIFOf is [WriteSARIF] for findings of any kind, with the explanations of their codes.
func WriteSARIFOf(w io.Writer, codes []Explanation, findings []Finding) error {
	log := sarifLog{
		Schema:  "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		Version: "2.1.0",
		Runs: []sarifRun{{
			Tool:       sarifTool{Driver: sarifDriver{Name: "refract", InformationURI: "https://refract.dev", Rules: sarifRules(codes)}},
			ColumnKind: "unicodeCodePoints",
			Results:    make([]sarifResult, len(findings)),
		}},
	}
	counts := map[string]int{}
	for i := range findings {
		log.Runs[0].Results[i] = sarifResultOf(codes, &findings[i], counts)
	}
	return writeJSON(w, log)
}

func sarifRules(codes []Explanation) []sarifRule {
	rules := make([]sarifRule, len(codes))
	for i, c := range codes {
		rules[i] = sarifRule{
			ID:                   c.Code,
			ShortDescription:     sarifText{c.Title + "."},
			FullDescription:      sarifText{c.Text},
			Help:                 sarifText{c.Text},
			DefaultConfiguration: sarifDefault{c.Severity},
		}
	}
	return rules
}

func sarifResultOf(codes []Explanation, f *Finding, counts map[string]int) sarifResult {
	text := strings.Join(append([]string{f.sentence()}, f.details()...), "\n")
	id := fingerprintOf(f)
	counts[id]++
	result := sarifResult{
		RuleID: f.Code, RuleIndex: indexOf(codes, f.Code), Level: f.Severity, Message: sarifText{text},
		Locations:           []sarifLocation{locationOf(f.Place)},
		PartialFingerprints: map[string]string{fingerprint: fmt.Sprintf("%s:%d", id, counts[id])},
	}
	for _, p := range f.Also {
		result.RelatedLocations = append(result.RelatedLocations, locationOf(p))
	}
	return result
}

// indexOf returns the index of a code, or -1, which means none in SARIF.
func indexOf(codes []Explanation, code Code) int {
	for i := range codes {
		if codes[i].Code == code {
			return i
		}
	}
	return -1
}

func locationOf(p manifest.Place) sarifLocation {
	uri := url.URL{Path: filepath.ToSlash(p.File)}
	if path.IsAbs(uri.Path) {
		uri.Scheme = "file"
	}
	l := sarifLocation{Physical: sarifPhysical{Artifact: sarifArtifact{URI: uri.String()}}}
	if p.Line > 0 {
		l.Physical.Region = &sarifRegion{StartLine: p.Line}
	}
	return l
}

// fingerprintOf returns a text that does not change when other parts of the file are edited.
func fingerprintOf(f *Finding) string {
	parts := []string{string(f.Code), f.manifest(), f.Field, f.Path}
	if f.manifest() == "" {
		parts = append(parts, filepath.ToSlash(f.Place.File))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
