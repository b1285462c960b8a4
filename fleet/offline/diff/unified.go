package diff

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"refract.dev/fleet/offline/render"
)

// WriteUnified writes a unified diff of the YAML of each group. The file names are those of render for the content of a
// cluster. If several clusters or objects have the same changes, the first one represents all; created and deleted
// objects appear separately. Lines that begin with # are headings.
func WriteUnified(w io.Writer, d *Diff) error {
	out := bufio.NewWriter(w)
	groups := d.masked()
	for i := range groups {
		text, err := groups[i].unified()
		if err != nil {
			return err
		}
		if _, err := out.WriteString(text); err != nil {
			return err
		}
	}
	return out.Flush()
}

// unified returns the unified diff of a masked group.
func (g *Group) unified() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", g.heading())
	if g.Status != Changed {
		for _, line := range g.lines() {
			fmt.Fprintf(&b, "# %s\n", line)
		}
	}
	if g.Status == Failing {
		return b.String(), nil
	}
	objects := g.Objects
	if g.Status == Changed {
		objects = objects[:1]
	}
	for i := range objects {
		text, err := unified(g.Clusters[0], &objects[i])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// context is the number of lines shown around a change.
const context = 3

const noFile = "/dev/null"

func unified(cluster string, o *Object) (string, error) {
	before, from, err := fileOf(cluster, o.Before)
	if err != nil {
		return "", err
	}
	after, to, err := fileOf(cluster, o.After)
	if err != nil {
		return "", err
	}
	if before != noFile {
		before = "a/" + before
	}
	if after != noFile {
		after = "b/" + after
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: from, FromFile: before, B: to, ToFile: after, Context: context,
	})
}

// fileOf returns the name and the lines of the file with the content of a cluster.
func fileOf(cluster string, object map[string]any) (name string, lines []string, err error) {
	if object == nil {
		return noFile, nil, nil
	}
	files, err := render.Files(&render.Result{Clusters: []render.Cluster{{Name: cluster, Objects: []map[string]any{object}}}})
	if err != nil {
		return "", nil, err
	}
	lines = strings.SplitAfter(string(files[0].Content), "\n")
	return files[0].Path, lines[:len(lines)-1], nil // The text ends with a newline.
}
