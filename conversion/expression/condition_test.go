package expression

import (
	"strings"
	"testing"
)

func TestCondition(t *testing.T) {
	object := map[string]any{
		"spec": map[string]any{"replicas": int64(3), "share": 0.5},
		"status": map[string]any{
			"ready":      int64(3),
			"conditions": []any{map[string]any{"type": "SmokeTest", "status": "True"}, map[string]any{"type": "Other", "status": "False"}},
		},
	}
	for name, tc := range map[string]struct {
		reason string
		text   string
		limits Limits
		holds  bool
		fails  string // Part of the error of the compilation or evaluation.
	}{
		"Condition": {
			reason: "A condition in the status of the object can be found.",
			text:   `object.status.conditions.exists(c, c.type == "SmokeTest" && c.status == "True")`, holds: true,
		},
		"ConditionFalse": {
			reason: "A condition that does not match is false, without an error.",
			text:   `object.status.conditions.exists(c, c.type == "Other" && c.status == "True")`,
		},
		"Numbers": {
			reason: "Numbers of different types can be compared.",
			text:   `object.status.ready == object.spec.replicas && object.spec.share < 1`, holds: true,
		},
		"Absent": {
			reason: "An access to an absent field is an error that names the field.",
			text:   `object.status.phase == "Running"`, fails: "column 14: no such key: phase",
		},
		"Asked": {
			reason: "With has(), an absent field is no error.",
			text:   `has(object.status.phase) && object.status.phase == "Running"`,
		},
		"NoBool": {
			reason: "An expression with a known type other than bool does not compile.",
			text:   `"yes"`, fails: "it is of type string, want bool",
		},
		"NoBoolFound": {
			reason: "An expression whose result is not a bool is an error at evaluation.",
			text:   `object.spec.replicas`, fails: "the result is of type int: want true or false",
		},
		"Unknown": {
			reason: "Conditions do not have the variable value of conversions.",
			text:   `value.status == 1`, fails: "undeclared reference to 'value'",
		},
		"Costly": {
			reason: "The evaluation ends at the cost limit.",
			text:   `lists.range(1000).all(i, lists.range(1000).all(j, i + j >= 0))`, limits: Limits{Cost: 10_000}, fails: "it costs more than 10000 units",
		},
		"Empty": {
			reason: "An empty expression is rejected.",
			text:   " ", fails: "the expression is empty",
		},
	} {
		t.Run(name, func(t *testing.T) {
			holds, text := false, ""
			c, problems := CompileCondition(tc.text, tc.limits)
			if len(problems) > 0 {
				text = problems[0].String()
			}
			if c != nil {
				var err error
				if holds, err = c.Holds(object); err != nil {
					text = err.Error()
				}
			}
			if holds != tc.holds || (text == "") != (tc.fails == "") || !strings.Contains(text, tc.fails) {
				t.Errorf("%s: got %t and %q, want %t and %q", tc.reason, holds, text, tc.holds, tc.fails)
			}
		})
	}
}
