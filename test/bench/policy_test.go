package bench

import (
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	refract "refract.dev/kit/webhook/conversion"
)

// definition reads a CustomResourceDefinition of testdata/conversion.
func definition(b *testing.B, file string) *structural.Definition {
	b.Helper()
	var crd map[string]any
	read(b, filepath.Join("testdata", "conversion", file), &crd)
	d, err := structural.New(crd)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func read(b *testing.B, file string, into any) {
	b.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		b.Fatalf("%s: %v", file, err)
	}
}

// pizzaPolicy returns the policy of the examples.
func pizzaPolicy(b *testing.B) *refractv1alpha1.ConversionPolicySpec {
	b.Helper()
	p := &refractv1alpha1.ConversionPolicy{}
	read(b, "../../examples/pizza/policy.yaml", p)
	return &p.Spec
}

// movePolicy renames the field toppings.
var movePolicy = &refractv1alpha1.ConversionPolicySpec{
	CRD: "pizzas." + group, Hub: "v1beta1",
	Spokes: []refractv1alpha1.ConversionSpoke{{
		Version: "v1alpha1",
		Fields:  []refractv1alpha1.FieldConversion{{Hub: "spec.ingredients", Spoke: "spec.toppings"}},
	}},
}

func compiled(b *testing.B, spec *refractv1alpha1.ConversionPolicySpec, d *structural.Definition) *convert.Engine {
	b.Helper()
	p, findings := policy.Compile(spec, d)
	if p == nil {
		b.Fatalf("the policy does not compile: %v", findings)
	}
	e, err := convert.New(p.Resource())
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// passThrough returns an engine that only changes the apiVersion.
func passThrough(b *testing.B) *convert.Engine {
	b.Helper()
	e, err := convert.New(convert.Resource{Group: group, Kind: "Pizza", Hub: "v1beta1", Spokes: []convert.Spoke{{Version: "v1alpha1"}}})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkConversionPolicy compares handlers that convert the same review of 1,000 pizzas of 10 KB, on one core,
// alternately: with the ConversionPolicy of the pizzas, with a ConversionPolicy that only moves a field, without a
// conversion, and with controller-runtime and typed pizzas.
func BenchmarkConversionPolicy(b *testing.B) {
	const n = 1000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	body := conversionReview(n, 10_000)
	handlers := []struct {
		name    string
		handler http.Handler
		want    string
	}{
		{"µs/object-pizza", refract.Handler(compiled(b, pizzaPolicy(b), definition(b, "pizzas.yaml")), refract.Options{}), twice},
		{"µs/object-move", refract.Handler(compiled(b, movePolicy, definition(b, "move.yaml")), refract.Options{}), `"ingredients":["mozzarella"`},
		{"µs/object-none", refract.Handler(passThrough(b), refract.Options{}), `"toppings":["mozzarella"`},
		{"µs/object-controller-runtime", controllerRuntime(), twice},
	}
	took := make([][]time.Duration, len(handlers))
	for b.Loop() {
		for range 7 {
			for i, h := range handlers {
				took[i] = append(took[i], timed(func() { answered(b, h.handler, body, h.want) }))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // The metric ns/op would cover all handlers.
	each := make([]float64, len(handlers))
	for i, h := range handlers {
		slices.Sort(took[i])
		each[i] = float64(took[i][len(took[i])/2].Nanoseconds()) / 1000 / n
		b.ReportMetric(each[i], h.name)
	}
	b.ReportMetric(each[3]/each[0], "times-faster")
	b.ReportMetric(each[1]/each[2], "move/none")
}

// BenchmarkConversionCompile compiles the pizzas' ConversionPolicy with the schemas.
func BenchmarkConversionCompile(b *testing.B) {
	spec, d := pizzaPolicy(b), definition(b, "pizzas.yaml")
	for b.Loop() {
		compiled(b, spec, d)
	}
}
