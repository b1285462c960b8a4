package inject

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func named(tb testing.TB, name, spec string) *Policy {
	tb.Helper()
	from := policyOf(tb, spec)
	from.Name = name
	p, errs := Compile(from)
	if errs != nil {
		tb.Fatalf("%v in\n%s", errs.ToAggregate(), spec)
	}
	return p
}

func TestFindOverlap(t *testing.T) {
	cases := map[string]struct {
		reason string
		a, b   string
		want   *Overlap
	}{
		"Variable": {
			reason: "The policies have different values of DB_PORT.",
			a:      `{selector: {matchLabels: {role: frontend}}, env: [{name: DB_PORT, value: 6379}]}`,
			b:      `{selector: {matchLabels: {tier: web}}, env: [{name: DB_PORT, value: 7000}]}`,
			want: &Overlap{
				Witness: map[string]string{"role": "frontend", "tier": "web"}, Reason: "EnvConflict",
				Message: "a pod with the labels role=frontend,tier=web is selected by both a and b, which differ in variable DB_PORT: " +
					"the former is applied and the latter is left out for it",
			},
		},
		"Reject": {
			reason: "The second of the two policies rejects the pod.",
			a:      `{selector: {matchLabels: {role: frontend}}, env: [{name: A}]}`,
			b:      `{selector: {}, env: [{name: A, value: x}], onConflict: Reject, mode: Audit}`,
			want: &Overlap{
				Witness: map[string]string{"role": "frontend"}, Reason: "EnvConflict",
				Message: "a pod with the label role=frontend is selected by both a and b, which differ in variable A: " +
					"as soon as both are enforced, the latter rejects the pod",
			},
		},
		"Many": {
			reason: "The message names only the first few items.",
			a: `{selector: {}, env: [{name: A}, {name: B}], envFrom: [{secretRef: {name: s}}],
			     volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}`,
			b: `{selector: {}, env: [{name: B, value: x}, {name: A}], envFrom: [{secretRef: {name: s, optional: true}}],
			     volumes: [{name: v, secret: {secretName: v}}], volumeMounts: [{name: v, mountPath: /v/, subPath: x}]}`,
			want: &Overlap{
				Witness: map[string]string{}, Reason: "EnvConflict",
				Message: "a pod without labels is selected by both a and b, which differ in variable B, envFrom :Secret/s, volume v and 1 more: " +
					"the former is applied and the latter is left out for it",
			},
		},
		"Same": {
			reason: "Equal items are no conflict, even if only one policy has written out a default.",
			a:      `{selector: {}, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], volumes: [{name: v, secret: {secretName: s}}]}`,
			b:      `{selector: {}, env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}], volumes: [{name: v, secret: {secretName: s, defaultMode: 420}}]}`,
		},
		"Apart": {
			reason: "A pod cannot have two values of a label.",
			a:      `{selector: {matchLabels: {role: frontend}}, env: [{name: A}]}`,
			b:      `{selector: {matchLabels: {role: backend}}, env: [{name: A, value: x}]}`,
		},
		"ApartByExpressions": {
			reason: "A value cannot be one of two values and neither of them.",
			a:      `{selector: {matchExpressions: [{key: role, operator: In, values: [x, "y"]}]}, env: [{name: A}]}`,
			b:      `{selector: {matchExpressions: [{key: role, operator: NotIn, values: [x]}, {key: role, operator: NotIn, values: ["y", z]}]}, env: [{name: A, value: x}]}`,
		},
		"ApartByAbsence": {
			reason: "A label cannot be both present and absent.",
			a:      `{selector: {matchExpressions: [{key: role, operator: Exists}]}, env: [{name: A}]}`,
			b:      `{selector: {matchExpressions: [{key: role, operator: DoesNotExist}]}, env: [{name: A, value: x}]}`,
		},
		"Invented": {
			reason: "The witness may need a value that no selector names.",
			a:      `{selector: {matchExpressions: [{key: role, operator: Exists}]}, env: [{name: A}]}`,
			b:      `{selector: {matchExpressions: [{key: role, operator: NotIn, values: [any, any-2]}]}, env: [{name: A, value: x}]}`,
			want: &Overlap{
				Witness: map[string]string{"role": "any-3"}, Reason: "EnvConflict",
				Message: "a pod with the label role=any-3 is selected by both a and b, which differ in variable A: " +
					"the former is applied and the latter is left out for it",
			},
		},
		"OtherContainers": {
			reason: "Different containers may have different variables.",
			a:      `{selector: {}, env: [{name: A}], containers: {include: [web]}}`,
			b:      `{selector: {}, env: [{name: A, value: x}], containers: {include: ["app-*"]}}`,
		},
		"VolumesOfThePod": {
			reason: "Volumes belong to the pod, so the chosen containers do not matter.",
			a:      `{selector: {}, volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}], containers: {include: [web]}}`,
			b:      `{selector: {}, volumes: [{name: v, emptyDir: {medium: Memory}}], volumeMounts: [{name: v, mountPath: /v, readOnly: true}], containers: {include: [app]}}`,
			want: &Overlap{
				Witness: map[string]string{}, Reason: "VolumeConflict",
				Message: "a pod without labels is selected by both a and b, which differ in volume v: " +
					"the former is applied and the latter is left out for it",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := named(t, "a", tc.a), named(t, "b", tc.b)
			got := FindOverlap(a, b)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(got != nil, FindOverlap(b, a) != nil); diff != "" {
				t.Errorf("the order must not matter: -want, +got:\n%s", diff)
			}
			if got := FindOverlap(a, named(t, "a", tc.b)); got != nil {
				t.Errorf("two versions of one policy never meet, got %v", got)
			}
		})
	}
}

