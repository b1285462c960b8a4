package override

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/policy/match"
	"refract.dev/internal/golden"
	"refract.dev/tree"
)

// TestGolden renders the object of each archive in testdata for the clusters of the archive. The archives are meant to
// be read: each begins with a sentence about its subject.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", renderArchive)
}

// renderArchive returns the golden files of an archive: the object of each cluster, the changes of each variant, and
// the errors and warnings.
func renderArchive(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := golden.Texts(golden.Inputs(archive))
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
