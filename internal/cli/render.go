package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/internal/ui"
)

// renderOptions are the flags of render.
type renderOptions struct {
	inputs    inputs
	selection selection
	clusters  []string
	output    string
	outputDir string

	truncated []string // Input files that may have been cut off.
}

func newRenderCommand(s *streams) *cobra.Command {
	o := &renderOptions{}
	cmd := &cobra.Command{
		Use:   "render [KIND/NAME... | KIND NAME...] -f FILE",
		Short: "Show what each cluster gets",
		Long: `Show what each cluster gets: the objects of the input, placed by their
PropagationPolicies and changed by their OverridePolicies, as the controllers
write them to the clusters. No API server is asked, but a hub that is named.

The input holds objects, the policies that their labels name, and the
FederatedClusters. One that says that it is not ready gets nothing new; the
manifest of one that says nothing is taken to be ready. An object without a
propagation label is shown for every cluster. A namespaced object without a
namespace is in the namespace default. What an API server would add to an object
before the controllers see it, such as defaults, is not added here; from a hub
objects come with it. Objects that are named are shown alone.

Rendered objects go to stdout; errors and warnings go to stderr. An object that
fails on a cluster is left out there and nowhere else, and the exit code is 1.
Nothing is rendered from an input that has mistakes: all of them are listed, and
the exit code is 2.

With -o variants clusters that get the same are shown together, with what was
changed for them and by whom. With --output-dir there is a folder for each
cluster: files that have not changed are not touched, and those of an earlier run
that are not rendered any more are removed, unless this run left something out.`,
		Example: `  refract render -f shop/ -f clusters.yaml
  refract render -f shop/ -f clusters.yaml --member member-1 | kubectl apply -f -
  refract render -f shop/ -f clusters.yaml -o variants --policy overridepolicy/shop/checkout-release
  refract render deployment my-nginx -f shop/ -f clusters.yaml
  refract render -f shop/ -f clusters.yaml --output-dir rendered
  kustomize build shop | refract render -f clusters.yaml -f - -o json
  refract render --hub -n shop -o variants`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.selection.objects = args
			return o.run(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	o.inputs.addFlags(cmd)
	o.selection.addFlags(cmd, &o.inputs)
	f.StringArrayVar(&o.clusters, "member", nil, "`name` of a cluster to render for, instead of all; may be repeated")
	outputs.addFlag(cmd, &o.output)
	f.StringVar(&o.outputDir, "output-dir", "", "`folder` to write a file for each object to, CLUSTER/NAMESPACE/KIND.GROUP-NAME.yaml, instead of printing")
	must(cmd.MarkFlagDirname("output-dir"))
	must(cmd.RegisterFlagCompletionFunc("member", completeCluster(&o.inputs, &o.clusters)))
	return cmd
}

// outputs are the formats of render.
var outputs = formats[*render.Evaluation]{
	{"yaml", func(s *streams, e *render.Evaluation) error { return render.WriteYAML(s.out, e.Result()) }},
	{"json", func(s *streams, e *render.Evaluation) error { return render.WriteJSON(s.out, e.Result()) }},
	{"variants", toStdout(render.WriteVariants)},
	{"html", toStdout(ui.WriteRender)},
}

func (o *renderOptions) run(ctx context.Context, s *streams) error {
	write, err := o.writer()
	if err != nil {
		return err
	}
	set, err := o.inputs.read(ctx, s)
	if err != nil {
		return err
	}
	o.truncated = set.Truncated
	chosen, err := o.selection.filter(set)
	if err != nil {
		return err
	}
	evaluation, err := render.Evaluate(set, render.Options{Clusters: o.clusters, Select: chosen})
	if err != nil {
		return explainClusters(err)
	}
	evaluation.CheckTypes(set.Objects)
	errs, warnings := evaluation.Findings()
	reportFindings(s, errs, warnings)
	if err := write(s, evaluation); err != nil {
		return err
	}
	if len(errs) > 0 {
		return errFound
	}
	return nil
}

// writer returns what the flags ask to be done with the result.
func (o *renderOptions) writer() (func(*streams, *render.Evaluation) error, error) {
	write, err := outputs.find(o.output)
	switch {
	case err != nil || o.outputDir == "":
		return write, err
	case o.output != "yaml":
		return nil, withHint(fmt.Errorf("--output-dir: the files are yaml, not %s", o.output), "leave one of -o and --output-dir out")
	default:
		return o.writeDir, nil
	}
}

func (o *renderOptions) writeDir(s *streams, e *render.Evaluation) error {
	if err := apartFrom(o.inputs.files, o.outputDir); err != nil {
		return err
	}
	result := e.Result()
	files, err := render.Files(result)
	if err != nil {
		return err
	}
	// Where something was left out or has failed, what is there may still be right.
	whole := len(result.Errors) == 0 && len(o.clusters) == 0 && !o.selection.given() && len(o.truncated) == 0
	var done *render.Written
	err = s.whole(func() error {
		done, err = render.WriteDir(o.outputDir, "refract render", files, whole)
		return err
	})
	if err != nil {
		return explainOutput(err)
	}
	for _, name := range done.Written {
		fmt.Fprintf(s.err, "wrote %s\n", filepath.Join(o.outputDir, filepath.FromSlash(name)))
	}
	for _, name := range done.Removed {
		fmt.Fprintf(s.err, "removed %s\n", filepath.Join(o.outputDir, filepath.FromSlash(name)))
	}
	total := fmt.Sprintf("%s in %s: %d written, %d unchanged",
		output.Count(len(files)+len(done.Stale), "file", "files"), o.outputDir, len(done.Written), done.Unchanged)
	if len(done.Removed) > 0 {
		total += fmt.Sprintf(", %d removed", len(done.Removed))
	}
	if len(done.Stale) > 0 {
		total += fmt.Sprintf(", %d from before kept, as this was not all", len(done.Stale))
		for _, name := range o.truncated {
			fmt.Fprintf(s.err, "warning: %s: the last line has no end, as in a file that was cut off: "+
				"files from before are kept until it ends with a line feed\n", name)
		}
	}
	fmt.Fprintln(s.err, total)
	return nil
}

// reportFindings tells what was found, and to which clusters it applies.
func reportFindings(s *streams, errs, warnings []render.Finding) {
	for _, w := range render.Together(warnings) {
		fmt.Fprintf(s.err, "warning: %s\n", &w)
	}
	var failed []error
	for _, e := range render.Together(errs) {
		failed = append(failed, withHint(errors.New(e.String()), e.Hint))
	}
	if len(failed) > 0 {
		report(s.err, errors.Join(failed...))
	}
}

func explainClusters(err error) error {
	var unknown *render.UnknownClusterError
	switch {
	case errors.Is(err, render.ErrNoClusters):
		return withHint(err, "give FederatedClusters with -f, or name clusters with --member")
	case errors.As(err, &unknown) && unknown.Near != "":
		return withHint(err, fmt.Sprintf("did you mean %q?", unknown.Near))
	default:
		return err
	}
}
