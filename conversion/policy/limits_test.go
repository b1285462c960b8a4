package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
)

// sized returns a policy with this number of spokes, of fields in each spoke, and of bytes in each expression. Each
// field has two expressions, or none if bytes is 0.
func sized(spokes, fields, bytes int) *refractv1alpha1.ConversionPolicySpec {
	spec := &refractv1alpha1.ConversionPolicySpec{CRD: "things.example.com", Hub: "v2", Mode: refractv1alpha1.ConversionServe}
	text := ""
	if bytes > 0 {
		text = "value" + strings.Repeat(" ", bytes-len("value"))
	}
	for i := range spokes {
		s := refractv1alpha1.ConversionSpoke{Version: fmt.Sprint("v1alpha", i)}
		for j := range fields {
			name := fmt.Sprint("spec.f", j)
			s.Fields = append(s.Fields, refractv1alpha1.FieldConversion{Hub: name, Spoke: name, ToHub: text, ToSpoke: text})
		}
		spec.Spokes = append(spec.Spokes, s)
	}
	return spec
}

// paired returns a policy with one field and n pairs.
func paired(n int) *refractv1alpha1.ConversionPolicySpec {
	spec := sized(1, 1, 0)
	for i := range n {
		value := apiextensionsv1.JSON{Raw: []byte(fmt.Sprint(i))}
		spec.Spokes[0].Fields[0].Map = append(spec.Spokes[0].Fields[0].Map, refractv1alpha1.ValuePair{Hub: value, Spoke: value})
	}
	return spec
}

// compared adds an equivalence to a field of the policy.
func compared(spec *refractv1alpha1.ConversionPolicySpec) *refractv1alpha1.ConversionPolicySpec {
	spec.Spokes[0].Fields[0].Equivalence = &refractv1alpha1.Equivalence{Hub: "value"}
	return spec
}

func TestLimits(t *testing.T) {
	const less = ": convert what contains several of the fields in one, or use the other ways, such as map and scale, which take no expression"
	cases := map[string]struct {
		reason string
		spec   *refractv1alpha1.ConversionPolicySpec
		want   string // The expected error; empty for success.
		schema string // The expected error of an API server; empty if it accepts the policy.
	}{
		"Spokes":             {"A policy with the maximum number of spokes compiles.", sized(32, 1, 0), "", ""},
		"OneSpokeMore":       {"Each spoke is compiled, and verified with the others.", sized(32+1, 1, 0), "", "spec.spokes: Too many: 33: must have at most 32 items"},
		"Fields":             {"A spoke with the maximum number of fields compiles.", sized(1, mostFields, 0), "", ""},
		"OneFieldMore":       {"Each field is compiled.", sized(1, mostFields+1, 0), "spec.spokes[0].fields: has 257 entries, want at most 256: convert parents of several of the fields in one entry", "spec.spokes[0].fields: Too many: 257: must have at most 256 items"},
		"Pairs":              {"A map with the maximum number of pairs compiles.", paired(256), "", ""},
		"OnePairMore":        {"Each pair takes time.", paired(256 + 1), "", "spec.spokes[0].fields[0].map: Too many: 257: must have at most 256 items"},
		"Expressions":        {"A policy with the maximum number of expressions compiles.", sized(8, mostExpressions/16, 10), "", ""},
		"OneExpressionMore":  {"Each expression takes memory: fifteen spokes of 250 fields took 850 MB.", compared(sized(8, mostExpressions/16, 10)), "spec.spokes: have 2001 expressions together, want at most 2000" + less, "spec: Invalid value: the spokes may have 2000 expressions together"},
		"ExpressionBytes":    {"Expressions of the maximum total size compile.", sized(1, 16, mostExpressionBytes/32), "", ""},
		"OneByteMore":        {"A long expression takes as much memory as many short ones.", compared(sized(1, 16, mostExpressionBytes/32)), "spec.spokes: have expressions of 262149 bytes together, want at most 262144" + less, ""},
		"EverythingAtOnce":   {"All exceeded limits are reported.", sized(32+1, mostFields+1, 10), "spec.spokes[0].fields: has 257 entries, want at most 256: convert parents of several of the fields in one entry", "spec.spokes: Too many: 33: must have at most 32 items"},
		"NothingOfExpensive": {"Entries without expressions are cheap.", sized(32, mostFields, 0), "", ""},
	}
	text, err := os.ReadFile("../../config/crd/refract.dev_conversionpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	policies, err := structural.New(crd)
	if err != nil {
		t.Fatal(err)
	}
	version, err := policies.Version("v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var r report
			r.excessive(tc.spec)
			got := ""
			if len(r.findings) > 0 {
				got = r.findings[0].String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nexcessive(): -want, +got:\n%s", tc.reason, diff)
			}
			p, findings := Compile(tc.spec, definition(t, map[string]string{"schemas.yaml": "v1alpha0: {}\nv2: {}"}))
			if excess := len(findings) > 0 && findings[0].Rule == ruleExcess; excess != (tc.want != "") || excess && p != nil {
				t.Errorf("%s\nCompile(): got %v and %v", tc.reason, p, findings)
			}
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&refractv1alpha1.ConversionPolicy{Spec: *tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			object["apiVersion"], object["kind"], object["metadata"] = "refract.dev/v1alpha1", "ConversionPolicy", map[string]any{"name": "things"}
			delete(object, "status")
			got = ""
			if said := version.Validate(object); len(said) > 0 {
				got = said[0].String()
			}
			if !strings.HasPrefix(got, tc.schema) || (got == "") != (tc.schema == "") {
				t.Errorf("%s\nan API server: want %q, got %q", tc.reason, tc.schema, got)
			}
		})
	}
}

// TestSchemaIsTaken checks that an API server accepts the CustomResourceDefinition of policies. Its CEL rules could
// exceed the cost limit.
func TestSchemaIsTaken(t *testing.T) {
	text, err := os.ReadFile("../../config/crd/refract.dev_conversionpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	findings, err := structural.Check(crd)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Severity == structural.Error {
			t.Error(f)
		}
	}
}
