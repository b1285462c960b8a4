package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/internal/golden"
)

// TestGolden reads the files of an archive. The file want lists the content of the Set, and the problems.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(_ *testing.T, archive *txtar.Archive) []txtar.File {
		set, problems := ReadFS(golden.FS(golden.Inputs(archive)))
		return []txtar.File{{Name: "want", Data: []byte(describe(set, problems))}}
	})
}

func describe(set *Set, problems []*Problem) string {
	type key struct {
		Place

		kind, namespace, name string
	}
	lists := map[key]string{}
	for _, o := range set.Objects {
		lists[key{o.Place, o.Content.GetKind(), o.Content.GetNamespace(), o.Content.GetName()}] = "Objects"
	}
	for _, p := range set.OverridePolicies {
		lists[key{p.Place, p.Policy.Kind, p.Policy.Namespace, p.Policy.Name}] = "OverridePolicies"
	}
	for _, p := range set.ClusterOverridePolicies {
		lists[key{p.Place, p.Policy.Kind, p.Policy.Namespace, p.Policy.Name}] = "ClusterOverridePolicies"
	}
	for _, p := range set.PropagationPolicies {
		lists[key{p.Place, p.Policy.Kind, p.Policy.Namespace, p.Policy.Name}] = "PropagationPolicies"
	}
	for _, p := range set.ClusterPropagationPolicies {
		lists[key{p.Place, p.Policy.Kind, p.Policy.Namespace, p.Policy.Name}] = "ClusterPropagationPolicies"
	}
	for _, p := range set.InjectionPolicies {
		lists[key{p.Place, p.Policy.Kind, p.Policy.Namespace, p.Policy.Name}] += " and InjectionPolicies"
	}
	for _, c := range set.Clusters {
		lists[key{c.Place, c.Cluster.Kind, c.Cluster.Namespace, c.Cluster.Name}] = "Clusters"
	}
	for _, p := range set.Propagations {
		kind := "Propagation"
		if p.Source.Namespace == "" {
			kind = "ClusterPropagation"
		}
		lists[key{p.Place, kind, p.Source.Namespace, p.Name}] = "Propagations"
	}
	var b strings.Builder
	for _, o := range set.Manifests {
		name := o.Content.GetName()
		if o.Content.GetNamespace() != "" {
			name = o.Content.GetNamespace() + "/" + name
		}
		scope := "cluster-scoped"
		if o.Namespaced {
			scope = "namespaced"
		}
		fmt.Fprintf(&b, "%s: %s %s, %s, in %s\n", o.Place, o.Content.GetKind(), name, scope,
			lists[key{o.Place, o.Content.GetKind(), o.Content.GetNamespace(), o.Content.GetName()}])
	}
	for _, n := range set.Notes {
		fmt.Fprintf(&b, "note: %s\nhint: %s\n", n, n.Hint)
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "error: %s\n", p)
		if p.Hint != "" {
			fmt.Fprintf(&b, "hint: %s\n", p.Hint)
		}
	}
	return b.String()
}

