package propagation

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/rollout"
)

func healthPolicy(t *testing.T, cel string) *rollout.Policy {
	t.Helper()
	p := &refractv1alpha1.RolloutPolicy{}
	p.Namespace, p.Name, p.Spec.Health = "shop", "careful", &refractv1alpha1.RolloutHealth{CEL: cel}
	c, errs := rollout.Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return c
}

// TestHealthOfSecrets: a user cannot find out the value of a Secret by expressions about it.
func TestHealthOfSecrets(t *testing.T) {
	var secret map[string]any
	const text = `{kind: Secret, metadata: {name: db, annotations: {last: "c2VjcmV0"}, labels: {tier: gold}}, data: {password: c2VjcmV0}, type: Opaque}`
	if err := yaml.Unmarshal([]byte(text), &secret); err != nil {
		t.Fatal(err)
	}
	for cel, want := range map[string]string{
		`object.data.password.startsWith("c2")`:    "health.cel: column 12: no such key: data",
		`object.metadata.annotations.last != ""`:   "health.cel: column 28: no such key: annotations",
		`json.encode(object).contains("c2VjcmV0")`: `health.cel is false: json.encode(object).contains("c2VjcmV0")`,
		`object.metadata.labels.tier == "gold"`:    "",
	} {
		h := healthOf(healthPolicy(t, cel), schema.GroupResource{Resource: "secrets"})
		got := ""
		if err := h.Check(secret); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", cel, got, want)
		}
	}
	if _, still := secret["data"]; !still {
		t.Error("want the object unchanged")
	}
}

// TestHealthOfCustomResources: the error of an expression quotes no part of a copy that its readers may not read. A
// missing field is named.
func TestHealthOfCustomResources(t *testing.T) {
	widget := map[string]any{"spec": map[string]any{"password": "hunter2"}}
	const hidden = "health.cel cannot be evaluated on the copy; the error is not shown, as it may contain confidential values"
	for cel, want := range map[string]string{
		`int(object.spec.password) > 0`:             hidden,
		`object.spec[object.spec.password] == 1`:    hidden,
		`object.status.phase == "Ready"`:            "health.cel: column 14: no such key: status",
		`object.spec.password == "x"`:               `health.cel is false: object.spec.password == "x"`,
		`object.spec.password.startsWith("hunter")`: "",
	} {
		got := ""
		if err := healthOf(healthPolicy(t, cel), schema.GroupResource{Group: "example.com", Resource: "widgets"}).Check(widget); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", cel, got, want)
		}
	}
}

// TestUnjudged: the result of a health check counts only while this check is required.
func TestUnjudged(t *testing.T) {
	asked := &member.Health{Version: 7, Check: func(map[string]any) error { return errors.New("not called") }}
	ready, waits := refractv1alpha1.ReadinessReady, refractv1alpha1.ReadinessInProgress
	for name, tc := range map[string]struct {
		reason    string
		asked     *member.Health
		judged    uint32
		readiness refractv1alpha1.Readiness
		want      bool
	}{
		"NothingAsked":   {"No health check is required.", nil, 0, ready, false},
		"NotAsked":       {"The copy is ready by its status alone.", asked, 0, ready, true},
		"NotReadyAnyway": {"The copy is not ready, whatever the result of the check.", asked, 0, waits, false},
		"Judged":         {"The result is known.", asked, 7, ready, false},
		"JudgedNot":      {"The result is known.", asked, 7, waits, false},
		"Other":          {"The copy was ready by another check.", asked, 8, ready, true},
		"OtherNot":       {"The copy may be ready by the present check.", asked, 8, waits, true},
		"NoMore":         {"The copy may be ready now, as no check is required any more.", nil, 7, waits, true},
		"NoMoreReady":    {"The copy was ready even by the former check.", nil, 7, ready, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unjudged(tc.asked, &member.Copy{Judged: tc.judged, Readiness: tc.readiness}); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
	one, same, other := healthOf(healthPolicy(t, "object.a"), schema.GroupResource{}), healthOf(healthPolicy(t, "object.a"), schema.GroupResource{}), healthOf(healthPolicy(t, "object.b"), schema.GroupResource{})
	if diff := cmp.Diff([]bool{true, false}, []bool{one.Version == same.Version, one.Version == other.Version}); diff != "" {
		t.Errorf("versions: -want, +got:\n%s", diff)
	}
}
