package restaurant_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/conversion/convert"
	"refract.dev/kit/webhook"
	"refract.dev/kit/webhook/admission"
	"refract.dev/kit/webhook/conversion"
)

// Widget is example.org/v1. In v1alpha1, the colors are one string.
type Widget struct {
	Spec struct {
		Colors []string `json:"colors,omitempty"`
	} `json:"spec"`
}

// A webhook for your own types: rules for conversion, defaults and validation, and a server that manages its
// certificates and the trust of the API server.
//
//nolint:testableexamples // It needs a cluster.
func Example() {
	widgets := convert.Resource{Group: "example.org", Kind: "Widget", Hub: "v1", Spokes: []convert.Spoke{{
		Version: "v1alpha1",
		Conversions: []convert.Conversion{convert.Field("spec.color", "spec.colors",
			func(color string) ([]string, error) { return strings.Split(color, ","), nil },
			func(colors []string) (string, error) { return strings.Join(colors, ","), nil })},
	}}}
	defaults := admission.Default("example.org/v1", "Widget", func(_ context.Context, _ *admission.Request, w *Widget) error {
		if len(w.Spec.Colors) == 0 {
			w.Spec.Colors = []string{"white"}
		}
		return nil
	})
	colors := admission.Validate("example.org/v1", "Widget", func(_ context.Context, _ *admission.Request, w, _ *Widget) ([]string, error) {
		if len(w.Spec.Colors) > 3 {
			return nil, errors.New("a widget has at most 3 colors")
		}
		return nil, nil
	})

	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	must(err)
	api, err := client.NewWithWatch(manager.GetConfig(), client.Options{})
	must(err)
	certificates := webhook.Issued(api, types.NamespacedName{Namespace: "widgets", Name: "serving-cert"},
		[]string{"webhook.widgets.svc"}, webhook.IssuedOptions{})
	server, err := webhook.New(webhook.Options{BindAddress: ":8443", Certificates: certificates})
	must(err)
	engine, err := convert.New(widgets)
	must(err)
	server.Handle("/convert", conversion.Handler(engine, conversion.Options{}))
	server.Handle("/default", admission.Mutating(defaults))
	server.Handle("/validate", admission.Validating(colors))
	must(manager.Add(server))
	must(manager.Add(webhook.Trust(api, certificates, webhook.Targets{
		CRDs: []string{"widgets.example.org"}, Mutating: []string{"widgets"}, Validating: []string{"widgets"},
	}, manager.GetLogger())))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

// TestExampleIsInREADME verifies that the README shows the example unchanged.
func TestExampleIsInREADME(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	must(err)
	readme, err := os.ReadFile("../README.md")
	must(err)
	_, example, _ := strings.Cut(string(source), "func Example() {\n")
	example, _, _ = strings.Cut(example, "\n}\n")
	if !strings.Contains(string(readme), "func Example() {\n"+example+"\n}\n") {
		t.Error("examples/pizza/README.md has another example")
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
