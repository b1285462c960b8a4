package converter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

func TestReadiness(t *testing.T) {
	crd := asking(t, `{strategy: Webhook, webhook: {clientConfig: {url: "https://here/convert/widgets.example.com"}, conversionReviewVersions: [v1]}}`)
	good := yes(reasonServing, "")
	cases := map[string]struct {
		reason  string
		change  func(p *refractv1alpha1.ConversionPolicy)
		judged  bool
		asked   state
		status  metav1.ConditionStatus
		is      string
		message []string
	}{
		"Serving": {"All is well.", nil, true, good, metav1.ConditionTrue, reasonServing, []string{"Objects of widgets.example.com are converted by generation 1"}},
		"NotServed": {
			"No spec was ever good, and the message has the reason.",
			func(p *refractv1alpha1.ConversionPolicy) {
				p.Status.Served = nil
				no(reasonInvalid, "spec.hub: no such version").into(p, refractv1alpha1.ConversionCompiled)
			},
			false, no(reasonNotServed, ""), metav1.ConditionFalse, reasonNotServed, []string{"Compiled (Invalid): spec.hub: no such version"},
		},
		"EmptiedStatus": {
			"The API server calls the webhook, but a replica that starts now has no spec: this is an outage.",
			func(p *refractv1alpha1.ConversionPolicy) { p.Status.Served = nil },
			false, no(reasonNotServed, ""), metav1.ConditionFalse, reasonNotServed, []string{"although spec.conversion of widgets.example.com points to Refract"},
		},
		"NotAsked": {
			"The API server does not call the webhook.", nil, true, no(reasonProbe, "connection refused"), metav1.ConditionFalse, reasonProbe, []string{"connection refused"},
		},
		"NotAskedBefore": {
			"A missing webhook is worse than an earlier spec.",
			func(p *refractv1alpha1.ConversionPolicy) { p.Generation = 2 },
			false, no(reasonOthers, "others"), metav1.ConditionFalse, reasonOthers, []string{"others"},
		},
		"Earlier": {
			"The new spec is not good, so the earlier one serves.",
			func(p *refractv1alpha1.ConversionPolicy) {
				p.Generation = 2
				yes(reasonCompiled, "").into(p, refractv1alpha1.ConversionCompiled)
				no(reasonBroken, "RoundTripSpoke").into(p, refractv1alpha1.ConversionVerified)
			},
			false, good, metav1.ConditionFalse, reasonEarlier, []string{"generation 1", "generation 2", "Verified (LawBroken): RoundTripSpoke"},
		},
		"EarlierSchemas": {
			"The definition has changed, and the earlier spec serves.",
			func(p *refractv1alpha1.ConversionPolicy) {
				no(reasonInvalid, "spec.size").into(p, refractv1alpha1.ConversionCompiled)
			},
			false, good, metav1.ConditionFalse, reasonEarlier, []string{
				"previous schemas of the definition", "a field is lost when its object is written in a version without it", "spec.size",
			},
		},
		"ToGo": {
			"The policy is deleted, but still needed.",
			func(p *refractv1alpha1.ConversionPolicy) {
				p.DeletionTimestamp = &metav1.Time{Time: p.CreationTimestamp.Time}
			},
			true, good, metav1.ConditionTrue, reasonNeeded, []string{"v1, v2 are served or stored"},
		},
		"Shadow": {
			"The policy is a shadow now, but no other policy converts.",
			func(p *refractv1alpha1.ConversionPolicy) { p.Spec.Mode = refractv1alpha1.ConversionShadow },
			true, good, metav1.ConditionTrue, reasonNeeded, []string{"although it is a shadow"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := serving(t, policyFrom(t, mapped, "widgets", 1))
			if tc.change != nil {
				tc.change(p)
			}
			got := readiness(p, tc.judged, tc.asked, crd, at("https://here/convert/widgets.example.com"))
			if got.status != tc.status || got.reason != tc.is {
				t.Errorf("%s\nreadiness(): got %+v, want %s %s", tc.reason, got, tc.status, tc.is)
			}
			for _, text := range tc.message {
				if !strings.Contains(got.message, text) {
					t.Errorf("%s\n%q is not in %q", tc.reason, text, got.message)
				}
			}
		})
	}
}

