package structural

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/tree"
)

const pizzas = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pizzas.restaurant.example}
spec:
  group: restaurant.example
  names: {kind: Pizza, plural: pizzas}
  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://localhost/convert"}}
  versions:
  - name: v1alpha1
    served: false
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {toppings: {type: array, items: {type: string}}}}
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              toppings:
                type: array
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    quantity: {type: integer, minimum: 1, maximum: 1000, default: 1}
`

// compiled returns the definition of the pizzas.
func compiled(tb testing.TB) *Definition {
	tb.Helper()
	d, err := New(parse(tb, pizzas))
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestDefinition(t *testing.T) {
	d := compiled(t)
	type summary struct {
		Name, Group, Kind, Plural, Storage string
		Namespaced                         bool
		Versions                           []string
		Served, Status                     []bool
	}
	got := summary{Name: d.Name(), Group: d.Group(), Kind: d.Kind(), Plural: d.Plural(), Storage: d.Storage(), Namespaced: d.Namespaced()}
	for _, v := range d.Versions() {
		got.Versions = append(got.Versions, v.Name()+" "+v.APIVersion())
		got.Served = append(got.Served, v.Served())
		got.Status = append(got.Status, v.StatusSubresource())
		if v.Kind() != "Pizza" || v.Schema().Type != "object" || v.Structural().Type != "object" {
			t.Errorf("version %s has another kind or schema", v.Name())
		}
	}
	want := summary{
		Name: "pizzas.restaurant.example", Group: "restaurant.example", Kind: "Pizza", Plural: "pizzas", Storage: "v1beta1", Namespaced: true,
		Versions: []string{"v1alpha1 restaurant.example/v1alpha1", "v1beta1 restaurant.example/v1beta1"},
		Served:   []bool{false, true}, Status: []bool{false, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestVersionOf(t *testing.T) {
	d := compiled(t)
	cases := map[string]struct {
		reason string
		obj    string
		want   string
		err    string
	}{
		"Known": {
			reason: "apiVersion and kind select the version, whether it is served or not.",
			obj:    `{apiVersion: restaurant.example/v1alpha1, kind: Pizza}`,
			want:   "v1alpha1",
		},
		"Version": {
			reason: "The error lists the existing versions.",
			obj:    `{apiVersion: restaurant.example/v1, kind: Pizza}`,
			err: `want kind Pizza of apiVersion restaurant.example/v1alpha1 or restaurant.example/v1beta1, ` +
				`got kind "Pizza" of apiVersion "restaurant.example/v1"`,
		},
		"Kind": {
			reason: "An object of another kind is rejected.",
			obj:    `{apiVersion: restaurant.example/v1beta1, kind: PizzaList}`,
			err: `want kind Pizza of apiVersion restaurant.example/v1alpha1 or restaurant.example/v1beta1, ` +
				`got kind "PizzaList" of apiVersion "restaurant.example/v1beta1"`,
		},
		"Nothing": {
			reason: "An object without apiVersion and kind is rejected.",
			obj:    `{kind: 1}`,
			err: `want kind Pizza of apiVersion restaurant.example/v1alpha1 or restaurant.example/v1beta1, ` +
				`got kind "" of apiVersion ""`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, err := d.VersionOf(parse(t, tc.obj))
			if text(err) != tc.err {
				t.Fatalf("%s\nVersionOf() error: want %q, got %q", tc.reason, tc.err, text(err))
			}
			if err == nil && v.Name() != tc.want {
				t.Errorf("%s\nVersionOf(): want %s, got %s", tc.reason, tc.want, v.Name())
			}
		})
	}
	if _, err := d.Version("v2"); text(err) != `CustomResourceDefinition pizzas.restaurant.example has no version "v2": want v1alpha1 or v1beta1` {
		t.Errorf("Version() error: %v", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNewRefuses(t *testing.T) {
	_, err := New(thing(parse(t, `{type: object, properties: {a: {}, b: {}}}`)))
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		t.Fatalf("want an InvalidError, got %v", err)
	}
	if len(invalid.Findings) != 2 {
		t.Errorf("want two findings, got %v", invalid.Findings)
	}
	want := "CustomResourceDefinition things.example.com: spec.versions[0].schema.openAPIV3Schema.properties[a].type: " +
		"Required value: must not be empty for specified object fields (and 1 more)"
	if err.Error() != want {
		t.Errorf("want %q\n got %q", want, err)
	}

	_, err = New(parse(t, `{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition, metadata: {name: a}}`))
	if invalid, ok = errors.AsType[*InvalidError](err); !ok || invalid.Findings[0].Rule != "RemovedAPIVersion" || invalid.Name != "a" {
		t.Errorf("a manifest of v1beta1: got %v", err)
	}
	for _, obj := range []string{`{}`, `{apiVersion: v1, kind: Pod}`, `{apiVersion: apiextensions.k8s.io/v2, kind: CustomResourceDefinition}`} {
		if _, err := New(parse(t, obj)); !errors.Is(err, ErrNotDefinition) {
			t.Errorf("New(%s): want ErrNotDefinition, got %v", obj, err)
		}
		if _, err := Check(parse(t, obj)); !errors.Is(err, ErrNotDefinition) {
			t.Errorf("Check(%s): want ErrNotDefinition, got %v", obj, err)
		}
		if _, err := CheckUpdate(parse(t, pizzas), parse(t, obj)); !errors.Is(err, ErrNotDefinition) {
			t.Errorf("CheckUpdate() of %s: want ErrNotDefinition, got %v", obj, err)
		}
	}
}

// TestNewTakesWhatLives: a definition that exists in a cluster compiles, even if the API server would now reject its
// creation.
func TestNewTakesWhatLives(t *testing.T) {
	protected := func() map[string]any {
		crd := thing(parse(t, `{type: object}`))
		crd["metadata"].(map[string]any)["name"] = "things.example.k8s.io"
		crd["spec"].(map[string]any)["group"] = "example.k8s.io"
		return crd
	}
	cases := map[string]struct {
		reason string
		crd    map[string]any
		create string // The API server's error for the creation of the definition.
		err    string
	}{
		"Unapproved": {
			reason: "Only new definitions need an approval of their group.",
			crd:    protected(),
			create: "metadata.annotations[api-approved.kubernetes.io]",
		},
		"Default": {
			reason: "Unknown fields in defaults are rejected only if the default is new.",
			crd:    thing(parse(t, `{type: object, properties: {a: {type: object, default: {b: 1}}}}`)),
			create: "spec.versions[0].schema.openAPIV3Schema.properties[a].default",
		},
		"NotStructural": {
			reason: "The server tolerates such a schema in an existing definition, but does not prune or default by it.",
			crd:    thing(parse(t, `{type: object, properties: {a: {}}}`)),
			create: "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
			err: "CustomResourceDefinition things.example.com: spec.versions[0].schema.openAPIV3Schema.properties[a].type: " +
				"Required value: must not be empty for specified object fields",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := Check(tc.crd)
			if err != nil || len(found) != 1 || found[0].Path != tc.create {
				t.Errorf("%s\nCheck(): want a finding about %s, got %v, %v", tc.reason, tc.create, found, err)
			}
			if _, err := New(tc.crd); text(err) != tc.err {
				t.Errorf("%s\nNew(): want %q, got %q", tc.reason, tc.err, text(err))
			}
		})
	}
}

// TestDefaultsArePrunedApart: an unknown field of a default is pruned in objects, and stays in the schema.
func TestDefaultsArePrunedApart(t *testing.T) {
	d, err := New(thing(parse(t, `{type: object, properties: {a: {type: object, default: {b: 1, c: 2}, properties: {c: {type: integer}}}}}`)))
	if err != nil {
		t.Fatal(err)
	}
	v := d.Versions()[0]
	r, err := v.Default(parse(t, `{apiVersion: example.com/v1, kind: Thing}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"c": int64(2)}, r.Object["a"]); diff != "" {
		t.Errorf("Default(): -want, +got:\n%s", diff)
	}
	if got := *v.Schema().Properties["a"].Default; len(got.(map[string]any)) != 2 {
		t.Errorf("Schema() has another default: %v", got)
	}
}

