package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// widgets defines a kind with one member for each feature of schemas.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - {name: v1alpha1, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec, status]
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object, properties: {name: {type: string, maxLength: 5}}}
          status: {type: object, properties: {ready: {type: boolean}}}
          spec:
            type: object
            required: [size, mode, color]
            properties:
              size: {type: integer, format: int32, minimum: 1, maximum: 10}
              mode: {type: string, enum: [fast, slow], default: slow}
              color: {type: string, pattern: "^[a-z]+$", minLength: 2, maxLength: 6, nullable: true}
              ratio: {type: number, exclusiveMinimum: true, minimum: 0, exclusiveMaximum: true, maximum: 1}
              step: {type: integer, multipleOf: 5}
              share: {type: number, minimum: 0.5, maximum: 9.5, multipleOf: 2.5}
              port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              tags: {type: array, x-kubernetes-list-type: set, minItems: 1, maxItems: 3, items: {type: string}}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, kind]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, kind: {type: string, default: bolt}, n: {type: integer}}
              labels: {type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: integer}}}
              closed: {type: object}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              at: {type: string, format: date-time}
              address: {type: string, format: ipv4}
              odd: {type: string, format: not-a-format}
              source:
                type: object
                properties: {git: {type: string}, oci: {type: string}, size: {type: integer}}
                oneOf: [{required: [git]}, {required: [oci]}]
              some:
                type: object
                properties: {a: {type: string}, b: {type: string}, c: {type: string, default: x}}
                anyOf: [{required: [a]}, {required: [b]}]
                not: {required: [size]}
                allOf: [{properties: {a: {maxLength: 3}}}, {required: [c]}]
              even: {type: integer, not: {enum: [13]}, anyOf: [{maximum: 5}, {minimum: 10}]}
              either: {type: string, oneOf: [{minLength: 3}, {maxLength: 5}]}
