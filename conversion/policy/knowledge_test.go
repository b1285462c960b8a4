package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const knownSchemas = `
v1:
  toppings: {type: array, items: {type: string}}
  pods:
    type: array
    items:
      type: object
      properties:
        name: {type: string}
        tags: {type: array, items: {type: string}}
        was: {type: string}
        size: {type: integer}
  address: {type: string}
  port: {type: string}
  gone: {type: string}
v2:
  toppings: {type: array, items: {type: object, properties: {value: {type: string}, count: {type: integer}}}}
  containers:
    type: array
    items:
      type: object
      properties:
        name: {type: string}
        labels: {type: array, items: {type: string}}
        size: {type: integer}
  host: {type: string}
  path: {type: string}
  port: {type: integer}
  new: {type: string}
v3:
  cover: {type: object, properties: {toppings: {type: array, items: {type: object, properties: {value: {type: string}, count: {type: integer}}}}}}
  containers:
    type: array
    items:
      type: object
      properties:
        name: {type: string}
        labels: {type: array, items: {type: string}}
        size: {type: integer}
  host: {type: string}
  path: {type: string}
  port: {type: integer}
`

const knownPolicy = `
crd: things.example.com
hub: v2
spokes:
- version: v1
  fields:
  - hub: spec.toppings
    spoke: spec.toppings
    toHub: value.count()
    toSpoke: value.expand("value", "count")
    equivalence: {spoke: value.sort(), hub: 'value.expand("value", "count").sort()'}
  - hub: spec.containers[*].labels
    spoke: spec.pods[*].tags
    toHub: value.reverse()
    toSpoke: value.reverse()
    equivalence: {spoke: value.sort(), hub: value.sort()}
  - {spoke: 'spec.pods[*].was', removed: {}}
  - {hub: 'spec.containers[*].size', spoke: 'spec.pods[*].size', scale: {hub: 1024, spoke: 1}}
  - hub: spec.{host,path}
    spoke: spec.address
    toHub: '{"host": value.split("/")[0], "path": value.split("/")[1]}'
    toSpoke: value.host + "/" + value.path
    lossy: true
    equivalence: {hub: value.host.lowerAscii()}
  - {hub: spec.port, spoke: spec.port, cast: {}}
  - {spoke: spec.gone, removed: {}}
  - {hub: spec.new, added: {}}
- version: v3
  fields:
  - {hub: spec.toppings, spoke: spec.cover.toppings}
  - {hub: spec.new, added: {}}
`

func known(t *testing.T) *Policy {
	t.Helper()
	p, _ := compiled(t, map[string]string{"schemas.yaml": knownSchemas, "policy.yaml": knownPolicy})
	return p
}

func TestVersions(t *testing.T) {
	t.Parallel()
	p := known(t)
	if diff := cmp.Diff([]string{"v2", "v1", "v3"}, p.Versions()); diff != "" {
		t.Errorf("Versions(): -want, +got:\n%s", diff)
	}
	if p.Hub() != "v2" || p.Resource().Hub != "v2" {
		t.Errorf("Hub() = %s, and of the resource %s, want v2", p.Hub(), p.Resource().Hub)
	}
}

func TestMayLose(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason         string
		version, other string
		want           []string
	}{
		"SpokeToHub": {
			"texts of numbers, removed values and lossy pairs may get lost", "v1", "v2",
			[]string{"spec.address", "spec.gone", "spec.pods[*].was", "spec.port"},
		},
		"HubToSpoke": {
			"added values, the fields of a lossy group and truncated values may get lost", "v2", "v1",
			[]string{"spec.containers[*].size", "spec.host", "spec.new", "spec.path"},
		},
		"HubToOther": {"added values may get lost", "v2", "v3", []string{"spec.new"}},
		"SpokeToSpoke": {
			"values that get lost after the hub have their place in this version", "v3", "v1",
			[]string{"spec.containers[*].size", "spec.host", "spec.path"},
		},
		"SpokeThroughHub": {
			"values that only the hub has are not in this version", "v1", "v3",
			[]string{"spec.address", "spec.gone", "spec.pods[*].was", "spec.port"},
		},
		"Same":    {"nothing is converted", "v1", "v1", nil},
		"Unknown": {"an unknown version has no places", "v1", "v9", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, known(t).MayLose(c.version, c.other)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", c.reason, diff)
			}
		})
	}
}

