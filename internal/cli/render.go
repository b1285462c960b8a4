package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/internal/manifest"
	"refract.dev/internal/manifest/nearest"
	"refract.dev/internal/render"
)

// renderOptions are the flags of render.
type renderOptions struct {
	files     []string
	clusters  []string
	output    string
	outputDir string
}

func newRenderCommand(s *streams) *cobra.Command {
	o := &renderOptions{}
	cmd := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Show what each cluster gets",
		Long: `Show what each cluster gets: the objects of the input, placed by their
PropagationPolicies and changed by their OverridePolicies, exactly as the
controllers would write them to the clusters. No API server is asked.

The input holds objects, the policies that their labels name, and the
FederatedClusters, which are all taken to be ready. An object without a
propagation label is shown for every cluster. A namespaced object without a
namespace is in the namespace default.

Rendered objects go to stdout; errors and warnings go to stderr. An object that
fails on a cluster is left out there and nowhere else, and the exit code is 1.
Nothing is rendered from an input that has mistakes: all of them are listed, and
the exit code is 2.`,
		Example: `  refract render -f shop/
  refract render -f deployment.yaml -f policies.yaml --cluster eu-1 --cluster us-1
  refract render -f shop/ --cluster eu-1 | kubectl apply -f -
  refract render -f shop/ --output-dir rendered
  kustomize build shop | refract render -f clusters.yaml -f - -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or folder to read, or - for stdin; may be repeated")
	f.StringArrayVar(&o.clusters, "cluster", nil, "`name` of a cluster to render for, instead of all; may be repeated")
	f.StringVarP(&o.output, "output", "o", "yaml", "`format` of what is printed: "+strings.Join(outputNames(), " or "))
	f.StringVar(&o.outputDir, "output-dir", "", "`folder` to write a file for each object to, CLUSTER/NAMESPACE/KIND.GROUP-NAME.yaml, instead of printing")
	must(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
	must(cmd.MarkFlagDirname("output-dir"))
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputNames(), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("cluster", o.completeCluster))
	return cmd
}

// outputs are the formats of render.
var outputs = []struct {
	name  string
	write func(*streams, *render.Result) error
}{
	{"yaml", func(s *streams, r *render.Result) error { return render.WriteYAML(s.out, r) }},
	{"json", func(s *streams, r *render.Result) error { return render.WriteJSON(s.out, r) }},
}

func outputNames() []string {
	names := make([]string, len(outputs))
	for i, o := range outputs {
		names[i] = o.name
	}
	return names
}

func (o *renderOptions) run(s *streams) error {
	write, err := o.writer()
	if err != nil {
		return err
	}
	set, err := readManifests(o.files, s)
	if err != nil {
		return err
	}
	result, err := render.Render(set, o.clusters)
	if err != nil {
		return explainClusters(err)
	}
	reportFindings(s, result)
	if err := write(s, result); err != nil {
		return err
	}
	if len(result.Errors) > 0 {
		return errFound
	}
	return nil
}

// writer returns what the flags ask to be done with the result.
func (o *renderOptions) writer() (func(*streams, *render.Result) error, error) {
	at := slices.IndexFunc(outputs, func(out struct {
		name  string
		write func(*streams, *render.Result) error
	}) bool {
		return out.name == o.output
	})
	switch {
	case at < 0:
		return nil, unknownValue("output", o.output, outputNames())
	case o.outputDir == "":
		return outputs[at].write, nil
	case o.output != "yaml":
		return nil, withHint(fmt.Errorf("--output-dir: the files are yaml, not %s", o.output), "leave one of -o and --output-dir out")
	default:
		return o.writeDir, nil
	}
}

func (o *renderOptions) writeDir(s *streams, result *render.Result) error {
	files, err := render.Files(result)
	if err != nil {
		return err
	}
	written, err := render.WriteDir(o.outputDir, files)
	for _, name := range written {
		fmt.Fprintf(s.err, "wrote %s\n", name)
	}
	if err != nil {
		return fmt.Errorf("writing to %s: %w", o.outputDir, err)
	}
	fmt.Fprintf(s.err, "%d files in %s: %d written, %d unchanged\n", len(files), o.outputDir, len(written), len(files)-len(written))
	return nil
}

// completeCluster completes the names of the clusters in the files given so far.
func (o *renderOptions) completeCluster(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	files := slices.DeleteFunc(slices.Clone(o.files), func(name string) bool { return name == manifest.Stdin })
	set, _ := manifest.Read(files, nil) // Problems are for render to report.
	var names []string
	for _, c := range set.Clusters {
		if !slices.Contains(o.clusters, c.Cluster.Name) {
			names = append(names, c.Cluster.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// readManifests reads the files, or returns all problems with them.
func readManifests(files []string, s *streams) (*manifest.Set, error) {
	if len(files) == 0 {
		return nil, withHint(errors.New("there is nothing to read"), "-f names a file, a folder, or - for stdin")
	}
	set, problems := manifest.Read(files, s.in)
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = withHint(p, p.Hint)
	}
	return set, errors.Join(errs...)
}

func reportFindings(s *streams, result *render.Result) {
	for i := range result.Warnings {
		fmt.Fprintf(s.err, "warning: %s\n", &result.Warnings[i])
	}
	errs := make([]error, len(result.Errors))
	for i := range result.Errors {
		errs[i] = withHint(errors.New(result.Errors[i].String()), result.Errors[i].Hint)
	}
	if len(errs) > 0 {
		report(s.err, errors.Join(errs...))
	}
}

func explainClusters(err error) error {
	var unknown *render.UnknownClusterError
	switch {
	case errors.Is(err, render.ErrNoClusters):
		return withHint(err, "give FederatedClusters with -f, or name clusters with --cluster")
	case errors.As(err, &unknown) && unknown.Near != "":
		return withHint(err, fmt.Sprintf("did you mean %q?", unknown.Near))
	default:
		return err
	}
}

// unknownValue is the error of a flag whose value is none of those it knows.
func unknownValue(flag, value string, known []string) error {
	hint := "it is one of " + strings.Join(known, ", ")
	if near := nearest.To(value, known); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("--%s: there is no format %q", flag, value), hint)
}
