package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/manifest"
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
		Short: "Preview the effects of a change on each cluster",
		Long: `Show the blast radius of a change: the objects that change, on which clusters, how,
and by which policy; the pods that restart, the deleted objects, and the writes that
an API server will reject. Objects with the same change are listed together.

The manifests of -f exist before and after the change. The manifests of --from
overlay them before the change, and those of --to after it: a manifest replaces the
manifest with the same kind, namespace and name, and others are added. Without -f,
--from and --to name two complete inputs, and objects only in the first are deleted.

Both sides are placed and rendered as the controllers would, the second side after
the controllers acted on the first: objects keep their clusters where maxClusters
leaves a choice, changes by a deleted policy are reverted, and copies stay when their
PropagationPolicy is deleted, when their object can no longer be rendered, and on a
cluster that leaves.

For changes under a rollout policy, the waves follow: the order of the clusters, how
many of them change at a time, and the waves that wait for an approval. Creations and
deletions take effect immediately.

Marks of objects: - deleted, ✗ fails and stays unchanged, ~ changed, ✔ failed before
(its previous content is unknown), + created. Marks of changes: + adds, ~ replaces,
- removes, ! further effects. Each change ends with its cause: the author of the new
value, the policy that no longer sets the old value, or a change of the object itself.
Values of Secrets are not shown.

The exit code is 0 without differences, 1 with differences, and 2 if the sides, or
some of their objects, could not be compared. An object cannot be compared if it
cannot be placed or rendered on either side, for example because its policy is not in
the input. The other objects are then still printed.`,
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
	f.StringArrayVar(&o.from, "from", nil, "`file` or folder with the manifests before the change, or - for stdin; may be repeated")
	f.StringArrayVar(&o.to, "to", nil, "`file` or folder with the manifests after the change, or - for stdin; may be repeated")
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

// writeUnified writes the patch to stdout, and notes to stderr, because a patch cannot contain them.
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

// outcomeOf returns the error with which the command ends after it has written the result.
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

// read reads the manifests before and after the change, or returns all problems with them.
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

// check returns an error unless the flags name manifests before and after the change.
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
		return withHint(errors.New("there is nothing to compare with"), "--to names the manifests after the change")
	case !o.inputs.given() && len(o.to) == 0:
		return withHint(errors.New("there is nothing to compare"), "--from names the manifests before the change, --to those after it")
	case !o.inputs.given() && len(o.from) == 0:
		return withHint(errors.New("there is nothing to compare with"),
			"--from names all manifests before the change; or -f those that stay, and --to replacements for some")
	}
	return nil
}
