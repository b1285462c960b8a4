package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/diff"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/output"
	"refract.dev/internal/ui"
)

// diffOptions are the flags of diff.
type diffOptions struct {
	inputs    inputs
	selection selection
	from, to  []string
	clusters  []string
	output    string
}

func newDiffCommand(s *streams) *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:   "diff [KIND/NAME... | KIND NAME...] [-f FILE] [--from OLD] --to NEW",
		Short: "Show what a change does, and where, before it is made",
		Long: `Show the blast radius of a change: which objects become different on which
clusters, how, and because of whom; which pods restart, what is deleted, and what
an API server will refuse. What becomes different in the same way stands together.

What -f names is there before and after the change. What --from names is laid over
it for what is there before, and what --to names for what is there after: a
manifest takes the place of the one with the same kind, namespace and name, and
others are added. Without -f, --from and --to name two complete inputs, and what
is only in the first is deleted.

Both sides are placed and rendered as the controllers would, the second by
controllers that had acted on the first: objects stay where maxClusters leaves a
choice, what a deleted policy changed is taken back, and copies stay where they
are when their PropagationPolicy is deleted, when their object cannot be rendered
any more, and on a cluster that leaves.

Where a rollout policy says how a change of an object goes out, the waves follow:
which clusters get it in which order, how many at a time, and what waits for an
approval. What is created or deleted is so at once.

Marks: - deleted, ✗ fails and stays as it is, ~ changed, ✔ failed before, so that
what is there is not known, + created; in front of a change + adds, ~ replaces and
- removes, and ! says what else happens. Behind a change stands who made the new
value, which policy no longer sets the old one, or that the object was changed.
What the values of a Secret say is not shown.

The exit code is 0 if nothing becomes different, 1 if something does, and 2 if the
two, or some of their objects, could not be compared: of an object that cannot be
placed or rendered before the change nor after it, as when its policy is not in
the input, nobody can tell what becomes of it. The rest is printed then.`,
		Example: `  refract diff -f shop/ -f clusters.yaml --to changes/
  refract diff -f shop/ -f clusters.yaml --to changes/ --member member-1 -o unified
  refract diff -f clusters.yaml --from released/ --to shop/ -o markdown > comment.md
  git show main:shop/20-replicas.yaml | refract diff -f shop/ -f clusters.yaml --from -
  refract diff --hub --to changes/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.selection.objects = args
			return o.run(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	o.inputs.addFlags(cmd)
	f.StringArrayVar(&o.from, "from", nil, "`file` or folder of what is there before the change, or - for stdin; may be repeated")
	f.StringArrayVar(&o.to, "to", nil, "`file` or folder of what is there after the change, or - for stdin; may be repeated")
	o.selection.addFlags(cmd, &o.inputs)
	f.StringArrayVar(&o.clusters, "member", nil, "`name` of a cluster to compare, instead of all; may be repeated")
	diffOutputs.addFlag(cmd, &o.output)
	must(cmd.MarkFlagFilename("from", "yaml", "yml", "json"))
	must(cmd.MarkFlagFilename("to", "yaml", "yml", "json"))
	must(cmd.RegisterFlagCompletionFunc("member", func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all := o.inputs
		all.files = slices.Concat(o.inputs.files, o.from, o.to)
		return completeCluster(&all, &o.clusters)(cmd, args, typed)
	}))
	return cmd
}

// diffOutputs are the formats of diff.
var diffOutputs = formats[*diff.Diff]{
	{"text", toStdout(diff.WriteText)},
	{"unified", writeUnified},
	{"json", toStdout(diff.WriteJSON)},
	{"markdown", toStdout(diff.WriteMarkdown)},
	{"html", toStdout(ui.WriteDiff)},
}

// writeUnified tells aside what has no place in a patch.
func writeUnified(s *streams, d *diff.Diff) error {
	for i := range d.Notes {
		fmt.Fprintf(s.err, "note: %s\n", &d.Notes[i])
	}
	if err := diff.WriteUnified(s.out, d); err != nil {
		return err
	}
	fmt.Fprintln(s.err, &d.Totals)
	return nil
}

func (o *diffOptions) run(ctx context.Context, s *streams) error {
	write, err := diffOutputs.find(o.output)
	if err != nil {
		return err
	}
	from, to, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	chosen, err := o.selection.filter(from.Overlay(to))
	if err != nil {
		return err
	}
	d, err := diff.Compare(from, to, diff.Options{Clusters: o.clusters, Select: chosen})
	if err != nil {
		return explainClusters(err)
	}
	if err := write(s, d); err != nil {
		return err
	}
	return outcomeOf(d)
}

// outcomeOf decides how the command ends that has shown the result.
func outcomeOf(d *diff.Diff) error {
	switch {
	case len(d.Unknown) > 0:
		first := &d.Unknown[0]
		return withHint(fmt.Errorf("%s could not be compared: %s: %s",
			output.Count(len(d.Unknown), "object", "objects"), &first.Object, first.Reason), first.Hint)
	case !d.Same():
		return errFound
	default:
		return nil
	}
}

// read reads both sides, or returns all problems with them.
func (o *diffOptions) read(ctx context.Context, s *streams) (from, to *manifest.Set, err error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	base := &input{set: &manifest.Set{}}
	if o.inputs.given() {
		if base, err = o.inputs.open(ctx, s); err != nil {
			return nil, nil, err
		}
	}
	from, fromProblems := base.with(o.from, s)
	to, toProblems := base.with(o.to, s)
	base.warn(s, to)
	return from, to, problemsAsError(slices.Concat(base.problems, fromProblems, toProblems))
}

// check checks that there are two sides, and that they can be read.
func (o *diffOptions) check() error {
	stdin := 0
	for _, files := range [][]string{o.inputs.files, o.from, o.to} {
		if slices.Contains(files, manifest.Stdin) {
			stdin++
		}
	}
	switch {
	case stdin > 1:
		return errors.New("only one of -f, --from and --to can read stdin")
	case o.inputs.given() && len(o.from)+len(o.to) == 0:
		return withHint(errors.New("there is nothing to compare with"), "--to names what is there after the change")
	case !o.inputs.given() && len(o.to) == 0:
		return withHint(errors.New("there is nothing to compare"), "--from names what is there before the change, --to what is there after it")
	case !o.inputs.given() && len(o.from) == 0:
		return withHint(errors.New("there is nothing to compare with"),
			"--from names all that is there before the change; or -f what stays, and --to what replaces some of it")
	}
	return nil
}