func TestScopesOverlap(t *testing.T) {
	cases := map[string]struct {
		a, b scope
		want bool
	}{
		"All":              {scope{}, scope{}, true},
		"SameName":         {scope{include: []string{"a", "b"}}, scope{include: []string{"b", "c"}}, true},
		"OtherName":        {scope{include: []string{"a"}}, scope{include: []string{"b"}}, false},
		"NameInGlob":       {scope{include: []string{"app-x"}}, scope{include: []string{"app-*"}}, true},
		"NameExcluded":     {scope{include: []string{"app-x"}}, scope{include: []string{"app-*"}, exclude: []string{"*-x"}}, false},
		"AllButName":       {scope{include: []string{"a"}}, scope{exclude: []string{"a"}}, false},
		"OtherPrefix":      {scope{include: []string{"app-*"}}, scope{include: []string{"web-*"}}, false},
		"OtherSuffix":      {scope{include: []string{"*-app"}}, scope{include: []string{"*-web"}}, false},
		"PrefixAndSuffix":  {scope{include: []string{"app-*"}}, scope{include: []string{"*-web"}}, true},
		"LongerPrefix":     {scope{include: []string{"app-*"}}, scope{include: []string{"app-x*"}}, true},
		"GlobExcluded":     {scope{include: []string{"app-x*"}}, scope{exclude: []string{"app-*"}}, false},
		"OwnNameExcluded":  {scope{include: []string{"a"}, exclude: []string{"a"}}, scope{}, false},
		"EverythingExcept": {scope{exclude: []string{"*"}}, scope{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.a.overlaps(&tc.b) != tc.want || tc.b.overlaps(&tc.a) != tc.want {
				t.Errorf("want %t, both ways", tc.want)
			}
		})
	}
}

// TestScopesOverlapSoundly: if both scopes choose the same container, overlaps returns true.
func TestScopesOverlapSoundly(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var names []string
	for _, a := range []string{"", "a", "b", "ab", "ba"} {
		for _, b := range []string{"a", "b", "aa", "bab", "abab"} {
			names = append(names, a+b)
		}
	}
	pattern := func() string {
		out := make([]byte, 1+random.IntN(3))
		for i := range out {
			out[i] = "ab*"[random.IntN(3)]
		}
		return string(out)
	}
	patterns := func(most int) []string {
		var out []string
		for range random.IntN(most + 1) {
			out = append(out, pattern())
		}
		return out
	}
	for range 5000 {
		a := scope{include: patterns(2), exclude: patterns(1)}
		b := scope{include: patterns(2), exclude: patterns(1)}
		for _, name := range names {
			if a.chooses(name, containersPart) && b.chooses(name, containersPart) && !a.overlaps(&b) {
				t.Fatalf("%v and %v both choose %q", a, b, name)
			}
		}
	}
}

func TestNoWitness(t *testing.T) {
	for _, pair := range [][2]labels.Selector{{labels.Nothing(), labels.Everything()}, {labels.Everything(), labels.Nothing()}} {
		if witness, ok := findWitness(pair[0], pair[1]); ok {
			t.Errorf("a selector of nothing selects %v", witness)
		}
	}
	if witness, ok := findWitness(labels.Everything(), labels.Everything()); !ok || len(witness) > 0 {
		t.Errorf("everything is selected by both, without any label too: got %v, %t", witness, ok)
	}
}

// TestFindWitness: both selectors match the witness. If there is no witness, no labels match both. The test compares
// the result with all label sets of a few keys and values, including one value that no selector names.
func TestFindWitness(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	keys, values := []string{"a", "b"}, []string{"x", "y", "any"}
	var world []labels.Set
	possible := append([]string{"absent", "other"}, values...)
	for _, first := range possible {
		for _, second := range possible {
			set := labels.Set{}
			for key, value := range map[string]string{"a": first, "b": second} {
				if value != "absent" {
					set[key] = value
				}
			}
			world = append(world, set)
		}
	}
	selector := func() labels.Selector {
		s := &metav1.LabelSelector{}
		for range random.IntN(4) {
			r := metav1.LabelSelectorRequirement{
				Key: keys[random.IntN(len(keys))],
				Operator: []metav1.LabelSelectorOperator{
					metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
				}[random.IntN(4)],
			}
			if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
				for range 1 + random.IntN(2) {
					r.Values = append(r.Values, values[random.IntN(len(values))])
				}
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
		if random.IntN(3) == 0 {
			s.MatchLabels = map[string]string{keys[random.IntN(len(keys))]: values[random.IntN(len(values))]}
		}
		out, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	found := 0
	for range 20000 {
		a, b := selector(), selector()
		witness, ok := findWitness(a, b)
		if ok {
			found++
			if !a.Matches(labels.Set(witness)) || !b.Matches(labels.Set(witness)) {
				t.Fatalf("%v is not selected by both %v and %v", witness, a, b)
			}
			continue
		}
		for _, set := range world {
			if a.Matches(set) && b.Matches(set) {
				t.Fatalf("%v is selected by both %v and %v", set, a, b)
			}
		}
	}
	if found == 0 || found == 20000 {
		t.Errorf("the selectors must be of both sorts; %d of 20000 meet", found)
	}
}
