package policy

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

var (
	randomSeed  = flag.Uint64("random-seed", 0, "the first seed of TestRandomPolicies")
	randomCount = flag.Uint64("random-count", 20, "how many policies TestRandomPolicies makes")
	randomEach  = flag.Int("random-objects", 50, "how many objects TestRandomPolicies verifies each with")
)

// TestRandomPolicies generates pairs of schemas with random differences, and policies that convert between them without
// loss. The policies must compile, and no law may be violated.
func TestRandomPolicies(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for seed := *randomSeed; seed < *randomSeed+*randomCount; seed++ {
		schemas, text := differ(seed)
		if complaint := judge(t, schemas, text, seed); complaint != "" {
			t.Errorf("seed %d: %s\n-- schemas.yaml --\n%s-- policy.yaml --\n%s", seed, complaint, schemas, text)
		}
	}
	t.Logf("%d policies in %s", *randomCount, time.Since(start))
}

// judge compiles and verifies a policy. It returns the first problem, or "".
func judge(t *testing.T, schemas, text string, seed uint64) string {
	t.Helper()
	def, err := define(schemas)
	if err != nil {
		return err.Error()
	}
	spec := &refractv1alpha1.ConversionPolicySpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		return err.Error()
	}
	p, findings := Compile(spec, def)
	if p == nil {
		return fmt.Sprint(findings)
	}
	if i := slices.IndexFunc(findings, func(f structural.Finding) bool { return f.Rule == warnNoEffect }); i >= 0 {
		return findings[i].String()
	}
	e, err := convert.New(p.Resource())
	if err != nil {
		return err.Error()
	}
	report, err := verify.Run(t.Context(), verify.Engine(e), verify.Options{
		Definition: def, Hub: p.Hub(), Versions: p.Versions(), Knowledge: p, Objects: *randomEach, Leaves: 2, Seed: seed,
	})
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, v := range report.Violations() {
		fmt.Fprintf(&all, "\n%s from %s to %s, at %q by %q: %s\n  object %s\n  got %s\n  want %s",
			v.Law, v.From, v.To, v.Path, v.Rule, v.Message, jsonText(v.Object), jsonText(v.Got), jsonText(v.Want))
	}
	return all.String()
}

// differ returns the schemas of the spoke v1 and the hub v2, and a policy for their differences.
func differ(seed uint64) (schemas, text string) {
	d := &difference{r: rand.New(rand.NewPCG(seed, 1))}
	both := [2]map[string]any{{}, {}}
	d.fields([2]string{"spec", "spec"}, both, 0)
	sweep(both)
	var out strings.Builder
	for sd, name := range []string{onSpoke: "v1", onHub: "v2"} {
		properties, _ := yaml.Marshal(map[string]any{name: map[string]any{"type": "object", "properties": both[sd]}})
		out.Write(properties)
	}
	return out.String(), "crd: things.example.com\nhub: v2\nspokes:\n- version: v1\n  fields:\n" + strings.Join(d.entries, "")
}

// difference generates two schemas with differences, and the entries for these differences.
type difference struct {
	r       *rand.Rand
	entries []string
	names   int
}

func (d *difference) chance(percent int) bool { return d.r.IntN(100) < percent }

// fields adds fields to the objects at a pair of places.
func (d *difference) fields(at [2]string, both [2]map[string]any, depth int) {
	for range 2 + d.r.IntN(3) {
		d.field(at, both, depth)
	}
}

// parents are the names of objects that contain values. The objects of both are at the same place in both versions. The
// objects of each side in of get values that move from the other side. There are few names, so that several values have
// the same parent.
//
// No value moves into an object of both versions: the conversion back could not know whether that object existed
// before.
var parents = struct {
	both []string
	of   [2][]string
}{[]string{"p", "q"}, [2][]string{{"r", "s"}, {"t", "u"}}}

// target returns the object for a new value. It creates the parents.
func (d *difference) target(properties map[string]any, names []string) (path string, in map[string]any) {
	in = properties
	for d.chance(35) && strings.Count(path, ".") < 3 {
		name := names[d.r.IntN(len(names))]
		parent, _ := in[name].(map[string]any)
		if parent == nil {
			parent = map[string]any{"type": "object", "properties": map[string]any{}}
			in[name] = parent
		}
		in = parent["properties"].(map[string]any)
		path += "." + name
	}
	return path, in
}

