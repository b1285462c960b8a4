package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// needHub are the commands and flags whose examples need an API server, or take
// very long. Of these it is only tested that the command line would be understood.
var needHub = []string{"demo", "up", "down", "run", "join", "unjoin", "snapshot", "--hub-kubeconfig"}

// TestHelpExamples runs every example in the help of every command, in a folder
// like the one that they speak of.
func TestHelpExamples(t *testing.T) {
	root := newRootCommand(&streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}})
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			if line != "" {
				t.Run(line, func(t *testing.T) { runExample(t, root, line) })
			}
		}
		for _, c := range cmd.Commands() {
			if c.Name() != "completion" { // Its texts are cobra's.
				walk(c)
			}
		}
	}
	walk(root)
}

func runExample(t *testing.T, root *cobra.Command, line string) {
	t.Helper()
	at := slices.IndexFunc(strings.Split(line, " | "), func(part string) bool { return strings.HasPrefix(part, "refract ") })
	if at < 0 {
		t.Fatal("the example does not call refract")
	}
	command, _, _ := strings.Cut(strings.Split(line, " | ")[at], " > ")
	args := strings.Fields(command)
	if slices.ContainsFunc(needHub, func(s string) bool { return slices.Contains(args, s) }) {
		cmd, rest, err := root.Find(args[1:])
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir, shop := exampleFolder(t)
	t.Chdir(dir)
	var printed bytes.Buffer
	if code := Main(t.Context(), args, strings.NewReader(shop), &printed, &printed); code == exitError {
		t.Errorf("exit code %d\n%s", code, &printed)
	}
}

// exampleFolder makes the folder that the examples of the help speak of, and
// returns what kustomize build would print of the shop.
func exampleFolder(t *testing.T) (dir, shop string) {
	t.Helper()
	dir = t.TempDir()
	examples := filepath.Join(root, "examples", "override")
	for _, to := range []struct{ from, name string }{
		{"shop", "shop"}, {"tests", "tests"}, {"clusters.yaml", "clusters.yaml"}, {"clusters.yaml", "shop/clusters.yaml"},
		{"namespace.yaml", "namespace.yaml"}, {"namespace.yaml", "shop/namespace.yaml"},
	} {
		from := filepath.Join(examples, to.from)
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			if err := os.CopyFS(filepath.Join(dir, to.name), os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to.name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := fs.Glob(os.DirFS(filepath.Join(examples, "shop")), "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(examples, "shop", name))
		if err != nil {
			t.Fatal(err)
		}
		shop += "---\n" + string(text)
	}
	return dir, shop
}
