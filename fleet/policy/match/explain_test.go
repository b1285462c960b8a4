package match

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

func TestWhy(t *testing.T) {
	cases := map[string]struct {
		reason  string
		target  string
		cluster string // Name in fleet.
		want    string
	}{
		"Absent":        {"Every cluster is chosen.", "", "c1", ""},
		"Name":          {"Names are listed by name.", "{clusters: [c3, c2]}", "c1", "it is not among c2, c3"},
		"Names":         {"Many names are counted.", "{clusters: [f, e, d, c, b, a]}", "c1", "it is not among a, b, c and 3 more"},
		"Label":         {"The sentence has the actual and the wanted value.", "{clusterSelector: {region: sh}}", "c1", `label region is "bj", want "sh"`},
		"NoLabel":       {"A missing label has no value to show.", "{clusterSelector: {region: sh}}", "c4", "it has no label region"},
		"First":         {"The sentence is about the first unmet requirement, by key.", "{clusterSelector: {provider: q, region: bj, zone: z2}}", "c1", "it has no label provider"},
		"NameBefore":    {"Names are checked first.", "{clusters: [c2], clusterSelector: {region: sh}}", "c1", "it is not among c2"},
		"In":            {"All allowed values are named.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: In, values: [z2, z3]}]}]}", "c1", `label zone is "z1", want one of "z2", "z3"`},
		"InOne":         {"A single allowed value is named.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: In, values: [z2]}]}]}", "c1", `label zone is "z1", want "z2"`},
		"NotIn":         {"All excluded values are named.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: NotIn, values: [z1, z2]}]}]}", "c1", `label zone is "z1", want none of "z1", "z2"`},
		"NotInOne":      {"The label has the only excluded value.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: NotIn, values: [z1]}]}]}", "c1", `label zone is "z1", want another value`},
		"Exists":        {"The missing label is named.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: Exists}]}]}", "c4", "it has no label zone"},
		"DoesNotExist":  {"Only the unwanted label is named.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: DoesNotExist}]}]}", "c1", `label zone is "z1", want no such label`},
		"Gt":            {"The bound is named.", `{clusterAffinity: [{matchExpressions: [{key: nodes, operator: Gt, values: ["5"]}]}]}`, "c1", `label nodes is "5", want an integer above 5`},
		"Lt":            {"A text that is no integer is neither above nor below a bound.", `{clusterAffinity: [{matchExpressions: [{key: nodes, operator: Lt, values: ["5"]}]}]}`, "c3", `label nodes is "many", want an integer below 5`},
		"GtAbsent":      {"A missing label is neither above nor below a bound.", `{clusterAffinity: [{matchExpressions: [{key: nodes, operator: Gt, values: ["5"]}]}]}`, "c4", "it has no label nodes"},
		"Field":         {"A field requirement is about the name.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: In, values: [c2]}]}]}", "c1", "it is not among c2"},
		"FieldNot":      {"A name can be excluded.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: NotIn, values: [c1, c2]}]}]}", "c1", "it is among c1, c2, which are excluded"},
		"FieldAndLabel": {"The field matches and the label does not.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: In, values: [c1]}], matchExpressions: [{key: region, operator: In, values: [sh]}]}]}", "c1", `label region is "bj", want "sh"`},
		"EmptyTerm":     {"An empty term is a mistake that no validation reports.", "{clusterAffinity: [{}]}", "c1", "a term of clusterAffinity without requirements selects nothing"},
		"Terms": {"Each term has a reason.", "{clusterAffinity: [{matchExpressions: [{key: region, operator: In, values: [sh]}]}, {matchExpressions: [{key: provider, operator: Exists}]}]}", "c1",
			`no term of clusterAffinity matches: [0] label region is "bj", want "sh"; [1] it has no label provider`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, errs := CompileTarget(parseTarget(t, tc.target), field.NewPath("t"))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			for i := range fleet {
				if fleet[i].Name != tc.cluster {
					continue
				}
				if diff := cmp.Diff(tc.want, s.Why(&fleet[i])); diff != "" {
					t.Errorf("%s\nWhy(): -want, +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestWhyUnknownOperator evaluates an invalid selector, which must not panic.
func TestWhyUnknownOperator(t *testing.T) {
	s, _ := CompileTarget(parseTarget(t, "{clusterAffinity: [{matchExpressions: [{key: zone, operator: Like}]}]}"), nil)
	if diff := cmp.Diff(`label zone is "z1", and there is no operator "Like"`, s.Why(&fleet[0])); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// FuzzWhy verifies that Why returns a reason exactly when the selector does not match. The target may be invalid.
// Labels are a list of words, each with a key and a value.
func FuzzWhy(f *testing.F) {
	f.Add("{clusters: [c1, c2], clusterSelector: {region: eu}}", "c1", "region=eu zone=")
	f.Add("{clusterSelector: {region: eu, zone: a}}", "c1", "region=us")
	f.Add("{clusterAffinity: [{}, {matchFields: [{key: metadata.name, operator: NotIn, values: [c1]}]}]}", "c1", "")
	f.Add("{clusterAffinity: [{matchExpressions: [{key: region, operator: NotIn, values: [eu]}, {key: zone, operator: DoesNotExist}]}]}", "", "zone=a")
	f.Add(`{clusterAffinity: [{matchExpressions: [{key: nodes, operator: Gt, values: ["5"]}]}, {matchExpressions: [{key: nodes, operator: Lt, values: [many]}]}]}`, "c1", "nodes=5")
	f.Add("{clusterAffinity: [{matchExpressions: [{key: region, operator: Like, values: []}]}]}", "c1", "region=eu")
	f.Fuzz(func(t *testing.T, text, name, labels string) {
		var target corev1alpha1.TargetClusters
		if yaml.Unmarshal([]byte(text), &target) != nil {
			t.Skip()
		}
		s, _ := CompileTarget(&target, nil)
		c := Cluster{Name: name, Labels: map[string]string{}}
		for word := range strings.FieldsSeq(labels) {
			key, value, _ := strings.Cut(word, "=")
			c.Labels[key] = value
		}
		why := s.Why(&c)
		if s.Match(&c) != (why == "") {
			t.Errorf("Match() is %t, and Why() says %q", s.Match(&c), why)
		}
	})
}

func ExampleClusters_Why() {
	s, _ := Compile(map[string]string{"region": "eu"}, nil, field.NewPath("spec"))
	fmt.Println(s.Why(&Cluster{Name: "us-1", Labels: map[string]string{"region": "us"}}))
	// Output: label region is "us", want "eu"
}
