package match

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// fleet has the clusters of the tables below.
var fleet = []Cluster{
	{Name: "c1", Labels: map[string]string{"region": "bj", "zone": "z1", "nodes": "5"}},
	{Name: "c2", Labels: map[string]string{"region": "bj", "zone": "z9", "nodes": "10"}},
	{Name: "c3", Labels: map[string]string{"region": "sh", "provider": "p", "nodes": "many"}},
	{Name: "c4"},
}

func parseTarget(t *testing.T, text string) *corev1alpha1.TargetClusters {
	t.Helper()
	if text == "" {
		return nil
	}
	target := &corev1alpha1.TargetClusters{}
	if err := yaml.UnmarshalStrict([]byte(text), target); err != nil {
		t.Fatal(err)
	}
	return target
}

func TestMatch(t *testing.T) {
	long := strings.Repeat("long-name.", 12) + "example"
	cases := map[string]struct {
		reason string
		target string
		want   []string
	}{
		"Absent":         {"No targetClusters: every cluster.", "", []string{"c1", "c2", "c3", "c4"}},
		"Empty":          {"Three empty selectors: every cluster.", "{clusters: [], clusterSelector: {}, clusterAffinity: []}", []string{"c1", "c2", "c3", "c4"}},
		"Names":          {"Exactly the named clusters are chosen.", "{clusters: [c4, c1, ghost]}", []string{"c1", "c4"}},
		"Selector":       {"Every pair must match.", "{clusterSelector: {region: bj, zone: z1}}", []string{"c1"}},
		"SelectorEmpty":  {"An empty value differs from a missing label.", `{clusterSelector: {region: ""}}`, nil},
		"EmptyTerm":      {"An empty term matches nothing, as in the node affinity of Kubernetes.", "{clusterAffinity: [{}]}", nil},
		"EmptyTermFirst": {"An empty term does not prevent a match of another term.", "{clusterAffinity: [{}, {matchExpressions: [{key: zone, operator: Exists}]}]}", []string{"c1", "c2"}},
		"Terms":          {"One term is enough.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: In, values: [z1]}]}, {matchExpressions: [{key: provider, operator: In, values: [p, q]}]}]}", []string{"c1", "c3"}},
		"Expressions":    {"Every expression of a term must match.", "{clusterAffinity: [{matchExpressions: [{key: region, operator: In, values: [bj]}, {key: zone, operator: NotIn, values: [z1]}]}]}", []string{"c2"}},
		"NotIn":          {"A cluster without the label has none of the values.", "{clusterAffinity: [{matchExpressions: [{key: zone, operator: NotIn, values: [z1, z2]}]}]}", []string{"c2", "c3", "c4"}},
		"Exists":         {"Exists needs no values.", "{clusterAffinity: [{matchExpressions: [{key: provider, operator: Exists}]}]}", []string{"c3"}},
		"ExistsEmpty":    {"Exists allows an empty list of values.", "{clusterAffinity: [{matchExpressions: [{key: provider, operator: Exists, values: []}]}]}", []string{"c3"}},
		"DoesNotExist": {
			"DoesNotExist is the opposite of Exists.",
			"{clusterAffinity: [{matchExpressions: [{key: provider, operator: DoesNotExist}]}]}", []string{"c1", "c2", "c4"},
		},
		"Gt":            {"Labels are compared as integers; another text is not greater.", `{clusterAffinity: [{matchExpressions: [{key: nodes, operator: Gt, values: ["5"]}]}]}`, []string{"c2"}},
		"Lt":            {"Other text is not less.", `{clusterAffinity: [{matchExpressions: [{key: nodes, operator: Lt, values: ["10"]}]}]}`, []string{"c1"}},
		"Field":         {"The only field is the name.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: In, values: [c2, c3]}]}]}", []string{"c2", "c3"}},
		"FieldNot":      {"Names can be excluded.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: NotIn, values: [c2, c3]}]}]}", []string{"c1", "c4"}},
		"FieldLong":     {"A name may be longer than a label's value.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: NotIn, values: [" + long + "]}]}]}", []string{"c1", "c2", "c3", "c4"}},
		"FieldAndLabel": {"Fields and labels of a term must match.", "{clusterAffinity: [{matchFields: [{key: metadata.name, operator: NotIn, values: [c1]}], matchExpressions: [{key: region, operator: In, values: [bj]}]}]}", []string{"c2"}},
		"All":           {"The three selectors are ANDed.", "{clusters: [c1, c3], clusterSelector: {region: bj}, clusterAffinity: [{matchExpressions: [{key: zone, operator: Exists}]}]}", []string{"c1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := parseTarget(t, tc.target)
			before := target.DeepCopy()
			s, errs := CompileTarget(target, field.NewPath("t"))
			if len(errs) > 0 {
				t.Fatalf("%s\n%v", tc.reason, errs.ToAggregate())
			}
			var got []string
			for i := range fleet {
				if s.Match(&fleet[i]) {
					got = append(got, fleet[i].Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, target); diff != "" {
				t.Errorf("the target changed: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	cases := map[string]struct {
		reason string
		target string
		want   []string
	}{
		"SelectorKey":   {"A key must be a valid label key.", "{clusterSelector: {a b: x}}", []string{`t.clusterSelector[a b]: Invalid value: "a b": name part must consist of`}},
		"SelectorValue": {"A value must be a valid label value.", "{clusterSelector: {a: x y}}", []string{`t.clusterSelector[a]: Invalid value: "x y": a valid label must be`}},
		"SelectorAll":   {"Every mistake is reported, in the order of the keys.", "{clusterSelector: {c: x y, b: x y}}", []string{"t.clusterSelector[b]: ", "t.clusterSelector[c]: "}},
		"Operator":      {"The operators are those of node affinity.", "{clusterAffinity: [{}, {matchExpressions: [{key: a, operator: in, values: [x]}]}]}", []string{`t.clusterAffinity[1].matchExpressions[0].operator: Unsupported value: "in"`}},
		"NoOperator":    {"An operator is required.", "{clusterAffinity: [{matchExpressions: [{key: a}]}]}", []string{`t.clusterAffinity[0].matchExpressions[0].operator: Unsupported value: ""`}},
		"Key":           {"A key must be a valid label key.", "{clusterAffinity: [{matchExpressions: [{key: a b, operator: Exists}]}]}", []string{`t.clusterAffinity[0].matchExpressions[0].key: Invalid value: "a b"`}},
		"InNothing":     {"In needs values.", "{clusterAffinity: [{matchExpressions: [{key: a, operator: In}]}]}", []string{"t.clusterAffinity[0].matchExpressions[0].values: Required value: must have at least one value with operator In"}},
		"ExistsValues":  {"Exists allows no values.", "{clusterAffinity: [{matchExpressions: [{key: a, operator: Exists, values: [x]}]}]}", []string{"t.clusterAffinity[0].matchExpressions[0].values: Forbidden: must be empty with operator Exists"}},
		"GtMany":        {"Gt needs exactly one value.", `{clusterAffinity: [{matchExpressions: [{key: a, operator: Gt, values: ["1", "2"]}]}]}`, []string{`t.clusterAffinity[0].matchExpressions[0].values: Invalid value: ["1","2"]: must be exactly one integer with operator Gt`}},
		"LtWord":        {"The value of Lt is an integer.", "{clusterAffinity: [{matchExpressions: [{key: a, operator: Lt, values: [x]}]}]}", []string{`t.clusterAffinity[0].matchExpressions[0].values[0]: Invalid value: "x": must be an integer with operator Lt`}},
		"Value":         {"A value must be a valid label value.", "{clusterAffinity: [{matchExpressions: [{key: a, operator: In, values: [x, x y]}]}]}", []string{`t.clusterAffinity[0].matchExpressions[0].values[1]: Invalid value: "x y"`}},
		"Field":         {"The only field is the name.", "{clusterAffinity: [{matchFields: [{key: a, operator: Exists}, {key: metadata.name, operator: In}]}]}", []string{`t.clusterAffinity[0].matchFields[0].key: Unsupported value: "a": supported values: "metadata.name"`, `t.clusterAffinity[0].matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"`, "t.clusterAffinity[0].matchFields[1].values: Required value: must have at least one name"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := CompileTarget(parseTarget(t, tc.target), field.NewPath("t"))
			if len(errs) != len(tc.want) {
				t.Fatalf("%s\nwant %d errors, got %v", tc.reason, len(tc.want), errs)
			}
			for i := range errs {
				if !strings.HasPrefix(errs[i].Error(), tc.want[i]) {
					t.Errorf("%s\nwant %s…\ngot  %v", tc.reason, tc.want[i], errs[i])
				}
			}
		})
	}
}

// TestMaxTerms verifies that too many terms are an error, and that no term is compiled then.
func TestMaxTerms(t *testing.T) {
	for n, want := range map[int]string{MaxTerms: "", MaxTerms + 1: "t.clusterAffinity: Too many: 101: must have at most 100 items"} {
		target := &corev1alpha1.TargetClusters{ClusterAffinity: make([]corev1alpha1.ClusterSelectorTerm, n)}
		got := ""
		if _, errs := CompileTarget(target, field.NewPath("t")); len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d terms: -want, +got:\n%s", n, diff)
		}
	}
}

// TestMatchLikeLabels verifies that an expression has the same result as in the labels package of Kubernetes, for each
// combination of operator, values and label.
func TestMatchLikeLabels(t *testing.T) {
	operators := map[corev1alpha1.ClusterSelectorOperator]selection.Operator{
		corev1alpha1.ClusterSelectorOpIn:           selection.In,
		corev1alpha1.ClusterSelectorOpNotIn:        selection.NotIn,
		corev1alpha1.ClusterSelectorOpExists:       selection.Exists,
		corev1alpha1.ClusterSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1alpha1.ClusterSelectorOpGt:           selection.GreaterThan,
		corev1alpha1.ClusterSelectorOpLt:           selection.LessThan,
		"Equals":                                   "none",
	}
	values := [][]string{nil, {}, {""}, {"5"}, {"5", "6"}, {"-5"}, {"a"}, {"a b"}, {"9223372036854775808"}}
	sets := []map[string]string{nil, {"k": ""}, {"k": "4"}, {"k": "5"}, {"k": "6"}, {"k": "05"}, {"k": "a"}, {"other": "5"}}
	for mine, theirs := range operators {
		for _, v := range values {
			for _, key := range []string{"k", "bad key"} {
				term := corev1alpha1.ClusterSelectorTerm{MatchExpressions: []corev1alpha1.ClusterSelectorRequirement{{Key: key, Operator: mine, Values: v}}}
				s, errs := Compile(nil, []corev1alpha1.ClusterSelectorTerm{term}, nil)
				want, err := labels.NewRequirement(key, theirs, v)
				if (err != nil) != (len(errs) > 0) {
					t.Fatalf("%s %s %q: want error %v, got %v", key, mine, v, err, errs)
				}
				if err != nil {
					continue
				}
				for _, set := range sets {
					if got := s.Match(&Cluster{Name: "c", Labels: set}); got != want.Matches(labels.Set(set)) {
						t.Errorf("%s %s %q on %v: got %t", key, mine, v, set, got)
					}
				}
			}
		}
	}
}

func TestNames(t *testing.T) {
	for target, want := range map[string][]string{
		"":                          nil,
		"{clusterSelector: {a: b}}": nil,
		"{clusters: [c2, c1, c2]}":  {"c1", "c2"},
		"{clusters: [b, a], clusterSelector: {a: b}}": {"a", "b"},
	} {
		s, _ := CompileTarget(parseTarget(t, target), nil)
		if got := s.Names(); !slices.Equal(got, want) {
			t.Errorf("Names() of %s: want %v, got %v", target, want, got)
		}
	}
}