func TestReadPaths(t *testing.T) {
	const object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}}"
	dir := t.TempDir()
	t.Chdir(dir)
	for name, content := range map[string]string{
		"one.yaml":                 fmt.Sprintf(object, "one"),
		"two.txt":                  fmt.Sprintf(object, "two"),
		"deep/b.yml":               fmt.Sprintf(object, "b"),
		"deep/a.json":              `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`,
		"deep/er/c.yaml":           fmt.Sprintf(object, "c"),
		"deep/notes.md":            "not a manifest",
		"deep/.hidden.yaml":        "not: a manifest",
		"deep/.git/x.yaml":         "not: a manifest",
		"empty/readme.md":          "",
		"local/k.yaml":             "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [x.yaml]}",
		"built/kustomization.yaml": "resources: [x.yaml]\n",
		"comments/none.yaml":       "# nothing\n---\n# here\n---\nnull\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason   string
		paths    []string
		stdin    string
		want     []string
		problems []string
	}{
		"File":           {reason: "A file is read.", paths: []string{"one.yaml"}, want: []string{"one.yaml one"}},
		"AnyExtension":   {reason: "A named file is read whatever its extension.", paths: []string{"two.txt"}, want: []string{"two.txt two"}},
		"Folder":         {reason: "A folder is read with its subfolders, sorted, without hidden files.", paths: []string{"deep"}, want: []string{"deep/a.json a", "deep/b.yml b", "deep/er/c.yaml c"}},
		"InOrder":        {reason: "The order is that of the paths.", paths: []string{"two.txt", "one.yaml"}, want: []string{"two.txt two", "one.yaml one"}},
		"Twice":          {reason: "A file that is named twice is read once.", paths: []string{"deep/er/c.yaml", "deep", "./one.yaml", "one.yaml"}, want: []string{"deep/er/c.yaml c", "deep/a.json a", "deep/b.yml b", "one.yaml one"}},
		"Stdin":          {reason: "The path - means stdin.", paths: []string{"-", "one.yaml", "-"}, stdin: fmt.Sprintf(object, "in"), want: []string{"stdin in", "one.yaml one"}},
		"Missing":        {reason: "A missing file does not prevent the reading of others.", paths: []string{"on.yaml", "one.yaml"}, want: []string{"one.yaml one"}, problems: []string{"on.yaml: does not exist (did you mean one.yaml?)"}},
		"MissingFar":     {reason: "A far-fetched suggestion is worse than none.", paths: []string{"zzzzzzzz/x.yaml"}, problems: []string{"zzzzzzzz/x.yaml: does not exist"}},
		"Comma":          {reason: "kubectl accepts several files in one flag, so users may try it.", paths: []string{"one.yaml,two.txt"}, problems: []string{"one.yaml,two.txt: does not exist (repeat the flag for each: -f one.yaml -f two.txt)"}},
		"Pattern":        {reason: "The shell does not expand a quoted pattern.", paths: []string{"deep/*.yml"}, problems: []string{"deep/*.yml: does not exist (only the shell expands patterns: leave out the quotes, or name the folder)"}},
		"Kustomization":  {reason: "A kustomization needs no kind, and gets a single problem.", paths: []string{"built"}, problems: []string{"built/kustomization.yaml:1: document 1: is a kustomization, not a manifest (build it with kubectl kustomize DIRECTORY, and pipe the result in with -f -)"}},
		"ItemsNull":      {reason: "A list with null as items has lost them, and is not an empty list.", paths: []string{"-"}, stdin: "kind: List\napiVersion: v1\nitems: null\n", problems: []string{"stdin:3: document 1: items: is null, want a list of objects"}},
		"EmptyFolder":    {reason: "A folder without manifests is a mistake.", paths: []string{"empty"}, problems: []string{"empty: this folder has no manifest (*.yaml, *.yml or *.json)"}},
		"EmptyDocuments": {reason: "A file may contain only comments.", paths: []string{"comments"}},
		"OnlyLeftOut":    {reason: "A folder may contain only documents that never go to an API server.", paths: []string{"local"}},
		"URL":            {reason: "URLs are not read, because the commands use no network.", paths: []string{"https://example.com/a.yaml"}, problems: []string{"https://example.com/a.yaml: is not a file or folder (to read from a URL, fetch it and pipe it in with -f -)"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := Read(tc.paths, strings.NewReader(tc.stdin))
			var got, found []string
			for _, o := range set.Objects {
				got = append(got, filepath.ToSlash(o.Place.File)+" "+o.Content.GetName())
			}
			for _, p := range problems {
				text := filepath.ToSlash(p.Error())
				if p.Hint != "" {
					text += " (" + p.Hint + ")"
				}
				found = append(found, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nRead(): objects: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.problems, found); diff != "" {
				t.Errorf("%s\nRead(): problems: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValues(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   any
	}{
		"Integer":         {reason: "Integers stay integers.", in: "3", want: int64(3)},
		"GreatInteger":    {reason: "Integers beyond 2^53 keep their value.", in: "9007199254740993", want: int64(9007199254740993)},
		"LeastInteger":    {reason: "Negative integers keep their value, too.", in: "-9223372036854775808", want: int64(-9223372036854775808)},
		"Float":           {reason: "A fraction is a float.", in: "1.5", want: 1.5},
		"Yes":             {reason: "yes is true, as for kubectl.", in: "yes", want: true},
		"QuotedYes":       {reason: "A quoted value is a string.", in: `"yes"`, want: "yes"},
		"Octal":           {reason: "A leading zero means octal, as for kubectl.", in: "0644", want: int64(0o644)},
		"Date":            {reason: "A date is a string.", in: "2026-01-02", want: "2026-01-02"},
		"JSONEscape":      {reason: "Flow style is YAML.", in: `{"a": ["\u00e9"]}`, want: map[string]any{"a": []any{"\u00e9"}}},
		"NumberAsKey":     {reason: "Keys become strings.", in: "{1: a}", want: map[string]any{"1": "a"}},
		"Nothing":         {reason: "Null is kept, and the API server decides.", in: "null", want: nil},
		"AnchorAndMerge":  {reason: "Anchors are resolved.", in: "{a: &x {b: 1}, c: {<<: *x}}", want: map[string]any{"a": map[string]any{"b": int64(1)}, "c": map[string]any{"b": int64(1)}}},
		"BlockWithMarker": {reason: "Dashes begin a document only at the beginning of a line.", in: "\"--- \"", want: "--- "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := ReadFS(fstest.MapFS{"a.yaml": {Data: []byte("apiVersion: v1\nkind: X\nmetadata: {name: x}\nvalue: " + tc.in + "\n")}})
			if len(problems) > 0 {
				t.Fatalf("%s\nReadFS(): problems: %v", tc.reason, problems)
			}
			if diff := cmp.Diff(tc.want, set.Objects[0].Content.Object["value"]); diff != "" {
				t.Errorf("%s\nReadFS(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	const around = len(`{"apiVersion":"v1","data":"","kind":"X","metadata":{"name":"x","namespace":"default"}}`)
	cases := map[string]struct {
		reason string
		size   int
		want   string
	}{
		"Most":    {reason: "An object of the maximum size can be stored.", size: maxSize - around},
		"TooMuch": {reason: "An object that is one byte larger cannot be stored.", size: maxSize - around + 1, want: "a.yaml:1: document 1: X default/x: has 1572865 bytes; more than 1572864 cannot be stored"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := "{apiVersion: v1, kind: X, metadata: {name: x}, data: " + strings.Repeat("x", tc.size) + "}"
			_, problems := ReadFS(fstest.MapFS{"a.yaml": {Data: []byte(text)}})
			var got string
			if len(problems) > 0 {
				got = problems[0].Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(problems) > 1 {
				t.Errorf("%s\nReadFS(): %d problems: -want, +got:\n%s", tc.reason, len(problems), diff)
			}
		})
	}
}

func TestTooDeep(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const fact = "has more than 1000 objects and arrays inside each other: no API server's objects have"
	cases := map[string]struct {
		reason, file, text string
		want               string // Empty for no problem.
	}{
		"Most":     {"A document may be as deep.", "a.yaml", "{apiVersion: v1, kind: X, metadata: {name: x}, data: " + nested(maxDepth) + "}", ""},
		"Deeper":   {"A deeper one is refused.", "a.yaml", "{apiVersion: v1, kind: X, metadata: {name: x}, data: " + nested(maxDepth+1) + "}", "a.yaml:1: document 1: " + fact},
		"JSON":     {"In JSON it may be as deep.", "a.json", `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"data":` + nested(maxDepth) + "}", ""},
		"DeepJSON": {"And no deeper.", "a.json", `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"data":` + nested(maxDepth+1) + "}", "a.json:1: document 1: " + fact},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, problems := ReadFS(fstest.MapFS{tc.file: {Data: []byte(tc.text)}})
			got := ""
			if len(problems) > 0 {
				got = problems[0].Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(problems) > 1 {
				t.Errorf("%s\nReadFS(): %d problems: -want, +got:\n%s", tc.reason, len(problems), diff)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	type part struct {
		Text string
		Line int
	}
	cases := map[string]struct {
		reason string
		in     string
		want   []part
	}{
		"None":      {reason: "An empty text has no part."},
		"One":       {reason: "Without markers, the text is one document.", in: "a: 1\nb: 2", want: []part{{"a: 1\nb: 2", 1}}},
		"Two":       {reason: "A marker begins a document.", in: "a: 1\n---\nb: 2\n", want: []part{{"a: 1\n", 1}, {"---\nb: 2\n", 2}}},
		"Windows":   {reason: "Lines may end with CRLF.", in: "a: 1\r\n---\r\nb: 2\r\n", want: []part{{"a: 1\r\n", 1}, {"---\r\nb: 2\r\n", 2}}},
		"Content":   {reason: "A document may begin on the line of its marker.", in: "--- {a: 1}\n--- # two\nb: 2\n", want: []part{{"--- {a: 1}\n", 1}, {"--- # two\nb: 2\n", 2}}},
		"NoMarker":  {reason: "Three dashes with other text directly behind them are not a marker.", in: "----\n---x\n", want: []part{{"----\n---x\n", 1}}},
		"Indented":  {reason: "A marker is at the beginning of a line.", in: "a: |\n  ---\n", want: []part{{"a: |\n  ---\n", 1}}},
		"End":       {reason: "Three dots end a document.", in: "a: 1\n...\nb: 2\n", want: []part{{"a: 1\n", 1}, {"b: 2\n", 3}}},
		"EndMarker": {reason: "A marker may follow the three dots.", in: "a: 1\n...\n---\nb: 2\n", want: []part{{"a: 1\n", 1}, {"---\nb: 2\n", 3}}},
		"EndNoted":  {reason: "A comment may follow the three dots.", in: "a: 1\n... # end\nb: 2\n", want: []part{{"a: 1\n", 1}, {"b: 2\n", 3}}},
		"Directive": {reason: "A directive is not a document.", in: "# one\n\n%YAML 1.1\n%TAG ! !a\n---\na: 1\n", want: []part{{"---\na: 1\n", 5}}},
		"Between":   {reason: "A directive may be between two documents.", in: "a: 1\n...\n%YAML 1.1\r\n---\r\nb: 2\n", want: []part{{"a: 1\n", 1}, {"---\r\nb: 2\n", 4}}},
		"Content%":  {reason: "Inside a document there are no directives.", in: "a:\n%YAML 1.1\n---\nb: 2\n", want: []part{{"a:\n%YAML 1.1\n", 1}, {"---\nb: 2\n", 3}}},
		"Unmarked":  {reason: "A directive without a marker is a mistake, and stays in the text for the parser.", in: "%YAML 1.1\na: 1\n", want: []part{{"%YAML 1.1\na: 1\n", 1}}},
		"Comments":  {reason: "A part with only comments is kept.", in: "# one\n---\na: 1\n", want: []part{{"# one\n", 1}, {"---\na: 1\n", 2}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []part
			for _, c := range split([]byte(tc.in)) {
				got = append(got, part{string(c.text), c.line})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nsplit(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLinesOf(t *testing.T) {
	const text = `a:
  b:
    - c: 1
      x.y/z: 2
    - c: 3
  x:
    y/z: 4
anchor: &anchor
  d: 5
alias: *anchor
`
	d := decoder{file: "a.yaml", chunk: split([]byte(text))[0]}
	d.decode()
	if len(d.problems) > 0 {
		t.Fatal(d.problems)
	}
	cases := map[string]struct {
		reason string
		path   string
		want   int
	}{
		"Whole":     {reason: "The line of the whole document is that of its first field.", path: "", want: 1},
		"Field":     {reason: "The line of a field is that of its key.", path: "a.b", want: 2},
		"Element":   {reason: "The line of an element is its first line.", path: "a.b[1]", want: 5},
		"Inside":    {reason: "A path can continue inside an element.", path: "a.b[1].c", want: 5},
		"Bracketed": {reason: "A key with dots is in brackets.", path: "a.b[0][x.y/z]", want: 4},
		"Dotted":    {reason: "A key with dots may also be without brackets.", path: "a.b[0].x.y/z", want: 4},
		"Missing":   {reason: "The line of a missing field is that of the nearest existing field around it.", path: "a.b[0].missing.field", want: 3},
		"NoElement": {reason: "The line of a missing element is that of its list.", path: "a.b[7]", want: 2},
		"Longer":    {reason: "The beginning of a name in the path does not match a shorter key.", path: "a.by", want: 1},
		"Alias":     {reason: "The line of an alias's field is that at its anchor.", path: "alias.d", want: 9},
		"Nowhere":   {reason: "If nothing of the path exists, the line is that of the document.", path: "z", want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := d.documents[0].lines.of(tc.path, 99); got != tc.want {
				t.Errorf("%s\nof(%q) = %d, want %d", tc.reason, tc.path, got, tc.want)
			}
		})
	}
	if got := (lines{}).of("a", 99); got != 99 {
		t.Errorf("of() without lines = %d, want the fallback, 99", got)
	}
}

// FuzzRead verifies for arbitrary input that reading ends, and that each document is in the Set or has a problem.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, in := range archive.Files {
			f.Add(in.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, problems := ReadFS(fstest.MapFS{"a.yaml": {Data: data}})
		for _, p := range problems {
			if p.Fact == "" || p.Place.File != "a.yaml" || p.Place.Line < 1 || p.Place.Line > bytes.Count(data, []byte("\n"))+1 {
				t.Errorf("problem %+v lacks a fact or a valid place", p)
			}
		}
		for _, o := range set.Manifests {
			if o.Content.GetName() == "" || o.Content.GetKind() == "" || o.Namespaced == (o.Content.GetNamespace() == "") {
				t.Errorf("%v is in the Set", o.Content.Object)
			}
		}
	})
}

// TestReadNew verifies that new objects need no name, and get the given namespace if they name none.
func TestReadNew(t *testing.T) {
	const input = `
{apiVersion: v1, kind: Pod, metadata: {generateName: run-}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: run-, namespace: other}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, generateName: web-}}
---
{apiVersion: v1, kind: Node, metadata: {name: node}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: a/b}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: ""}}
`
	set, problems := ReadNew("shop", []string{Stdin}, strings.NewReader(input))
	want := `stdin:2: document 1: Pod shop/, namespaced, in Objects
stdin:4: document 2: Pod other/, namespaced, in Objects
stdin:6: document 3: Pod shop/web, namespaced, in Objects
stdin:8: document 4: Node node, cluster-scoped, in Objects
error: stdin:10: document 5: Pod: metadata.generateName: is "a/b", which may not contain '/'
error: stdin:12: document 6: Pod: metadata.name: is missing
`
	if diff := cmp.Diff(want, describe(set, problems)); diff != "" {
		t.Errorf("ReadNew(): -want, +got:\n%s", diff)
	}
}
