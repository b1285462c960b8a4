package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"refract.dev/fleet/offline/lint"
)

// docsOptions are the flags of docs.
type docsOptions struct {
	markdown string
	man      string
}

// manDate is the date in man pages. It is constant, because a test compares the generated pages with those in the
// repository.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // A constant.

func newDocsCommand(s *streams) *cobra.Command {
	o := &docsOptions{}
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Write the reference of the commands",
		Long:   "Write the reference of the commands, as Markdown and as man pages.",
		Hidden: true, // For developers and packagers of refract.
		Args:   noArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Root()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.markdown, "markdown", "", "`folder` to write Markdown to")
	f.StringVar(&o.man, "man", "", "`folder` to write man pages to")
	return s.finishing(cmd)
}

func (o *docsOptions) run(root *cobra.Command) error {
	if o.markdown == "" && o.man == "" {
		return withHint(errors.New("there is nothing to write"), "--markdown and --man name the folders")
	}
	root.DisableAutoGenTag = true // The tag would contain the date of the generation.
	kinds := []struct {
		dir   string
		pages []string // Patterns for the names of the generated files.
		write func(dir string) error
	}{
		{o.markdown, []string{"refract.md", "refract_*.md"}, func(dir string) error {
			return errors.Join(doc.GenMarkdownTree(root, dir), writeFindings(filepath.Join(dir, "lint-findings.md")))
		}},
		{o.man, []string{"refract.1", "refract-*.1"}, func(dir string) error {
			return doc.GenManTree(root, &doc.GenManHeader{Title: "REFRACT", Section: "1", Source: "refract", Manual: "Refract", Date: &manDate}, dir)
		}},
	}
	for _, k := range kinds {
		if k.dir == "" {
			continue
		}
		if err := empty(k.dir, k.pages); err != nil {
			return err
		}
		if err := k.write(k.dir); err != nil {
			return fmt.Errorf("writing to %s: %w", k.dir, err)
		}
	}
	return nil
}

// empty creates the folder. If it exists, empty removes the pages of commands from it, because some commands may not
// exist any more.
func empty(dir string, pages []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		isPage := func(pattern string) bool {
			ok, err := filepath.Match(pattern, e.Name())
			return ok && err == nil // The patterns are valid.
		}
		if e.IsDir() || !slices.ContainsFunc(pages, isPage) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// writeFindings writes a document with the codes of lint and their meanings.
func writeFindings(name string) error {
	var b strings.Builder
	b.WriteString("# The findings of lint\n\n" +
		"Each finding of `refract lint` has a code that stays the same across releases. An error keeps an object from a cluster;\n" +
		"a warning does not, and points to a likely mistake.\n\n" +
		"| Code | Severity | Meaning |\n|---|---|---|\n")
	for _, c := range lint.Codes {
		fmt.Fprintf(&b, "| [`%s`](#%[1]s) | %s | %s |\n", c.Code, c.Severity, strings.ReplaceAll(c.Title, "|", `\|`))
	}
	for _, c := range lint.Codes {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n", c.Code, strings.TrimSuffix(c.Title, "."), c.Text)
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}
