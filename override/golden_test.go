package override

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"refract.dev/match"
	"refract.dev/tree"
)

var update = flag.Bool("update", false, "write what was rendered into the golden files")

// TestGolden renders the object of every archive in testdata for its clusters.
// The archives are meant to be read: each begins with what it shows.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no golden files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := renderArchive(t, archive)
			if *update {
				archive.Files = append(inputs(archive), got...)
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := archive.Files[len(inputs(archive)):]
			if diff := cmp.Diff(texts(want), texts(got)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s\nIf this is as it should be: go test ./override -run TestGolden -update", archive.Comment, diff)
			}
		})
	}
}

// inputs returns the files before the first wanted one.
func inputs(archive *txtar.Archive) []txtar.File {
	i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want/") })
	if i < 0 {
		return archive.Files
	}
	return archive.Files[:i]
}

func texts(files []txtar.File) map[string]string {
	m := map[string]string{}
	for _, f := range files {
		m[f.Name] = string(f.Data)
	}
	return m
}

// renderArchive returns the wanted files: the object of each cluster, the
// changes of each variant, and what went wrong.
func renderArchive(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := texts(inputs(archive))
	obj := parseObject(t, in["object.yaml"])
	clusters := parseClusters(t, in["clusters.yaml"])
	policies, errs := parsePolicies(t, in["policies.yaml"])
	before := obj.DeepCopy()
	variants := Render(obj, clusters, policies...)
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Errorf("Render() changed its input: -before, +after:\n%s", diff)
	}

	var changes, problems strings.Builder
	for _, err := range errs {
		fmt.Fprintf(&problems, "refused: %v\n", err)
	}
	objects := make([]txtar.File, len(clusters))
	for _, v := range variants {
		who := names(clusters, v.Clusters)
		for _, w := range v.Warnings {
			fmt.Fprintf(&problems, "%s: warning: %v\n", who, w)
		}
		if v.Err != nil {
			fmt.Fprintf(&problems, "%s: error: %v\n", who, v.Err)
			continue
		}
		fmt.Fprintf(&changes, "%s:\n", who)
		if len(v.Changes) == 0 {
			changes.WriteString("    none\n")
		}
		for i, c := range v.Changes {
			fmt.Fprintf(&changes, "%3d %s\n", i, describe(&c))
		}
		text, err := yaml.Marshal(v.Object.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range v.Clusters {
			objects[i] = txtar.File{Name: "want/" + clusters[i].Name + ".yaml", Data: text}
		}
	}
	want := slices.DeleteFunc(objects, func(f txtar.File) bool { return f.Name == "" })
	for _, f := range []txtar.File{
		{Name: "want/changes.txt", Data: []byte(changes.String())},
		{Name: "want/problems.txt", Data: []byte(problems.String())},
	} {
		if len(f.Data) > 0 {
			want = append(want, f)
		}
	}
	return want
}

func names(clusters []match.Cluster, indexes []int) string {
	all := make([]string, len(indexes))
	for i, at := range indexes {
		all[i] = clusters[at].Name
	}
	return strings.Join(all, ", ")
}

// describe returns a change in one line.
func describe(c *tree.Change) string {
	var what string
	switch c.Op {
	case tree.OpAdd:
		what = compact(c.After)
	case tree.OpRemove:
		what = "was " + compact(c.Before)
	case tree.OpReplace:
		what = compact(c.Before) + " → " + compact(c.After)
	}
	line := fmt.Sprintf("%s %s: %s (%s)", c.Op, c.Path, what, c.By)
	if len(c.Shadows) > 0 {
		line += fmt.Sprintf(" shadows %v", c.Shadows)
	}
	return line
}

func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
