package structural

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/test/harness"
)

// The tests of this file run the examples of chapter 9 of Programming Kubernetes on a current API server and offline.
// They are parallel, because a server delays each creation of an object by two seconds while its definition is younger
// than two seconds.

const chapterGroup = "cnat.programming-kubernetes.info"

// definition returns a definition with the version v1alpha1 and this schema in YAML.
func definition(t *testing.T, plural, schema string) map[string]any {
	t.Helper()
	kind := strings.ToUpper(plural[:1]) + plural[1:len(plural)-1]
	crd := parse(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  names: {plural: %[1]s, singular: %[3]s, kind: %[4]s, listKind: %[4]sList}
  scope: Namespaced
  versions:
  - {name: v1alpha1, served: true, storage: true, schema: {}}
`, plural, chapterGroup, strings.ToLower(kind), kind))
	version, _ := list(crd, "spec", "versions")[0].(map[string]any)
	version["schema"] = map[string]any{"openAPIV3Schema": parse(t, schema)}
	return crd
}

// object returns an object of a subject with this content in YAML.
func (s *subject) object(t *testing.T, name, content string) map[string]any {
	t.Helper()
	out := parse(t, content)
	out["apiVersion"], out["kind"] = s.version.APIVersion(), s.definition.Kind()
	out["metadata"] = map[string]any{"name": name, "namespace": s.namespace}
	return out
}

// created returns the verdict on the creation of an object, on which structural and the server must agree.
func (s *subject) created(t *testing.T, obj map[string]any) verdict {
	t.Helper()
	live := s.ask(t.Context(), t, http.MethodPost, s.path("")+dryRun, obj)
	if diff := cmp.Diff(s.predictCreate(t, obj), live); diff != "" {
		t.Errorf("structural and the server differ: -structural, +server:\n%s", diff)
	}
	return live
}

// content returns the fields of a verdict's object, without those that every object has.
func (v verdict) content() map[string]any {
	out := runtime.DeepCopyJSON(v.Object)
	delete(out, "apiVersion")
	delete(out, "kind")
	delete(out, "metadata")
	return out
}

const notStructural = `
properties:
  foo:
    pattern: "abc"
  metadata:
    type: object
    properties:
      name:
        type: string
        pattern: "^a"
      finalizers:
        type: array
        items:
          type: string
          pattern: "my-finalizer"
anyOf:
- properties:
    bar:
      type: integer
      minimum: 42
  required: ["bar"]
  description: "foo bar object"
`

const corrected = `
type: object
description: "foo bar object"
properties:
  foo:
    type: string
    pattern: "abc"
  bar:
    type: integer
  metadata:
    type: object
    properties:
      name:
        type: string
        pattern: "^a"
anyOf:
- properties:
    bar:
      minimum: 42
  required: ["bar"]
`

func TestChapterNotStructural(t *testing.T) {
	t.Parallel()
	const root = "spec.versions[0].schema.openAPIV3Schema."
	want := verdict{Code: http.StatusUnprocessableEntity, Causes: set([]string{
		"FieldValueRequired | " + root + "type | Required value: must not be empty at the root",
		"FieldValueRequired | " + root + "properties[foo].type | Required value: must not be empty for specified object fields",
		"FieldValueRequired | " + root + "properties[bar] | Required value: because it is defined in " + root + "anyOf[0].properties[bar]",
		"FieldValueForbidden | " + root + "anyOf[0].properties[bar].type | Forbidden: must be empty to be structural",
		"FieldValueForbidden | " + root + "anyOf[0].description | Forbidden: must be empty to be structural",
		"FieldValueForbidden | " + root + "properties[metadata] | " +
			"Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
	})}
	crd := definition(t, "wrongs", notStructural)
	if diff := cmp.Diff(want, askCheck(t, crd)); diff != "" {
		t.Errorf("the server: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, predictCheck(crd)); diff != "" {
		t.Errorf("Check(): -want, +got:\n%s", diff)
	}
	again := definition(t, "rights", corrected)
	if diff := cmp.Diff(verdict{Code: http.StatusOK}, askCheck(t, again)); diff != "" {
		t.Errorf("the server, corrected definition: -want, +got:\n%s", diff)
	}
	findings, err := structural.Check(again)
	if err != nil || len(findings) > 0 {
		t.Errorf("Check() of the corrected definition = %v, %v; want no finding", findings, err)
	}
}

// atSchema is the schema of the chapter's At, with or without an image.
func atSchema(image string) string {
	return `
type: object
properties:
  apiVersion: {type: string}
  kind: {type: string}
  metadata: {type: object}
  spec:
    type: object
    properties:
      schedule: {type: string, pattern: '^\d{4}-([0]\d|1[0-2])-([0-2]\d|3[01])'}
      command: {type: string}` + image + `
    required: [schedule, command]
  status:
    type: object
    properties:
      phase: {type: string}
required: [metadata, apiVersion, kind, spec]
`
}

const withImage = `
      image: {type: string, default: "busybox"}`

const schedule = `spec: {schedule: "2019-07-03T02:00:00Z", command: 'echo "Hello, world!"'}`

func TestChapterPruning(t *testing.T) {
	t.Parallel()
	s := newSubject(t, definition(t, "ats", atSchema("")))
	shared.install(t, s.crd)
	got := s.created(t, s.object(t, "example-at", `spec: {schedule: "2019-07-03T02:00:00Z", command: 'echo "Hello, world!"', someGarbage: 42}`))
	if diff := cmp.Diff(parse(t, schedule), got.content()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"spec.someGarbage"}, got.Unknown); diff != "" {
		t.Errorf("unknown fields: -want, +got:\n%s", diff)
	}
}

func TestChapterPreserving(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		plural, schema, obj, want string
		unknown, causes           []string
	}{
		"AnyValue": {
			plural: "anys",
			schema: `{type: object, properties: {json: {x-kubernetes-preserve-unknown-fields: true}}}`,
			obj:    `json: [1, text, {a: null}]`,
			want:   `json: [1, text, {a: null}]`,
		},
		"AnyObject": {
			plural: "maps",
			schema: `{type: object, properties: {json: {x-kubernetes-preserve-unknown-fields: true, type: object, description: this is arbitrary JSON}}}`,
			obj:    `json: [1]`,
			causes: []string{`FieldValueTypeInvalid | json | Invalid value: "array": json in body must be of type object: "array"`},
		},
		"PruningAgainInside": {
			plural: "mixeds",
			schema: `{type: object, properties: {json: {x-kubernetes-preserve-unknown-fields: true, type: object, properties: {
				spec: {type: object, properties: {foo: {type: string}, bar: {type: string}}}}}}}`,
			obj:     `json: {spec: {foo: abc, bar: def, something: x}, status: {something: x}}`,
			want:    `json: {spec: {foo: abc, bar: def}, status: {something: x}}`,
			unknown: []string{"json.spec.something"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, definition(t, tc.plural, strings.ReplaceAll(tc.schema, "\t", " ")))
			shared.install(t, s.crd)
			got := s.created(t, s.object(t, "example", tc.obj))
			want := verdict{Code: http.StatusUnprocessableEntity, Causes: tc.causes}
			if tc.want != "" {
				want = verdict{Code: http.StatusOK, Unknown: tc.unknown, Object: s.object(t, "example", tc.want)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func TestChapterIntOrStringAndEmbedded(t *testing.T) {
	t.Parallel()
	s := newSubject(t, definition(t, "raws", `
type: object
properties:
  intorstr:
    x-kubernetes-int-or-string: true
  embedded:
    type: object
    x-kubernetes-embedded-resource: true
    x-kubernetes-preserve-unknown-fields: true
`))
	shared.install(t, s.crd)
	pod := `embedded: {apiVersion: v1, kind: Pod, metadata: {name: a, unknown: x}, spec: {any: thing}}`
	cases := map[string]struct {
		obj  string
		want verdict
	}{
		"Integer": {
			obj:  `intorstr: 8080`,
			want: verdict{Code: http.StatusOK, Object: s.object(t, "example", `intorstr: 8080`)},
		},
		"Text": {
			obj:  `intorstr: http`,
			want: verdict{Code: http.StatusOK, Object: s.object(t, "example", `intorstr: http`)},
		},
		"Neither": {
			obj: `intorstr: 1.5`,
			want: verdict{Code: http.StatusUnprocessableEntity, Causes: []string{
				`FieldValueTypeInvalid | intorstr | Invalid value: "number": intorstr in body must be of type integer,string: "number"`,
			}},
		},
		"Embedded": {
			obj: pod,
			want: verdict{
				Code: http.StatusOK, Unknown: []string{"embedded.metadata.unknown"},
				Object: s.object(t, "example", `embedded: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {any: thing}}`),
			},
		},
		"EmbeddedWithoutKind": {
			obj:  `embedded: {apiVersion: v1, metadata: {name: A_b}}`,
			want: verdict{Code: http.StatusUnprocessableEntity, Causes: []string{"FieldValueRequired | embedded.kind | Required value"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, s.created(t, s.object(t, "example", tc.obj))); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestChapterMisspeltDirective: the chapter uses a directive that does not exist. The server drops the directive, or
// rejects the definition in strict mode. Check names the correct directive.
func TestChapterMisspeltDirective(t *testing.T) {
	t.Parallel()
	crd := definition(t, "misspelts", `
type: object
properties:
  embedded:
    x-kubernetes-embedded-object: true
    x-kubernetes-preserve-unknown-fields: true
`)
	a, err := shared.do(t.Context(), http.MethodPost, definitions+"?dryRun=All&fieldValidation=Strict", encode(t, crd))
	if err != nil {
		t.Fatal(err)
	}
	const unknown = `unknown field \"spec.versions[0].schema.openAPIV3Schema.properties.embedded.x-kubernetes-embedded-object\"`
	if a.code != http.StatusBadRequest || !strings.Contains(string(a.body), unknown) {
		t.Errorf("the server: %d %s, want 400 and %s", a.code, a.body, unknown)
	}
	want := []structural.Finding{{
		Path:     "spec.versions[0].schema.openAPIV3Schema.properties[embedded].x-kubernetes-embedded-object",
		Message:  `unknown field "x-kubernetes-embedded-object"; did you mean x-kubernetes-embedded-resource?`,
		Severity: structural.Error, Rule: "UnknownField",
	}}
	findings, err := structural.Check(crd)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, findings); diff != "" {
		t.Errorf("Check(): -want, +got:\n%s", diff)
	}
}

