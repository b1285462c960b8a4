package convert_test

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"refract.dev/conversion/convert"
)

// A single size of v1 becomes a list of sizes in the hub. The annotation keeps further sizes, because v1 cannot
// represent them.
func ExampleField() {
	engine, err := convert.New(convert.Resource{
		Group: "shop.example", Kind: "Order", Hub: "v2",
		Spokes: []convert.Spoke{{Version: "v1", Conversions: []convert.Conversion{
			convert.Field("spec.size", "spec.sizes",
				func(size string) ([]string, error) { return []string{size}, nil },
				func(sizes []string) (string, error) {
					if len(sizes) == 0 {
						return "", convert.ErrorAt("[0]", errors.New("want a size"))
					}
					return sizes[0], nil
				}),
		}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, object := range []string{
		`{"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"a"},"spec":{"sizes":["L"],"id":9007199254740993}}`,
		`{"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"b"},"spec":{"sizes":["L","S"]}}`,
		`{"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"c"},"spec":{"sizes":[]}}`,
	} {
		old, err := engine.Convert([]byte(object), "shop.example/v1")
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(string(old))
	}
	// Output:
	// {"apiVersion":"shop.example/v1","kind":"Order","metadata":{"name":"a"},"spec":{"id":9007199254740993,"size":"L"}}
	// {"apiVersion":"shop.example/v1","kind":"Order","metadata":{"name":"b","annotations":{"refract.dev/complement":"{\"v2\":{\"spec.sizes\":{\"value\":[\"L\",\"S\"],\"of\":\"8463f556f97cf8fd\"}}}"}},"spec":{"size":"L"}}
	// object (c) from shop.example/v2 to shop.example/v1: spec.sizes[0]: want a size
}

// A server passes the body of a request to the engine, and writes the answer.
func ExampleEngine_Review() {
	upper := func(s string) (string, error) { return strings.ToUpper(s), nil }
	lower := func(s string) (string, error) { return strings.ToLower(s), nil }
	engine, err := convert.New(convert.Resource{
		Group: "shop.example", Kind: "Order", Hub: "v2",
		Spokes: []convert.Spoke{{Version: "v1", Conversions: []convert.Conversion{
			convert.Field("spec.size", "spec.size", upper, lower),
		}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := engine.Review([]byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"7","desiredAPIVersion":"shop.example/v2","objects":[
{"apiVersion":"shop.example/v1","kind":"Order","metadata":{"name":"a"},"spec":{"size":"l","unknown":1.0}},
{"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"b"},"spec":{"size":"S"}}]}}`))
	if err != nil {
		fmt.Println(err) // HTTP 400.
		return
	}
	fmt.Println(answer.Objects(), answer.Kind(), answer.From(), answer.To(), answer.Err())
	if _, err := answer.WriteTo(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 2 Order v1 v2 <nil>
	// {"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"7","convertedObjects":[{"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"a"},"spec":{"size":"L","unknown":1.0}},
	// {"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"b"},"spec":{"size":"S"}}],"result":{"status":"Success"}}}
}

// The image of each container moves to another field. Each container has a note that the hub has no place for. A user
// reorders the containers in the hub version.
func ExampleItems() {
	engine, err := convert.New(convert.Resource{
		Group: "shop.example", Kind: "Order", Hub: "v2",
		Spokes: []convert.Spoke{{Version: "v1", Conversions: []convert.Conversion{
			convert.Items("spec.containers", "spec.containers", []convert.Conversion{
				convert.Move("image", "from.image"),
				convert.SpokeOnly("note"),
			}, convert.Keys([]string{"name"}, []string{"name"})),
		}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	there, err := engine.Convert([]byte(`{"apiVersion":"shop.example/v1","kind":"Order","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"i"},{"name":"y","note":"new"}]}}`), "shop.example/v2")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(there))
	edited := strings.Replace(string(there), `[{"name":"x","from":{"image":"i"}},{"name":"y"}]`, `[{"name":"y"},{"name":"x"}]`, 1)
	back, err := engine.Convert([]byte(edited), "shop.example/v1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(back))
	// Output:
	// {"apiVersion":"shop.example/v2","kind":"Order","metadata":{"name":"a","annotations":{"refract.dev/complement":"{\"v1\":{\"spec.containers\":{\"items\":[{\"key\":[\"y\"],\"kept\":{\"note\":{\"value\":\"new\",\"of\":\"74234e98afe7498f\"}}}]}}}"}},"spec":{"containers":[{"name":"x","from":{"image":"i"}},{"name":"y"}]}}
	// {"apiVersion":"shop.example/v1","kind":"Order","metadata":{"name":"a"},"spec":{"containers":[{"name":"y","note":"new"},{"name":"x"}]}}
}