// TestNothingIsShared: a definition does not depend on later changes of its manifest, or of objects that it has
// returned.
func TestNothingIsShared(t *testing.T) {
	crd := thing(parse(t, `{type: object, properties: {a: {type: object, default: {b: [1]}, x-kubernetes-preserve-unknown-fields: true}}}`))
	d, err := New(crd)
	if err != nil {
		t.Fatal(err)
	}
	crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["schema"] = nil
	v := d.Versions()[0]
	d.Versions()[0] = nil
	obj := parse(t, `{apiVersion: example.com/v1, kind: Thing}`)
	for range 2 {
		r, err := v.Decode(obj)
		if err != nil {
			t.Fatal(err)
		}
		a := r.Object["a"].(map[string]any)
		if diff := cmp.Diff(map[string]any{"b": []any{int64(1)}}, a); diff != "" {
			t.Fatalf("-want, +got:\n%s", diff)
		}
		a["b"].([]any)[0] = "spoilt"
		r.Object["spoilt"] = true
	}
}

func TestChangesSayWhoAndWhere(t *testing.T) {
	v := compiled(t).Versions()[1]
	r, err := v.Decode(parse(t, `
apiVersion: restaurant.example/v1beta1
kind: Pizza
spec: {toppings: [{name: a}, {name: b, "~/": 1}, null]}
`))
	if err != nil {
		t.Fatal(err)
	}
	by := &tree.Author{Policy: tree.Policy{Kind: "CustomResourceDefinition", Name: "pizzas.restaurant.example"}, Rule: tree.NoRule}
	want := []tree.Change{
		{Path: "/spec/toppings/0/quantity", Op: tree.OpAdd, After: int64(1), By: by},
		{Path: "/spec/toppings/1/quantity", Op: tree.OpAdd, After: int64(1), By: by},
		{Path: "/spec/toppings/1/~0~1", Op: tree.OpRemove, Before: int64(1), By: by},
	}
	if diff := cmp.Diff(want, r.Changes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"spec.toppings[1].~/"}, r.Unknown); diff != "" {
		t.Errorf("unknown: -want, +got:\n%s", diff)
	}
}