func TestRuleAt(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason               string
		version, other, path string
		want                 string
	}{
		"Place":    {"the path is the place of an entry", "v1", "v2", "spec.toppings", "spec.spokes[0].fields[0]"},
		"Inside":   {"the path is a part of the value of an entry", "v2", "v1", "spec.toppings[2].count", "spec.spokes[0].fields[0]"},
		"Element":  {"the path is a field of an element", "v1", "v2", "spec.pods[0].was", "spec.spokes[0].fields[2]"},
		"Elements": {"the path is a field of all elements", "v1", "v2", "spec.pods[*].size", "spec.spokes[0].fields[3]"},
		"Group":    {"the path is one of several fields of an entry", "v2", "v1", "spec.path", "spec.spokes[0].fields[4]"},
		"Around":   {"the path contains the values of a single entry", "v3", "v2", "spec.cover", "spec.spokes[1].fields[0]"},
		"Whole":    {"the path contains the values of several entries, so none is named", "v1", "v2", "spec", ""},
		"Legs":     {"two entries concern the value, one for each step", "v3", "v1", "spec.cover", "spec.spokes[1].fields[0]"},
		"Behind":   {"the entry is for the second step, and the path is in this version", "v3", "v1", "spec.port", "spec.spokes[0].fields[5]"},
		"Passes":   {"the value passes without an entry", "v1", "v2", "spec.pods[0].name", ""},
		"NoPath":   {"the path is invalid", "v1", "v2", "[", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := known(t).RuleAt(c.version, c.other, c.path); got != c.want {
				t.Errorf("%s: RuleAt(%s, %s, %s) = %q, want %q", c.reason, c.version, c.other, c.path, got, c.want)
			}
		})
	}
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason         string
		version, other string
		object, want   string
	}{
		"Spoke": {
			"values have their normal form, in lists too; all other values stay", "v1", "v2",
			`spec: {toppings: [b, a, b], pods: [{tags: [z, y1], name: x}, {name: w}], address: A/b}`,
			`spec: {toppings: [a, b, b], pods: [{tags: [y1, z], name: x}, {name: w}], address: A/b}`,
		},
		"Group": {
			"several fields form one value", "v2", "v1",
			`spec: {host: EXAMPLE, path: p, port: 1}`,
			`spec: {host: example, port: 1}`,
		},
		"GroupPart": {
			"a value whose expression fails stays", "v2", "v1",
			`spec: {path: p}`,
			`spec: {path: p}`,
		},
		"Hub": {
			"values of another type have normal forms, too", "v2", "v1",
			`spec: {toppings: [{value: b}, {value: a, count: 2}]}`,
			`spec: {toppings: [a, a, b]}`,
		},
		"Behind": {
			"an equivalence of the second step applies in this version, too", "v3", "v1",
			`spec: {cover: {toppings: [{value: b}, {value: a, count: 2}]}, containers: [{labels: [c, a]}]}`,
			`spec: {cover: {toppings: [a, a, b]}, containers: [{labels: [a, c]}]}`,
		},
		"Other":  {"without an equivalence, values stay", "v2", "v3", `spec: {toppings: [{value: b}]}`, `spec: {toppings: [{value: b}]}`},
		"Null":   {"null stays null", "v1", "v2", `spec: {toppings: null, pods: null}`, `spec: {toppings: null, pods: null}`},
		"Absent": {"an absent value stays absent", "v1", "v2", `spec: {}`, `spec: {}`},
		"Wrong":  {"a value that the schema does not allow stays", "v1", "v2", `spec: {toppings: 7, pods: {a: 1}}`, `spec: {toppings: 7, pods: {a: 1}}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object, before, want := decodeYAML(t, c.object), decodeYAML(t, c.object), decodeYAML(t, c.want)
			got, err := known(t).Normalize(c.version, c.other, object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(before, object); diff != "" {
				t.Errorf("%s: the object was modified: -before, +after:\n%s", c.reason, diff)
			}
		})
	}
	if _, err := known(t).Normalize("v1", "v2", map[string]any{"spec": map[string]any{"toppings": func() {}}}); err == nil {
		t.Error("Normalize() of a function: no error")
	}
}

func decodeYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, object)
}