// sweep removes parents that are empty.
func sweep(both [2]map[string]any) {
	for _, properties := range both {
		for _, name := range slices.Concat(parents.both, parents.of[onSpoke], parents.of[onHub]) {
			parent, ok := properties[name].(map[string]any)
			if !ok {
				continue
			}
			inner, _ := parent["properties"].(map[string]any)
			if sweep([2]map[string]any{inner}); len(inner) == 0 {
				delete(properties, name)
			}
		}
	}
}

// reach returns the object at a path. It creates missing parents.
func reach(properties map[string]any, path string) map[string]any {
	for _, name := range strings.Split(path, ".")[1:] {
		parent, _ := properties[name].(map[string]any)
		if parent == nil {
			parent = map[string]any{"type": "object", "properties": map[string]any{}}
			properties[name] = parent
		}
		properties = parent["properties"].(map[string]any)
	}
	return properties
}

// field adds a field to one or both objects.
func (d *difference) field(at [2]string, both [2]map[string]any, depth int) {
	var in [2]map[string]any
	var path [2]string
	if d.chance(50) {
		for sd := range both {
			path[sd], in[sd] = d.target(both[sd], parents.of[sd])
		}
	} else {
		path[onHub], in[onHub] = d.target(both[onHub], parents.both)
		path[onSpoke], in[onSpoke] = path[onHub], reach(both[onSpoke], path[onHub])
	}
	d.names++
	names := [2]string{fmt.Sprint("f", d.names), fmt.Sprint("f", d.names)}
	if d.chance(25) {
		names[onSpoke] = fmt.Sprint("g", d.names)
	}
	places := [2]string{}
	for sd := range at {
		places[sd] = at[sd] + path[sd] + "." + names[sd]
	}
	set := func(spoke, hub map[string]any) { in[onSpoke][names[onSpoke]], in[onHub][names[onHub]] = spoke, hub }
	differs := places[onSpoke] != places[onHub]
	switch n := d.r.IntN(16); {
	case n < 3 && depth < 2: // A list of objects, or a table.
		d.nested(places, depth, set)
	case n < 5:
		sd := side(d.r.IntN(2))
		d.oneSided(sd, places[sd], in[sd], names[sd])
	case n < 11:
		spoke, hub, operation := d.operation()
		set(spoke, hub)
		d.entry(places, operation)
	case n < 12: // Each version has a different value at the same place.
		d.oneSided(onSpoke, places[onSpoke], in[onSpoke], names[onSpoke])
		d.oneSided(onHub, places[onHub], in[onHub], names[onHub])
	default:
		scalar := d.value()
		set(scalar, scalar)
		if differs {
			d.entry(places, "")
		}
	}
}

func (d *difference) entry(places [2]string, operation string) {
	d.entries = append(d.entries, fmt.Sprintf("  - {hub: '%s', spoke: '%s'%s}\n", places[onHub], places[onSpoke], operation))
}

// nested adds lists of objects, or tables. The elements differ in the two versions.
func (d *difference) nested(places [2]string, depth int, set func(spoke, hub map[string]any)) {
	elements := [2]map[string]any{{}, {}}
	table := d.chance(40)
	keyed := !table // Elements without keys are identified by their content, so an edited element could be taken for another one.
	if keyed {
		for sd := range elements {
			elements[sd]["id"] = map[string]any{"type": "string"}
		}
	}
	before := len(d.entries)
	d.fields([2]string{places[0] + "[*]", places[1] + "[*]"}, elements, depth+1)
	sweep(elements)
	var schemas [2]map[string]any
	for sd := range elements {
		element := map[string]any{"type": "object", "properties": elements[sd]}
		switch {
		case table:
			schemas[sd] = map[string]any{"type": "object", "additionalProperties": element}
		default:
			element["required"] = []any{"id"}
			schemas[sd] = map[string]any{"type": "array", "items": element, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"id"}}
		}
	}
	set(schemas[onSpoke], schemas[onHub])
	if places[onSpoke] != places[onHub] {
		// Not necessary if the elements have entries for both versions.
		d.entries = slices.Insert(d.entries, before, fmt.Sprintf("  - {hub: '%s', spoke: '%s'}\n", places[onHub], places[onSpoke]))
	}
}

