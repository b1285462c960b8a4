package crd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/fleet/offline/manifest"
)

const boxes = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.example.com}
spec:
  group: example.com
  names: {kind: Box, listKind: BoxList, plural: boxes, singular: box}
  scope: Namespaced
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1, v1beta1], clientConfig: {url: "https://example.com/convert", caBundle: eA==}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer, default: 1}}}}
`

// documents parses manifests, and fails the test if they have problems.
func documents(t *testing.T, text string) []manifest.Document {
	t.Helper()
	read, problems := manifest.Documents([]string{manifest.Stdin}, strings.NewReader(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return read
}

// compiled parses objects of the kind Box.
func compiled(t *testing.T, text string) []Object {
	t.Helper()
	definitions, problems := Compile(documents(t, boxes))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	matched := Match(documents(t, text), definitions, []string{manifest.Stdin})
	if len(matched.Problems) > 0 {
		t.Fatal(matched.Problems)
	}
	return matched.Objects
}

// TestSent verifies that the object for an API server has a namespace and a name, and that the document does not
// change.
func TestSent(t *testing.T) {
	cases := map[string]struct {
		reason   string
		metadata string
		want     map[string]any
	}{
		"Whole":     {reason: "A name and a namespace in the manifest stay unchanged.", metadata: "{name: a, namespace: b}", want: map[string]any{"name": "a", "namespace": "b"}},
		"Namespace": {reason: "An object without a namespace gets the namespace default.", metadata: "{name: a}", want: map[string]any{"name": "a", "namespace": "default"}},
		"Nothing":   {reason: "An object without metadata gets the namespace default.", metadata: "null", want: map[string]any{"namespace": "default"}},
		"Generated": {
			reason: "A generated name begins with its prefix.", metadata: "{generateName: a-}",
			want: map[string]any{"generateName": "a-", "name": "a-xxxxx", "namespace": "default"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := compiled(t, "apiVersion: example.com/v1\nkind: Box\nmetadata: "+tc.metadata+"\n")[0]
			before := runtime.DeepCopyJSON(object.Document.Content)
			if diff := cmp.Diff(tc.want, object.sent()["metadata"]); diff != "" {
				t.Errorf("%s\nsent(): -want, +got:\n%s", tc.reason, diff)
			}
			if _, err := Simulate(&object, "", pipeline.Hooks{}); err != nil {
				t.Error(err)
			}
			Validate([]Object{object}, []Object{object})
			Transform([]Object{object}, (*structural.Version).Decode)
			if diff := cmp.Diff(before, object.Document.Content); diff != "" {
				t.Errorf("the document was changed: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestConversionOf(t *testing.T) {
	service := strings.Replace(boxes, `url: "https://example.com/convert"`, "service: {namespace: shop, name: webhook}", 1)
	none := strings.Join(strings.Split(boxes, "\n")[:7], "\n")
	cases := map[string]struct {
		reason string
		text   string
		want   Conversion
	}{
		"URL": {
			reason: "A webhook can be addressed by a URL.", text: boxes,
			want: Conversion{Strategy: "Webhook", URL: "https://example.com/convert", Authority: []byte("x"), ReviewVersions: []string{"v1", "v1beta1"}},
		},
		"Service": {
			reason: "A webhook can be addressed by a Service in the cluster.", text: service,
			want: Conversion{Strategy: "Webhook", Service: "shop/webhook", Authority: []byte("x"), ReviewVersions: []string{"v1", "v1beta1"}},
		},
		"None": {reason: "Without spec.conversion, the strategy is None, as in an API server.", text: none, want: Conversion{Strategy: "None"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ConversionOf(&documents(t, tc.text)[0])); diff != "" {
				t.Errorf("%s\nConversionOf(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
