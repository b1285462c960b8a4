package verify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

func TestRunDependsOnTheSeedAlone(t *testing.T) {
	d := definition(t, pizzaV1, pizzaV2)
	s := verify.Engine(engine(t, pizzaSpoke()))
	run := func(seed uint64) string {
		r, err := verify.Run(t.Context(), s, verify.Options{Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}, Seed: seed, Objects: 60, Violations: 5})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Violations()) == 0 {
			t.Fatal("nobody knows that the order does not matter, so there is something to be found")
		}
		return text(t, r)
	}
	if diff := cmp.Diff(run(7), run(7)); diff != "" {
		t.Errorf("the same seed: -first, +second:\n%s", diff)
	}
	if run(7) == run(8) {
		t.Error("another seed gives the same report")
	}
}

// asked counts the objects, and cancels a context after a given number of objects.
type asked struct {
	each

	left int
	end  context.CancelFunc
}

func (a *asked) Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	if a.left--; a.left == 0 {
		a.end()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.each.Convert(ctx, objects, apiVersion)
}

// TestRunEndsInTime: the end of ctx is never a violation, even if it makes a conversion fail.
func TestRunEndsInTime(t *testing.T) {
	d := definition(t, plainV1, plainV2)
	for _, left := range []int{1, 2, 3, 10, 100, 500} {
		ctx, cancel := context.WithCancel(t.Context())
		s := &asked{each: same, left: left, end: cancel}
		r, err := verify.Run(ctx, s, verify.Options{Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}, Knowledge: known{}})
		if err != nil {
			t.Fatalf("after %d conversions: %v", left, err)
		}
		if r.Complete || len(r.Violations()) > 0 || left == 500 && r.Checks == 0 || s.left < -1 {
			t.Errorf("after %d conversions, and %d more: %s", left, -s.left, text(t, r))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, run := range map[string]func() (*verify.Report, error){
		"Run": func() (*verify.Report, error) {
			return verify.Run(ctx, each(same), verify.Options{Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}})
		},
		"Compare": func() (*verify.Report, error) {
			return verify.Compare(ctx, each(same), each(same), verify.Options{Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}})
		},
	} {
		if r, err := run(); err != nil || r.Complete || r.Checks > 0 {
			t.Errorf("%s() without any time = %+v, %v", name, r, err)
		}
	}
}

// brief is a context that ends after a given number of calls of Err.
type brief struct {
	context.Context //nolint:containedctx // brief is itself a context.

	left int
}

