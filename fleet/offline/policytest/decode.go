package policytest

import (
	"fmt"
	"path/filepath"
	"strings"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/tree"
)

// decoder decodes a document to a Test and records every mistake.
type decoder struct {
	*document

	language *language
	names    map[string]bool // The names of the cases of the file so far.
}

// test returns the test; ok is false if it has a mistake.
func (d *decoder) test(root *value) (Test, bool) {
	t := Test{doc: d.document}
	if metadata, ok := root.member("metadata"); ok {
		if name, ok := metadata.member("name"); ok {
			t.Name, _ = name.text()
			d.name = t.Name
		}
	}
	t.Place = d.place
	root.allow("apiVersion", "kind", "metadata", "spec")
	if t.Name == "" {
		missing(root, "metadata.name")
	}
	spec, ok := root.member("spec")
	if !ok {
		missing(root, "spec")
		return t, false
	}
	if !spec.allow("inputs", "cases") {
		return t, false
	}
	t.Inputs = d.inputs(&spec)
	cases, ok := spec.member("cases")
	if !ok {
		missing(&spec, "spec.cases")
		return t, false
	}
	for _, at := range cases.items() {
		t.cases = append(t.cases, d.testCase(at))
	}
	if _, list := cases.is.([]any); list && len(t.cases) == 0 {
		cases.report("holds no case", "")
	}
	return t, len(d.problems) == 0
}

// missing reports a missing field, at the place of the value that should have it.
func missing(in *value, path string) {
	at := *in
	at.path = path
	at.report("is missing", "")
}

// inputs returns the paths of the test's inputs, which are relative to the folder of the test. Without inputs, it
// returns this folder.
func (d *decoder) inputs(spec *value) []string {
	dir := filepath.Dir(d.place.File)
	at, ok := spec.member("inputs")
	if !ok {
		return []string{dir}
	}
	var paths []string
	items := at.items()
	for _, item := range items {
		p, ok := item.text()
		switch {
		case !ok:
		case p == manifest.Stdin:
			item.report("is stdin, want a file or a folder", "")
		case filepath.IsAbs(p):
			paths = append(paths, filepath.Clean(p))
		default:
			paths = append(paths, filepath.Join(dir, filepath.FromSlash(p)))
		}
	}
	if _, list := at.is.([]any); list && len(items) == 0 {
		at.report("names no file or folder", "leave it out to read the folder of the test")
	}
	return paths
}

func (d *decoder) testCase(at value) testCase {
	c := testCase{at: at}
	if !at.allow("name", "object", "manifest", "cluster", "clusters", "expect") {
		return c
	}
	if name, ok := at.member("name"); ok {
		c.name, _ = name.text()
		if d.names[c.name] {
			name.report(fmt.Sprintf("is %q, as that of another case of the file", c.name), "")
		}
		d.names[c.name] = true
	} else {
		missing(&at, at.path+".name")
	}
	d.object(&c)
	d.clusters(&c)
	expect, ok := at.member("expect")
	if !ok {
		missing(&at, at.path+".expect")
		return c
	}
	c.expect = d.expectations(&expect)
	return c
}

func (d *decoder) object(c *testCase) {
	object, named := c.at.member("object")
	inline, written := c.at.member("manifest")
	switch {
	case named && written:
		inline.report("cannot be combined with object", "a case is about one object")
	case named:
		if _, ok := object.text(); ok {
			c.object = object
		}
	case !written:
		missing(&c.at, c.at.path+".object")
	default:
		if _, ok := inline.is.(map[string]any); !ok {
			inline.report(fmt.Sprintf("is %s, want an object", tree.TypeName(inline.is)), "")
		}
		c.object, c.inline = inline, true
	}
}

func (d *decoder) clusters(c *testCase) {
	one, single := c.at.member("cluster")
	many, several := c.at.member("clusters")
	var all []value
	switch {
	case single && several:
		many.report("cannot be combined with cluster", "")
	case single:
		all = []value{one}
	case several:
		all = many.items()
		if len(all) == 0 {
			many.report("names no cluster", "")
		}
	default:
		missing(&c.at, c.at.path+".cluster")
	}
	seen := map[string]bool{}
	for _, at := range all {
		of, ok := cluster(at)
		if !ok {
			continue
		}
		if seen[of.name] {
			at.report(fmt.Sprintf("names %s again", of.name), "")
		}
		seen[of.name] = true
		c.clusters = append(c.clusters, of)
	}
}

// cluster decodes a cluster, either a name or a description.
func cluster(at value) (clusterOf, bool) {
	if _, described := at.is.(map[string]any); !described {
		name, ok := at.text()
		return clusterOf{name: name, at: at}, ok
	}
	at.allow("name", "labels", "taints")
	name, ok := at.member("name")
	if !ok {
		missing(&at, at.path+".name")
		return clusterOf{}, false
	}
	text, ok := name.text()
	return clusterOf{name: text, at: at, inline: true}, ok
}

// expectationKeys are the fields of expect.
var expectationKeys = []string{"placed", "fields", "absent", "setBy", "cel", "error", "warnings", "object", "wave"}

func (d *decoder) expectations(at *value) expectations {
	x := expectations{at: *at}
	mistakes := len(d.problems)
	if !at.allow(expectationKeys...) {
		return x
	}
	placed, said := at.member("placed")
	if said {
		is, ok := placed.is.(bool)
		if !ok {
			placed.report(fmt.Sprintf("is %s, want true or false", tree.TypeName(placed.is)), "")
		}
		x.absent = ok && !is
	}
	if failure, ok := at.member("error"); ok {
		x.failure = newPattern(&failure)
	}
	if warnings, ok := at.member("warnings"); ok {
		x.warnings = newWarningsCheck(&warnings)
	}
	for _, k := range []struct {
		key  string
		from func(*value) []check
	}{
		{"fields", fieldChecks},
		{"absent", absentChecks},
		{"setBy", setByChecks},
		{"cel", d.expressionChecks},
		{"object", objectChecks},
		{"wave", waveChecks},
	} {
		e, ok := at.member(k.key)
		if !ok {
			continue
		}
		x.checks = append(x.checks, k.from(&e)...)
		switch {
		case x.absent:
			e.report("cannot be checked where placed is false", "")
		case x.failure != nil:
			e.report("cannot be checked of an object that fails", "")
		}
	}
	switch {
	case x.absent && x.failure != nil:
		x.failure.at.report("cannot be checked where placed is false", "")
	case x.absent && x.warnings != nil:
		x.warnings.at.report("cannot be checked where placed is false", "")
	}
	if !said && x.failure == nil && x.warnings == nil && len(x.checks) == 0 && len(d.problems) == mistakes {
		at.report("expects nothing", "expect one of "+strings.Join(expectationKeys, ", "))
	}
	return x
}