// TestPruneAndDefaultApart: pruning and defaulting can be called separately.
func TestPruneAndDefaultApart(t *testing.T) {
	v := compiled(t).Versions()[1]
	obj := parse(t, `{apiVersion: restaurant.example/v1beta1, kind: Pizza, spec: {toppings: [{name: a, x: 1}]}}`)
	pruned, err := v.Prune(obj)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{map[string]any{"name": "a"}}, pruned.Object["spec"].(map[string]any)["toppings"]); diff != "" {
		t.Errorf("Prune(): -want, +got:\n%s", diff)
	}
	filled, err := v.Default(obj)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{map[string]any{"name": "a", "x": int64(1), "quantity": int64(1)}}, filled.Object["spec"].(map[string]any)["toppings"]); diff != "" {
		t.Errorf("Default(): -want, +got:\n%s", diff)
	}
	if filled.Unknown != nil {
		t.Errorf("Default() found unknown fields: %v", filled.Unknown)
	}
}

func TestRefusesOtherObjects(t *testing.T) {
	v := compiled(t).Versions()[1]
	cases := map[string]struct {
		reason string
		obj    map[string]any
		err    string
	}{
		"Version": {
			reason: "An object of another version has another schema.",
			obj:    parse(t, `{apiVersion: restaurant.example/v1alpha1, kind: Pizza}`),
			err:    `want kind Pizza of apiVersion restaurant.example/v1beta1, got kind "Pizza" of apiVersion "restaurant.example/v1alpha1"`,
		},
		"Nil": {
			reason: "A nil object has no version.",
			err:    `want kind Pizza of apiVersion restaurant.example/v1beta1, got kind "" of apiVersion ""`,
		},
		"NoJSON": {
			reason: "The server's functions panic on numbers of types other than int64 and float64.",
			obj:    map[string]any{"apiVersion": "restaurant.example/v1beta1", "kind": "Pizza", "spec": map[string]any{"a/b": []any{1}}},
			err:    "/spec/a~1b/0 has the wrong type: want a JSON value, numbers as int64 or float64, got a int",
		},
		"NaN": {
			reason: "NaN in metadata cannot be encoded as JSON.",
			obj:    map[string]any{"apiVersion": "restaurant.example/v1beta1", "kind": "Pizza", "metadata": map[string]any{"generation": math.NaN()}},
			err:    "decoding metadata: json: unsupported value: NaN",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := v.Decode(tc.obj); text(err) != tc.err {
				t.Errorf("%s\nDecode() error: want %q, got %q", tc.reason, tc.err, text(err))
			}
		})
	}
	want := []Finding{
		{Path: "apiVersion", Message: `Invalid value: "restaurant.example/v1alpha1": must be restaurant.example/v1beta1`, Severity: Error, Rule: "FieldValueInvalid"},
		{Path: "kind", Message: `Invalid value: "Pasta": must be Pizza`, Severity: Error, Rule: "FieldValueInvalid"},
	}
	obj := parse(t, `{apiVersion: restaurant.example/v1alpha1, kind: Pasta, spec: 1}`)
	if diff := cmp.Diff(want, v.Validate(obj)); diff != "" {
		t.Errorf("Validate(): -want, +got:\n%s", diff)
	}
	if v.Validate(nil) == nil || v.ValidateUpdate(nil, nil) == nil {
		t.Error("nothing at all is valid")
	}
}