func (b *brief) Err() error {
	if b.left--; b.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestRunEndsWhileNothingIsValid: the end of ctx also ends the generation of objects if all objects are invalid.
func TestRunEndsWhileNothingIsValid(t *testing.T) {
	r, err := verify.Run(&brief{Context: t.Context(), left: 20}, each(same), verify.Options{
		Definition: demanding(t, "self.size == self.size + 'x'"), Hub: "v2", Versions: []string{"v1", "v2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Complete || r.Refused > 20 {
		t.Errorf("Run() = %s", text(t, r))
	}
}

// demanding returns a definition of the kind Thing. The spec is required and has a CEL rule.
func demanding(tb testing.TB, rule string) *structural.Definition {
	tb.Helper()
	spec := map[string]any{
		"type": "object", "required": []any{"size", "count"}, "properties": map[string]any{
			"size": map[string]any{"type": "string", "maxLength": int64(5)}, "count": map[string]any{"type": "integer"},
		},
		"x-kubernetes-validations": []any{map[string]any{"rule": rule, "message": "is not liked"}},
	}
	manifest := crd("v1", spec, "v2", spec)
	for _, v := range manifest["spec"].(map[string]any)["versions"].([]any) {
		schema := v.(map[string]any)["schema"].(map[string]any)
		schema["openAPIV3Schema"].(map[string]any)["required"] = []any{"spec"}
	}
	d, err := structural.New(manifest)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestRunErrors(t *testing.T) {
	d := definition(t, plainV1, plainV2)
	never := demanding(t, "self.size == self.size + 'x'")
	both := []string{"v1", "v2"}
	cases := map[string]struct {
		reason  string
		options verify.Options
		want    string
	}{
		"NoDefinition": {"Without a definition, there are no schemas.", verify.Options{Hub: "v2", Versions: both}, "want a definition"},
		"NoHub":        {"The hub must be one of the versions.", verify.Options{Definition: d, Hub: "v3", Versions: both}, `the hub "v3" among them`},
		"OneVersion":   {"With one version, there is nothing to convert.", verify.Options{Definition: d, Hub: "v2", Versions: []string{"v2"}}, "want two versions"},
		"NoVersion":    {"Each version must have a schema.", verify.Options{Definition: d, Hub: "v2", Versions: []string{"v2", "v3"}}, "v3"},
		"NoLaw":        {"A misspelt law would not be checked.", verify.Options{Definition: d, Hub: "v2", Versions: both, Laws: []verify.Law{"Edits"}}, `unknown law "Edits"`},
		"OtherKind": {
			"A recorded object of another kind is a mistake.",
			verify.Options{Definition: d, Hub: "v2", Versions: both, Recorded: []map[string]any{{"apiVersion": "v1", "kind": "Pod"}}},
			"recorded object 0",
		},
		"Unreadable": {
			"A recorded object must be readable.",
			verify.Options{Definition: d, Hub: "v2", Versions: both, Recorded: []map[string]any{{"apiVersion": "example.org/v1", "kind": "Thing", "metadata": "x"}}},
			"recorded object 0",
		},
		"NoneValid": {"Without valid objects, no law would be checked.", verify.Options{Definition: never, Hub: "v2", Versions: both, Objects: 5}, "none is valid"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := verify.Run(t.Context(), each(same), tc.options)
			if err == nil || r != nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nRun() = %v, %v, want an error with %q", tc.reason, r, err, tc.want)
			}
		})
	}
}

// TestRunReportsWhatIsRefused: the report has the number of rejected objects and the reason, because results from few
// objects are not reliable.
func TestRunReportsWhatIsRefused(t *testing.T) {
	r, err := verify.Run(t.Context(), each(same), verify.Options{
		Definition: demanding(t, "self.count == 42"), Hub: "v2", Versions: []string{"v1", "v2"}, Objects: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	v := r.Versions[0]
	if v.Objects == 0 || v.Objects >= 100 || v.Refused < 500 || r.Refused < 1000 || v.Why != "spec: Invalid value: is not liked" {
		t.Errorf("Run() = %s", text(t, r))
	}
}

// TestRunWithRecordedObjects: recorded objects are checked even if no objects are generated. A recorded object that an
// API server would now reject is checked by all laws except Valid.
func TestRunWithRecordedObjects(t *testing.T) {
	thing := func(count any) map[string]any {
		return map[string]any{
			"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "real", "labels": map[string]any{"a": "b"}},
			"spec": map[string]any{"count": count, "size": "L"},
		}
	}
	d := definition(t, strings.Replace(plainV1, "count: {", "count: {maximum: 3, ", 1), strings.Replace(plainV2, "count: {", "count: {maximum: 3, ", 1))
	lossy := each(func(obj map[string]any, _, _ string) (map[string]any, error) {
		if s, ok := spec(obj); ok && s["count"] == int64(77) {
			delete(s, "count")
		}
		return obj, nil
	})
	o := verify.Options{Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}, Objects: -1, Recorded: []map[string]any{thing(int64(1)), thing(int64(77))}}
	before := text(t, &verify.Report{Laws: []verify.LawResult{{Violations: []verify.Violation{{Object: o.Recorded[1]}}}}})
	r, err := verify.Run(t.Context(), lossy, o)
	if err != nil {
		t.Fatal(err)
	}
	want := []verify.Violation{{
		Law: verify.RoundTripSpoke, From: "v1", To: "v2", Path: "spec.count", Message: "spec.count is lost, from v1 to v2 and back",
		Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Thing", "spec": map[string]any{"count": int64(77)}},
		Want:   int64(77), Recorded: []int{1},
	}}
	got := r.Laws[0].Violations
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Run(): -want, +got:\n%s", diff)
	}
	if r.Objects != 2 || r.Laws[4].Law != verify.Valid || r.Laws[4].Checks != 2 || len(r.Laws[4].Violations) > 0 {
		t.Errorf("Run() = %s", text(t, r))
	}
	if len(r.Invalid) != 1 || r.Invalid[0].Recorded != 1 || !strings.HasPrefix(r.Invalid[0].Why, "spec.count: ") {
		t.Errorf("Run() = %s", text(t, r))
	}
	after := text(t, &verify.Report{Laws: []verify.LawResult{{Violations: []verify.Violation{{Object: o.Recorded[1]}}}}})
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("Run() changed a recorded object: -before, +after:\n%s", diff)
	}
}

// TestRunWithRecordedObjectsThatFail: a recorded object that cannot be converted is a violation, even if it is invalid.
// There is a violation for each target version, and each object has its own message.
func TestRunWithRecordedObjectsThatFail(t *testing.T) {
	thing := func(size string) map[string]any {
		return map[string]any{"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "real"}, "spec": map[string]any{"size": size}}
	}
	small := func(schema string) string { return strings.Replace(schema, "size: {", "size: {maxLength: 3, ", 1) }
	picky := each(func(obj map[string]any, _, to string) (map[string]any, error) {
		s, _ := spec(obj)
		if size, _ := s["size"].(string); len(size) > 3 && to == "v3" {
			return nil, fmt.Errorf("spec.size: %s is too long", size)
		}
		return obj, nil
	})
	for name, size := range map[string]string{"Invalid": "large", "InvalidToo": "larger"} {
		r, err := verify.Run(t.Context(), picky, verify.Options{
			Definition: definition(t, small(plainV1), small(plainV2), strings.Replace(small(plainV2), "v2", "v3", 1)),
			Hub:        "v2", Versions: []string{"v1", "v2", "v3"}, Objects: 5, Knowledge: known{},
			Recorded: []map[string]any{thing(size), thing("M"), thing("M"), thing("largest")},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []verify.Violation{{
			Law: verify.Valid, From: "v1", To: "v3", Path: "spec.size", Rule: "rule of spec.size", Recorded: []int{0, 3},
			Message: "cannot be converted to v3: spec.size: " + size + " is too long",
			Object:  map[string]any{"apiVersion": "example.org/v1", "kind": "Thing", "spec": map[string]any{"size": size}},
		}}
		if diff := cmp.Diff(want, r.Violations()); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", name, diff)
		}
	}
}

// TestRunFindsOneOfEachRule: a law has at most one violation for each rule, even if the rule has several places, and no
// more than the maximum. A rule that at first violates the law only together with another rule gets a violation of its
// own later.
func TestRunFindsOneOfEachRule(t *testing.T) {
	drop := each(func(obj map[string]any, _, to string) (map[string]any, error) {
		if s, ok := spec(obj); ok && to == "v2" {
			delete(obj, "status")
			delete(s, "size")
			if s["list"] != nil {
				delete(s, "list")
				delete(s, "count")
			}
		}
		return obj, nil
	})
	rules := known{rules: map[string]string{"spec.size": "first", "status": "first", "status.phase": "first", "spec.list": "second", "spec.count": "third"}}
	for most, want := range map[int][]string{2: {"first", "second"}, 10: {"first", "second", "third"}} {
		r, err := verify.Run(t.Context(), drop, verify.Options{
			Definition: definition(t, plainV1, plainV2), Hub: "v2", Versions: []string{"v1", "v2"}, Objects: 50, Knowledge: rules,
			Laws: []verify.Law{verify.RoundTripSpoke}, Violations: most,
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range r.Violations() {
			got = append(got, v.Rule)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("rules %q, want %q: %s", got, want, text(t, r))
		}
	}
}

// TestRunFindsSeveral: a law can have several violations. All of them differ.
func TestRunFindsSeveral(t *testing.T) {
	drop := each(func(obj map[string]any, _, to string) (map[string]any, error) {
		if s, ok := spec(obj); ok && to == "v2" {
			delete(s, "size")
			delete(s, "count")
			delete(s, "list")
		}
		return obj, nil
	})
	r, err := verify.Run(t.Context(), drop, verify.Options{
		Definition: definition(t, plainV1, plainV2), Hub: "v2", Versions: []string{"v1", "v2"}, Objects: 100,
		Laws: []verify.Law{verify.RoundTripSpoke}, Violations: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]int{}
	for _, v := range r.Violations() {
		paths[v.Path]++
	}
	if diff := cmp.Diff(map[string]int{"spec.size": 1, "spec.count": 1, "spec.list": 1}, paths); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestCompare(t *testing.T) {
	d := definition(t, pizzaV1, pizzaV2)
	ours := verify.Engine(engine(t, pizzaSpoke()))
	upside := each(func(obj map[string]any, _, to string) (map[string]any, error) {
		s, ok := spec(obj)
		list, isList := s["toppings"].([]any)
		if !ok || !isList {
			return obj, nil
		}
		if to == "v1" {
			names := []any{}
			for _, topping := range list {
				members, _ := topping.(map[string]any)
				for range members["quantity"].(int64) {
					names = append([]any{members["name"]}, names...)
				}
			}
			s["toppings"] = names
			return obj, nil
		}
		var names []string
		for _, name := range list {
			names = append(names, name.(string))
		}
		counts, err := toCounted(names)
		toppings := []any{}
		for _, c := range counts {
			toppings = append(toppings, map[string]any{"name": c.Name, "quantity": c.Quantity})
		}
		s["toppings"] = toppings
		obj["metadata"].(map[string]any)["creationTimestamp"] = nil
		return obj, err
	})
	failing := each(func(obj map[string]any, _, to string) (map[string]any, error) {
		if s, _ := spec(obj); to == "v1" && s["crust"] == "b" {
			return nil, errors.New("spec.crust: is not for v1")
		}
		return obj, nil
	})
	annotating := each(func(obj map[string]any, _, _ string) (map[string]any, error) {
		annotate(obj, convert.Annotation, "{}")
		return obj, nil
	})
	cases := map[string]struct {
		reason       string
		ours, theirs verify.Subject
		knowledge    verify.Knowledge
		want         []string
	}{
		"Itself":      {"Equal conversions agree.", ours, ours, nil, nil},
		"Order":       {"Without knowledge, the order of elements counts.", ours, upside, nil, []string{"v2 v1 spec.toppings[0]"}},
		"SameMeaning": {"Values with the same normal form agree.", ours, upside, knownPizza, nil},
		"Failure":     {"An object that only one subject converts is a difference.", each(same), failing, nil, []string{"v2 v1 spec.crust"}},
		"Failures":    {"An object that neither subject converts is no difference.", failing, failing, nil, nil},
		"Ours":        {"The annotation is ignored.", annotating, each(same), nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := verify.Compare(t.Context(), tc.ours, tc.theirs, verify.Options{
				Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}, Objects: 150, Knowledge: tc.knowledge,
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range r.Violations() {
				got = append(got, v.From+" "+v.To+" "+v.Path)
				if n := leaves(body(v.Object)); n > 5 || v.Law != verify.Agreement {
					t.Errorf("%d leaves: %+v", n, v)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s\n%s", tc.reason, diff, text(t, r))
			}
			if tc.want == nil && (!r.Complete || r.Checks != 300) {
				t.Errorf("Compare() = %s", text(t, r))
			}
		})
	}
}