func TestCompiledState(t *testing.T) {
	finding := func(i int, s structural.Severity) structural.Finding {
		return structural.Finding{Path: fmt.Sprintf("spec.spokes[%d]", i), Message: "wrong", Severity: s}
	}
	many := []structural.Finding{finding(99, structural.Warning)}
	for i := range mostFindings + 3 {
		many = append(many, finding(i, structural.Error))
	}
	cases := map[string]struct {
		reason   string
		findings []structural.Finding
		err      error
		want     state
	}{
		"Good":    {"There is nothing to say.", nil, nil, yes(reasonCompiled, "")},
		"Warning": {"A warning is part of the message.", []structural.Finding{finding(0, structural.Warning)}, nil, yes(reasonCompiled, "spec.spokes[0]: wrong")},
		"Errors": {
			"The message names each error.", []structural.Finding{finding(0, structural.Error), finding(1, structural.Error)}, errFindings,
			no(reasonInvalid, "spec.spokes[0]: wrong; spec.spokes[1]: wrong"),
		},
		"Other": {"The definition cannot be read.", nil, errors.New("no schema"), no(reasonInvalid, "no schema")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := compiledState(tc.findings, tc.err); got != tc.want {
				t.Errorf("%s\ncompiledState(): got %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
	if got := compiledState(many, errFindings).message; !strings.HasSuffix(got, "spec.spokes[9]: wrong; and 3 more") {
		t.Errorf("Not all are named: %q", got)
	}
}

func TestVerdict(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"size": int64(1)}}
	broken := &verify.Report{Objects: 7, Checks: 9, Laws: []verify.LawResult{{}, {Violations: []verify.Violation{{
		Law: "RoundTripSpoke", From: "v1", To: "v2", Path: "spec.size", Rule: "spec.spokes[0].fields[0]", Message: "1 came back as 2", Object: object,
	}}}}}
	cases := map[string]struct {
		reason  string
		verdict verdict
		is      string
		message string
	}{
		"Good":  {"No law was seen broken.", verdict{report: &verify.Report{Objects: 7, Checks: 9, Complete: true}}, reasonVerified, "7 objects broke no law"},
		"Slow":  {"Some is better than nothing, and said.", verdict{report: &verify.Report{Objects: 7, Checks: 9}}, reasonVerified, "not complete after"},
		"Stuck": {"Nothing is no proof.", verdict{report: &verify.Report{}}, reasonUnverified, "Nothing could be checked"},
		"Error": {"It could not be found out.", verdict{err: errors.New("no generator")}, reasonUnverified, "no generator"},
		"Broken": {
			"The message names the law, the rule and the object.", verdict{report: broken}, reasonBroken,
			"RoundTripSpoke, v1 to v2, spec.size (spec.spokes[0].fields[0]): 1 came back as 2\nspec:\n  size: 1\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := tc.verdict.state()
			if got.reason != tc.is || !strings.Contains(got.message, tc.message) {
				t.Errorf("%s\nstate(): got %+v, want %s with %q", tc.reason, got, tc.is, tc.message)
			}
			if tc.verdict.good() != (tc.is == reasonVerified) {
				t.Errorf("%s\ngood(): got %t", tc.reason, tc.verdict.good())
			}
		})
	}
}

// TestSeed checks that the seed depends only on the policy. So a user can reproduce a violation.
func TestSeed(t *testing.T) {
	p := policyFrom(t, mapped, "widgets", 1)
	first := seedOf(p)
	if first < 0 || seedOf(p) != first {
		t.Errorf("The seed is %d, and then %d", first, seedOf(p))
	}
	p.Generation++
	if seedOf(p) == first {
		t.Error("Another generation has the same seed.")
	}
}
