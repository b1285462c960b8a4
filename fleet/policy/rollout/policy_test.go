package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

func compiled(t *testing.T, text string) (*Policy, []string) {
	t.Helper()
	p := &refractv1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own"}}
	if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
		t.Fatal(err)
	}
	c, errs := Compile(p)
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return c, texts
}

func TestCompile(t *testing.T) {
	cases := map[string]struct {
		reason, spec string
		want         []string
	}{
		"Empty":      {"Without waves, all clusters form one wave.", `{}`, nil},
		"Whole":      {"A policy with all settings is valid.", `{waves: [{name: a, maxConcurrent: 25%, minReadySeconds: 9, strategy: Manual}, {name: b, maxConcurrent: 3}], health: {timeoutSeconds: 5}, onFailure: {maxFailures: 2, action: Revert}, budgets: [{label: region, maxUnavailable: 1}], maxChange: {clusters: 0}}`, nil},
		"Name":       {"The name appears in messages and annotations.", `{waves: [{name: A}]}`, []string{`spec.waves[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`}},
		"None":       {"With 0, no cluster could ever change.", `{waves: [{name: a, maxConcurrent: 0}]}`, []string{`spec.waves[0].maxConcurrent: Invalid value: "0": must be a number of clusters, at least 1, or a percentage of them from "1%" to "100%"`}},
		"TooMuch":    {"A percentage is at most 100.", `{waves: [{name: a, maxConcurrent: 101%}]}`, []string{`spec.waves[0].maxConcurrent: Invalid value: "101%": must be a number of clusters, at least 1, or a percentage of them from "1%" to "100%"`}},
		"Action":     {"An unknown action would count as Halt.", `{onFailure: {action: Ignore}}`, []string{`spec.onFailure.action: Unsupported value: "Ignore": supported values: "Halt", "Revert"`}},
		"Negative":   {"Negative numbers are invalid, as in the schema.", `{onFailure: {maxFailures: -1}, maxChange: {clusters: -1}, health: {timeoutSeconds: -1}}`, []string{`spec.health.timeoutSeconds: Invalid value: -1: must be from 1 to 2592000`, `spec.onFailure.maxFailures: Invalid value: -1: must not be negative`, `spec.maxChange.clusters: Invalid value: -1: must not be negative`}},
		"Health":     {"The expression may use the copy.", `{health: {cel: "object.spec.replicas"}}`, nil},
		"HealthBad":  {"The error has the position of the mistake.", `{health: {cel: "object.spec.replicas + "}}`, []string{`spec.health.cel: Invalid value: "object.spec.replicas + ": column 24: Syntax error: mismatched input '<EOF>'`}},
		"HealthText": {"An expression that is no boolean is invalid.", `{health: {cel: "'yes'"}}`, []string{`spec.health.cel: Invalid value: "'yes'": column 1: it is of type string, want bool`}},
		"BudgetOfNo": {"With a budget of 0, no cluster could ever change.", `{budgets: [{label: region, maxUnavailable: 0}]}`, []string{`spec.budgets[0].maxUnavailable: Invalid value: 0: must be at least 1, or nothing could ever change`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, got := compiled(t, tc.spec)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nCompile(): -want, +got:\n%s", tc.reason, diff)
			}
			if (p == nil) != (len(tc.want) > 0) {
				t.Errorf("%s\nCompile(): want a policy exactly if there are no errors, got %v", tc.reason, p)
			}
		})
	}
}

// TestHealthInside verifies that the expressions of both the floor and the policy must be true.
func TestHealthInside(t *testing.T) {
	floor, _ := compiled(t, `{health: {cel: "object.floor"}}`)
	own, _ := compiled(t, `{health: {cel: "object.own"}}`)
	both := own.Inside(floor)
	for _, tc := range []struct {
		object map[string]any
		want   string
	}{
		{map[string]any{"floor": true, "own": true}, ""},
		{map[string]any{"floor": false, "own": true}, "health.cel is false: object.floor"},
		{map[string]any{"floor": true, "own": false}, "health.cel is false: object.own"},
		{map[string]any{"floor": true}, "health.cel: column 7: no such key: own"},
		{map[string]any{"floor": true, "own": "yes"}, "health.cel: the result is of type string: want true or false"},
	} {
		got := ""
		if err := both.Healthy(tc.object); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("Healthy(%v) = %q, want %q", tc.object, got, tc.want)
		}
	}
	if floor.Health() == both.Health() || own.Health() == both.Health() {
		t.Error("want different texts of Health for different expressions")
	}
}

func TestNamed(t *testing.T) {
	own := &tree.Policy{Kind: "RolloutPolicy", Namespace: "shop", Name: "careful"}
	clusterOwn := &tree.Policy{Kind: "ClusterRolloutPolicy", Name: "all"}
	floor := &tree.Policy{Kind: "ClusterRolloutPolicy", Name: "floor"}
	cases := map[string]struct {
		reason    string
		labels    map[string]string
		namespace string
		floor     map[string]string
		want      Names
		warnings  int
		fails     bool
	}{
		"None":          {reason: "Without a policy, the change is released to all clusters at once.", namespace: "shop"},
		"Own":           {reason: "The label of the object names a RolloutPolicy.", labels: map[string]string{refractv1alpha1.RolloutPolicyLabel: "careful"}, namespace: "shop", want: Names{Own: own}},
		"Cluster":       {reason: "The other label names a ClusterRolloutPolicy.", labels: map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "all"}, namespace: "shop", want: Names{Own: clusterOwn}},
		"Both":          {reason: "The RolloutPolicy takes precedence.", labels: map[string]string{refractv1alpha1.RolloutPolicyLabel: "careful", refractv1alpha1.ClusterRolloutPolicyLabel: "all"}, namespace: "shop", want: Names{Own: own}},
		"Floor":         {reason: "The label of the Namespace names a floor.", namespace: "shop", floor: map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "floor"}, want: Names{Floor: floor}},
		"Inside":        {reason: "The floor and the policy of the object apply together.", labels: map[string]string{refractv1alpha1.RolloutPolicyLabel: "careful"}, namespace: "shop", floor: map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "floor"}, want: Names{Floor: floor, Own: own}},
		"Twice":         {reason: "The floor and the object name the same policy.", labels: map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "floor"}, namespace: "shop", floor: map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "floor"}, want: Names{Floor: floor}},
		"ClusterScoped": {reason: "A RolloutPolicy needs a namespace.", labels: map[string]string{refractv1alpha1.RolloutPolicyLabel: "careful"}, warnings: 1},
		"EmptyLabel":    {reason: "An empty label is an error.", labels: map[string]string{refractv1alpha1.RolloutPolicyLabel: ""}, namespace: "shop", fails: true},
		"EmptyFloor":    {reason: "An empty label is an error.", namespace: "shop", floor: map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: ""}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := Named(tc.labels, tc.namespace, tc.floor)
			if diff := cmp.Diff(tc.want, got); diff != "" || len(warnings) != tc.warnings || (err != nil) != tc.fails {
				t.Errorf("%s\nNamed(): %v, %v; -want, +got:\n%s", tc.reason, warnings, err, diff)
			}
		})
	}
}
