package crd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/convert/verify"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/structural"
)

// Verification is what came of holding a policy against laws. Its JSON is one document.
type Verification struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Policy is the name of the policy, and Definition that of what it is for.
	Policy     string `json:"policy"`
	Definition string `json:"definition"`
	// Against is the URL of the webhook that the policy was compared with, if it was.
	Against string `json:"against,omitempty"`
	// Findings are those of compiling the policy. With an error among them nothing was
	// verified.
	Findings []Finding `json:"findings"`
	// Recorded are the real objects that are not valid in their version or break a law, in
	// the order of their numbers.
	Recorded []RecordedObject `json:"recorded,omitempty"`
	// Result is nil if nothing was verified.
	Result *verify.Report `json:"result,omitempty"`

	compiled *Report
	document manifest.Document
}

// RecordedObject is a real object.
type RecordedObject struct {
	// Number is that of the object in Result, from 0.
	Number    int    `json:"number"`
	File      string `json:"file"`
	Line      int    `json:"line"`
	Version   string `json:"version"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Invalid is why an API server would not accept it in its version; empty if it would.
	Invalid string `json:"invalid,omitempty"`

	called string
}

// String returns FILE:LINE: KIND NAMESPACE/NAME.
func (o *RecordedObject) String() string { return fmt.Sprintf("%s:%d: %s", o.File, o.Line, o.called) }

// The type of a [Verification], as it stands in JSON.
const (
	VerificationAPIVersion = "refract.dev/v1alpha1"
	VerificationKind       = "Verification"
)

// NewVerification returns what is known of a policy, one document, before it is
// verified: the report of compiling it.
func NewVerification(d *manifest.Document, compiled *Report) *Verification {
	v := &Verification{
		APIVersion: VerificationAPIVersion, Kind: VerificationKind, Policy: NameOf(d),
		Findings: compiled.Findings, compiled: compiled, document: *d,
	}
	if spec, ok := d.Content["spec"].(map[string]any); ok {
		v.Definition, _ = spec["crd"].(string) // What is not as it must be is a finding.
	}
	return v
}

// Verify holds a policy against laws with generated objects and recorded ones, which are of
// its definition; o.Recorded is of no matter. With theirs, which may be nil, it is only
// compared with that, and o.Laws is of no matter either. The end of ctx is the time there is.
func (v *Verification) Verify(ctx context.Context, p *Policy, theirs verify.Subject, recorded []Object, o verify.Options) error {
	engine, err := Engine([]Policy{*p})
	if err != nil {
		return fmt.Errorf("preparing to convert: %w", err)
	}
	o.Definition, o.Hub, o.Versions, o.Knowledge = p.Definition.Definition, p.Hub(), p.Versions(), p
	o.Recorded = nil
	for i := range recorded {
		o.Recorded = append(o.Recorded, recorded[i].Document.Content)
	}
	ours := verify.Engine(engine)
	if theirs != nil {
		v.Result, err = verify.Compare(ctx, ours, theirs, o)
	} else {
		v.Result, err = verify.Run(ctx, ours, o)
	}
	if err != nil {
		return fmt.Errorf("verifying %s: %w", NameOf(&p.Document), err)
	}
	v.name(recorded)
	return nil
}

// name keeps which the recorded objects are that the result is about.
func (v *Verification) name(recorded []Object) {
	about := map[int]string{}
	for i := range v.Result.Laws {
		for _, w := range v.Result.Laws[i].Violations {
			for _, n := range w.Recorded {
				about[n] = ""
			}
		}
	}
	for _, invalid := range v.Result.Invalid {
		about[invalid.Recorded] = invalid.Why
	}
	for _, n := range slices.Sorted(maps.Keys(about)) {
		o := &recorded[n]
		u := &unstructured.Unstructured{Object: o.Document.Content}
		v.Recorded = append(v.Recorded, RecordedObject{
			Number: n, File: o.Document.Place.File, Line: o.Document.Place.Line, Version: o.Version.Name(),
			Namespace: u.GetNamespace(), Name: u.GetName(), Invalid: about[n], called: o.String(),
		})
	}
}

// objectsOf returns the real objects that a violation is about.
func (v *Verification) objectsOf(w *verify.Violation) []RecordedObject {
	var out []RecordedObject
	for i := range v.Recorded {
		if slices.Contains(w.Recorded, v.Recorded[i].Number) {
			out = append(out, v.Recorded[i])
		}
	}
	return out
}

// Failed reports whether the policy does not compile, or breaks a law.
func (v *Verification) Failed() bool { return v.compiled.Has(structural.Error) || v.violations() > 0 }

func (v *Verification) violations() int {
	if v.Result == nil {
		return 0
	}
	n := 0
	for i := range v.Result.Laws {
		n += len(v.Result.Laws[i].Violations)
	}
	return n
}

// summaries say what each law is about.
func summaries() map[verify.Law]string {
	all := map[verify.Law]string{verify.Agreement: "What both make of an object means the same."}
	for _, l := range verify.Laws() {
		all[l.Name] = l.Summary
	}
	return all
}

// at returns where a violation is to be mended: at the rule that made the value, if it
// is known.
func (v *Verification) at(w *verify.Violation) manifest.Place {
	if w.Rule == "" {
		return v.document.Place
	}
	return v.document.At(w.Rule)
}

// violationText says what a violation is, without its law, its rule and the versions:
// PATH: MESSAGE.
func violationText(w *verify.Violation) string {
	if w.Path == "" || strings.HasPrefix(w.Message, w.Path) {
		return w.Message
	}
	return w.Path + ": " + w.Message
}

// ruleText is violationText after the rule, if it is known.
func ruleText(w *verify.Violation) string {
	if w.Rule == "" {
		return violationText(w)
	}
	return w.Rule + ": " + violationText(w)
}

// object is what the policy is in other reports.
func (v *Verification) object() *render.Object {
	version, _ := v.document.Content["apiVersion"].(string)
	return &render.Object{APIVersion: version, Kind: PolicyKind, Name: v.Policy}
}
