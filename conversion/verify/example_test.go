package verify_test

import (
	"context"
	"fmt"
	"slices"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

// A count in v1 is one less than in v2, and the function to v1 is wrong. Clients that read whole objects do not see the
// error, because the annotation has the original value. A partial object, as in server-side apply, shows the error.
func ExampleRun() {
	spec := map[string]any{"type": "object", "properties": map[string]any{
		"count": map[string]any{"type": "integer", "minimum": int64(0), "maximum": int64(100)},
	}}
	definition, err := structural.New(crd("v2", spec, "v1", spec))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := convert.New(convert.Resource{Group: group, Kind: "Thing", Hub: "v2", Spokes: []convert.Spoke{{
		Version: "v1", Conversions: []convert.Conversion{convert.Field("spec.count", "spec.count",
			func(n int) (int, error) { return n + 1, nil },
			func(n int) (int, error) { return n, nil },
		)},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := verify.Run(context.Background(), verify.Engine(engine), verify.Options{
		Definition: definition, Hub: "v2", Versions: []string{"v2", "v1"}, Objects: 50, Laws: []verify.Law{verify.RoundTripSpoke},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Objects, report.Checks, report.Complete)
	for _, v := range report.Violations() {
		fmt.Println(v.Law, v.Message)
		fmt.Println(v.Object["spec"], "want", v.Want, "got", v.Got)
	}
	// Output:
	// 16 8 true
	// RoundTripSpoke spec.count is 1, not 0, from v1 to v2 and back without metadata, and so without annotations
	// map[count:0] want 0 got 1
}

// Two converters are compared before one of them replaces the other.
func ExampleCompare() {
	spec := map[string]any{"type": "object", "properties": map[string]any{
		"list": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
	}}
	definition, err := structural.New(crd("v2", spec, "v1", spec))
	if err != nil {
		fmt.Println(err)
		return
	}
	ours := each(func(obj map[string]any, _, _ string) (map[string]any, error) { return obj, nil })
	theirs := each(func(obj map[string]any, _, _ string) (map[string]any, error) {
		if s, ok := obj["spec"].(map[string]any); ok {
			if list, ok := s["list"].([]any); ok {
				s["list"] = slices.Compact(list)
			}
		}
		return obj, nil
	})
	report, err := verify.Compare(context.Background(), ours, theirs, verify.Options{
		Definition: definition, Hub: "v2", Versions: []string{"v1", "v2"}, Objects: 100,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range report.Violations() {
		fmt.Printf("%s of %s in %s at %s: %s\n", v.Law, v.From, v.To, v.Path, v.Message)
	}
	// Output:
	// Agreement of v1 in v2 at spec.list: ours is ["",""], theirs [""], in v2
}

func ExampleLaws() {
	for _, law := range verify.Laws() {
		fmt.Println(law.Name)
	}
	// Output:
	// RoundTripSpoke
	// RoundTripHub
	// Edit
	// Partial
	// Valid
	// Defaulting
	// Triangle
	// Deterministic
	// Bounded
	// Contract
}
