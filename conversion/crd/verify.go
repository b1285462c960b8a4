package crd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// Verification is the result of a check of a policy against the laws of conversion. Its JSON is one document.
type Verification struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Policy is the name of the policy. Definition is the name of its CustomResourceDefinition.
	Policy     string `json:"policy"`
	Definition string `json:"definition"`
	// Against is the URL of the webhook that the policy was compared with; empty without a comparison.
	Against string `json:"against,omitempty"`
	// Findings are the findings of the compiler. If one of them is an error, nothing was verified.
	Findings []Finding `json:"findings"`
	// Recorded are those recorded objects that are invalid in their version or that violate a law, in the order of
	// their numbers.
	Recorded []RecordedObject `json:"recorded,omitempty"`
	// Result is nil if nothing was verified.
	Result *verify.Report `json:"result,omitempty"`

	compiled *Report
	document manifest.Document
}

// RecordedObject is an object of the input. The other checked objects are generated.
type RecordedObject struct {
	// Number is the number of the object in Result. The first object has the number 0.
	Number    int    `json:"number"`
	File      string `json:"file"`
	Line      int    `json:"line"`
	Version   string `json:"version"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Invalid is the reason why an API server would reject the object in its version; empty if it would not.
	Invalid string `json:"invalid,omitempty"`

	called string
}

// String returns FILE:LINE: KIND NAMESPACE/NAME.
func (o *RecordedObject) String() string { return fmt.Sprintf("%s:%d: %s", o.File, o.Line, o.called) }

// The apiVersion and kind in the JSON of a [Verification].
const (
	VerificationAPIVersion = "refract.dev/v1alpha1"
	VerificationKind       = "Verification"
)

// NewVerification returns the Verification of a policy before the laws are checked. It has only the findings of the
// compiler.
func NewVerification(d *manifest.Document, compiled *Report) *Verification {
	v := &Verification{
		APIVersion: VerificationAPIVersion, Kind: VerificationKind, Policy: NameOf(d),
		Findings: compiled.Findings, compiled: compiled, document: *d,
	}
	if spec, ok := d.Content["spec"].(map[string]any); ok {
		v.Definition, _ = spec["crd"].(string) // If the value has another type, there is a finding about it.
	}
	return v
}

// Verify checks a policy against the laws, with generated objects and with recorded objects of its definition. If
// theirs is not nil, Verify only compares the results of the policy with those of theirs, and ignores o.Laws. Verify
// sets o.Recorded itself. It returns when ctx ends, at the latest.
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

// name adds the recorded objects that the result refers to.
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

// objectsOf returns the recorded objects of a violation.
func (v *Verification) objectsOf(w *verify.Violation) []RecordedObject {
	var out []RecordedObject
	for i := range v.Recorded {
		if slices.Contains(w.Recorded, v.Recorded[i].Number) {
			out = append(out, v.Recorded[i])
		}
	}
	return out
}

// Failed reports whether the policy does not compile or violates a law.
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

// summaries returns a description of each law.
func summaries() map[verify.Law]string {
	all := map[verify.Law]string{verify.Agreement: "Both results for an object mean the same."}
	for _, l := range verify.Laws() {
		all[l.Name] = l.Summary
	}
	return all
}

// at returns the place where a user can fix a violation. It is the rule that set the value or, if that rule is unknown,
// the policy.
func (v *Verification) at(w *verify.Violation) manifest.Place {
	if w.Rule == "" {
		return v.document.Place
	}
	return v.document.At(w.Rule)
}

// violationText returns PATH: MESSAGE of a violation. It omits the law, the rule and the versions.
func violationText(w *verify.Violation) string {
	if w.Path == "" || strings.HasPrefix(w.Message, w.Path) {
		return w.Message
	}
	return w.Path + ": " + w.Message
}

// ruleText returns violationText after the rule, if the rule is known.
func ruleText(w *verify.Violation) string {
	if w.Rule == "" {
		return violationText(w)
	}
	return w.Rule + ": " + violationText(w)
}

// object returns the policy in the form that other reports use.
func (v *Verification) object() *render.Object {
	version, _ := v.document.Content["apiVersion"].(string)
	return &render.Object{APIVersion: version, Kind: PolicyKind, Name: v.Policy}
}