func TestChapterDefault(t *testing.T) {
	t.Parallel()
	s := newSubject(t, definition(t, "imagers", atSchema(withImage)))
	shared.install(t, s.crd)
	got := s.created(t, s.object(t, "example-at", schedule))
	want := parse(t, `spec: {schedule: "2019-07-03T02:00:00Z", command: 'echo "Hello, world!"', image: busybox}`)
	if diff := cmp.Diff(want, got.content()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestChapterOldObjectsGainDefaults: the server returns an object that is older than a default with the default. It
// stores the default only at the next write, even if the write changes nothing.
func TestChapterOldObjectsGainDefaults(t *testing.T) {
	t.Parallel()
	before := newSubject(t, definition(t, "olders", atSchema("")))
	after := newSubject(t, definition(t, "olders", atSchema(withImage)))
	shared.install(t, before.crd)
	obj := before.object(t, "example-at", schedule)
	shared.must(t, http.MethodPost, before.path(""), obj)
	if got := stored(t, after, "example-at"); got["image"] != nil {
		t.Errorf("etcd, before the default: got %v", got)
	}

	replace(t, after.crd)
	var read map[string]any
	harness.Eventually(t, "the object has an image", func(context.Context) error {
		read = shared.must(t, http.MethodGet, after.path("example-at"), nil)
		if image := at(read, "spec", "image"); image != "busybox" {
			return fmt.Errorf("it is %v", image)
		}
		return nil
	})
	offline, err := after.version.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(t, offline.Object), plain(t, read)); diff != "" {
		t.Errorf("structural and the server differ: -structural, +server:\n%s", diff)
	}
	if got := stored(t, after, "example-at"); got["image"] != nil {
		t.Errorf("etcd, after a read: got %v, want no image, because a read does not write", got)
	}

	shared.must(t, http.MethodPut, after.path("example-at"), read)
	if got := stored(t, after, "example-at"); got["image"] != "busybox" {
		t.Errorf("etcd, after a write: got %v, want the image busybox", got)
	}
}

// stored returns the spec of an object in etcd.
func stored(t *testing.T, s *subject, name string) map[string]any {
	t.Helper()
	key := fmt.Sprintf("/registry/%s/%s/%s/%s", s.definition.Group(), s.definition.Plural(), s.namespace, name)
	all, err := shared.env.View.Stored(t.Context(), "hub", key)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(all[key], &out); err != nil {
		t.Fatalf("%s holds %q: %v", key, all[key], err)
	}
	return out.Spec
}