// TestDeepObject: a deep object does not overflow the stack.
func TestDeepObject(t *testing.T) {
	v := compiled(t).Versions()[1]
	var deep any = "x"
	for range 10_000 {
		deep = []any{map[string]any{"a": deep}}
	}
	obj := map[string]any{"apiVersion": v.APIVersion(), "kind": "Pizza", "spec": map[string]any{"toppings": deep}}
	r, err := v.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	if v.Validate(r.Object) == nil {
		t.Error("want findings")
	}
}

// TestFindingsAreStable has a schema with errors that the API server repeats and returns in random order.
func TestFindingsAreStable(t *testing.T) {
	crd := thing(parse(t, `
type: object
properties:
  a: {type: object, properties: {x: {}, y: {}, z: {default: 1}}}
  b: {type: array, items: {}}
anyOf: [{required: [c]}, {properties: {c: {}, d: {}, e: {type: string}}}]
`))
	crd["spec"].(map[string]any)["preserveUnknownFields"] = true
	first, err := Check(crd)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) < 8 {
		t.Fatalf("want more findings, got %v", first)
	}
	for range 20 {
		again, err := Check(crd)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("Check() changed its mind: -first, +again:\n%s", diff)
		}
	}
}

// TestCheckVersions has definitions without exactly one storage version, and with two versions of the same name.
func TestCheckVersions(t *testing.T) {
	crd := thing(parse(t, `{type: object}`))
	versions := crd["spec"].(map[string]any)["versions"].([]any)
	crd["spec"].(map[string]any)["versions"] = append(versions, versions[0])
	found, err := Check(crd)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"must contain unique version names", "must have exactly one version marked as storage version"} {
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Path == "spec.versions" && strings.HasSuffix(f.Message, want) }) {
			t.Errorf("want spec.versions: %s, got %v", want, found)
		}
	}
	delete(crd["spec"].(map[string]any), "versions")
	if found, err = Check(crd); err != nil || len(found) == 0 {
		t.Errorf("without versions: %v, %v", found, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	d, err := New(thing(parse(t, `
type: object
properties: {a: {type: integer, default: 1, x-kubernetes-validations: [{rule: self < 5}]}}
`)))
	if err != nil {
		t.Fatal(err)
	}
	v := d.Versions()[0]
	obj := parse(t, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, b: 1}`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r, err := v.Decode(obj)
			if err != nil {
				t.Error(err)
				return
			}
			if found := v.Validate(r.Object); found != nil {
				t.Error(found)
			}
			if found := v.ValidateUpdate(r.Object, obj); found != nil {
				t.Error(found)
			}
		})
	}
	all.Wait()
}

func TestComparePaths(t *testing.T) {
	sorted := []string{"", "spec", "spec.a", "spec.a.b", "spec.a[2]", "spec.a[2].b", "spec.a[10]", "spec.a[x]", "spec.ab", "spec.b[1][2]", "spec.b[1][10]", "status"}
	got := slices.Clone(sorted)
	slices.Reverse(got)
	slices.SortFunc(got, comparePaths)
	if diff := cmp.Diff(sorted, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestComparePathsIsAnOrder checks all triples of paths that are built from a few parts.
func TestComparePathsIsAnOrder(t *testing.T) {
	var paths []string
	pieces := []string{"", "p", "p[", "p[5]", "p[05]", "p[9]", "p[10]", "p[5x]", "p[9.]", "p[x]", "p[]", "p[9"}
	for _, first := range pieces {
		for _, second := range []string{"", ".a", "[2]", "[10]", "[1x]"} {
			paths = append(paths, first+second)
		}
	}
	for _, a := range paths {
		for _, b := range paths {
			if ab, ba := comparePaths(a, b), comparePaths(b, a); ab != -ba || (ab == 0) != (a == b) {
				t.Errorf("comparePaths(%q, %q) is %d, and %d the other way round", a, b, ab, ba)
			}
			for _, c := range paths {
				if comparePaths(a, b) < 0 && comparePaths(b, c) < 0 && comparePaths(a, c) >= 0 {
					t.Errorf("%q < %q < %q, and not the first before the last", a, b, c)
				}
			}
		}
	}
}

// TestSort: the original order and duplicates have no effect.
func TestSort(t *testing.T) {
	want := []Finding{{Path: "p[9]"}, {Path: "p[10]"}, {Path: "p[10]", Message: "a"}, {Path: "p[10]", Message: "a", Rule: "b"}, {Path: "p[5x]"}}
	for i := range want {
		found := slices.Concat(want[i:], want, want[:i])
		slices.Reverse(found[i:])
		if diff := cmp.Diff(want, Sort(found)); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"properties", "required", "type", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"}
	for name, want := range map[string]string{
		"x-kubernetes-embedded-object": "x-kubernetes-embedded-resource",
		"x-kubernetes-int-or-strings":  "x-kubernetes-int-or-string",
		"Properties":                   "properties",
		"requierd":                     "required",
		"somethingElse":                "",
		"":                             "",
	} {
		if got := nearest(name, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestValidateMalformed: validation does not fail on values that no JSON decoder returns.
func TestValidateMalformed(t *testing.T) {
	v := compiled(t).Versions()[1]
	good := parse(t, `{apiVersion: restaurant.example/v1beta1, kind: Pizza, metadata: {name: a}}`)
	cases := map[string]struct {
		reason   string
		metadata any
		want     string
	}{
		"NoObject": {
			reason:   "metadata must be an object.",
			metadata: "a",
			want:     `metadata: Invalid value: "a": expected map[string]interface{}, got string`,
		},
		"WrongType": {
			reason:   "The fields of metadata have fixed types.",
			metadata: map[string]any{"name": "a", "labels": "b"},
			want:     "cannot restore map from string",
		},
		"Slash": {
			reason:   "The name becomes a part of a URL.",
			metadata: map[string]any{"name": "a/b", "generateName": "c/d"},
			want:     "metadata.name: Invalid value: ",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := map[string]any{"apiVersion": v.APIVersion(), "kind": "Pizza", "metadata": tc.metadata}
			for _, found := range [][]Finding{v.Validate(obj), v.ValidateUpdate(obj, good), v.ValidateUpdate(good, obj)} {
				if len(found) == 0 {
					t.Errorf("%s\nno findings", tc.reason)
				}
			}
			if found := v.Validate(obj); !slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.String(), tc.want) }) {
				t.Errorf("%s\nwant %s, got %v", tc.reason, tc.want, found)
			}
		})
	}
}

func TestCheckUpdateRefuses(t *testing.T) {
	gone := parse(t, `{apiVersion: apiextensions.k8s.io/v1beta1, kind: CustomResourceDefinition}`)
	found, err := CheckUpdate(gone, parse(t, pizzas))
	if err != nil || len(found) != 1 || found[0].Rule != "RemovedAPIVersion" {
		t.Errorf("a new definition in v1beta1: got %v, %v", found, err)
	}
	_, err = CheckUpdate(parse(t, pizzas), gone)
	if want := "the definition before: apiextensions.k8s.io/v1beta1 is no longer served"; !strings.HasPrefix(text(err), want) {
		t.Errorf("an old definition in v1beta1: want %s, got %v", want, err)
	}
	if _, err = CheckUpdate(parse(t, `{kind: Pod}`), gone); !errors.Is(err, ErrNotDefinition) {
		t.Errorf("want ErrNotDefinition, got %v", err)
	}
	crd := parse(t, pizzas)
	crd["spec"] = 1 << 3 // An int, which no JSON decoder returns.
	_, err = Check(crd)
	if want := "reading the CustomResourceDefinition: /spec has the wrong type"; !strings.HasPrefix(text(err), want) {
		t.Errorf("want %s, got %v", want, err)
	}
	crd["spec"] = math.Inf(1)
	if _, err = Check(crd); err == nil {
		t.Error("infinity is no JSON")
	}
}