// oneSided adds a value that only one version has.
func (d *difference) oneSided(sd side, place string, in map[string]any, name string) {
	value := d.value()
	in[name] = value
	of := "{}"
	if value["type"] == "integer" && value["nullable"] == nil && d.chance(50) {
		value["default"] = 3
		if d.chance(60) {
			of = "{default: 3}"
		}
	}
	d.entries = append(d.entries, fmt.Sprintf("  - {%s: '%s', %s: %s}\n", sd.name(), place, sideWord(sd), of))
}

// value returns a schema for values that stay unchanged.
func (d *difference) value() map[string]any {
	v := map[string]any{}
	switch d.r.IntN(9) {
	case 0, 1:
		v["type"] = "string"
	case 2, 3:
		v["type"] = "integer"
	case 4:
		v["type"] = "boolean"
	case 5:
		v["type"], v["items"] = "array", map[string]any{"type": "string"}
	case 6:
		v["type"], v["additionalProperties"] = "object", map[string]any{"type": "integer"}
	case 7:
		v["type"], v["properties"] = "object", map[string]any{"x": map[string]any{"type": "string"}, "y": map[string]any{"type": "integer"}}
	default:
		v["x-kubernetes-int-or-string"] = true
	}
	if d.chance(15) {
		v["nullable"] = true
	}
	return v
}

// operation returns the schemas of both sides and the entry for a random operation.
func (d *difference) operation() (spoke, hub map[string]any, text string) {
	ofEnum := func(all ...any) map[string]any { return map[string]any{"type": "string", "enum": all} }
	scalar := func(name string) map[string]any { return map[string]any{"type": name} }
	list := func(items map[string]any) map[string]any { return map[string]any{"type": "array", "items": items} }
	object := func(properties map[string]any, required ...any) map[string]any {
		s := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			s["required"] = required
		}
		return s
	}
	switch d.r.IntN(9) {
	case 0:
		spoke, hub, text = ofEnum("a", "b"), ofEnum("c", "d"), ", map: [{hub: c, spoke: a}, {hub: d, spoke: b}]"
	case 1:
		spoke, hub, text = ofEnum("a", "b", "c"), ofEnum("d", "c"), ", map: [{hub: d, spoke: a}, {hub: d, spoke: b}]"
	case 2:
		spoke, hub, text = ofEnum("on", "off"), scalar("boolean"), ", map: [{hub: true, spoke: 'on'}, {hub: false, spoke: 'off'}]"
	case 3:
		spoke, hub, text = scalar("integer"), scalar("integer"), ", scale: {hub: 1000, spoke: 1}"
		spoke["minimum"], spoke["maximum"] = -1000000, 1000000
		hub["minimum"], hub["maximum"] = -1000000000, 1000000000
	case 4:
		spoke, hub, text = scalar("string"), scalar("integer"), ", cast: {otherwise: 0}"
	case 5:
		spoke, hub, text = scalar("string"), scalar("boolean"), ", cast: {otherwise: false}"
	case 6:
		spoke, hub, text = scalar("string"), list(scalar("string")), ", wrap: {}"
	case 7:
		spoke, text = object(map[string]any{"x": scalar("integer")}), ", wrap: {key: v}"
		hub = list(object(map[string]any{"v": spoke}, "v"))
	default:
		items := object(map[string]any{"name": scalar("string"), "n": scalar("integer"), "m": list(scalar("string"))}, "name")
		spoke = list(items)
		spoke["x-kubernetes-list-type"], spoke["x-kubernetes-list-map-keys"] = "map", []any{"name"}
		hub = object(nil)
		hub["additionalProperties"] = object(map[string]any{"n": scalar("integer"), "m": list(scalar("string"))})
		delete(hub, "properties")
		text = ", keyed: {key: name}"
	}
	if d.chance(50) && !strings.Contains(text, "map:") && !strings.Contains(text, "scale") {
		spoke, hub = hub, spoke
	}
	return spoke, hub, text
}
