package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// docsOptions are the flags of docs.
type docsOptions struct {
	markdown string
	man      string
}

// manDate is what man pages say of their age, which may not depend on the day they
// are written: they are checked for freshness.
var manDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // A constant.

func newDocsCommand(*streams) *cobra.Command {
	o := &docsOptions{}
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Write the reference of the commands",
		Long:   "Write the reference of the commands, as Markdown and as man pages.",
		Hidden: true, // It is for those who build and package refract.
		Args:   noArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Root()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.markdown, "markdown", "", "`folder` to write Markdown to")
	f.StringVar(&o.man, "man", "", "`folder` to write man pages to")
	return cmd
}

func (o *docsOptions) run(root *cobra.Command) error {
	if o.markdown == "" && o.man == "" {
		return withHint(errors.New("there is nothing to write"), "--markdown and --man name the folders")
	}
	root.DisableAutoGenTag = true // It has a date in it.
	kinds := []struct {
		dir, pattern string
		write        func(dir string) error
	}{
		{o.markdown, "refract*.md", func(dir string) error { return doc.GenMarkdownTree(root, dir) }},
		{o.man, "refract*.1", func(dir string) error {
			return doc.GenManTree(root, &doc.GenManHeader{Title: "REFRACT", Section: "1", Source: "refract", Manual: "Refract", Date: &manDate}, dir)
		}},
	}
	for _, k := range kinds {
		if k.dir == "" {
			continue
		}
		if err := empty(k.dir, k.pattern); err != nil {
			return err
		}
		if err := k.write(k.dir); err != nil {
			return fmt.Errorf("writing to %s: %w", k.dir, err)
		}
	}
	return nil
}

// empty makes a folder without the pages of commands that are no more.
func empty(dir, pattern string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := os.Remove(page); err != nil {
			return err
		}
	}
	return nil
}
