package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// needHub are commands and flags whose examples need an API server or take very long. Of such an example, the test only
// parses the command line.
var needHub = []string{"demo", "up", "down", "run", "join", "unjoin", "approve", "get", "wait", "snapshot", "rollout", "ui", "pod", "migrate", "install", "uninstall", "--hub", "--conversion", "--against"}

// TestHelpExamples runs every example in the help of every command.
func TestHelpExamples(t *testing.T) {
	root := newRootCommand(newStreams(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}))
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line = strings.TrimSpace(line)
			if line != "" {
				t.Run(line, func(t *testing.T) { runExample(t, root, line) })
			}
		}
		for _, c := range cmd.Commands() {
			if c.Name() != "completion" { // Cobra provides its texts.
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
	if args[1] == "check" || slices.ContainsFunc(needHub, func(s string) bool { return slices.Contains(args, s) }) {
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

// exampleFolder returns a folder in which the examples of the help can run, and the output of kustomize build for the
// shop. The folder has copies of examples/override, examples/injection, examples/evolution and examples/conversion, and
// the policy of examples/pizza.
func exampleFolder(t *testing.T) (dir, shop string) {
	t.Helper()
	dir = t.TempDir()
	examples := filepath.Join(root, "examples", "override")
	if err := os.CopyFS(dir, os.DirFS(examples)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"injection", "evolution", "conversion"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, "examples", folder))); err != nil {
			t.Fatal(err)
		}
	}
	policy, err := os.ReadFile(filepath.Join(root, "examples", "pizza", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pizza"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pizza", "policy.yaml"), policy, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "released"), os.DirFS(filepath.Join(examples, "shop"))); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(examples, "shop", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("reading the shop: %d files, %v", len(files), err)
	}
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("---\n")
		all.Write(text)
	}
	return dir, all.String()
}
