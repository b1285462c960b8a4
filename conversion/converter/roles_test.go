package converter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

func TestRoles(t *testing.T) {
	type want struct {
		Chosen, Serving   string
		Late, Comparisons []string
	}
	wanting := func(name string, minutes int) *refractv1alpha1.ConversionPolicy {
		return policyFrom(t, mapped, name, minutes)
	}
	shadow := func(name string, minutes int) *refractv1alpha1.ConversionPolicy {
		return policyFrom(t, other, name, minutes)
	}
	cases := map[string]struct {
		reason   string
		policies []*refractv1alpha1.ConversionPolicy
		want     want
	}{
		"None":  {"Without policies there are no roles.", nil, want{}},
		"First": {"A single policy is chosen before it serves.", []*refractv1alpha1.ConversionPolicy{wanting("a", 1)}, want{Chosen: "a"}},
		"Oldest": {
			"The oldest policy is chosen.",
			[]*refractv1alpha1.ConversionPolicy{wanting("a", 1), serving(t, wanting("b", 2)), wanting("c", 1)},
			want{Chosen: "b", Serving: "b", Late: []string{"a", "c"}},
		},
		"NotGoodYet": {
			"A younger policy serves until the older one is good.",
			[]*refractv1alpha1.ConversionPolicy{serving(t, wanting("a", 1)), wanting("b", 2)},
			want{Chosen: "b", Serving: "a", Late: []string{"a"}},
		},
		"Shadow": {
			"A shadow is never chosen, whatever its age.",
			[]*refractv1alpha1.ConversionPolicy{shadow("s", 9), serving(t, wanting("a", 1))},
			want{Chosen: "a", Serving: "a", Comparisons: []string{"s"}},
		},
		"BecameShadow": {
			"The serving policy stays chosen after its mode became Shadow, because objects must be converted.",
			[]*refractv1alpha1.ConversionPolicy{serving(t, shadow("s", 1)), shadow("t", 2)},
			want{Chosen: "s", Serving: "s", Comparisons: []string{"t"}},
		},
		"ShadowUntilThen": {
			"The former policy serves until the chosen one is good.",
			[]*refractv1alpha1.ConversionPolicy{serving(t, shadow("s", 1)), wanting("a", 2)},
			want{Chosen: "a", Serving: "s"},
		},
		"ShadowsAlone": {"Shadows alone convert no objects.", []*refractv1alpha1.ConversionPolicy{shadow("s", 1)}, want{Comparisons: []string{"s"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var policies []refractv1alpha1.ConversionPolicy
			for _, p := range tc.policies {
				policies = append(policies, *p)
			}
			r := rolesOf(policies)
			got := want{Late: names(r.late), Comparisons: names(r.comparisons)}
			if r.chosen != nil {
				got.Chosen = r.chosen.Name
			}
			if r.serving != nil {
				got.Serving = r.serving.Name
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nrolesOf(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func names(policies []*refractv1alpha1.ConversionPolicy) []string {
	var out []string
	for _, p := range policies {
		out = append(out, p.Name)
	}
	return out
}
