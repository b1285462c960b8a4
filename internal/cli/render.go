package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"refract.dev/fleet/offline/render"
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

	truncated []string // Input files that may be incomplete.
}

func newRenderCommand(s *streams) *cobra.Command {
	o := &renderOptions{}
	cmd := &cobra.Command{
		Use:   "render [KIND/NAME... | KIND NAME...] -f FILE",
		Short: "Show the content of each cluster",
		Long: `Show the content of each cluster: the objects of the input, placed by their
PropagationPolicies and changed by their OverridePolicies, as the controllers
write them to the clusters. Apart from a given hub, the command sends no requests.

The input contains objects, the policies that their labels name, and the
FederatedClusters. A FederatedCluster that is not ready gets no new objects; a
manifest without a status counts as ready. An object without a propagation label
is shown for every cluster. A namespaced object without a namespace is in the
namespace default. The command does not add the defaults of an API server; objects
from a hub have them already. KIND and NAME limit the output to these objects.

Rendered objects go to stdout; errors and warnings go to stderr. An object that
fails on a cluster is omitted only there, and the exit code is 1. For an input
with mistakes, the command renders nothing, lists all mistakes, and exits with
code 2.

With -o variants clusters with the same content are shown together, with the
changes for them and the policies behind the changes. --output-dir writes a folder
for each cluster: unchanged files are not touched, and files of an earlier run
that are no longer rendered are removed, unless this run omitted something.`,
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
	f.StringVar(&o.outputDir, "output-dir", "", "`folder` for a file per object, CLUSTER/NAMESPACE/KIND.GROUP-NAME.yaml, instead of stdout")
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

// writer returns the function that writes the result as the flags request.
func (o *renderOptions) writer() (func(*streams, *render.Evaluation) error, error) {
	write, err := outputs.find(o.output)
	switch {
	case err != nil || o.outputDir == "":
		return write, err
	case o.output != "yaml":
		return nil, withHint(fmt.Errorf("--output-dir: the files are yaml, not %s", o.output), "omit -o or --output-dir")
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
	// If this run omits some files, or fails for some objects, it must not remove files of earlier runs.
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
		total += fmt.Sprintf(", %d kept from an earlier run, as this one is incomplete", len(done.Stale))
		for _, name := range o.truncated {
			fmt.Fprintf(s.err, "warning: %s: the file does not end with a line feed and may be incomplete: "+
				"files of earlier runs are kept\n", name)
		}
	}
	fmt.Fprintln(s.err, total)
	return nil
}

// reportFindings writes errors and warnings, with the clusters that they concern.
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