`

// widget returns a Widget whose spec has the given additional members.
func widget(members string) string {
	return `{apiVersion: example.com/v1, kind: Widget, spec: {size: 1, color: red` + members + `}}`
}

func TestCheckCustom(t *testing.T) {
	cases := map[string]struct {
		reason string
		object string
		want   []Mismatch
	}{
		"Right": {
			reason: "A valid object has no mismatch, and defaults fill in required fields.",
			object: widget(`, ratio: 0.5, step: 10, port: http, tags: [a, b], parts: [{name: a}, {name: a, kind: nut}], labels: {a: b},
				at: "2026-01-02T03:04:05Z", address: 10.0.0.1, odd: x, source: {git: a}, some: {a: abc}, even: 4, either: ab`),
		},
		"WholeFloat": {
			reason: "1.0 is an integer in JSON schema.",
			object: `{apiVersion: example.com/v1, kind: Widget, spec: {size: 1.0, color: red}}`,
		},
		"Types": {
			reason: "Type errors are reported as for built-in types.",
			object: widget(`, mode: 1, ratio: "0.5", port: true, tags: {}, closed: [], labels: {a: 1}`),
			want: []Mismatch{
				{Path: "/spec/closed", Message: "is an array, want an object"},
				{Path: "/spec/labels/a", Message: "is 1 (a number), want a string", Hint: "quote the value"},
				{Path: "/spec/mode", Message: "is 1 (a number), want a string", Hint: "quote the value"},
				{Path: "/spec/port", Message: "is true (a boolean), want an integer or a string"},
				{Path: "/spec/ratio", Message: `is "0.5" (a string), want a number`, Hint: "write it without quotes"},
				{Path: "/spec/tags", Message: "is an object, want an array"},
			},
		},
		"Unknown": {
			reason: "Unknown fields are reported, unless the schema preserves them.",
			object: widget(`, sise: 1, closed: {a: 1}, free: {other: {x: 1}, known: x}`),
			want: []Mismatch{
				{Path: "/spec/closed/a", Message: "there is no such field"},
				{Path: "/spec/free/known", Message: `is "x" (a string), want an integer`},
				{Path: "/spec/sise", Message: "there is no such field", Hint: "did you mean size?"},
			},
		},
		"Missing": {
			reason: "A missing status is not reported.",
			object: `{apiVersion: example.com/v1, kind: Widget}`,
			want:   []Mismatch{{Path: "/spec", Message: "is missing"}},
		},
		"Null": {
			reason: "Null is a value only if the schema allows it; otherwise an API server drops it.",
			object: `{apiVersion: example.com/v1, kind: Widget, spec: {size: null, mode: null, color: null, ratio: null, tags: [null]}}`,
			want: []Mismatch{
				{Path: "/spec/size", Message: "is missing"},
				{Path: "/spec/tags/0", Message: "is null, want a string"},
			},
		},
		"Bounds": {
			reason: "Maximums are inclusive unless they are exclusive.",
			object: `{apiVersion: example.com/v1, kind: Widget, spec: {size: 11, color: red, ratio: 1, step: 7}}`,
			want: []Mismatch{
				{Path: "/spec/ratio", Message: "is 1 (a number), want less than 1"},
				{Path: "/spec/size", Message: "is 11 (a number), want at most 10"},
				{Path: "/spec/step", Message: "is 7 (a number), want a multiple of 5"},
			},
		},
		"LowerBounds": {
			reason: "The same applies to minimums.",
			object: `{apiVersion: example.com/v1, kind: Widget, spec: {size: 0, color: red, ratio: 0}}`,
			want: []Mismatch{
				{Path: "/spec/ratio", Message: "is 0 (a number), want more than 0"},
				{Path: "/spec/size", Message: "is 0 (a number), want at least 1"},
			},
		},
		"WholeNumber": {
			reason: "An API server rounds the bound of an integer toward zero.",
			object: widget(`, share: 5`),
			want: []Mismatch{{
				Path: "/spec/share", Message: "is 5 (a number), want a multiple of 2.5", Hint: "for a whole number, an API server takes the bound as 2",
			}},
		},
		"WholeMinimum": {
			reason: "After rounding the minimum 0.5, the integer 0 is valid.",
			object: widget(`, share: 0`),
		},
		"Fraction": {
			reason: "The bound of a number with a fraction is exact.",
			object: widget(`, share: 0.4`),
			want: []Mismatch{
				{Path: "/spec/share", Message: "is 0.4 (a number), want a multiple of 2.5"},
				{Path: "/spec/share", Message: "is 0.4 (a number), want at least 0.5"},
			},
		},
		"Texts": {
			reason: "All mistakes of a value are reported, and lengths are in characters, not bytes.",
			object: `{apiVersion: example.com/v1, kind: Widget, spec: {size: 1, color: "ÄÖÜÄÖÜÄ", mode: fats, at: now, address: "::1"}}`,
			want: []Mismatch{
				{Path: "/spec/address", Message: `is "::1" (a string), want an IPv4 address`},
				{Path: "/spec/at", Message: `is "now" (a string), want a time like 2006-01-02T15:04:05Z`},
				{Path: "/spec/color", Message: "has 7 characters, want at most 6"},
				{Path: "/spec/color", Message: `is "ÄÖÜÄÖÜÄ" (a string), want a match of ^[a-z]+$`},
				{Path: "/spec/mode", Message: `is "fats", want one of "fast", "slow"`, Hint: "did you mean fast?"},
			},
		},
		"Lengths": {
			reason: "The lengths of lists and maps are checked, too.",
			object: widget(`, tags: [], labels: {a: "", b: "", c: ""}`),
			want: []Mismatch{
				{Path: "/spec/labels", Message: "has 3 members, want at most 2"},
				{Path: "/spec/tags", Message: "has 0 elements, want at least 1"},
			},
		},
		"NullIsNoMember": {
			reason: "A dropped field does not count.",
			object: widget(`, labels: {a: null}`),
			want:   []Mismatch{{Path: "/spec/labels", Message: "has 0 members, want at least 1"}},
		},
		"Same": {
			reason: "Missing keys have their defaults.",
			object: widget(`, tags: [a, b, a], parts: [{name: a}, {name: a, kind: bolt}, {kind: nut}]`),
			want: []Mismatch{
				{Path: "/spec/parts/1", Message: "has the same name and kind as element 0"},
				{Path: "/spec/parts/2/name", Message: "is missing"},
				{Path: "/spec/tags/2", Message: "is the same as element 0"},
			},
		},
		"Embedded": {
			reason: "An embedded object has a type, and metadata like any other object.",
			object: widget(`, template: {kind: 1, metadata: {labels: {a: 1}}, spec: {a: 1}}`),
			want: []Mismatch{
				{Path: "/spec/template/apiVersion", Message: "is missing"},
				{Path: "/spec/template/kind", Message: "is 1 (a number), want a string", Hint: "quote the value"},
				{Path: "/spec/template/metadata/labels/a", Message: "is 1 (a number), want a string", Hint: "quote the value"},
			},
		},
		"Metadata": {
			reason: "A schema can restrict metadata further, but not extend it.",
			object: `{apiVersion: example.com/v1, kind: Widget, metadata: {name: too-long, label: {}}, spec: {size: 1, color: red}}`,
			want: []Mismatch{
				{Path: "/metadata/label", Message: "there is no such field", Hint: "did you mean labels?"},
				{Path: "/metadata/name", Message: "has 8 characters, want at most 5"},
			},
		},
		"NoAlternative": {
			reason: "Alternatives that only require fields are reported by the names of the fields.",
			object: widget(`, source: {}, some: {a: abcd, size: 1}, even: 7, either: abcd`),
			want: []Mismatch{
				{Path: "/spec/either", Message: "fits more than one alternative of its schema, want one"},
				{Path: "/spec/even", Message: "is 7 (a number), which fits none of the 2 alternatives of its schema"},
				{Path: "/spec/some/a", Message: "has 4 characters, want at most 3"},
				{Path: "/spec/some/size", Message: "is not allowed here"},
				{Path: "/spec/some/size", Message: "there is no such field"},
				{Path: "/spec/source", Message: "has none of the members git, oci"},
			},
		},
		"SeveralAlternatives": {
			reason: "A value must fit exactly one alternative of oneOf.",
			object: widget(`, source: {git: a, oci: b}, even: 13`),
			want: []Mismatch{
				{Path: "/spec/even", Message: "is excluded by its schema"},
				{Path: "/spec/source", Message: "has more than one of the members git, oci"},
			},
		},
		"Open": {
			reason: "A schema can leave everything except metadata open.",
			object: `{apiVersion: example.com/v1beta1, kind: Widget, metadata: {labels: 1}, spec: 1, more: {}}`,
			want:   []Mismatch{{Path: "/metadata/labels", Message: "is 1 (a number), want an object"}},
		},
		"Unserved": {
			reason: "A version that is not served is not a known type.",
			object: `{apiVersion: example.com/v1alpha1, kind: Widget, spec: 1}`,
			want: []Mismatch{{
				Path: "/apiVersion", Message: `is "example.com/v1alpha1", which has no Widget`,
				Hint: "its CustomResourceDefinition serves it as example.com/v1, example.com/v1beta1",
			}},
		},
		"KindMistyped": {
			reason: "Kinds of definitions are suggested, too.",
			object: `{apiVersion: example.com/v1, kind: Widgte}`,
			want:   []Mismatch{{Path: "/kind", Message: `is "Widgte", and there is no such kind in example.com/v1`, Hint: "did you mean Widget?"}},
		},
	}
	s := newSchemas(t, widgets)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := parse(t, tc.object)
			before := runtime.DeepCopyJSON(object)
			if diff := cmp.Diff(tc.want, s.Check(object)); diff != "" {
				t.Errorf("%s\nCheck(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, object); diff != "" {
				t.Errorf("Check() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestNew(t *testing.T) {
	const crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {group: a.b, names: {kind: A}, versions: [`
	cases := map[string]struct {
		reason string
		crds   []string
		want   []string
	}{
		"None":     {reason: "Without definitions there is no problem."},
		"NoSchema": {reason: "A version without a schema allows any content.", crds: []string{crd + `{name: v1, served: true}]}}`}, want: []string{"<nil>"}},
		"OtherKind": {
			reason: "Only definitions in v1 can be used.",
			crds:   []string{`{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, metadata: {name: a}}`},
			want: []string{`is CustomResourceDefinition in apiextensions.k8s.io/v1beta1, ` +
				`want CustomResourceDefinition in apiextensions.k8s.io/v1`},
		},
		"Undecodable": {
			reason: "A definition with a value of a wrong type cannot be decoded; Check reports the place.",
			crds:   []string{crd + `{name: 1}]}}`},
			want:   []string{`decoding it`},
		},
		"Twice": {
			reason: "If several definitions have a type, the first one counts.",
			crds:   []string{crd + `{name: v1, served: true}]}}`, crd + `{name: v1, served: true}]}}`},
			want:   []string{"<nil>", `version v1: A is defined already`},
		},
		"BadSchema": {
			reason: "The error has the place in the schema.",
			crds:   []string{crd + `{name: v1, served: true, schema: {openAPIV3Schema: {properties: {spec: {items: {anyOf: [{pattern: "("}]}}}}}}]}}`},
			want: []string{`version v1: schema: properties/spec: items: anyOf/0: ` +
				"pattern: error parsing regexp: missing closing ): `(`"},
		},
		"Reference": {
			reason: "A definition cannot refer to other documents.",
			crds:   []string{crd + `{name: v1, served: true, schema: {openAPIV3Schema: {properties: {spec: {$ref: x}}}}}]}}`},
			want: []string{`version v1: schema: properties/spec: ` +
				`$ref: is "x", which a CustomResourceDefinition cannot have`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var crds []*unstructured.Unstructured
			for _, text := range tc.crds {
				crds = append(crds, &unstructured.Unstructured{Object: parse(t, text)})
			}
			_, problems := New(crds)
			var got []string
			for _, p := range problems {
				text, _, _ := strings.Cut(fmt.Sprint(p), ": json: ") // The text of encoding/json differs between versions of Go.
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nNew(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
